"""What a round writes on nodes besides marks: conditions that only the controller can know, and the rest of old marks.

A silent agent's condition becomes Unknown, as the node controller does with Ready. A node that offers too little gets a
condition for it. A node that somebody uncordoned is back in service: the rest of our mark is removed, and its faults
are overruled. A fault that has ended since is no longer overruled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Set

from nhc.core.model import Verdict
from nhc.marks.ports.adapter import Effect
from nhc_adapters.kubernetes.controller.context import Node
from nhc_adapters.kubernetes.controller.fleet import Fleet
from nhc_adapters.kubernetes.controller.node_report import Judgement, silence_of
from nhc_adapters.kubernetes.nodes.condition_times import HeardNode
from nhc_adapters.kubernetes.nodes.conditions import ALLOCATABLE, FALSE, TRUE, UNKNOWN, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.evidence import ASKED, SOURCE, is_ahead, read_sources
from nhc_adapters.kubernetes.nodes.known_types import bad_statuses
from nhc_adapters.kubernetes.nodes.maintenance import lifecycle_changes
from nhc_adapters.kubernetes.nodes.manual import MANUAL, read_manual
from nhc_adapters.kubernetes.nodes.overruled import Bad, ended_since
from nhc_adapters.kubernetes.nodes.own_marks import (
    CORDON,
    PUT_BACK,
    TAINT,
    annotations_of,
    read_own,
    read_own_mark,
    released,
    undone,
)

AFTER_FAILURE = 30.0


class NodeUpdates:
    """Writes them on the nodes of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.context = fleet, fleet.context
        self._silenced: Set[str] = set()
        self._undone: Dict[str, str] = {}
        """What was said to be undone of the mark of each node."""
        self._bad: Optional[Bad] = None

    def write(self, names: Sequence[str], now: float) -> List[str]:
        """Write what is to be written on these nodes. Returns those that are still to be decided on."""
        context, settings = self.context, self.context.settings
        back: List[str] = []
        texts: Dict[str, Dict[str, Optional[str]]] = {}
        conditions: Dict[str, List[Condition]] = {}
        for name in names:
            known = self.fleet.nodes.get(name)
            if known is None or known.judgement is None:
                self._forget(name)
                continue
            node, judgement, heard = known.node, known.judgement, known.heard
            parts = self._conditions(name, node, judgement, heard, now)
            if parts:
                conditions[name] = parts
            if read_own_mark(node) is not None and released(node):
                back.append(name)
                continue
            self._note_undone(name, node)
            ended = ended_since(node, self._bad_now(), now, heard, settings.silent_after)
            changed = {**ended, **self._sources(node, judgement), **self._maintenance_ended(name, node, now),
                       **self._put_back_ended(name, node)}  # fmt: skip
            if changed:
                texts[name] = changed
        self._set_conditions(conditions, now)
        if not back and not texts:
            return list(names)
        if not context.allowed():
            for name in (*back, *texts):
                self.fleet.agenda.retry(name, now + 0.5)
            return [name for name in names if name not in back]
        for applied in context.adapter.release(back, self._bad_now(), now) if back else ():
            if applied.effect is Effect.CHANGED:
                context.log(f"{applied.node}: put back by hand; our mark is taken off, what is bad is overruled")
            elif applied.effect is Effect.FAILED:
                self.fleet.agenda.retry(applied.node, now + AFTER_FAILURE)
        for applied in context.adapter.annotate(texts) if texts else ():
            if applied.effect is Effect.FAILED:
                self.fleet.agenda.retry(applied.node, now + AFTER_FAILURE)
        return [name for name in names if name not in back]

    def _forget(self, name: str) -> None:
        """A node is gone."""
        self._silenced.discard(name)
        self._undone.pop(name, None)

    def _conditions(self, name: str, node: Node, judgement: Judgement, heard: HeardNode, now: float) -> List[Condition]:
        """The conditions that a node is to get."""
        parts = (self._silence(name, node, judgement, heard, now), _offered(node, judgement, now))
        ours = lifecycle_changes(node, now) if self.context.settings.lifecycle else []
        return [part for part in parts if part is not None] + ours

    def _maintenance_ended(self, name: str, node: Node, now: float) -> Dict[str, Optional[str]]:
        """End a maintenance that is no longer requested: from now on only its health keeps the node out."""
        manual = read_manual(node)
        if manual is None or not manual.asked or not manual.stands(now) or not self.context.settings.maintenance:
            return {}
        wanted = self.fleet.maintenance_of(name, node)
        if wanted is not None and wanted.stands(now):
            asked = replace(manual, by=wanted.by, until=wanted.until)
            return {} if asked == manual else {MANUAL: asked.text()}
        self.context.log(f"{name}: its maintenance has ended; it is put back once it is judged healthy")
        return {MANUAL: replace(manual, until=now).text()}

    def _put_back_ended(self, name: str, node: Node) -> Dict[str, Optional[str]]:
        """What an operator overruled counts again once it has ended."""
        text = annotations_of(node).get(PUT_BACK)
        if text is None:
            return {}
        slurm = self.fleet.slurm_of(node)
        stand = {ASKED} if self.fleet.maintenance_of(name, node) is not None else set()
        stand |= {slurm.source} if slurm is not None else set()
        left = " ".join(source for source in text.split() if source in stand)
        return {} if left == text else {PUT_BACK: left or None}

    def _note_undone(self, name: str, node: Node) -> None:
        """Say once that a part of our mark is gone, and that this puts no node back."""
        gone = " and ".join(undone(node)) if read_own_mark(node) is not None else ""
        if gone and self._undone.get(name) != gone:
            rest, own = CORDON if gone == TAINT else TAINT, read_own(node)
            whole = own.cordon and own.taints
            follows = f"its {rest} keeps it out" if whole else f"it is set again if {name} is still faulty in this boot"
            self.context.log(
                f"{name}: the {gone} of our mark is gone; {follows} "
                f"(a person puts it back with `nhc kubernetes uncordon`)"
            )
        self._undone[name] = gone

    def _bad_now(self) -> Bad:
        if self._bad is None:
            self._bad = bad_statuses(self.context.settings.faults, self.context.settings.vocabularies)
        return self._bad

    def _sources(self, node: Node, judgement: Judgement) -> Dict[str, Optional[str]]:
        """An active mark must list all its faults, though its text has not changed."""
        if judgement.report.verdict is not Verdict.CRIT or read_own_mark(node) is None or read_manual(node) is not None:
            return {}
        if set(judgement.sources) <= set(read_sources(node)):
            return {}
        return {SOURCE: " ".join(judgement.sources)}

    def _set_conditions(self, conditions: Mapping[str, Sequence[Condition]], now: float) -> None:
        if not conditions:
            return
        if not self.context.allowed():
            for name in conditions:
                self.fleet.agenda.retry(name, now + 0.5)
            return
        objects = {name: self.fleet.nodes[name].node for name in conditions}
        for applied in self.context.adapter.say(conditions, objects):
            if applied.effect is Effect.REFUSED:
                self.fleet.agenda.retry(applied.node, now + 0.5)
                continue
            if applied.effect is Effect.FAILED:
                self.context.log(f"{applied.node}: {applied.message}")
                self.fleet.agenda.retry(applied.node, now + AFTER_FAILURE)
                continue
            for condition in conditions[applied.node]:
                self.context.log(f"{applied.node}: {condition.type}={condition.status}: {condition.message}")
                if condition.type == self.context.settings.verdict:
                    self._silenced.add(applied.node)

    def _silence(
        self, name: str, node: Node, judgement: Judgement, heard: HeardNode, now: float
    ) -> Optional[Condition]:
        if not judgement.silent:
            self._silenced.discard(name)
            return None
        voice = read_conditions(node).get(self.context.settings.verdict)
        if voice is None or voice.status == UNKNOWN or name in self._silenced:
            return None
        wait = self.context.settings.silent_after - self.context.followed_for()
        if is_ahead(heard.conditions[voice.type], now):  # it may renew it yet, for all that its stamp says
            wait = max(wait, heard.looked + self.context.settings.silent_after - now)
        if wait > 0:
            self.fleet.agenda.retry(name, now + wait)
            return None
        message = silence_of(heard.conditions[voice.type], heard, now)
        return Condition(voice.type, UNKNOWN, "NoReport", message, now, voice.seen)


def _offered(node: Node, judgement: Judgement, now: float) -> Optional[Condition]:
    """The condition that says what the node offers, if it must change."""
    offer, standing = judgement.offer, read_conditions(node).get(ALLOCATABLE)
    if offer is None or (standing is None and not offer.short):
        return None
    status = TRUE if offer.short else FALSE
    same = standing is not None and standing.status == status
    since = standing.since if same and standing is not None else now
    judged = Condition(ALLOCATABLE, status, offer.reason, offer.message, since, now)
    return None if judged.says_the_same(standing) else judged
