"""The store of a fleet with a past, written in bulk: what the console's benchmark asks.

How many events a year has. A node loses its work to a fault every 154 days in one of Meta's clusters, every 427 in the
other ("Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680: 6.50 and 2.34
failures in 1,000 node-days); the 419 unexpected interruptions of Llama 3's 54 days on 2,048 nodes are one in 264
("The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.4). Here a node is repaired every 100 days, so more often
than in any of them, and has a problem every 10 days, as most are warnings that end by themselves. A year of 100,000
nodes is then 3,650,000 problems, 365,000 episodes and as many attempts, 3,650,000 rows of the audit log, 1,217,000
gaps. Reports and deep results are there for as long as the store keeps them (`nhc.store.retention.RetentionPeriods`).
"""

from __future__ import annotations

import itertools
import json
import random
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

import sqlalchemy as sa

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.store import schema
from nhc.store.database import Store
from nhc.store.nodes import pack
from nhc.store.retention import RetentionPeriods
from nhc.store.schema import job_nodes, job_restarts, jobs

DAY = 86400.0
KEPT = RetentionPeriods()
BATCH = 20_000
Row = Tuple[object, ...]
Rows = Callable[[], Iterator[Row]]

OFTEN = {
    "problem": 10.0, "repair": 100.0, "gap": 30.0, "deep suite": 30.0, "kept report": 10.0, "job": 600.0,
}  # fmt: skip
"""Days between two on one node; a job has ten nodes."""


class Past:
    """The rows of a fleet's past in the order of their time, the same at every run."""

    def __init__(self, nodes: int, days: float, now: float) -> None:
        self.names = [f"gpu-{number:06}" for number in range(nodes)]
        self.days, self.now, self.chance = days, now, random.Random(7)
        self.episodes = self._count("repair", days)
        self.report = pack(Report("gpu", "b", now, 1.0, (CheckResult("check_1", Outcome(Verdict.OK)),)))

    def _count(self, what: str, days: float) -> int:
        return int(len(self.names) * days / OFTEN[what])

    def _some(self, what: str, kept: float) -> Iterator[Tuple[str, float]]:
        """Nodes and times, the oldest first, for as long as the store keeps them."""
        days = min(self.days, kept / DAY)
        spread, names, count = days * DAY, self.names, len(self.names)
        began, random_number = self.now - spread, self.chance.random
        times = sorted(began + random_number() * spread for _ in range(self._count(what, days)))
        return ((names[int(random_number() * count)], at) for at in times)

    def nodes(self) -> Iterator[Row]:
        """All nodes, healthy, whose reports came in over the last minute."""
        now = self.now
        for number, name in enumerate(self.names):
            groups = json.dumps({"rack": f"r{number // 36:04}", "pool": f"p{number % 7}"})
            yield name, "h100", groups, "{}", "OK", now - DAY, now - 60, now - number % 60, now - DAY, "agent"

    def problems(self) -> Iterator[Row]:
        """Those of the last hour stand."""
        for number, (name, at) in enumerate(self._some("problem", KEPT.problems)):
            ended = at + 3600 if at < self.now - 3600 else None
            yield (name, f"check_{number % 40}", f"Reason{number % 90}", str(number), "CRIT", "reboot", "it fell",
                   "agent", at, at, ended)  # fmt: skip

    def repairs(self) -> Iterator[Row]:
        """Those of the last hour are under way; one in twenty ended with a person."""
        for number, (name, at) in enumerate(self._some("repair", self.days * DAY), 1):
            over = at < self.now - 3600
            state = "draining" if not over else "returned" if number % 20 else "escalated"
            yield (number, name, f"check_1|Reason1|{number}", "reboot", state, "reboot", at, at,
                   at + 600 + number % 2900 if over else None, '{"waiting": "work runs"}')  # fmt: skip

    def attempts(self) -> Iterator[Row]:
        """One of each repair."""
        for number in range(1, self.episodes + 1):
            at = self.now - self.days * DAY * (1 - number / self.episodes)
            yield (
                number,
                1,
                self.names[number % len(self.names)],
                "reboot",
                "bmc",
                f"k{number}",
                "ended",
                "succeeded",
                at,
            )

    def evidence(self) -> Iterator[Row]:
        """Two pieces of each repair."""
        for number in range(1, self.episodes + 1):
            node, at = self.names[number % len(self.names)], self.now - self.days * DAY * (1 - number / self.episodes)
            for name in ("report.json", "dmesg.txt"):
                yield number, node, name, "text", "0" * 64, 4096, False, at, at + 90 * DAY

    def audit(self) -> Iterator[Row]:
        """Ten rows of each repair."""
        count = self.episodes * 10
        for number in range(1, count + 1):
            yield (number, self.now - self.days * DAY * (1 - number / count), "nhc remedy", "episode.step",
                   self.names[number % len(self.names)], 1 + number // 11, '{"from": "a", "to": "b"}', "0" * 64,
                   "0" * 64)  # fmt: skip

    def coverage(self) -> Iterator[Row]:
        """A span ends where a gap begins."""
        for place, (name, at) in enumerate(self._some("gap", self.days * DAY)):
            yield name, at - 30 * DAY + place * 1e-3, at

    def deep(self) -> Iterator[Row]:
        """A suite of three results."""
        for name, at in self._some("deep suite", KEPT.deep):
            for test in ("gemm", "hbm", "nccl"):
                yield name, "quick", test, "OK", at

    def history(self) -> Iterator[Row]:
        """Kept reports."""
        for place, (name, at) in enumerate(self._some("kept report", KEPT.history)):
            yield name, at + place * 1e-3, "b", "OK", "agent", "d", self.report

    def jobs(self) -> Iterator[Row]:
        """Ten nodes each; the last five hundred run."""
        count = self._count("job", self.days) + 1
        for number in range(1, count + 1):
            some = " ".join(self.names[(number * 10 + place) % len(self.names)] for place in range(10))
            ended = None if number > count - 500 else self.now - DAY * (1 - number / count)
            yield (number, "kube", "PyTorchJob", "team", f"j{number}", f"u{number}", some, 10, self.now - DAY, self.now,
                   ended)  # fmt: skip

    def failures(self) -> Iterator[Row]:
        """Each job failed on one node."""
        for one in self.jobs():
            yield one[0], str(one[6]).split()[0], "r1", "Xid79", self.now

    def restarts(self) -> Iterator[Row]:
        """And was restarted."""
        for one in self.jobs():
            yield one[0], 1, "r1", f"j{one[0]}", "ended", "restarted", self.now, self.now, self.now

    def trains(self) -> Iterator[Row]:
        """One in a quarter of a year."""
        for number in range(1, 1 + int(self.days / 90)):
            at = self.now - number * 80 * DAY
            yield number, f"firmware-{number}", "ended", "ops", "firmware", "{}", at, at, at

    def all_episodes(self) -> Iterator[Row]:
        """Repairs, and the maintenance of all nodes."""
        number = 0
        for row in self.repairs():
            number = max(number, row[0])
            yield (*row, None, 0, "repair")
        for one in self.trains():
            for place, name in enumerate(self.names, 1):
                cause, at = f"train|{one[1]}|", one[6]
                yield (number + place, name, cause, "maintenance", "returned", "reboot", at, at, at, "{}", one[0], 1,
                       "maintenance")  # fmt: skip
            number += len(self.names)

    def tables(self) -> Dict[sa.Table, Tuple[str, Rows]]:
        """The columns that are written, and the rows, of each table."""
        return {
            schema.nodes: ("node kind groups labels verdict since reported_at received_at covered_since source",
                           self.nodes),
            schema.problems: ("node check reason target verdict action message source began seen ended", self.problems),
            schema.episodes: ("id node cause action state rung opened updated ended detail train wave kind",
                              self.all_episodes),
            schema.attempts: ("episode number node rung repairer key state outcome written", self.attempts),
            schema.evidence: ("episode node name kind sha256 size cut collected expires", self.evidence),
            schema.audit: ("seq at actor what node episode detail previous hash", self.audit),
            schema.coverage: ("node began ended", self.coverage),
            schema.deep_results: ("node suite test verdict at", self.deep),
            schema.report_history: ("node started boot_id verdict source digest report", self.history),
            jobs: ("id controller kind namespace name uid nodes wants began seen ended", self.jobs),
            job_nodes: ("job node run why at", self.failures),
            job_restarts: ("job number run key state outcome written updated ended", self.restarts),
            schema.trains: ("id name state by why plan made updated ended", self.trains),
        }  # fmt: skip


def fill(store: Store, past: Past) -> Dict[str, int]:
    """Write it all past the indexes, which are made anew afterwards; how many rows each table got."""
    counts = {}
    for table, (columns, rows) in past.tables().items():
        for index in table.indexes:
            index.drop(store.engine)
        counts[table.name] = (_sqlite if store.sqlite else _copy)(store, table, columns.split(), rows())
        for index in table.indexes:
            index.create(store.engine)
    if not store.sqlite:  # SQLite has none by itself either; a PostgreSQL server does this within minutes
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    return counts


def _batches(rows: Iterator[Row]) -> Iterator[List[Row]]:
    while batch := list(itertools.islice(rows, BATCH)):
        yield batch


def _sqlite(store: Store, table: sa.Table, columns: Sequence[str], rows: Iterator[Row]) -> int:
    named = ", ".join(f'"{name}"' for name in columns)
    text = f'INSERT INTO "{table.name}" ({named}) VALUES ({", ".join("?" * len(columns))})'
    count = 0
    with store.write() as connection:
        cursor = connection.connection.cursor()
        for batch in _batches(rows):
            cursor.executemany(text, batch)
            count += len(batch)
    return count


def _copy(store: Store, table: sa.Table, columns: Sequence[str], rows: Iterator[Row]) -> int:
    """COPY's text format: no value here has a tab, a line end or a backslash."""
    named = ", ".join(f'"{name}"' for name in columns)
    count = 0
    with store.write() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor().copy(f'COPY "{table.name}" ({named}) FROM STDIN') as copy:
            for batch in _batches(rows):
                copy.write("".join("\t".join(map(_text, row)) + "\n" for row in batch))
                count += len(batch)
    return count


def _text(value: object) -> str:
    return "\\N" if value is None else f"\\\\x{value.hex()}" if isinstance(value, bytes) else str(value)
