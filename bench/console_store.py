"""How long each screen of the console waits for the store, over a fleet with a past.

    python bench/console_store.py                              # 10,000 nodes and 30 days: half a minute
    python bench/console_store.py --nodes 100000 --days 365    # a year of a large fleet: minutes, some GB

`bench/fleet_past.py` says how many events that is, and why. SQLite in a file, and a PostgreSQL server that is started
for this (`--only` takes one of them); what is asked is what the routes ask. Limit: 100 ms for each screen's median.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from typing import Callable, Dict, Iterator, List, Tuple, TypeVar

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench.common import verdict
from bench.fleet_past import DAY, Past, fill
from nhc.console import screens
from nhc.console.deep_reader import DeepReader
from nhc.console.hub import Hub
from nhc.console.metrics import exposition
from nhc.console.sources import StoreSource
from nhc.store import deep
from nhc.store.commands.store import overview
from nhc.store.connect import open_store
from nhc.store.coverage import ReportSpan
from nhc.store.database import Store
from nhc.store.deep import DeepResult
from nhc.store.schema import REVISION
from tests.support.postgresql import Cluster, programs

T = TypeVar("T")
KINDS = ("sqlite", "postgresql")


def measured(name: str, ask: Callable[[], object], times: int) -> float:
    """The median of some runs in milliseconds. The first, whose pages may come from the disk, is shown beside it."""
    spent = []
    for _ in range(times + 1):
        began = time.perf_counter()
        ask()
        spent.append((time.perf_counter() - began) * 1e3)
    first, *others = spent
    found = statistics.median(others)
    print(verdict(f"{name} (ms; first {first:.1f}, most {max(others):.0f})", found, 100.0), flush=True)
    return found


@contextlib.contextmanager
def opened(kind: str, scratch: str) -> Iterator[Store]:
    """An empty store of a kind."""
    with contextlib.ExitStack() as stack:
        if kind == "sqlite":
            url = f"sqlite:///{scratch}/store.db"
        else:
            cluster = Cluster(programs())
            stack.callback(cluster.remove)
            url = cluster.database()
        store = open_store(url, anchor=f"{scratch}/{kind}.anchor")
        stack.callback(store.close)
        yield store


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--scratch", default=None, help="where SQLite's file is made; some GB for the year")
    options = parser.parse_args()
    slow: List[str] = []
    for kind in [options.only] if options.only else KINDS:
        with (
            tempfile.TemporaryDirectory(prefix="nhc-bench-", dir=options.scratch) as scratch,
            opened(kind, scratch) as store,
        ):
            began = time.perf_counter()
            past = Past(options.nodes, options.days, time.time())
            counts = fill(store, past)
            print(", ".join(f"{count} {name}" for name, count in counts.items()))
            size, spent = overview(store, REVISION).size / 1e6, time.perf_counter() - began
            print(f"{kind}: {options.nodes} nodes, {options.days:g} days: {size:.0f} MB, made in {spent:.0f} s")
            slow += [f"{kind}: {name}" for name in ask(store, past, options.times)]
    if slow:
        raise SystemExit(f"over 100 ms: {', '.join(slow)}")


def took(make: Callable[[], T]) -> Tuple[float, T]:
    """The CPU seconds of this process, and what was made."""
    began = time.process_time()
    made = make()
    return time.process_time() - began, made


def ask(store: Store, past: Past, times: int) -> List[str]:
    """Each screen, with another node each time; those that are too slow."""
    now, chance = past.now, random.Random(3)

    def node() -> str:
        return chance.choice(past.names)

    source = StoreSource(store, 600, lambda: now)
    first, snapshot = took(source.snapshot)
    later = statistics.median(took(source.snapshot)[0] for _ in range(times))
    print(f"the picture that all viewers share, read in the background: {first:.2f} s of CPU, then {later:.3f} s")
    print(verdict("a picture after the first, of the first's CPU", later / first, 0.2))
    clock = [now]
    reader = DeepReader(store, lambda: clock[0])
    in_the_background: Dict[str, Callable[[], object]] = {
        "all deep verdicts, once an hour": lambda: reader.refresh(None),
        "offenders, twice a minute": lambda: screens.offenders(store, now),
        "problems by cause, once a picture": lambda: screens.causes(snapshot),
        "groups of the map, once a picture": lambda: screens.groups(snapshot, "rack"),
        "coverage of deep checks, for who asks first": lambda: reader.view(snapshot, "rack", ""),
        "the same, kept up for all others": lambda: _later(clock, lambda: reader.refresh(snapshot)),
    }
    for name, made in in_the_background.items():
        began, spent = time.perf_counter(), time.process_time()
        made()
        wall, cpu = time.perf_counter() - began, time.process_time() - spent
        print(f"made for all who look: {name}: {wall:.2f} s, of which {cpu:.2f} s CPU time of this process")

    def newer() -> object:
        with store.write() as connection:
            deep.add(connection, [DeepResult(node(), "quick", "gemm", "", None, "", "OK", "", clock[0])])
        return _later(clock, reader.told)

    year = ReportSpan(now - past.days * DAY, now)
    day = ReportSpan(now - DAY, now)
    asked: Dict[str, Callable[[], object]] = {
        "a node: episodes": lambda: screens.episodes_of(store, node()),
        "a node: jobs, trains, spares, deep verdicts": lambda: screens.work_on_node(store, node(), now),
        "a node: its report": lambda: source.report(node()),
        "timeline of a day": lambda: screens.timeline(store, node(), day, 600),
        "timeline of all time": lambda: screens.timeline(store, node(), year, 600),
        "episodes, open": lambda: screens.list_episodes(store, now, True),
        "episodes, ended": lambda: screens.list_episodes(store, now, False),
        "an episode": lambda: screens.episode(store, chance.randint(1, past.episodes)),
        "held back": lambda: screens.held_back(store, now),
        "audit, the newest": lambda: screens.audit_page(store, 0, ""),
        "audit of a node": lambda: screens.audit_page(store, 0, node()),
        "a job": lambda: screens.job(store, 1),
        "metrics": lambda: exposition(hub, store, now),
        "deep verdicts that are new": newer,
    }
    hub = Hub(source, 60, lambda: now)
    return [name for name, one in asked.items() if measured(name, one, times) > 100.0]


def _later(clock: List[float], ask: Callable[[], object]) -> object:
    clock[0] += 61
    return ask()


if __name__ == "__main__":
    main()
