"""The last deep verdict of each node, and the views made of them, shared by all viewers and read before they ask.

Nothing about a fleet's deep checks changes within a minute, and reading all of it takes longer than a viewer waits. So
the console's background reads it whole once an hour and what is new every half minute, and updates the views that are
in use. A viewer's request reads the store only if the background is late.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.console.snapshot import Snapshot
from nhc.core.matching.node_ranges import fold
from nhc.marks.policy.deep_due import DAY, DeepRule, LastVerdict, due
from nhc.store import deep
from nhc.store.database import Store

# The coverage of deep checks: each node's last deep verdict with its age, groups by age, and which nodes are due. Pure.


AGES: Tuple[Tuple[str, float], ...] = (("1 day", DAY), ("7 days", 7 * DAY), ("30 days", 30 * DAY))
"""Limits of the age groups; older verdicts form one group, nodes that were never tested another."""
_LIMITS = [limit for _name, limit in AGES]
BACK = 90 * DAY
"""How far back verdicts are read: an older one says no more about a node than none."""
RULE = DeepRule()
"""Which nodes are due: those without a good verdict of the last seven days, the default of `nhc deep due`."""
ROWS = 200

LastVerdicts = Dict[Tuple[str, str], LastVerdict]
Value = Dict[str, object]


class AgeGroup(NamedTuple):
    """Nodes of one group of a fact, by the age of their last deep verdict. `ages` in the order of `AGES`."""

    group: str
    nodes: int
    ages: Tuple[int, ...]
    older: int
    never: int
    bad: int
    due: int


def newest(verdicts: Mapping[Tuple[str, str], LastVerdict], suite: str = "") -> Dict[str, LastVerdict]:
    """Each node's newest verdict, of one suite or of any."""
    by_node: Dict[str, LastVerdict] = {}
    for last in verdicts.values():
        if (not suite or last.suite == suite) and (last.node not in by_node or by_node[last.node].at < last.at):
            by_node[last.node] = last
    return by_node


def deep_coverage(
    snapshot: Snapshot, verdicts: Mapping[Tuple[str, str], LastVerdict], fact: str, suite: str, now: float
) -> Value:
    """The screen: groups of a fact by age, who is due and why, the oldest verdicts first."""
    last = newest(verdicts, suite)
    rule = RULE._replace(suites=(suite,) if suite else ())
    late = due(snapshot.names, verdicts, rule, now) if snapshot.names else ()
    rows = _groups(snapshot, last, {entry.node for entry in late}, fact, now)
    never = [entry.node for entry in late if entry.age is None]
    tested = sorted((entry for entry in late if entry.age is not None), key=lambda entry: -(entry.age or 0.0))
    first = tested[:ROWS]
    return {
        "at": now, "fact": fact, "suite": suite, "days": round(BACK / DAY), "younger_days": round(rule.younger / DAY),
        "facts": sorted({name for row in snapshot.nodes.values() for name in row.groups}),
        "suites": sorted({entry.suite for entry in verdicts.values()}), "ages": [name for name, _limit in AGES],
        "rows": [row._asdict() for row in rows[: 10 * ROWS]], "left_out": max(0, len(rows) - 10 * ROWS),
        "due": len(late), "never": {"count": len(never), "nodes": fold(never[:ROWS])},
        "late": [{**entry._asdict(), **_verdict(last.get(entry.node))} for entry in first],
        "late_left_out": len(tested) - len(first),
    }  # fmt: skip


def _verdict(last: Optional[LastVerdict]) -> Value:
    return {"verdict": last.verdict, "suite": last.suite} if last else {"verdict": "", "suite": ""}


def _groups(
    snapshot: Snapshot, last: Mapping[str, LastVerdict], late: set[str], fact: str, now: float
) -> List[AgeGroup]:
    members: Dict[str, List[str]] = {}
    for name in snapshot.names:
        members.setdefault(snapshot.nodes[name].groups.get(fact, ""), []).append(name)
    rows = []
    for group, names in members.items():
        counts = [0] * (len(AGES) + 1)
        for name in names:
            if name in last:
                age = last[name].age(now)
                counts[bisect_right(_LIMITS, age)] += 1
        rows.append(AgeGroup(
            group, len(names), tuple(counts[:-1]), counts[-1], sum(name not in last for name in names),
            sum(name in last and last[name].verdict == "CRIT" for name in names), sum(name in late for name in names),
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (-row.due, row.group))


def letters_of_deep(snapshot: Snapshot, verdicts: Mapping[Tuple[str, str], LastVerdict], now: float) -> Value:
    """The map recoloured by the last deep verdict: too old is stale, a node without one was never tested."""
    last = newest(verdicts)
    worst = {"OK": "o", "WARN": "w", "CRIT": "c"}
    letters = "".join(
        "n" if name not in last
        else "s" if last[name].verdict != "CRIT" and last[name].age(now) >= RULE.younger
        else worst.get(last[name].verdict, "u")
        for name in snapshot.names
    )  # fmt: skip
    return {"layout": snapshot.layout, "at": now, "letters": letters, "check": "deep"}


FRESH = 60.0
"""Seconds after which a request reads verdicts again; the background does so after half of them."""
WHOLE = 3600.0
LOOKED = 600.0
"""Seconds for which the background updates a view after the last request for it."""
ANSWERS = 64
"""Views that are cached for further viewers."""


class DeepView(NamedTuple):
    """What was asked for: the screen of a fact and a suite, or the letters of the map."""

    layout: str
    fact: str = ""
    suite: str = ""
    letters: bool = False


class _Verdicts(NamedTuple):
    """The result of one read of the store, and the views made of it. `marks` are the newest numbers of the last two."""

    latest: LastVerdicts
    read: float
    whole: float
    marks: Tuple[int, int]
    views: Dict[DeepView, Value]


class DeepReader:
    """Threads share it: the verdicts are replaced together, and no viewer waits for a thread that reads newer ones."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store, self.clock = store, clock
        self._reading, self._making = threading.Lock(), threading.Lock()
        self._asked: Dict[DeepView, float] = {}
        self._verdicts = _Verdicts({}, float("-inf"), float("-inf"), (0, 0), {})

    def latest(self) -> LastVerdicts:
        """The verdicts, at most a minute old. Raises StoreError."""
        return self._current().latest

    def view(self, snapshot: Snapshot, fact: str, suite: str) -> Value:
        """The screen of a fact and a suite. Raises StoreError."""
        return self._screen(snapshot, DeepView(snapshot.layout, fact, suite))

    def letters(self, snapshot: Snapshot) -> Value:
        """The map recoloured. Raises StoreError."""
        return self._screen(snapshot, DeepView(snapshot.layout, letters=True))

    def refresh(self, snapshot: Optional[Snapshot]) -> None:
        """The background's turn: read before a request comes, then update the views in use. Raises StoreError."""
        with self._reading:
            old, now = self._verdicts, self.clock()
            new = self._read(old, now, FRESH / 2, WHOLE - FRESH)
            self._asked = {view: at for view, at in list(self._asked.items()) if 0 <= now - at < LOOKED}
            if new is old:
                return
            for view in self._asked:
                if snapshot is not None and view.layout == snapshot.layout:
                    new.views[view] = _made(snapshot, new.latest, view, now)
            self._verdicts = new

    def _screen(self, snapshot: Snapshot, view: DeepView) -> Value:
        verdicts, now = self._current(), self.clock()
        value = verdicts.views.get(view)
        if value is None:
            with self._making:
                value = verdicts.views.get(view)
                if value is None:
                    value = _made(snapshot, verdicts.latest, view, now)
                    if len(verdicts.views) >= ANSWERS:
                        verdicts.views.clear()
                        self._asked.clear()
                    verdicts.views[view] = value
        self._asked[view] = now
        return value

    def _current(self) -> _Verdicts:
        """Those of the background, unless it is late."""
        verdicts, now = self._verdicts, self.clock()
        if 0 <= now - verdicts.read < FRESH:
            return verdicts
        with self._reading:
            self._verdicts = self._read(self._verdicts, now, FRESH, WHOLE)
            return self._verdicts

    def _read(self, old: _Verdicts, now: float, fresh: float, whole: float) -> _Verdicts:
        if now - old.whole >= whole or now < old.whole:
            with self.store.read() as connection:
                newest = deep.newest_id(connection)
                latest = deep.last_conclusive(connection, since=now - BACK)
            return _Verdicts(latest, now, now, (newest, newest), {})
        if now - old.read < fresh:
            return old
        # From the mark before the last one on: PostgreSQL gives numbers before it commits, so that a row with a smaller
        # number may become visible after one with a larger number.
        with self.store.read() as connection:
            newest = deep.newest_id(connection)
            names = deep.nodes_since(connection, old.marks[0])
            new = deep.last_conclusive(connection, names, since=now - BACK) if names else {}
        latest = {**old.latest, **new} if new else old.latest
        return _Verdicts(latest, now, old.whole, (old.marks[1], newest), {})


def _made(snapshot: Snapshot, latest: LastVerdicts, view: DeepView, now: float) -> Value:
    if view.letters:
        return letters_of_deep(snapshot, latest, now)
    return deep_coverage(snapshot, latest, view.fact, view.suite, now)
