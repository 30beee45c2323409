"""How far deep checks reach: each node's last deep verdict with its age, groups by age, and who is due. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.console.snapshot import Snapshot
from nhc.core.matching.node_ranges import fold
from nhc.store.deep import DAY, DeepRule, LastVerdict, due

AGES: Tuple[Tuple[str, float], ...] = (("1 day", DAY), ("7 days", 7 * DAY), ("30 days", 30 * DAY))
"""Limits of the age groups; what is older than the last of them is one group, what was never tested another."""
_LIMITS = [limit for _name, limit in AGES]
BACK = 90 * DAY
"""How far back verdicts are looked for: an older one says no more of a node than none."""
RULE = DeepRule()
"""Who is due: without a good verdict of the last seven days, as `nhc deep due` asks by default."""
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
