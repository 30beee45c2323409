"""The remedy loop under a storm: 1,000 faults in 100,000 nodes; a restart with 10,000 open episodes; 1,000 that wait.

    python bench/remedy.py [--nodes 100000] [--faults 1000] [--episodes 10000] [--waiting 1000] [--short]

The store is a real one (SQLite on this disk), the scheduler and the repairer are in this process and answer at once, so
what is measured is the loop and the database. The share of the database is its statements, commits and fsyncs.
Reports: decisions a second, time from the first round to the first action of each node (p50, p99, the last), resident
memory, and from the start of a new controller to its first decision. `--short` takes a twentieth of each.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "bench")]

from common import verdict  # noqa: E402
from sqlalchemy import event  # noqa: E402

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict  # noqa: E402
from nhc.core.system.stop_signals import collect_garbage_seldom  # noqa: E402
from nhc.marks.ports.adapter import Applied, Effect, NodeState  # noqa: E402
from nhc.marks.ports.marks import may_clear, may_mark  # noqa: E402
from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage  # noqa: E402
from nhc.remedy.actuators import Actuators  # noqa: E402
from nhc.remedy.episode_flow import EpisodeLoop  # noqa: E402
from nhc.remedy.remedy_file import parse  # noqa: E402
from nhc.remedy.repairers import RepairerEntry, Repairers  # noqa: E402
from nhc.remedy.repairs import repair_loop  # noqa: E402
from nhc.remedy.settings import RepairerSettings  # noqa: E402
from nhc.store import nodes as store_nodes  # noqa: E402
from nhc.store import reports as store_reports  # noqa: E402
from nhc.store.connect import open_store  # noqa: E402
from nhc.store.intake import Incoming  # noqa: E402

SETTINGS = """
[actions]
mark = "on"
reboot = "on"
[sources]
settle = "0s"
max-age = "1d"
[bounds.fleet]
out = "100%"
repairing = "100%"
[bounds.fleet.rate]
mark = "1000000 per 1h"
repair = "1000000 per 1h"
[bounds.rack]
out = "100%"
[bounds.leaf]
out = "100%"
[limits]
first-run = "100%"
[breaker]
faults = "100%"
blind = "100%"
failures = 0
"""


class Cluster:
    """A scheduler and a repairer that answer at once."""

    def __init__(self, names: Sequence[str]) -> None:
        self.states: Dict[str, NodeState] = {name: NodeState(name, "idle", True) for name in names}
        self.first: Dict[str, float] = {}
        self.sent: List[str] = []

    def nodes(self, names: Any = None) -> List[NodeState]:
        found = self.states if names is None else names
        return [self.states[name] for name in sorted(found) if name in self.states]

    def mark(self, marks: Any, seen: Any = None) -> List[Applied]:
        applied = []
        for name, mark in marks.items():
            effect, why = may_mark(self.states[name], mark)
            if effect is Effect.CHANGED:
                self.states[name] = self.states[name]._replace(available=False, shown="drained", mark=mark)
                self.first.setdefault(name, time.monotonic())
            applied.append(Applied(name, effect, why))
        return applied

    def clear(self, names: Any, seen: Any = None) -> List[Applied]:
        applied = []
        for name in names:
            effect, why = may_clear(self.states[name])
            self.states[name] = self.states[name]._replace(available=True, shown="idle", mark=None)
            applied.append(Applied(name, effect, why))
        return applied

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return ""

    def look(self, machine: Machine) -> Sighting:
        return Sighting(time.time(), machine.node, "boot1", "running")

    def send(self, order: Order) -> Sent:
        self.sent.append(order.machine.node)
        return Sent(Answer.ACCEPTED, "", order.key)

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        return Progress(Stage.WORKING, "boots")

    def rights(self) -> Sequence[Right]:
        return ()


class Timed:
    """A store that counts the time that the database itself takes: its statements, its commits, the audit's anchor."""

    def __init__(self, store: Any) -> None:
        self.store, self.seconds, self.transactions, self._began = store, 0.0, 0, 0.0
        event.listen(store.engine, "before_cursor_execute", self._begin)
        event.listen(store.engine, "after_cursor_execute", self._end)
        store.engine.dialect.do_commit = self._timed(store.engine.dialect.do_commit)
        store.anchor.add = self._timed(store.anchor.add)

    def _begin(self, *_arguments: Any) -> None:
        self._began = time.monotonic()

    def _end(self, *_arguments: Any) -> None:
        self.seconds += time.monotonic() - self._began

    def _timed(self, work: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            began = time.monotonic()
            try:
                return work(*arguments)
            finally:
                self.seconds += time.monotonic() - began

        return timed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def write(self, fence: Any = None) -> Any:
        self.transactions += 1
        return self.store.write(fence)


def rss() -> float:
    """Most resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fill(store: Any, names: Sequence[str], sick: Sequence[str], now: float) -> float:
    """Nodes with groups, and a CRIT report of each sick one; how long that took."""
    began = time.monotonic()
    for at in range(0, len(names), 5000):
        with store.write() as connection:
            store_nodes.describe(connection, [
                store_nodes.NodeDescription(name, groups={"rack": f"r{(at + i) // 32}", "leaf": f"l{(at + i) // 512}"})
                for i, name in enumerate(names[at : at + 5000])
            ])  # fmt: skip
    bad = Outcome(Verdict.CRIT, "Xid95", "Xid 95 on gpu3", "gpu3", action=Action.REBOOT)
    for at in range(0, len(sick), 1000):
        with store.write() as connection:
            store_reports.receive(connection, [
                Incoming(Report(name, "boot1", now, 1.0, (CheckResult("check_gpu_xid", bad),)), "agent", now)
                for name in sick[at : at + 1000]
            ])  # fmt: skip
    return time.monotonic() - began


def controller(store: Any, cluster: Cluster, settings: str = SETTINGS) -> EpisodeLoop:
    entry = RepairerEntry(RepairerSettings("bench", "bench"), cluster)
    return repair_loop(store, parse(settings), Actuators(cluster, Repairers([entry]), workers=0))


def storm(nodes: int, faults: int) -> None:
    """All faults at once; rounds until every repair is sent."""
    names = [f"n{number:06d}" for number in range(nodes)]
    sick = names[:: max(nodes // faults, 1)][:faults]
    with tempfile.TemporaryDirectory() as place:
        store = open_store(f"sqlite:///{place}/store.db", anchor=f"{place}/anchor")
        print(f"{nodes} nodes, {faults} faults: store filled in {fill(store, names, sick, time.time()):.1f} s")
        before, timed, cluster = rss(), Timed(store), Cluster(names)
        loop = controller(timed, cluster)
        began, spent = time.monotonic(), time.process_time()
        decisions = steps = rounds = 0
        while len(cluster.sent) < faults:
            found = loop.round()
            decisions, steps, rounds = decisions + found.decisions, steps + len(found.moved), rounds + 1
            assert found.moved, found
        took, spent = time.monotonic() - began, time.process_time() - spent
        times = sorted(when - began for when in cluster.first.values())
        assert len(times) == faults == len(set(cluster.sent))
        print(f"  {took:.1f} s, {rounds} rounds: {decisions} decisions ({decisions / took:.0f}/s), {steps} steps "
              f"({steps / took:.0f}/s), {timed.transactions} transactions")  # fmt: skip
        print(
            f"  first action of each: p50 {statistics.median(times):.2f} s, p99 "
            f"{times[int(len(times) * 0.99) - 1]:.2f} s, last {times[-1]:.2f} s; every repair sent after {took:.1f} s"
        )
        print(
            f"  the database {timed.seconds:.1f} s ({timed.seconds / took:.0%}); memory {before:.0f} to {rss():.0f} MB"
        )
        print(
            f"  {spent / faults * 1000:.2f} ms of CPU a fault; the driver alone, the same rows: "
            f"{driver(faults, steps) / faults * 1000:.2f} ms"
        )
        size = sum(file.stat().st_size for file in Path(place).glob("store.db*")) / 1e6
        print(f"  store {size:.1f} MB, the nodes among it")
        store.close()


def driver(faults: int, steps: int) -> float:
    """CPU seconds of the database's driver for the rows of a storm: an episode a fault, an update and an audit row a
    step, in transactions of 200.
    """
    detail = "x" * 400
    with tempfile.TemporaryDirectory() as place:
        database = sqlite3.connect(f"{place}/bare.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE episodes (id INTEGER PRIMARY KEY, node, state, detail, version)")
        database.execute("CREATE TABLE audit (seq INTEGER PRIMARY KEY, at, actor, what, node, detail, previous, hash)")
        began = time.process_time()
        database.execute("BEGIN")
        rows = ((f"n{number}", "detected", detail, 1) for number in range(faults))
        database.executemany("INSERT INTO episodes (node, state, detail, version) VALUES (?, ?, ?, ?)", rows)
        database.execute("COMMIT")
        for at in range(0, steps, 200):
            some = range(at, min(at + 200, steps))
            database.execute("BEGIN IMMEDIATE")
            database.executemany("UPDATE episodes SET state = ?, detail = ?, version = version + 1 WHERE id = ?", (
                ("marking", detail, number % faults + 1) for number in some
            ))  # fmt: skip
            database.executemany("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (
                (number + 1, 1.0, "nhc remedy", "episode.marking", "n", detail, "h" * 64, "h" * 64) for number in some
            ))  # fmt: skip
            database.execute("COMMIT")
        took = time.process_time() - began
        database.close()
        return took


def restart(episodes: int) -> None:
    """A new controller over so many open episodes that all watch a repair."""
    names = [f"n{number:06d}" for number in range(episodes)]
    with tempfile.TemporaryDirectory() as place:
        store = open_store(f"sqlite:///{place}/store.db", anchor=f"{place}/anchor")
        fill(store, names, names, time.time())
        cluster = Cluster(names)
        loop = controller(store, cluster)
        while len(cluster.sent) < episodes:
            before = len(cluster.sent)
            loop.round()
            assert len(cluster.sent) > before
        timed = Timed(store)
        began, cpu = time.monotonic(), time.process_time()
        loop = controller(timed, cluster)
        found = loop.round()
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        assert found.decisions >= episodes
        assert len(cluster.sent) == episodes  # nothing was sent again
        print(f"restart with {episodes} open episodes: all decided after {took:.2f} s, {cpu:.2f} s of CPU "
              f"({timed.seconds:.2f} s of them the database), {rss():.0f} MB")  # fmt: skip
        store.close()


def waiting(episodes: int, rounds: int = 10) -> None:
    """What a round costs in which so many episodes wait, all but one for room within the bounds."""
    names = [f"n{number:06d}" for number in range(2 * episodes)]
    with tempfile.TemporaryDirectory() as place:
        store = open_store(f"sqlite:///{place}/store.db", anchor=f"{place}/anchor")
        fill(store, names, names[::2], time.time())
        loop = controller(store, Cluster(names), SETTINGS.replace('repairing = "100%"', 'repairing = "1"'))
        while loop.round().moved:
            pass
        spent = []
        for _ in range(rounds):
            began = time.process_time()
            found = loop.round()
            spent.append(time.process_time() - began)
            assert not found.moved
            assert len(found.waiting) == episodes
        print(verdict(f"a round over {episodes} episodes that wait, CPU s", statistics.median(spent), episodes / 1e4))
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--short", action="store_true", help="a twentieth of each")
    given = parser.parse_args()
    collect_garbage_seldom()  # as a service of rounds does
    by = 20 if given.short else 1
    storm(given.nodes // by, given.faults // by)
    restart(given.episodes // by)
    waiting(given.waiting // by)


if __name__ == "__main__":
    main()
