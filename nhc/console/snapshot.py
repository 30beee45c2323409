"""A fleet at one moment, shared by all viewers, and what changed since the previous snapshot. Pure.

100,000 nodes travel as one text with a letter each beside a list of names that is sent once: 100 kB, not 7 MB.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import AbstractSet, DefaultDict, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.console.fleet_nodes import NEVER, STALE, WORST, FleetNodes, NodeRow
from nhc.core.matching.node_ranges import expand
from nhc.core.matching.nodeset import BadRange
from nhc.core.units import show_age
from nhc.store.problems import RANK, by_cause, group


class NotFound(Exception):
    """The requested object does not exist. One line for a person."""


class ProblemRow(NamedTuple):
    """One open problem, or one that was open until `ended`. `about` is its subject (`nhc.core.model.scope_text`)."""

    node: str
    check: str
    reason: str
    target: str
    verdict: str
    action: str
    message: str
    began: float
    ended: Optional[float] = None
    about: str = ""


class NodeWork(NamedTuple):
    """What nhc does about a node: the next step in words; of episode `episode`, 0 for maintenance or a hold.

    `person` says that nothing continues before a person acts. `out` is since when the node is out of service for it,
    0.0 if it is not; `by` is the part of nhc that took it out. `waits` says what the next step waits for.
    """

    next: str
    episode: int = 0
    cause: str = ""
    state: str = ""
    person: bool = False
    out: float = 0.0
    by: str = ""
    why: str = ""
    waits: str = ""


class Snapshot(NamedTuple):
    """The fleet. `letters` has one letter a node, in the order of `names`; `layout` changes when names or groups do.

    `sizes` are the nodes of each group, by fact and value. `revision` changes with every action: it is the number of
    the audit log's newest row. `standing` is what nhc does about nodes, by name. `notes` are shown on every screen:
    that no node has reported, which files could not be read. `devices` are the accelerators of the nodes that are sick
    or out of service, as far as their reports count them; `jobs` the watched jobs of each node.
    """

    at: float
    layout: str
    names: Tuple[str, ...]
    letters: str
    nodes: Mapping[str, NodeRow]
    problems: Tuple[ProblemRow, ...]
    sizes: Mapping[Tuple[str, str], int]
    revision: int = 0
    standing: Mapping[str, Tuple[NodeWork, ...]] = {}
    notes: Tuple[str, ...] = ()
    devices: Mapping[str, int] = {}
    jobs: Mapping[str, FrozenSet[int]] = {}

    def standing_about(self, problem: ProblemRow) -> Optional[NodeWork]:
        """What is done about a problem: by its own episode, otherwise by another one of its node; None for nothing."""
        works = self.standing.get(problem.node, ())
        own = f"{problem.check}|{problem.reason}|"
        return next((work for work in works if work.cause.startswith(own)), works[0] if works else None)

    def out(self, node: str) -> bool:
        """Whether nhc has the node out of service."""
        return any(work.out for work in self.standing.get(node, ()))

    def needing(self) -> Set[str]:
        """The nodes that wait for a person: approval asked for, left, or CRIT with nothing planned."""
        asked = {node for node, works in self.standing.items() if any(work.person for work in works)}
        return asked | {row.node for row in self.problems if _is_unplanned(row, self.standing)}

    def unplanned(self) -> Snapshot:
        """The same with only those problems that are CRIT on nodes without work or a hold."""
        return self._replace(problems=tuple(row for row in self.problems if _is_unplanned(row, self.standing)))

    def counts(self) -> Dict[str, int]:
        """How many nodes there are of each letter."""
        return {letter: self.letters.count(letter) for letter in WORST}


def _is_unplanned(row: ProblemRow, standing: Mapping[str, Tuple[NodeWork, ...]]) -> bool:
    return row.verdict == "CRIT" and row.ended is None and row.node not in standing


def take(
    nodes: Sequence[NodeRow] | FleetNodes,
    problems: Sequence[ProblemRow],
    now: float,
    stale: float,
    revision: int = 0,
    standing: Mapping[str, Tuple[NodeWork, ...]] = {},
    notes: Sequence[str] = (),
    comes_from: str = "",
    devices: Mapping[str, int] = {},
    jobs: Mapping[str, FrozenSet[int]] = {},
) -> Snapshot:
    """A snapshot. A source that keeps its nodes from one snapshot to the next gives its FleetNodes.

    `comes_from` says in which ways reports arrive: it is shown if there is no fresh one.
    """
    fleet = nodes if isinstance(nodes, FleetNodes) else FleetNodes(nodes)
    letters = fleet.letters(now, stale)
    silence = [_silence(fleet, now, comes_from)] if comes_from and not letters.strip(NEVER + STALE) else []
    return Snapshot(
        now, fleet.layout, fleet.names, letters, fleet.rows.copy(), tuple(problems),
        fleet.sizes.copy(), revision, standing, (*silence, *notes),
        devices, jobs,
    )  # fmt: skip


def _silence(fleet: FleetNodes, now: float, comes_from: str) -> str:
    """The note for a fleet without fresh reports: it would look healthy, since it has no open problem."""
    newest = max((row.reported_at for row in fleet.rows.values() if row.reported_at is not None), default=None)
    if newest is None:
        return f"No node has reported yet; reports come from {comes_from}"
    return f"No node has a fresh report, the newest is {show_age(now - newest)} old; reports come from {comes_from}"


SEARCHED = "names, node sets, racks and other groups, reasons, checks, messages"
"""What `find` looks at, for a person."""


class FoundNodes(NamedTuple):
    """The nodes that a text finds, and how they were found: name, node set, group, reason, message."""

    nodes: AbstractSet[str]
    by: Tuple[str, ...]


def find(snapshot: Snapshot, text: str) -> FoundNodes:
    """The nodes that a typed text means: upper and lower case are the same, blanks around it are ignored. "" is all."""
    wanted = text.strip().lower()
    if not wanted:
        return FoundNodes(snapshot.nodes.keys(), ())
    found: Dict[str, Set[str]] = {"name": {name for name in snapshot.names if wanted in name.lower()}}
    if "[" in wanted or "," in wanted or " " in wanted:
        found["node set"] = _of_set(text.strip(), snapshot)
    groups = {pair for pair in snapshot.sizes if wanted in pair[1].lower() or wanted == "=".join(pair).lower()}
    if groups:
        found["group"] = {name for name, row in snapshot.nodes.items() if not groups.isdisjoint(row.groups.items())}
    for problem in snapshot.problems:
        if problem.ended is None:
            if wanted in f"{problem.reason} {problem.check}".lower():
                found.setdefault("reason", set()).add(problem.node)
            if wanted in f"{problem.message} {problem.target}".lower():
                found.setdefault("message", set()).add(problem.node)
    known = snapshot.nodes.keys()
    return FoundNodes(set().union(*found.values()) & known, tuple(by for by, names in found.items() if names & known))


def _of_set(text: str, snapshot: Snapshot) -> Set[str]:
    """The nodes of sets with commas or blanks between; words of a sentence that name a node are none."""
    try:
        parts = [set(expand(part)) & snapshot.nodes.keys() for part in text.replace(", ", ",").split()]
    except BadRange:
        return set()
    return set().union(*parts) if all(parts) else set()


class LayoutChange(NamedTuple):
    """What makes the layout `before` the layout `layout`: the names that went, and nodes that came or changed groups.

    `put` are the place that each has in the new layout, its name, its letter and its groups, in the order of places.
    """

    before: str
    layout: str
    gone: List[str]
    put: List[Tuple[int, str, str, Mapping[str, str]]]


def layout_change(old: Snapshot, new: Snapshot, most: int) -> Optional[LayoutChange]:
    """What changed in the layout, None if more than `most` nodes changed: then all is sent again."""
    changed = [
        (place, name) for place, (name, row) in enumerate(new.nodes.items())
        if (before := old.nodes.get(name)) is None or before.groups != row.groups
    ]  # fmt: skip
    gone = [name for name in old.names if name not in new.nodes]
    if len(changed) + len(gone) > most:
        return None
    put = [(place, name, new.letters[place], new.nodes[name].groups) for place, name in changed]
    return LayoutChange(old.layout, new.layout, gone, put)


PART = 512
"""Letters that are compared at once: most parts of a large fleet are as they were."""


def changes(old: Snapshot, new: Snapshot) -> List[Tuple[int, str]]:
    """The places in the new snapshot of nodes whose letter changed. New nodes are not among them."""
    if old.layout != new.layout and old.names != new.names:
        before = dict(zip(old.names, old.letters))
        named = enumerate(zip(new.names, new.letters))
        return [(place, letter) for place, (name, letter) in named if before.get(name, letter) != letter]
    if old.letters == new.letters:
        return []
    return [
        (place, new.letters[place])
        for first in range(0, len(new.letters), PART)
        if old.letters[first : first + PART] != new.letters[first : first + PART]
        for place in range(first, min(first + PART, len(new.letters)))
        if old.letters[place] != new.letters[place]
    ]


def changed_nodes(old: Snapshot, new: Snapshot) -> List[str]:
    """The nodes whose problems changed, in the order of their names."""
    if old.problems == new.problems:
        return []
    return sorted({row.node for row in set(old.problems) ^ set(new.problems)})


# Problems, folded by their cause.


class NextStep(NamedTuple):
    """What follows for some of the nodes with one problem; `next` is "" where nothing is planned.

    `episode` is that of the first of them, 0 without one.
    """

    next: str
    nodes: int
    episode: int
    person: bool


class FleetProblem(NamedTuple):
    """Nodes with one problem: how many, which, since when, and how many got it in each part of the last hour.

    `shares` are groups in which it is frequent: fact, group, how many of its nodes, of how many. `out` is how many of
    the nodes are out of service; `plans` what follows for how many; `jobs` and `devices` how many watched jobs and
    accelerators are on them, as far as that is known.
    """

    check: str
    reason: str
    verdict: str
    action: str
    message: str
    affected: int
    nodes: str
    began: float
    trend: Tuple[int, ...]
    shares: Tuple[Tuple[str, str, int, int], ...]
    out: int = 0
    plans: Tuple[NextStep, ...] = ()
    jobs: int = 0
    devices: int = 0


TREND_PARTS = 12
"""Parts of the last hour, five minutes each."""
PLANS = 5
"""Different next steps that one problem shows."""
SHARE = 0.5
"""A group is named from this share of its nodes on: 16 of the 18 nodes of a rack are one cause more often than 16."""


def fold_causes(snapshot: Snapshot) -> List[FleetProblem]:
    """The open problems, the worst and the most frequent first."""
    standing = by_cause(problem for problem in snapshot.problems if problem.ended is None)
    causes = [_cause(rows, snapshot) for rows in standing.values()]
    return sorted(causes, key=lambda cause: (-RANK.get(cause.verdict, 0), -cause.affected, cause.check, cause.reason))


def _cause(rows: Sequence[ProblemRow], snapshot: Snapshot) -> FleetProblem:
    folded = group(rows)
    trend = [0] * TREND_PARTS
    for row in rows:
        part = int((snapshot.at - row.began) // (3600 / TREND_PARTS))
        if 0 <= part < TREND_PARTS:
            trend[TREND_PARTS - 1 - part] += 1
    return FleetProblem(
        folded.check, folded.reason, folded.verdict, folded.action, folded.message, len(folded.affected), folded.nodes,
        folded.began, tuple(trend), _shares(folded.affected, snapshot), sum(map(snapshot.out, folded.affected)),
        _plans(rows, snapshot), len(set().union(*(snapshot.jobs.get(node, ()) for node in folded.affected))),
        sum(snapshot.devices.get(node, 0) for node in folded.affected),
    )  # fmt: skip


def _plans(rows: Sequence[ProblemRow], snapshot: Snapshot) -> Tuple[NextStep, ...]:
    """What follows, the most frequent first."""
    steps: Dict[Tuple[str, bool], Dict[str, int]] = {}
    for row in rows:
        about = snapshot.standing_about(row)
        key = (about.next, about.person) if about else ("", False)
        steps.setdefault(key, {}).setdefault(row.node, about.episode if about else 0)
    made = (NextStep(text, len(of), next(iter(of.values())), person) for (text, person), of in steps.items())
    return tuple(sorted(made, key=lambda plan: -plan.nodes)[:PLANS])


def _shares(names: Sequence[str], snapshot: Snapshot) -> Tuple[Tuple[str, str, int, int], ...]:
    hit: Counter[Tuple[str, str]] = Counter()
    for name in names:
        row = snapshot.nodes.get(name)
        if row is not None:
            hit.update(row.groups.items())
    sizes = snapshot.sizes
    shares = [
        (*group, count, sizes[group]) for group, count in hit.items() if count > 1 and count >= SHARE * sizes[group]
    ]
    return tuple(sorted(shares, key=lambda share: (-share[2], share[:2]))[:5])


# Checks by group.


class CheckGroup(NamedTuple):
    """What one check says in one group: nodes with a problem by verdict, of how many nodes with a fresh report."""

    check: str
    group: str
    crit: int
    unknown: int
    warn: int
    nodes: int


def check_matrix(snapshot: Snapshot, fact: str) -> List[CheckGroup]:
    """Every check that complains of something, by the groups of a fact. Groups without a complaint are left out."""
    of = {node: row.groups.get(fact, "") for node, row in snapshot.nodes.items()}
    judged = Counter(of[name] for name, letter in zip(snapshot.names, snapshot.letters) if letter not in (STALE, NEVER))
    cells: Dict[Tuple[str, str], DefaultDict[str, set[str]]] = {}
    for problem in snapshot.problems:
        if problem.ended is None and problem.node in of:
            cell = cells.setdefault((problem.check, of[problem.node]), defaultdict(set))
            cell[problem.verdict].add(problem.node)
    return [
        CheckGroup(check, group, len(cell["CRIT"]), len(cell["UNKNOWN"]), len(cell["WARN"]), judged[group])
        for (check, group), cell in sorted(cells.items())
    ]
