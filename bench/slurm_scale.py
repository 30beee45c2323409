"""Drain and resume thousands of nodes of a real slurmctld: controller calls and seconds.

    python bench/slurm_scale.py [--nodes 3000] [--reasons 4]

It starts munged and slurmctld from the system's packages in a temporary directory, with that many configured
nodes, none of which runs: slurmctld does not care. Half of the reports name one reason, the rest are spread
over the others. For comparison the same nodes are drained one call each, as a hook on every node does,
measured on a hundred of them.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

from nhc.core.limits import Limit  # noqa: E402
from nhc.core.model import CheckResult, Report, crit, ok  # noqa: E402
from nhc.marks.policy.ledger import Ledger  # noqa: E402
from nhc.marks.policy.mark_decision import Policy  # noqa: E402
from nhc.marks.policy.reconcile import sync  # noqa: E402
from nhc_adapters.slurm.adapter import Slurm  # noqa: E402
from tests.support.slurm import Cluster, missing  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--reasons", type=int, default=4)
    options = parser.parse_args()
    if missing():
        print(f"not installed: {', '.join(missing())}", file=sys.stderr)
        return 2
    names = [f"gpu{number:04d}" for number in range(options.nodes)]
    extra = (
        f"MaxNodeCount={options.nodes + 10}\nSlurmdTimeout=0\n"
        f"NodeName=gpu[0000-{options.nodes - 1:04d}] NodeAddr=127.0.0.1 Port=9 CPUs=8 RealMemory=1 State=UNKNOWN\n"
        f"PartitionName=gpu Nodes=gpu[0000-{options.nodes - 1:04d}] State=UP\n"
    )
    directory = Path(tempfile.mkdtemp(prefix="nhc-scale-"))
    cluster = Cluster(directory, ["here"], extra)
    policy, ledger = Policy().with_ceiling(Limit()), Ledger(str(directory / "ledger"), "bench")

    def report(name: str, number: int, sick: bool) -> Report:
        reason = 0 if number % 2 else number // 2 % options.reasons
        outcome = crit("X", f"reason {reason}") if sick else ok()
        return Report(name, "boot", time.time(), 0.1, (CheckResult("check_x", outcome),))

    try:
        cluster.start()
        for what, sick in (("drain", True), ("resume", False)):
            slurm = Slurm({}, cluster.env)
            begin = time.perf_counter()
            done = sync(slurm, [report(name, at, sick) for at, name in enumerate(names)], policy, ledger, apply=True)
            seconds = time.perf_counter() - begin
            held = sum(1 for state in slurm.nodes() if state.available is not sick and state.name != "here")
            print(f"{what}: {len(names)} nodes, {slurm.calls - 3} controller calls, {seconds:.2f} s; {held} are so now")
            if done.failed or held != len(names):
                return 1
        begin = time.perf_counter()
        for name in names[:100]:
            cluster.update(name, State="DRAIN", Reason="NHC: one by one")
        each = (time.perf_counter() - begin) / 100
        print(
            f"one call a node: {len(names)} nodes, {len(names)} controller calls, {each * len(names):.1f} s (from 100)"
        )
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
