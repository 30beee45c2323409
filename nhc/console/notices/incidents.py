"""Makes incidents from problems, and decides which notices are due: one for each cause in each group, bounded. Pure.

Nodes that get the same fault within `wait` share one notice, and causes that come on the same nodes without three
minutes of silence between them are one incident (`nhc.console.notices.incidents`). Later changes are sent at most once
per `cooldown`, counted from the last notice. A recovery is sent after it has lasted for `settle` (longer if the
incident flaps); a fault that returns before that belongs to the same incident. A notice that is held back never delays
the notice of another fault.
"""

from __future__ import annotations

import hashlib
import json
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.console.notices.notice import JOB, OPEN, REFRESH, REPEAT, RESOLVED, UPDATE, Incident, Notice, cut
from nhc.core.json_values import parse_object
from nhc.core.settings import declared
from nhc.store.problems import RANK, by_cause, folded, group

# Causes that come together on the same nodes are one incident: a burst, which ends after `silence` seconds without a
# new one. Pure.
#
# A GPU that is lost is an Xid, a failed check, a link that is down and a hung process, all within minutes: the person
# on duty gets one notice, which names them all. The first cause leads, or a worse one that came before the first
# notice; the others join it and are named with it. A cause on other nodes is a separate incident: it would be hidden
# otherwise. Faults of jobs concern their owners, and are never one incident with the faults of nodes.


ALSO = 10
"""Causes that a notice names besides the one that leads."""
LINE = 300
"""Characters of each."""


def worst_first(incident: Incident) -> Tuple[int, int, str]:
    """The order in which incidents are reported."""
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

    `nodes` are those of each open incident.
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


def whole_burst(leading: Incident, others: Sequence[Incident], nodes: Mapping[str, FrozenSet[str]]) -> Incident:
    """A burst as its leading incident: the worst verdict, the nodes of all, and gone once each of them is gone."""
    standing = [each for each in (leading, *others) if not each.gone]
    if not others or not standing:
        return leading._replace(gone=max(each.gone for each in (leading, *others)))
    worst = min(standing, key=worst_first)
    names = frozenset[str]().union(*(nodes.get(each.key, frozenset()) for each in standing))
    return leading._replace(
        gone=0.0, verdict=worst.verdict, action=worst.action, affected=len(names), nodes=folded(sorted(names))
    )


def also_affected(others: Sequence[Incident]) -> Tuple[str, ...]:
    """A line for each open cause that has joined; the last line counts the rest."""
    standing = [each for each in others if not each.gone]
    lines = [
        cut(f"{each.verdict} {each.reason or each.check} ({each.nodes}): {each.message}", LINE)
        for each in standing[:ALSO]
    ]
    return (*lines, *([f"and {len(standing) - ALSO} more"] if len(standing) > ALSO else []))


def _on_its_own_again(incident: Incident, incidents: Mapping[str, Incident]) -> Incident:
    """An incident without its burst, if that has ended: a cause that comes back has just begun."""
    leading = incidents.get(incident.joined)
    if not incident.joined or (leading is not None and not (leading.gone and leading.notified == RESOLVED)):
        return incident
    return incident._replace(joined="")


def _let_the_next_lead(after: Dict[str, Incident]) -> None:
    """If a leading cause has ended before its notice, the worst open one leads."""
    for key, others in members(after).items():
        standing = [each.key for each in others if not each.gone]
        if standing and after[key].gone and not after[key].notified:
            _lead(after, key, standing[0])


def _join(after: Dict[str, Incident], leading: str, key: str, now: float) -> None:
    """Join an incident to a burst. It leads if it is worse and no notice of the burst was sent yet."""
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


HOUR, DAY = 3600.0, 86400.0
FLAPS = 3
"""An incident that comes back so many times within an hour flaps."""


class ActiveFault(NamedTuple):
    """One problem of one node that stands."""

    node: str
    check: str
    reason: str
    verdict: str
    action: str
    message: str
    began: float
    place: str


@declared.settings
class NoticeTiming(NamedTuple):
    """When notices are sent. Times in seconds.

    At most `burst` notices are sent in a minute. A cause in more than `spread` groups is one incident of the fleet.
    Causes on the same nodes without a `silence` between them are one incident; 0: each cause is a separate one.
    """

    wait: float = declared.seconds("wait", 30.0, "a burst within this is told of together", most=3600.0)
    cooldown: float = declared.seconds("cooldown", 300.0, "between two notices of one incident", most=DAY)
    repeat: float = declared.seconds("repeat", 4 * HOUR, "until an incident that goes on is told of again", least=60.0)
    settle: float = declared.seconds("settle", 120.0, "a recovery is told once it lasted for this,", most=DAY)
    flap_settle: float = declared.seconds(
        "settle-flapping", 900.0, "or for this where the incident came back three times within an hour", most=DAY
    )
    refresh: float = 120.0
    burst: int = declared.count("most-per-minute", 20, "incidents told of; the others wait, the worst first", least=1)
    spread: int = declared.count("spread", 3, "a cause in more groups than this is one incident of the fleet", least=1)
    silence: float = declared.seconds(
        "silence", 180.0,
        'causes that come on the same nodes before so long a silence are one incident; "0s": each its own', most=3600.0,
    )  # fmt: skip


class IncidentChanges(NamedTuple):
    """The result of one look: incidents that changed, those to forget, notices, and how many notices must wait."""

    changed: Dict[str, Incident]
    forgotten: Tuple[str, ...]
    notices: Tuple[Notice, ...]
    withheld: int


def key_of(cluster: str, check: str, reason: str, place: str) -> str:
    """The identity of an incident."""
    return hashlib.sha256(json.dumps((cluster, check, reason, place)).encode()).hexdigest()[:40]


def step(
    before: Mapping[str, Incident],
    faults: Iterable[ActiveFault],
    pace: NoticeTiming,
    now: float,
    *,
    cluster: str = "",
    recent: int = 0,
    link: str = "",
) -> IncidentChanges:
    """One look. `recent` is how many notices were made within the last minute."""
    seen, nodes = _folded(before, faults, pace, now, cluster)
    after: Dict[str, Incident] = {}
    for key in sorted({*before, *seen}):
        after[key] = _merged(before.get(key), seen.get(key), now)
    after = join(after, nodes, pace.silence, now)
    joined = members(after)
    room = max(0, pace.burst - recent)
    due: List[Notice] = []
    withheld = 0
    whole = [whole_burst(each, joined.get(each.key, ()), nodes) for each in after.values() if not each.joined]
    for incident in sorted(whole, key=worst_first):
        also = also_affected(joined.get(incident.key, ()))
        kind = _due(incident, 1 + len(also), pace, now)
        if not kind:
            continue
        if kind != REFRESH:
            if room == 0:
                withheld += 1
                continue
            room -= 1
        after[incident.key] = _marked(after[incident.key], incident, kind, 1 + len(also), now)
        due.append(_notice(incident, kind, now, cluster, link)._replace(also=also))
    ended = {key: old for key, old in after.items() if old.gone and old.notified in ("", RESOLVED)}
    over = {key for key, old in ended.items() if now - old.gone > HOUR}
    changed = {key: incident for key, incident in after.items() if key not in over and before.get(key) != incident}
    return IncidentChanges(changed, tuple(sorted(over & set(before))), tuple(due), withheld)


def dump(incident: Incident) -> str:
    """As the store keeps it."""
    return json.dumps(incident._asdict(), ensure_ascii=False)


def load(content: str) -> Incident:
    """What `dump` wrote. Raises ValueError."""
    try:
        incident = Incident(**parse_object(content))
        return incident._replace(returns=tuple(incident.returns))
    except TypeError as error:
        raise ValueError(f"no incident: {error}") from None


def _folded(
    before: Mapping[str, Incident], faults: Iterable[ActiveFault], pace: NoticeTiming, now: float, cluster: str
) -> Tuple[Dict[str, Incident], Dict[str, FrozenSet[str]]]:
    """The incidents that stand now, and the nodes of each."""
    seen: Dict[str, Incident] = {}
    nodes: Dict[str, FrozenSet[str]] = {}
    for (check, reason), of_cause in by_cause(faults).items():
        places: Dict[str, List[ActiveFault]] = {}
        for fault in of_cause:
            places.setdefault(fault.place, []).append(fault)
        whole = key_of(cluster, check, reason, "")
        standing = {place for place in places if place and _stands(before.get(key_of(cluster, check, reason, place)))}
        new = set(places) - standing
        if "" in new or _stands(before.get(whole)) or len(places) > pace.spread:
            merged = [fault for place in sorted(new) for fault in places[place]]
            if merged:
                seen[whole], nodes[whole] = _incident(whole, "", merged, now)
            new = set()
        for place in sorted(standing | new):
            key = key_of(cluster, check, reason, place)
            seen[key], nodes[key] = _incident(key, place, places[place], now)
    return seen, nodes


def _stands(incident: Optional[Incident]) -> bool:
    return incident is not None and not incident.gone


def _incident(
    key: str, place: str, faults: Sequence[ActiveFault], now: float
) -> Tuple[Incident, FrozenSet[str]]:  # fmt: skip
    cause = group(faults)
    incident = Incident(
        key, cause.check, cause.reason, place, cause.verdict, cause.action, cause.message, cause.nodes,
        len(cause.affected), cause.began, now,
    )  # fmt: skip
    return incident, frozenset(cause.affected)


def _merged(old: Optional[Incident], new: Optional[Incident], now: float) -> Incident:
    if old is None:
        assert new is not None
        return new
    if new is None:
        return old if old.gone else old._replace(gone=now)
    kept = old._replace(
        verdict=new.verdict, action=new.action, message=new.message, nodes=new.nodes, affected=new.affected, gone=0.0
    )
    if not old.gone:
        return kept
    returns = (*(at for at in old.returns if now - at < HOUR), now)[-100:]
    if old.notified in ("", RESOLVED):  # the next occurrence
        return kept._replace(began=new.began, opened=now, number=old.number + 1, returns=returns)
    return kept._replace(returns=returns)


def _due(incident: Incident, causes: int, pace: NoticeTiming, now: float) -> str:
    since = now - incident.notified_at
    if incident.gone:
        if incident.notified in ("", RESOLVED):
            return ""
        settle = pace.flap_settle if _flaps(incident, now) else pace.settle
        if now - incident.gone >= settle:
            return RESOLVED
        return REFRESH if now - max(incident.refreshed, incident.notified_at) >= pace.refresh else ""
    if incident.notified in ("", RESOLVED):
        ready = now - incident.opened >= pace.wait
        return OPEN if ready and (not incident.notified or since >= pace.cooldown) else ""
    worse = RANK.get(incident.verdict, 0) > RANK.get(incident.notified_verdict, 0)
    more = incident.affected > incident.notified_affected or causes > incident.notified_causes
    if since >= pace.cooldown and (worse or more):
        return UPDATE
    if since >= pace.repeat:
        return REPEAT
    return REFRESH if now - max(incident.refreshed, incident.notified_at) >= pace.refresh else ""


def _marked(own: Incident, told: Incident, kind: str, causes: int, now: float) -> Incident:
    """An incident as it is after a notice of it, with all that has joined it (`told`)."""
    if kind == REFRESH:
        return own._replace(refreshed=now)
    return own._replace(
        notified=kind, notified_at=now, notified_affected=told.affected, notified_verdict=told.verdict,
        notified_causes=causes,
    )  # fmt: skip


def _flaps(incident: Incident, now: float) -> int:
    count = sum(now - at < HOUR for at in incident.returns)
    return count if count >= FLAPS else 0


def _notice(incident: Incident, kind: str, now: float, cluster: str, link: str) -> Notice:
    return Notice(
        kind, incident.key, incident.number, cluster, incident.check, incident.reason, incident.place, incident.verdict,
        incident.action, incident.message, incident.nodes, incident.affected, incident.began, now,
        _flaps(incident, now), link,
    )  # fmt: skip
