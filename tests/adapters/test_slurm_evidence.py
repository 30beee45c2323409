"""Evidence from end to end: taken from Slurm and, over a real sshd, from the node, before the repair; kept and shown.

The loop is killed again and again while it collects.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from nhc.console.screens import episode as shown_on_the_page
from nhc.store import evidence
from nhc.store.connect import open_store
from tests.support.gpu_node import BOOT, GpuNode
from tests.support.slurm_remedy import Service, served
from tests.support.ssh import sshd
from tests.support.waiting import until

NODE = "n2"
KILLS = int(os.environ.get("NHC_KILLS", "3"))
"""50 take some minutes."""
SIZE = 200_000


@pytest.fixture
def settings(tmp_path):
    """[repairers.node] for a machine with two GPUs whose kernel log alone has more than the budget."""
    machine = GpuNode(tmp_path / "machine")
    machine.gpus(2)
    with sshd(tmp_path / "sshd") as server:
        server.trust(["127.0.0.1"])
        config = tmp_path / "ssh_config"
        config.write_text(f"Host {NODE}\n  HostName 127.0.0.1\n{server.config.read_text()}")
        yield (
            f'[repairers.node]\nconfig = "{config}"\nsudo = "no"\nroot = "{machine.root}"\npath = "{machine.path}"\n'
            f'[evidence]\nsize = "{SIZE}"\ndirectory = "{tmp_path}/evidence"\n'
        )


def pieces(service):
    store = open_store(f"sqlite:///{service.place}/store.db", create=False)
    try:
        with store.read() as connection:
            return evidence.of_episode(connection, 1), shown_on_the_page(store, 1)["evidence"]
    finally:
        store.close()


def test_evidence_is_kept_before_the_repair_whenever_the_loop_is_killed(cluster, tmp_path, settings):
    made = Service(tmp_path, cluster, NODE)
    file = tmp_path / "remedy.toml"
    head, _, tail = file.read_text().partition("[evidence]\n")
    file.write_text(head + tail.partition("\n")[2].replace("[repairers.slurm]", f"{settings}[repairers.slurm]", 1))
    chance = random.Random(1)
    with served(made) as service:
        service.report(BOOT, sick=True)
        for _ in range(KILLS):
            service.start()
            time.sleep(chance.uniform(0.5, 4.0))  # where in its work it dies is left to chance
            service.kill()
            service.report(BOOT, sick=True)
        service.start()

        def tried():
            service.report(BOOT, sick=True)
            time.sleep(0.2)
            return service.states()[1]

        until(tried, 120, what="the first attempt", said=service.log)
        found, page = pieces(service)
        shown = service.nhc("show", "episode", "1")
        verified = subprocess.run(
            [sys.executable, "-m", "nhc", "store", "verify", "--store", f"sqlite:///{tmp_path}/store.db"],
            env=service.env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    names = {one.name for one in found}
    assert {"nhc/report.json", "slurm/slurm-node.txt", "node/kernel.txt", "node/nvidia-smi.txt"} <= names, names
    for one in found:
        if one.sha256:
            content = (tmp_path / "evidence" / one.sha256[:2] / one.sha256).read_bytes()
            assert (hashlib.sha256(content).hexdigest(), len(content)) == (one.sha256, one.size)
    assert sum(one.size for one in found) <= SIZE * (KILLS + 1)
    assert max(Counter((one.name, one.sha256) for one in found).values()) == 1, "nothing is kept twice"
    kernel = next(one for one in found if one.name == "node/kernel.txt")
    assert f"evidence  node/kernel.txt: {kernel.size} bytes, {kernel.sha256[:12]}" in shown.stdout, shown
    assert [(one["name"], one["sha256"]) for one in page] == [(one.name, one.sha256) for one in found]
    attempt = json.loads(made.nhc("show", "episode", "1", "-f", "json").stdout)["attempts"][0]
    assert all(one.collected <= attempt["written"] for one in found), "before the repair"
    assert verified.returncode == 0, verified
