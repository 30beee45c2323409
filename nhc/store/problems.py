"""Present and past problems of nodes: when each began, was last seen, and ended.

Problems of many nodes with the same cause are folded into one: the console lists these, and notices are made of them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Dict, Iterable, List, NamedTuple, Optional, Protocol, Sequence, Tuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.matching.node_ranges import fold
from nhc.core.model import DeviceId, Scope, scope_text
from nhc.store.intake import Findings, ReportedProblem, ends
from nhc.store.schema import of_nodes, problems, with_end


class StoredProblem(NamedTuple):
    """One row. Times are the reports' own; `seen` may be older by the store's `refresh`."""

    id: int
    node: str
    check: str
    reason: str
    target: str
    verdict: str
    action: str
    message: str
    source: str
    began: float
    seen: float
    ended: Optional[float]
    scope: str = ""
    device: str = ""

    def device_id(self) -> DeviceId:
        """The device with the problem, as its report named it."""
        return _device(self.device)

    def about(self) -> str:
        """What the problem is about, for a person; "" for the node."""
        return scope_text(Scope(self.scope), self.device_id()) if self.scope else ""


@lru_cache(maxsize=8192)  # the console and the loop read each open problem every few seconds
def _device(names: str) -> DeviceId:
    value = json.loads(names) if names else {}
    return DeviceId(**{name: value[name] for name in DeviceId._fields if name in value})


class Going:
    """The problems of some nodes while reports are processed; `save` writes what has changed."""

    def __init__(self, connection: Connection, nodes: Iterable[str]) -> None:
        self.connection = connection
        self._open: Dict[str, Dict[Tuple[str, str, str], StoredProblem]] = {node: {} for node in nodes}
        self._changed: Dict[int, StoredProblem] = {}
        self._new: Dict[int, StoredProblem] = {}
        for row in _open_ones(connection, sorted(self._open)):
            self._open[row.node][row.check, row.reason, row.target] = row

    def apply(self, node: str, findings: Findings, source: str, started: float) -> None:
        """Process one report; reports of a node come in their order."""
        standing = self._open[node]
        present = set()
        for finding in findings.problems:
            present.add(finding.key)
            before = standing.get(finding.key)
            if before is None:
                number = -len(self._new) - 1
                problem = StoredProblem(number, node, *finding[:6], source, started, started, None, *finding[6:])
                self._new[number] = problem
                standing[finding.key] = problem
            else:
                self._keep(standing, before._replace(
                    verdict=finding.verdict, action=finding.action, message=finding.message, source=source,
                    seen=started, scope=finding.scope, device=finding.device,
                ))  # fmt: skip
        for key, problem in list(standing.items()):
            if key not in present:
                finding = ReportedProblem(*key, problem.verdict, problem.action, problem.message)
                if ends(finding, problem.source, findings, source):
                    self._keep(standing, problem._replace(ended=started))
                    del standing[key]

    def _keep(self, standing: Dict[Tuple[str, str, str], StoredProblem], problem: StoredProblem) -> None:
        standing[problem.check, problem.reason, problem.target] = problem
        (self._new if problem.id < 0 else self._changed)[problem.id] = problem

    def save(self) -> None:
        """Write everything that has changed: ends first, so that a problem that began again finds its key free."""
        here = problems.c.id == sa.bindparam("b_id")
        ended = [{"b_id": row.id, "ended": row.ended} for row in self._changed.values() if row.ended is not None]
        if ended:
            self.connection.execute(sa.update(problems).where(here).values(ended=sa.bindparam("ended")), ended)
        names = ("verdict", "action", "message", "source", "seen", "scope", "device")
        seen = [
            {"b_id": row.id, **{name: getattr(row, name) for name in names}}
            for row in self._changed.values()
            if row.ended is None
        ]
        if seen:
            change = sa.update(problems).where(here).values({name: sa.bindparam(name) for name in names})
            self.connection.execute(change, seen)
        if self._new:
            rows = [
                {name: value for name, value in row._asdict().items() if name != "id"} for row in self._new.values()
            ]
            self.connection.execute(sa.insert(problems), rows)


def list_problems(
    connection: Connection,
    *,
    nodes: Optional[Sequence[str]] = None,
    is_open: Optional[bool] = True,
    since: Optional[float] = None,
) -> List[StoredProblem]:
    """Problems by node and time: open ones (None: all), those that were open at or after `since`, of these nodes."""
    asked = sa.select(problems).where(with_end(problems, is_open))
    asked = asked.order_by(problems.c.node, problems.c.began, problems.c.id)
    if since is not None:
        asked = asked.where(sa.or_(problems.c.ended.is_(None), problems.c.ended >= since))
    return [StoredProblem._make(row) for query in of_nodes(asked, problems, nodes) for row in connection.execute(query)]


def newest_of(connection: Connection, node: str, since: float, until: float, limit: int) -> List[StoredProblem]:
    """A node's problems of a time, at most `limit`: open ones first, then the newest."""
    stood = sa.or_(problems.c.ended.is_(None), problems.c.ended >= since)
    asked = sa.select(problems).where(problems.c.node == node, problems.c.began <= until, stood)
    order = (problems.c.ended.is_not(None), problems.c.began.desc(), problems.c.id)
    return [StoredProblem._make(row) for row in connection.execute(asked.order_by(*order).limit(limit))]


def _open_ones(connection: Connection, names: Sequence[str]) -> List[StoredProblem]:
    asked = of_nodes(sa.select(problems).where(problems.c.ended.is_(None)), problems, names)
    return [StoredProblem._make(row) for query in asked for row in connection.execute(query)]


RANK = {"CRIT": 3, "UNKNOWN": 2, "WARN": 1}
"""Verdicts of problems, the worst the highest."""

NODES_LIMIT = 400
"""Characters of a folded set of nodes in a list; the whole set has its own address."""


class OpenProblem(Protocol):
    """One problem of one node, from any kind of row. `began` is Unix time."""

    @property
    def node(self) -> str: ...
    @property
    def check(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def began(self) -> float: ...


class ProblemGroup(NamedTuple):
    """Nodes with one problem. Verdict, action and message are the worst's, the oldest of them; `nodes` is cut."""

    check: str
    reason: str
    verdict: str
    action: str
    message: str
    nodes: str
    affected: Tuple[str, ...]
    began: float


P = TypeVar("P", bound=OpenProblem)


def by_cause(problems: Iterable[P]) -> Dict[Tuple[str, str], List[P]]:
    """Problems by check and reason."""
    groups: Dict[Tuple[str, str], List[P]] = {}
    for problem in problems:
        groups.setdefault((problem.check, problem.reason), []).append(problem)
    return groups


def folded(names: Sequence[str]) -> str:
    """A set of nodes for a list, cut."""
    text = fold(names)
    return text if len(text) <= NODES_LIMIT else text[: NODES_LIMIT - 1] + "…"


def group(problems: Sequence[OpenProblem]) -> ProblemGroup:
    """Problems of one cause (at least one) as one."""
    worst = max(problems, key=lambda problem: (RANK.get(problem.verdict, 0), -problem.began))
    names = tuple(sorted({problem.node for problem in problems}))
    return ProblemGroup(
        worst.check, worst.reason, worst.verdict, worst.action, worst.message, folded(names), names,
        min(problem.began for problem in problems),
    )  # fmt: skip
