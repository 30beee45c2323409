"""Makes incidents out of problems, and says which notices are due: one for each cause in each group, bounded. Pure.

A burst is one incident: nodes that get the same fault within `wait` share one notice. Later changes are sent at most
once per `cooldown`, counted from the last notice. A recovery is sent after it has lasted for `settle` (longer if the
incident flaps); a fault that returns before that belongs to the same incident. A notice that is withheld never delays
the notice of another fault.
"""

from __future__ import annotations

import hashlib
import json
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.console.notices.notice import OPEN, REFRESH, REPEAT, RESOLVED, UPDATE, Notice
from nhc.store.problem_groups import RANK, by_cause, group

HOUR = 3600.0
FLAPS = 3
"""An incident that comes back so many times within an hour flaps."""


class StandingFault(NamedTuple):
    """One problem of one node that stands."""

    node: str
    check: str
    reason: str
    verdict: str
    action: str
    message: str
    began: float
    place: str


class NoticeTiming(NamedTuple):
    """When notices are sent. Times in seconds.

    At most `burst` notices are sent in a minute. A cause in more than `spread` groups is one incident of the fleet.
    """

    wait: float = 30.0
    cooldown: float = 300.0
    repeat: float = 4 * HOUR
    settle: float = 120.0
    flap_settle: float = 900.0
    refresh: float = 120.0
    burst: int = 20
    spread: int = 3


class Incident(NamedTuple):
    """What is remembered of one incident.

    `notified` is the kind of the last notice, `notified_affected` how many nodes it named. `gone` is when the last node
    recovered, 0.0 while one is affected. `returns` are the times at which it came back.
    """

    key: str
    check: str
    reason: str
    place: str
    verdict: str
    action: str
    message: str
    nodes: str
    affected: int
    began: float
    opened: float
    number: int = 1
    gone: float = 0.0
    notified: str = ""
    notified_at: float = 0.0
    notified_affected: int = 0
    notified_verdict: str = ""
    refreshed: float = 0.0
    returns: Tuple[float, ...] = ()


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
    faults: Iterable[StandingFault],
    pace: NoticeTiming,
    now: float,
    *,
    cluster: str = "",
    recent: int = 0,
    link: str = "",
) -> IncidentChanges:
    """One look. `recent` is how many notices were made within the last minute."""
    seen = _folded(before, faults, pace, now, cluster)
    after: Dict[str, Incident] = {}
    for key in sorted({*before, *seen}):
        after[key] = _merged(before.get(key), seen.get(key), now)
    room = max(0, pace.burst - recent)
    due: List[Notice] = []
    withheld = 0
    for incident in sorted(after.values(), key=_worst_first):
        kind = _due(incident, pace, now)
        if not kind:
            continue
        if kind != REFRESH:
            if room == 0:
                withheld += 1
                continue
            room -= 1
        after[incident.key] = _marked(incident, kind, now)
        due.append(_notice(incident, kind, now, cluster, link))
    ended = {key: old for key, old in after.items() if old.gone and old.notified in ("", RESOLVED)}
    over = {key for key, old in ended.items() if now - old.gone > HOUR}
    changed = {key: incident for key, incident in after.items() if key not in over and before.get(key) != incident}
    return IncidentChanges(changed, tuple(sorted(over & set(before))), tuple(due), withheld)


def _worst_first(incident: Incident) -> Tuple[int, int, str]:
    return -RANK.get(incident.verdict, 0), -incident.affected, incident.key


def dump(incident: Incident) -> str:
    """As the store keeps it."""
    return json.dumps(incident._asdict(), ensure_ascii=False)


def load(content: str) -> Incident:
    """What `dump` wrote. Raises ValueError."""
    try:
        incident = Incident(**json.loads(content))
    except TypeError as error:
        raise ValueError(f"no incident: {error}") from None
    return incident._replace(returns=tuple(incident.returns))


def _folded(
    before: Mapping[str, Incident], faults: Iterable[StandingFault], pace: NoticeTiming, now: float, cluster: str
) -> Dict[str, Incident]:
    seen: Dict[str, Incident] = {}
    for (check, reason), of_cause in by_cause(faults).items():
        places: Dict[str, List[StandingFault]] = {}
        for fault in of_cause:
            places.setdefault(fault.place, []).append(fault)
        whole = key_of(cluster, check, reason, "")
        standing = {place for place in places if place and _stands(before.get(key_of(cluster, check, reason, place)))}
        new = set(places) - standing
        if "" in new or _stands(before.get(whole)) or len(places) > pace.spread:
            merged = [fault for place in sorted(new) for fault in places[place]]
            if merged:
                seen[whole] = _incident(whole, "", merged, now)
            new = set()
        for place in sorted(standing | new):
            key = key_of(cluster, check, reason, place)
            seen[key] = _incident(key, place, places[place], now)
    return seen


def _stands(incident: Optional[Incident]) -> bool:
    return incident is not None and not incident.gone


def _incident(key: str, place: str, faults: Sequence[StandingFault], now: float) -> Incident:
    cause = group(faults)
    return Incident(
        key, cause.check, cause.reason, place, cause.verdict, cause.action, cause.message, cause.nodes,
        len(cause.affected), cause.began, now,
    )  # fmt: skip


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


def _due(incident: Incident, pace: NoticeTiming, now: float) -> str:
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
    if since >= pace.cooldown and (worse or incident.affected > incident.notified_affected):
        return UPDATE
    if since >= pace.repeat:
        return REPEAT
    return REFRESH if now - max(incident.refreshed, incident.notified_at) >= pace.refresh else ""


def _marked(incident: Incident, kind: str, now: float) -> Incident:
    if kind == REFRESH:
        return incident._replace(refreshed=now)
    return incident._replace(
        notified=kind, notified_at=now, notified_affected=incident.affected, notified_verdict=incident.verdict
    )


def _flaps(incident: Incident, now: float) -> int:
    count = sum(now - at < HOUR for at in incident.returns)
    return count if count >= FLAPS else 0


def _notice(incident: Incident, kind: str, now: float, cluster: str, link: str) -> Notice:
    return Notice(
        kind, incident.key, incident.number, cluster, incident.check, incident.reason, incident.place, incident.verdict,
        incident.action, incident.message, incident.nodes, incident.affected, incident.began, now,
        _flaps(incident, now), link,
    )  # fmt: skip
