"""Causes that come together on the same nodes are one incident: a burst, which `silence` seconds of none end. Pure.

A GPU that is lost is an Xid, a failed check, a link that is down and a hung process, all within minutes: who is on duty
gets one notice, which names them all. The first cause leads, or a worse one that came before anybody was told; the
others join it and are told of with it. What comes on other nodes is an incident of its own: it would be hidden. Jobs
are their owners' affair, and never one incident with the faults of nodes.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, Sequence, Tuple

from nhc.console.notices.notice import JOB, RESOLVED, Incident, cut
from nhc.store.problem_groups import RANK, folded

ALSO = 10
"""Causes that a notice names besides the one that leads."""
LINE = 300
"""Characters of each."""


def worst_first(incident: Incident) -> Tuple[int, int, str]:
    """The order in which incidents are told of."""
    return -RANK.get(incident.verdict, 0), -incident.affected, incident.key


def members(incidents: Mapping[str, Incident]) -> Dict[str, List[Incident]]:
    """What has joined each incident that leads, the worst first."""
    joined: Dict[str, List[Incident]] = {}
    for incident in sorted(incidents.values(), key=worst_first):
        if incident.joined:
            joined.setdefault(incident.joined, []).append(incident)
    return joined


def join(
    incidents: Dict[str, Incident], nodes: Mapping[str, FrozenSet[str]], silence: float, now: float
) -> Dict[str, Incident]:
    """The incidents, those that have begun at this look joined to the bursts that they belong to.

    `nodes` are those of each incident that stands.
    """
    after = {key: _on_its_own_again(incident, incidents) for key, incident in incidents.items()}
    _let_the_next_lead(after)
    if not silence:
        return after
    others = members(after)
    bursts = _Bursts(after, nodes)
    begun = []
    for incident in sorted(after.values(), key=worst_first):
        if incident.joined:
            continue
        if incident.opened == now and incident.notified in ("", RESOLVED) and incident.key not in others:
            begun.append(incident)
        elif now - max(incident.opened, incident.newest) <= silence:
            bursts.add(incident.key, *(each.key for each in others.get(incident.key, ())))
    for incident in begun:
        leading = bursts.of(incident)
        if leading:
            _join(after, leading, incident.key, now)
        else:
            bursts.add(incident.key)
    return after


def whole(leading: Incident, others: Sequence[Incident], nodes: Mapping[str, FrozenSet[str]]) -> Incident:
    """A burst as its leading incident: the worst verdict, the nodes of all, and gone once each of them is gone."""
    standing = [each for each in (leading, *others) if not each.gone]
    if not others or not standing:
        return leading._replace(gone=max(each.gone for each in (leading, *others)))
    worst = min(standing, key=worst_first)
    names = frozenset[str]().union(*(nodes.get(each.key, frozenset()) for each in standing))
    return leading._replace(
        gone=0.0, verdict=worst.verdict, action=worst.action, affected=len(names), nodes=folded(sorted(names))
    )


def also(others: Sequence[Incident]) -> Tuple[str, ...]:
    """A line for each cause that has joined and stands; the last one counts what is too many."""
    standing = [each for each in others if not each.gone]
    lines = [
        cut(f"{each.verdict} {each.reason or each.check} ({each.nodes}): {each.message}", LINE)
        for each in standing[:ALSO]
    ]
    return (*lines, *([f"and {len(standing) - ALSO} more"] if len(standing) > ALSO else []))


def _on_its_own_again(incident: Incident, incidents: Mapping[str, Incident]) -> Incident:
    """An incident without its burst, where that is over: what comes back then has just begun."""
    leading = incidents.get(incident.joined)
    if not incident.joined or (leading is not None and not (leading.gone and leading.notified == RESOLVED)):
        return incident
    return incident._replace(joined="")


def _let_the_next_lead(after: Dict[str, Incident]) -> None:
    """Where a cause that leads has ended before it was told of, the worst that stands leads."""
    for key, others in members(after).items():
        standing = [each.key for each in others if not each.gone]
        if standing and after[key].gone and not after[key].notified:
            _lead(after, key, standing[0])


def _join(after: Dict[str, Incident], leading: str, key: str, now: float) -> None:
    """Join an incident to a burst. It leads, if it is worse and nobody was told of the burst yet."""
    old, new = after[leading], after[key]
    if old.notified in ("", RESOLVED) and RANK.get(new.verdict, 0) > RANK.get(old.verdict, 0):
        after[key] = new._replace(opened=old.opened, newest=now)
        _lead(after, leading, key)
    else:
        after[key] = new._replace(joined=leading)
        after[leading] = old._replace(newest=now)


def _lead(after: Dict[str, Incident], old: str, new: str) -> None:
    after[new] = after[new]._replace(joined="")
    for key, each in list(after.items()):
        if key != new and old in (key, each.joined):
            after[key] = each._replace(joined=new)


class _Bursts:
    """The bursts that something may join yet, by the nodes that they are on."""

    def __init__(self, incidents: Mapping[str, Incident], nodes: Mapping[str, FrozenSet[str]]) -> None:
        self._incidents, self._nodes = incidents, nodes
        self._on: Dict[str, List[str]] = {}
        self._sizes: Dict[str, int] = {}

    def add(self, key: str, *joined: str) -> None:
        """One more, with what has joined it."""
        names = frozenset[str]().union(*(self._nodes.get(each, frozenset()) for each in (key, *joined)))
        self._sizes[key] = len(names)
        for node in names:
            self._on.setdefault(node, []).append(key)

    def of(self, incident: Incident) -> str:
        """The burst that an incident belongs to: most nodes of each are the other's too; "" for none."""
        own = self._nodes.get(incident.key, frozenset())
        shared: Dict[str, int] = {}
        for node in own:
            for key in self._on.get(node, ()):
                shared[key] = shared.get(key, 0) + 1
        for key, count in sorted(shared.items(), key=lambda each: -each[1]):
            leading = self._incidents[self._incidents[key].joined or key]
            of_jobs = [each.place if each.check == JOB else "" for each in (leading, incident)]
            if of_jobs[0] == of_jobs[1] and count * 2 > max(len(own), self._sizes[key]):
                return leading.key
        return ""
