"""An outage of a shared file system on a real Slurm: hooks on every node, and beside them the loop, as its users have
it. One check fails on all nodes for a while, and then on none.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, List, Sequence, Set

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.store import holds
from nhc.store.connect import open_store
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from tests.support.slurm import Cluster
from tests.support.slurm_remedy import Service
from tests.support.slurmhooks import Hooks
from tests.support.waiting import until


class Outage:
    """`begin` and `end` are the outage's. `drained` nodes may be out by hooks at once."""

    def __init__(self, cluster: Cluster, hooks: Hooks, drained: int) -> None:
        self.cluster, self.hooks, self.drained = cluster, hooks, str(drained)
        self.gone = hooks.directory / "the-shared-file-system-is-gone"
        self._met: Set[str] = set()
        self.begin(())
        self.end()

    def begin(self, nodes: Sequence[str]) -> None:
        """It is gone, and these nodes have met that: who reads nothing of it for a while sees it later."""
        self.gone.touch()
        self._met = set(nodes)
        line = f" || check_file_test -! -e {self.gone}"
        self.hooks.configure("\n".join(f"{node}{line}" for node in nodes), NHC_MAX_DRAINED=self.drained)

    def end(self) -> None:
        self.gone.unlink(missing_ok=True)

    def meets(self, node: str) -> bool:
        """Whether a node sees it now."""
        return node in self._met and self.gone.exists()

    def out(self) -> Set[str]:
        """The nodes that take no work."""
        return {name for name in self.cluster.nodes if self.cluster.state(name) not in ("idle", "mix", "alloc", "comp")}

    def marks(self) -> int:
        """How many marks the hooks have set, and taken off."""
        lines = [line for path in (self.hooks.directory / "ledger").glob("*") for line in path.read_text().splitlines()]
        return sum('"effect":"changed"' in line for line in lines)


class Agents:
    """What the nodes' agents say: into the store each second, as `nhc server` writes it."""

    def __init__(self, service: Service, outage: Outage) -> None:
        self.service, self.outage = service, outage
        self.store = open_store(f"sqlite:///{service.place}/store.db", create=False)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._go_round, daemon=True)

    def start(self) -> None:
        self._say()
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(30)
        self.store.close()

    def _go_round(self) -> None:
        while not self._end.wait(1.0):
            self._say()

    def _say(self) -> None:
        now = time.time()
        bad = Outcome(Verdict.CRIT, "FsNotAnswering", "it does not answer", "/home", action=Action.INSPECT)
        said = []
        for name in self.outage.cluster.nodes:
            results = (CheckResult("check_fs_mount", bad if self.outage.meets(name) else Outcome(Verdict.OK)),)
            said.append(Incoming(Report(name, "b1", now, 0.1, results), "agent", now))
        with self.store.write() as connection:
            receive(connection, said)

    def left(self) -> List[Any]:
        """The episodes that the loop has left to a person."""
        return [row for row in self.service.states()[0] if row.state == "escalated"]

    def breaker(self) -> str:
        with self.store.read() as connection:
            return str(holds.breaker_of(connection, "remedy").state)


def loop_over(place: Path, cluster: Cluster, faults: str, out: int) -> Service:
    """The loop with a breaker that opens for more than `faults` nodes, over the store of the agents."""
    service = Service(place, cluster, cluster.nodes[0])
    path = place / "remedy.toml"
    text = path.read_text().replace('blind = "100"', f'blind = "100"\nfaults = "{faults}"\nfailures = 0')
    text = text.replace('out = "2"', f'out = "{out}"').replace(f'reports = ["{place}/reports"]\n', "")
    path.write_text(text)
    return service


def episodes_of(service: Service) -> List[Any]:
    """The loop's episodes, and no attempt: nothing that passes by itself is repaired."""
    rows, tried, _whats = service.states()
    assert tried == [], tried
    return rows


def play(
    outage: Outage, *, drained: int, seconds: float, agents: List[Agents], within: float, first: Sequence[str] = ()
) -> None:
    """The outage, from all nodes in service to all nodes in service. The nodes `first` meet it so early that they are
    out, and the loop at work on them, before the others do. Raises AssertionError where one stays out.
    """
    until(lambda: not outage.out(), within, what="all nodes to be in service")
    try:
        if first:
            outage.begin(first)
            until(lambda: outage.out() >= set(first), within, what="the first nodes to be out", said=outage.out)
        for one in agents if first else ():
            until(lambda: {row.node for row in one.left()} >= set(first), within, what="the loop to end with them")  # noqa: B023 (asked at once)
        outage.begin(outage.cluster.nodes)
        began = time.time()
        until(lambda: len(outage.out()) >= drained, within, what="the hooks to drain", said=outage.out)
        for one in agents:
            until(lambda: one.breaker() == "open", within, what="the breaker to open")  # noqa: B023 (asked at once)
        until(lambda: time.time() >= began + seconds, seconds + 5, what="the outage to last")
    finally:
        outage.end()
    until(lambda: not outage.out(), within, what="every node to be back by itself", said=outage.out)
