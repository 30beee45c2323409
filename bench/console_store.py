"""How long each screen of the console waits for the store, over a fleet with a past.

    python bench/console_store.py                              # 10,000 nodes and 30 days: half a minute
    python bench/console_store.py --nodes 100000 --days 365    # a year of a large fleet: minutes, some GB

A node has on average one problem in ten days, one repair in a hundred, a deep check a month, a failed job
in sixty days. The store is SQLite; what is asked is what the routes ask. Limit: 100 ms for the median of each screen.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from typing import Callable, Dict, Iterator, List, Mapping

import sqlalchemy as sa

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench.common import verdict
from nhc.console import screens, work
from nhc.console.deep_coverage import DeepReader
from nhc.console.sources import StoreSource
from nhc.model import CheckResult, Outcome, Report, Verdict
from nhc.store import schema
from nhc.store.connect import open_store
from nhc.store.database import Store
from nhc.store.job_tables import job_nodes, job_restarts, jobs
from nhc.store.nodes import pack

DAY = 86400.0
BATCH = 20_000
Row = Mapping[str, object]


def keep(store: Store, table: sa.Table, rows: Iterator[Row]) -> int:
    """Write rows in large batches; how many."""
    count = 0
    batch: List[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            _keep(store, table, batch)
            count, batch = count + len(batch), []
    _keep(store, table, batch)
    return count + len(batch)


def _keep(store: Store, table: sa.Table, batch: List[Row]) -> None:
    if batch:
        with store.engine.begin() as connection:
            connection.execute(sa.insert(table), batch)


class Past:
    """The rows of a fleet's past, the same at every run."""

    def __init__(self, nodes: int, days: float, now: float) -> None:
        self.names = [f"gpu-{number:06}" for number in range(nodes)]
        self.days, self.now, self.chance = days, now, random.Random(7)
        self.episodes = int(nodes * days / 100)
        self.report = pack(Report("gpu", "b", now, 1.0, (CheckResult("check_1", Outcome(Verdict.OK)),)))

    def _some(self, every: float) -> Iterator[tuple[str, float]]:
        for _ in range(int(len(self.names) * self.days / every)):
            yield self.chance.choice(self.names), self.now - self.chance.random() * self.days * DAY

    def nodes(self) -> Iterator[Row]:
        """All nodes, healthy a minute ago."""
        for number, name in enumerate(self.names):
            yield {"node": name, "kind": "h100", "groups": {"rack": f"r{number // 36:04}", "pool": f"p{number % 7}"},
                   "labels": {}, "verdict": "OK", "since": self.now - DAY, "reported_at": self.now - 60,
                   "received_at": self.now - 60, "covered_since": self.now - DAY, "source": "agent"}  # fmt: skip

    def problems(self) -> Iterator[Row]:
        """One in ten days a node; those of the last hour stand."""
        for number, (name, at) in enumerate(self._some(10)):
            yield {"node": name, "check": f"check_{number % 40}", "reason": f"Reason{number % 90}",
                   "target": str(number), "verdict": "CRIT", "action": "reboot", "message": "it fell",
                   "source": "agent", "began": at, "seen": at,
                   "ended": at + 3600 if at < self.now - 3600 else None}  # fmt: skip

    def repairs(self) -> Iterator[Row]:
        """One in a hundred days a node; those of the last hour are under way."""
        for number, (name, at) in enumerate(self._some(100), 1):
            over = at < self.now - 3600
            yield {"id": number, "node": name, "cause": f"check_1|Reason1|{number}", "action": "reboot",
                   "state": "returned" if over else "draining", "rung": "reboot", "opened": at, "updated": at,
                   "ended": at + 3000 if over else None,
                   "outcome": "", "detail": '{"waiting": "work runs"}'}  # fmt: skip

    def attempts(self) -> Iterator[Row]:
        """One attempt of each repair."""
        for number in range(1, self.episodes + 1):
            yield {"episode": number, "number": 1, "node": self.names[number % len(self.names)], "rung": "reboot",
                   "repairer": "bmc", "key": f"k{number}", "state": "ended", "outcome": "succeeded",
                   "written": self.now - DAY}  # fmt: skip

    def audit(self) -> Iterator[Row]:
        """Ten rows of each repair."""
        count = self.episodes * 10
        for number in range(1, count + 1):
            yield {"seq": number, "at": self.now - self.days * DAY * (1 - number / count),
                   "actor": "nhc remedy", "what": "episode.step", "node": self.names[number % len(self.names)],
                   "episode": 1 + number // 11, "detail": '{"from": "a", "to": "b"}', "previous": "0" * 64,
                   "hash": "0" * 64}  # fmt: skip

    def coverage(self) -> Iterator[Row]:
        """A gap in thirty days a node."""
        for place, (name, at) in enumerate(self._some(30)):
            yield {"node": name, "began": at + place * 1e-3, "ended": at + 30 * DAY}

    def deep(self) -> Iterator[Row]:
        """A suite of three results a month."""
        for name, at in self._some(30):
            for test in ("gemm", "hbm", "nccl"):
                yield {"node": name, "suite": "quick", "test": test, "verdict": "OK", "at": at}

    def history(self) -> Iterator[Row]:
        """A kept report in ten days a node."""
        for place, (name, at) in enumerate(self._some(10)):
            yield {"node": name, "started": at + place * 1e-3, "boot_id": "b", "verdict": "OK", "source": "agent",
                   "digest": "d", "report": self.report}  # fmt: skip

    def jobs(self) -> Iterator[Row]:
        """A job in six hundred days a node, ten nodes each."""
        for number in range(1, int(len(self.names) * self.days / 600) + 2):
            some = [self.names[(number * 10 + place) % len(self.names)] for place in range(10)]
            yield {"id": number, "controller": "kube", "kind": "PyTorchJob", "namespace": "team", "name": f"j{number}",
                   "uid": f"u{number}", "nodes": " ".join(some), "wants": 10, "began": self.now - DAY,
                   "seen": self.now, "ended": self.now if number > 500 else None}  # fmt: skip

    def failures(self) -> Iterator[Row]:
        """Each job failed on one node."""
        for one in self.jobs():
            yield {"job": one["id"], "node": str(one["nodes"]).split()[0], "run": "r1", "why": "Xid79", "at": self.now}

    def restarts(self) -> Iterator[Row]:
        """And was restarted."""
        for one in self.jobs():
            yield {"job": one["id"], "number": 1, "run": "r1", "key": f"j{one['id']}", "state": "ended",
                   "outcome": "restarted", "written": self.now, "updated": self.now, "ended": self.now}  # fmt: skip


def fill(store: Store, past: Past) -> None:
    """Write it all."""
    parts = ((schema.nodes, past.nodes), (schema.problems, past.problems), (schema.episodes, past.repairs),
             (schema.attempts, past.attempts), (schema.audit, past.audit), (schema.coverage, past.coverage),
             (schema.deep_results, past.deep), (schema.report_history, past.history), (jobs, past.jobs),
             (job_nodes, past.failures), (job_restarts, past.restarts))  # fmt: skip
    counts = [f"{keep(store, table, rows())} {table.name}" for table, rows in parts]
    print(", ".join(counts))


def measured(name: str, ask: Callable[[], object], times: int) -> float:
    """The median of some runs in milliseconds, after one that is not counted."""
    ask()
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        spent.append((time.perf_counter() - began) * 1e3)
    print(verdict(f"{name} (ms, most {max(spent):.0f})", statistics.median(spent), 100.0))
    return statistics.median(spent)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--scratch", default=None, help="where the store is made; some GB for the year")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nhc-bench-", dir=options.scratch) as scratch:
        now = time.time()
        store = open_store(f"sqlite:///{scratch}/store.db", anchor=f"{scratch}/anchor")
        try:
            began = time.perf_counter()
            past = Past(options.nodes, options.days, now)
            fill(store, past)
            size = os.path.getsize(f"{scratch}/store.db") / 1e6
            print(f"{options.nodes} nodes, {options.days:g} days: {size:.0f} MB, "
                  f"made in {time.perf_counter() - began:.0f} s")  # fmt: skip
            ask(store, past, options.times)
        finally:
            store.close()


def ask(store: Store, past: Past, times: int) -> None:
    """Each screen, with another node each time."""
    now, chance = past.now, random.Random(3)

    def node() -> str:
        return chance.choice(past.names)

    source = StoreSource(store, 600, lambda: now)
    began = time.perf_counter()
    snapshot = source.snapshot()
    print(f"the picture that all viewers share, read in the background: {time.perf_counter() - began:.2f} s")
    shared = (("problems by cause", screens.causes), ("groups of the map", lambda one: screens.groups(one, "rack")))
    for name, made in shared:
        began = time.perf_counter()
        made(snapshot)
        print(f"{name}, made once a picture for all who look: {time.perf_counter() - began:.2f} s")
    began = time.perf_counter()
    screens.offenders(store, now)
    print(f"offenders, counted once a minute for all who look: {(time.perf_counter() - began) * 1e3:.0f} ms")
    began = time.perf_counter()
    clock = [now]
    reader = DeepReader(store, lambda: clock[0])
    reader.told()
    print(f"all deep verdicts, once an hour in the background: {time.perf_counter() - began:.2f} s")

    def newer() -> object:
        clock[0] += 61
        return reader.told()

    year = screens.Window(now - past.days * DAY, now)
    day = screens.Window(now - DAY, now)
    asked: Dict[str, Callable[[], object]] = {
        "a node: episodes": lambda: screens.list_episodes(store, now, None, node()),
        "a node: jobs, trains, spares, deep verdicts": lambda: work.work_of(store, node(), now),
        "a node: its report": lambda: source.report(node()),
        "timeline of a day": lambda: screens.timeline(store, node(), day, 600),
        "timeline of all time": lambda: screens.timeline(store, node(), year, 600),
        "episodes, open": lambda: screens.list_episodes(store, now, True),
        "episodes, ended": lambda: screens.list_episodes(store, now, False),
        "an episode": lambda: screens.episode(store, chance.randint(1, past.episodes)),
        "held back": lambda: screens.held_back(store, now),
        "audit, the newest": lambda: screens.audit_page(store, 0, ""),
        "audit of a node": lambda: screens.audit_page(store, 0, node()),
        "a job": lambda: work.job(store, 1),
        "deep verdicts that are new": newer,
        "deep coverage by rack": lambda: reader.view(snapshot, "rack", ""),
    }
    slow = [name for name, one in asked.items() if measured(name, one, times) > 100.0]
    if slow:
        raise SystemExit(f"over 100 ms: {', '.join(slow)}")


if __name__ == "__main__":
    main()
