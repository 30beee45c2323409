"""What a person may do from the page: agree to a repair, refuse or abort it, hold and release. Each act is recorded.

The page never acts on a node. It writes a decision into the store, by the functions that `nhc serve remedy` uses. The
loop reads it, judges the fault again at that moment, and acts within its bounds. A decision names what the person was
shown: if the episode has changed since, it is refused.
"""

from __future__ import annotations

import hashlib
import json
from typing import Dict, Mapping

from sqlalchemy.engine import Connection

from nhc.console.access import Person
from nhc.console.snapshot import NotFound
from nhc.core.matching.node_ranges import fold
from nhc.core.model import printable
from nhc.remedy import operators
from nhc.remedy.cases import EpisodeCase, standing_cause
from nhc.store import episodes, evidence, holds
from nhc.store.database import Store
from nhc.store.errors import Conflict, RequestRefused

WHY_LEAST = 3
"""Letters of a reason: without one, a hold or a refusal tells the next operator nothing."""

ALIKE = 200
"""The most episodes that one decision may settle: as many as a person can have looked at."""


def shown_digest(store: Store, number: int) -> str:
    """One digest of what an episode's page shows now: state, rung, evidence. Raises NotFound, StoreError."""
    with store.read() as connection:
        episode = episodes.get(connection, number)
        if episode is None:
            raise NotFound(f"there is no episode {number}")
        return digest(connection, episode)


def digest(connection: Connection, episode: episodes.Episode) -> str:
    """The digest of what an episode shows now, within a transaction."""
    pieces = [piece.sha256 for piece in evidence.of_episode(connection, episode.id)]
    text = json.dumps([episode.id, episode.node, standing_cause(episode), episode.state, episode.rung, sorted(pieces)])
    return hashlib.sha256(text.encode()).hexdigest()


def decide_repair(store: Store, person: Person, number: int, form: Mapping[str, str], now: float) -> Dict[str, object]:
    """Agree to the repair that an episode waits for, or refuse it. `form`: decision, digest, confirm, reason.

    Raises RequestRefused, NotFound, StoreError (Conflict where this person has decided before).
    """
    decision, reason = form.get("decision", ""), form.get("reason", "").strip()
    if decision not in ("approved", "refused"):
        raise RequestRefused("a decision is approved or refused")
    if decision == "refused" and len(reason) < WHY_LEAST:
        raise RequestRefused("say why it is refused")
    shown_digest(store, number)  # one that is not there is NotFound
    effect = operators.decide(
        store, number, by=person.name, agree=decision == "approved", why=reason, now=now,
        check=_confirmed(person, form),
    )  # fmt: skip
    return {"episode": number, "decision": decision, "by": person.name, "said": effect}


def decide_repairs(store: Store, person: Person, form: Mapping[str, str], now: float) -> Dict[str, object]:
    """Agree to one repair of several nodes, or refuse it, by one confirmation: the set of the nodes, as it was shown.

    `form`: decision, episodes (number:digest of each, a space between), confirm, reason. Each is decided separately: an
    episode that cannot be decided (it has changed, this person has decided) is named with the reason, and the others
    are decided. Raises RequestRefused if nothing is decided, NotFound, StoreError.
    """
    asked = [episode.partition(":") for episode in form.get("episodes", "").split()]
    if not 0 < len(asked) <= ALIKE or not all(number.isdecimal() and len(number) < 16 for number, _, _ in asked):
        raise RequestRefused(f"episodes are number:digest, {ALIKE} at most")
    rows = []
    with store.read() as connection:
        for number, _, seen in asked:
            episode = episodes.get(connection, int(number))
            if episode is None:
                raise NotFound(f"there is no episode {number}")
            rows.append((episode, seen))
    if len({(*standing_cause(episode).split("|")[:2], episode.rung) for episode, _ in rows}) > 1:
        raise RequestRefused("these are not alike: cause or repair differ")
    names = fold(sorted({episode.node for episode, _ in rows}))
    if form.get("confirm", "") != names:
        raise RequestRefused(f"type the set of nodes, {names}, to confirm")
    decided, refused = [], []
    for episode, seen in rows:
        try:
            decide_repair(store, person, episode.id, {**form, "digest": seen, "confirm": episode.node}, now)
            decided.append(episode.node)
        except (RequestRefused, Conflict) as error:
            refused.append(f"{episode.node}: {error}")
    if not decided:
        raise RequestRefused("; ".join(refused))
    return {"decision": form.get("decision", ""), "by": person.name, "nodes": fold(sorted(decided)),
            "count": len(decided), "refused": refused}  # fmt: skip


def abort(store: Store, person: Person, number: int, form: Mapping[str, str], now: float) -> Dict[str, object]:
    """End an episode, as `nhc abort episode` does. `form`: digest, confirm, reason.

    Raises RequestRefused, NotFound, StoreError (Conflict where the loop changed it at this moment).
    """
    reason = form.get("reason", "").strip()
    if len(reason) < WHY_LEAST:
        raise RequestRefused("say why it is aborted")
    shown_digest(store, number)
    effect = operators.abort(
        store, number, by=person.name, why=printable(reason, 500), now=now, check=_confirmed(person, form)
    )
    return {"episode": number, "by": person.name, "said": effect}


def _confirmed(person: Person, form: Mapping[str, str]) -> operators.Check:
    """Check that this person may act, means this node, and was shown the episode as it is; within the transaction that
    acts.
    """

    def check(connection: Connection, case: EpisodeCase) -> None:
        node = case.episode.node
        if form.get("digest") != digest(connection, case.episode):
            raise RequestRefused("the episode has moved on since this page was shown: look again")
        if not person.may_touch(node):
            raise RequestRefused(f"{person.name} may decide nothing about {node}")
        if form.get("confirm", "") != node:
            raise RequestRefused(f"type the node's name, {node}, to confirm")

    return check


def set_hold(store: Store, person: Person, form: Mapping[str, str], nodes: int, now: float) -> Dict[str, object]:
    """Hold a node, a group or the fleet. `form`: scope, name, why, until (seconds from now), confirm.

    `nodes` is how many nodes it concerns; the person types that number. Raises RequestRefused, StoreError.
    """
    scope, name, why = form.get("scope", "node"), form.get("name", ""), form.get("why", "").strip()
    if len(why) < WHY_LEAST:
        raise RequestRefused("say why")
    _own(person, scope, name)
    if form.get("confirm", "") != str(nodes):
        raise RequestRefused(f"it concerns {nodes} nodes: type that number to confirm")
    seconds = form.get("until", "")
    if seconds and not (seconds.isdecimal() and len(seconds) < 16):  # a longer one is no float any more
        raise RequestRefused("until is a number of seconds from now")
    try:
        with store.write() as connection:
            made = holds.hold(
                connection, scope, name, by=person.name, why=printable(why, 500), now=now,
                until=now + int(seconds) if seconds else None,
            )  # fmt: skip
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    return {"hold": made.id, "nodes": nodes}


def end_hold(store: Store, person: Person, form: Mapping[str, str], now: float) -> Dict[str, object]:
    """End a hold. Raises RequestRefused, StoreError."""
    scope, name = form.get("scope", "node"), form.get("name", "")
    _own(person, scope, name)
    with store.write() as connection:
        ended = holds.release(connection, scope, name, by=person.name, now=now, why=form.get("why", ""))
    if not ended:
        raise RequestRefused(f"nothing holds {name or 'the fleet'}")
    return {"released": len(ended)}


def _own(person: Person, scope: str, name: str) -> None:
    """A person who may act only on some nodes may hold only those: no group, no fleet."""
    if scope == "node" and not person.may_touch(name):
        raise RequestRefused(f"{person.name} may do nothing to {name}")
    if scope != "node" and "*" not in person.nodes:
        raise RequestRefused(f"{person.name} may hold single nodes alone: {', '.join(person.nodes)}")
