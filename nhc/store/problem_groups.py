"""Problems of many nodes as one, by their cause: what the console lists and what notices are made of. Pure."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Protocol, Sequence, Tuple, TypeVar

from nhc.core.matching.node_ranges import fold

RANK = {"CRIT": 3, "UNKNOWN": 2, "WARN": 1}
"""Verdicts of problems, the worst the highest."""

NODES_LIMIT = 400
"""Characters of a folded set of nodes in a list; the whole set is asked for by its own address."""


class OpenProblem(Protocol):
    """One problem of one node, whichever row it stands in. `began` is Unix time."""

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
