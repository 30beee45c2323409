"""A real Slurm of three nodes on this machine, with nhc as its HealthCheckProgram: docs/tutorial-slurm.md. As root.

It plays what is no machine here: it reports for each node what an agent would push, and boots a node that Slurm
reboots.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Dict

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from tests.support.slurm import Cluster, missing
from tests.support.slurmhooks import Hooks

NODES = ["n1", "n2", "n3"]
CONF = "RebootProgram=/bin/true\nResumeTimeout=60\n"


def report(directory: Path, node: str, boot: int, sick: bool) -> None:
    """What the agent of a node would push, as a file."""
    bad = Outcome(Verdict.CRIT, "GpuLost", "gpu3 has fallen off the bus", "gpu3", action=Action.REBOOT)
    result = CheckResult("check_gpu_count", bad if sick else Outcome(Verdict.OK))
    made = Report(node, f"boot-{boot}", time.time(), 0.1, (result,))
    fresh = directory / f"{node}.tmp"
    fresh.write_text(json.dumps(to_dict(made)))
    fresh.replace(directory / f"{node}.json")


def main() -> int:
    absent = missing()
    if absent or os.geteuid():
        said = f"needs {', '.join(absent)}: apt install slurm-wlm munge" if absent else "needs root, as slurmd does"
        sys.stderr.write(f"make slurm: {said}\n")
        return 1
    place = Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp(prefix="nhc-slurm-"))
    for name in ("cluster", "reports"):
        (place / name).mkdir(parents=True)
    place.chmod(0o755)
    cluster = Cluster(place / "cluster", NODES)
    hooks = Hooks(place / "hooks", NODES, cluster.conf)
    hooks.configure(NHC_REREAD="0")
    cluster.extra = hooks.slurm_conf(interval=3) + CONF
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_seen: ended.set())
    boots: Dict[str, int] = dict.fromkeys(NODES, 1)
    try:
        cluster.start()
        print(f"A Slurm of three nodes runs in {place}. For other terminals:\n\n    export SLURM_CONF={cluster.conf}")
        print(
            f"    export TUTORIAL={place}\n\nA node falls sick with: touch $TUTORIAL/hooks/sick.n2\nCtrl-C ends it.",
            flush=True,
        )
        while not ended.wait(1.0):
            for node in NODES:
                sick = place / "hooks" / f"sick.{node}"
                try:
                    if "REBOOT_ISSUED" in cluster.show(node)["State"]:
                        sick.unlink(missing_ok=True)  # the reboot repairs it
                        boots[node] += 1
                        cluster.boot_node(node)
                except (AssertionError, subprocess.TimeoutExpired) as error:  # Slurm does not answer now
                    print(f"{node}: {error}", flush=True)
                report(place / "reports", node, boots[node], sick.exists())
    finally:
        cluster.stop()
        if not sys.argv[1:]:
            shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
