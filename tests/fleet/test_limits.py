"""A machine or a user that has no more processes, threads or descriptors: fewer nodes at a time, none lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.require import need

ROOT = Path(__file__).resolve().parents[2]
UID = 64177  # nobody's: the kernel counts a user's processes over the whole machine

# Run as a user of its own, with a limit, over real connections; a light command stands for the node's program.
SWEEP = """\
import json, os, resource, sys, time
limit, number, uid, config, count, shards = (
    getattr(resource, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
sys.path[:0] = sys.argv[7].split(":")
from nhc.fleet import node_session as remote
from nhc.fleet import worker as shard
from nhc.fleet import sweep
from nhc.fleet.bundles import SiteFiles
from nhc.fleet.ssh.config import SshConfig
from nhc.fleet.ssh.known_hosts import HostKeys
from nhc.fleet.ssh.transport_paramiko import Paramiko
from nhc.fleet.transport import Node
from nhc.fleet.transport import Trouble
from tests.support import ssh
from tests.support.other_user import become
sweep.WAIT_FOR_ROOM = 4.0
import nhc.fleet.worker
nhc.fleet.worker.HOPELESS = 2.0

def light(session, node, task):
    stream = session.start("sleep 0.1; echo ok", time.monotonic() + 30)
    said = b""
    while data := stream.receive(time.monotonic() + 30):
        said += data
    stream.close()
    if said != b"ok\\n":
        raise Trouble("Truncated", "it did not say ok")
    report = {"schema": 1, "host": node.name, "started": time.time(), "elapsed": 0,
              "results": [{"check": "x", "verdict": "OK"}]}
    return remote.NodeOutput(json.dumps(report), "x", "3", "pushed")

os.environ["HOME"] = "/nonexistent"
transport = Paramiko(SshConfig(config), HostKeys(accept_new=True))
settings = shard.SweepSettings(remote.SweepTask(None, SiteFiles(None, ())), {"ssh": transport}, judge=light, fanout=64,
                          shards=shards, connect=30.0)
nodes = [Node(address) for address in ssh.addresses(count)]
transport.warm([transport.config.lookup(nodes[0])])
become(uid)
resource.setrlimit(limit, (number, number))
notes, found = [], {}
for arrived in sweep.sweep(nodes, settings, notes.append):
    report = json.loads(arrived.text())
    reason = report["results"][0]["reason"]
    found[reason] = found.get(reason, 0) + 1
print(json.dumps({"found": found, "notes": notes}))
"""


@pytest.fixture(scope="module")
def many(server):
    """A client's files that another user can read."""
    directory = Path(tempfile.mkdtemp(prefix="nhc-limits-"))
    try:
        config = directory / "ssh_config"
        identity = directory / "identity"
        shutil.copy(server.identity, identity)
        os.chmod(identity, 0o644)
        config.write_text(
            server.config.read_text()
            .replace(str(server.identity), str(identity))
            .replace(str(server.known_hosts), str(directory / "known_hosts"))
        )
        os.chmod(directory, 0o777)
        yield config
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def limited(config, limit, number, count, shards=2):
    need("root", os.geteuid() == 0, "to be another user, whom limits hold")
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, limit, str(number), str(UID), str(config), str(count), str(shards),
         f"{ROOT}:{ROOT / 'adapters'}"], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("limit", "number"), [("RLIMIT_NPROC", 24), ("RLIMIT_NOFILE", 24)])
def test_a_limit_makes_a_sweep_slower_and_loses_no_node(many, limit, number):
    said = limited(many, limit, number, 150)
    assert said["found"] == {"": 150}
    (note,) = said["notes"]
    assert "nodes at once: this machine gives no more processes, threads or descriptors" in note


def test_a_user_without_a_name_logs_in_as_whom_the_configuration_names(many):
    """As in a container that runs under a number."""
    need("root", os.geteuid() == 0, "to be a user without a name")
    config = many.with_name("named_config")
    config.write_text("Host named\n  User somebody\n")
    os.chmod(config, 0o644)
    script = (
        "import os; from nhc.fleet.ssh.config import SshConfig; from nhc.fleet.transport import Node, Trouble\n"
        f"from tests.support.other_user import become; become({UID}); config = SshConfig({str(config)!r})\n"
        "print(config.lookup(Node('named')).user)\n"
        "try: config.lookup(Node('other'))\n"
        "except Trouble as trouble: print(trouble.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True,
                          env={"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"})  # fmt: skip
    said = f"other: user {UID} has no name here: say whom to log in as (-u)"
    assert done.stdout.splitlines() == ["somebody", said], done.stderr


def test_processes_that_leave_no_thread_for_themselves_give_way_to_one(many):
    said = limited(many, "RLIMIT_NPROC", 6, 40, shards=6)
    assert said["found"] == {"": 40}


def test_what_cannot_be_begun_at_all_is_given_up_with_a_reason(many):
    said = limited(many, "RLIMIT_NPROC", 1, 20)
    assert said["found"] == {"OutOfResources": 20}
    assert len(said["notes"]) == len(set(said["notes"])), "tried for half a minute, said once"


@pytest.mark.slow
def test_a_killed_shard_costs_the_nodes_it_had_in_hand_and_no_others(tmp_path):
    from nhc.fleet import node_session, sweep, worker
    from nhc.fleet.bundles import SiteFiles
    from nhc.fleet.transport import Node, Trouble

    class Suicidal:
        def connect(self, node, deadline):
            if node.name == "n03":
                os.kill(os.getpid(), 9)
            raise Trouble("Refused", "no")

        def close(self):
            """Nothing is open."""

    nodes = [Node(f"n{number:02}") for number in range(40)]
    settings = worker.SweepSettings(
        node_session.SweepTask(None, SiteFiles(None, ())), {"ssh": Suicidal()}, shards=1, fanout=1
    )
    found = {arrived.place: arrived.findings[0][3] for arrived in sweep.sweep(nodes, settings)}
    assert sorted(found) == list(range(40))
    assert found.pop(3) == "SweepBroken"
    assert set(found.values()) == {"Refused"}
