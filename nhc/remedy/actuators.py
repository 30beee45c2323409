"""The loop's calls to adapters and repairers, each after it was stored: mark, clear, look, send once, watch.

This module decides nothing and repeats no call. A call without an answer is AMBIGUOUS; the next round looks for its
effect.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

from nhc.core.model import Action, DeviceId, printable
from nhc.core.system.service_log import failure
from nhc.marks.ports.adapter import (
    Applied,
    DeviceState,
    Effect,
    Evicts,
    Mark,
    Marker,
    MarksDevices,
    MovesWork,
    NodeState,
    NodeStep,
    ShowsSteps,
    Tidies,
)
from nhc.marks.ports.marks import grouping_text
from nhc.marks.ports.repair import Answer, Completes, Order, Progress, Rung, RunsCommands, Sent, Sighting
from nhc.remedy.cases import EpisodeCase, seen_before
from nhc.remedy.ladder import first_rung
from nhc.remedy.node_requests import Answered
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.store.attempts import AttemptStatus

T = TypeVar("T")
R = TypeVar("R")


class Looked(NamedTuple):
    """What was observed of a machine right before a repair, or why that failed; and who else acts on it."""

    sighting: Optional[Sighting]
    unseen: str
    claims: str


class Watched(NamedTuple):
    """How far an attempt is; None and the reason if that cannot be read now."""

    progress: Optional[Progress]
    unseen: str = ""


class Actuators:
    """The adapter that marks, and the repairers. `workers` calls may be under way at one time; 0: one after another."""

    def __init__(self, marker: Marker, repairers: Repairers, workers: int = 8) -> None:
        self.marker, self.repairers = marker, repairers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="nhc-remedy") if workers else None

    def close(self) -> None:
        """End the threads. What is under way has its own timeout."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def each(self, work: Callable[[T], R], todo: Sequence[T]) -> Iterable[R]:
        """The results in their order, several at a time."""
        return map(work, todo) if self._pool is None or len(todo) < 2 else self._pool.map(work, todo)

    # Marks.

    def states(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        """Raises AdapterError."""
        return self.marker.nodes(names)

    def device_states(self, nodes: Optional[Sequence[str]] = None) -> List[DeviceState]:
        """The accelerators that can be marked alone: of the nodes that were read last, or of the given nodes as they
        are now; none if the adapter marks only whole nodes. Raises AdapterError.
        """
        marker: object = self.marker
        return list(marker.device_states(nodes)) if isinstance(marker, MarksDevices) else []

    def mark(self, cases: Sequence[EpisodeCase], now: float) -> Dict[int, Applied]:
        """Set the marks of these episodes, those of nodes in one call; by episode.

        If a node's mark replaces a device's mark, it is set once the device's mark is off.
        """
        marks = {case.episode.node: mark_of(case, now) for case in cases if not case.detail.about.known}
        done = applied(marks, lambda: self.marker.mark(marks))
        results = {}
        for case in cases:
            node, detail = case.episode.node, case.detail
            if detail.about.known:
                results[case.episode.id] = self._mark_device(node, detail.about, mark_of(case, now))
                continue
            results[case.episode.id] = done[node]
            if detail.widened.known and done[node].effect in (Effect.CHANGED, Effect.UNCHANGED):
                off = self._clear_device(node, detail.widened)
                results[case.episode.id] = off if off.effect is Effect.FAILED else done[node]
        return results

    def _mark_device(self, node: str, device: DeviceId, mark: Mark) -> Applied:
        return self._on_device(node, lambda marker: marker.mark_device(node, device, mark))

    def _clear_device(self, node: str, device: DeviceId) -> Applied:
        return self._on_device(node, lambda marker: marker.clear_device(node, device))

    def _on_device(self, node: str, do: Callable[[MarksDevices], Applied]) -> Applied:
        marker: object = self.marker
        if not isinstance(marker, MarksDevices):
            return Applied(node, Effect.REFUSED, "the adapter marks no devices any more")
        by = marker
        return applied([node], lambda: [do(by)])[node]

    def clear(self, cases: Sequence[EpisodeCase]) -> Dict[int, Applied]:
        """Clear our own marks, those of nodes in one call; by episode. The adapter leaves other owners' marks alone."""
        nodes = self._clear_nodes([case for case in cases if not case.detail.about.known])
        alone = [case for case in cases if case.detail.about.known]
        return {
            **nodes,
            **{case.episode.id: self._clear_device(case.episode.node, case.detail.about) for case in alone},
        }

    def _clear_nodes(self, cases: Sequence[EpisodeCase]) -> Dict[int, Applied]:
        names = [case.detail.successor or case.episode.node for case in cases]
        names += [case.episode.node for case in cases if case.detail.successor]
        done = applied(names, lambda: self.marker.clear(list(dict.fromkeys(names))))
        return {case.episode.id: done[case.detail.successor or case.episode.node] for case in cases}

    def show(self, steps: Sequence[NodeStep]) -> List[str]:
        """Show steps on their nodes, where the cluster can; one line for each failure."""
        marker: object = self.marker
        if not steps or not isinstance(marker, ShowsSteps):
            return []
        try:
            return marker.show_steps(steps)
        except Exception as error:
            return [f"steps cannot be shown on their nodes: {failure(error)}"]

    def move_work(self, nodes: Sequence[str]) -> Dict[str, Applied]:
        """Let work leave silent nodes whose machines are proved to be dead, where the adapter can; by node."""
        marker: object = self.marker
        if not isinstance(marker, MovesWork):
            return {}
        moves = marker
        return applied(nodes, lambda: moves.move_work(nodes))

    def tidy(self) -> List[str]:
        """Take off what is left of our marks on nodes that a person put back. Returns one line for each failure."""
        marker: object = self.marker
        if not isinstance(marker, Tidies):
            return []
        try:
            done = marker.tidy()
        except Exception as error:
            return [f"what is left of our marks cannot be taken off: {failure(error)}"]
        return [f"{result.node}: what is left of our mark stays: {result.message}" for result in done
                if result.effect is Effect.FAILED]  # fmt: skip

    def evict(self, nodes: Sequence[str]) -> Mapping[str, str]:
        """Ask the work on nodes to leave, where the adapter can; what is still there, by node."""
        marker: object = self.marker
        if not nodes or not isinstance(marker, Evicts):
            return {}
        try:
            return marker.evict(nodes)
        except Exception as error:
            return {node: failure(error) for node in nodes}

    def answer(self, answered: Sequence[Answered]) -> List[str]:
        """Answer those who asked for a repair. Returns one line for each answer that failed."""
        failures = []
        for answer in answered:
            why = self.repairers.answer(answer.node, answer.request, answer.text, answer.returned)
            failures += [f"{answer.node}: the answer cannot be written: {why}"] if why else []
        return failures

    # Repairs.

    def look(self, cases: Sequence[EpisodeCase]) -> Dict[int, Looked]:
        """See the machines and who else acts on them, right before a repair."""
        sightings = self.each(self._look, cases)
        return {case.episode.id: looked for case, looked in zip(cases, sightings)}

    def _look(self, case: EpisodeCase) -> Looked:
        entry, node = self.repairers.entry(case.detail.repairer), case.episode.node
        if entry is None:
            return Looked(None, f"the settings have no repairer {case.detail.repairer} any more", "")
        return self.look_by(entry, node)

    def look_by(self, entry: RepairerEntry, node: str) -> Looked:
        """Observe one machine through a repairer, unless somebody else acts on it."""
        claims = self.repairers.claims(node)
        if claims:
            return Looked(None, "", claims)
        try:
            return Looked(entry.repairer.look(self.repairers.machine(node)), "", "")
        except Exception as error:
            return Looked(None, failure(error), "")

    def order(self, case: EpisodeCase) -> Optional[Tuple[RepairerEntry, Order]]:
        """The order of the newest attempt and its repairer; None if the settings no longer have that repairer."""
        attempt = case.attempts[-1]
        entry = self.repairers.entry(attempt.repairer)
        if entry is None:
            return None
        first = case.detail.faults[0] if case.detail.faults else None
        why = (first.message if first.reason in first.message else f"{first.reason}: {first.message}") if first else ""
        because = printable(case.detail.why or why or case.episode.cause, 200)
        machine = self.repairers.machine(case.episode.node, case.detail.boot)
        return entry, Order(
            attempt.key,
            str(case.episode.id),
            attempt.number,
            machine,
            Rung(attempt.rung),
            because,
            "" if case.work is not None else attempt.device,
        )

    def send(self, case: EpisodeCase) -> Sent:
        """Send the newest attempt, which is written down, once."""
        ordered = self.order(case)
        if ordered is None:
            return Sent(Answer.REFUSED, f"the settings have no repairer {case.attempts[-1].repairer} any more")
        entry, order = ordered
        try:
            if case.work is None or not case.work.argv:
                return entry.repairer.send(order)
            repairer: object = entry.repairer
            if not isinstance(repairer, RunsCommands):
                return Sent(Answer.REFUSED, f"{entry.name} runs no commands")
            return repairer.run_command(order, case.work.argv, case.work.takes)
        except Exception as error:  # its contract forbids it; what was sent by then nobody knows
            return Sent(Answer.AMBIGUOUS, printable(f"{entry.name} failed: {type(error).__name__}: {error}", 200))

    def watch(self, cases: Sequence[EpisodeCase]) -> Dict[int, Watched]:
        """How far the newest attempts are."""
        return {case.episode.id: seen for case, seen in zip(cases, self.each(self._watch, cases))}

    def _watch(self, case: EpisodeCase) -> Watched:
        ordered = self.order(case) if case.attempts else None
        if ordered is None:
            return Watched(None, "its repairer is not in the settings any more")
        entry, order = ordered
        try:
            return Watched(entry.repairer.progress(order, answer_of(case), seen_before(case.attempts[-1])))
        except Exception as error:
            return Watched(None, failure(error))

    def complete(self, case: EpisodeCase) -> Sent:
        """Send the call that follows the first of a repair of several calls, after it was written down."""
        ordered = self.order(case)
        if ordered is None:
            return Sent(Answer.REFUSED, "its repairer is not in the settings any more")
        repairer: object = ordered[0].repairer
        if not isinstance(repairer, Completes):
            return Sent(Answer.REFUSED, f"{ordered[0].name} has no call that follows the first")
        try:
            return repairer.complete(ordered[1], answer_of(case))
        except Exception as error:
            return Sent(Answer.AMBIGUOUS, printable(f"{ordered[0].name}: {type(error).__name__}: {error}", 200))


def applied(nodes: Collection[str], work: Callable[[], List[Applied]]) -> Dict[str, Applied]:
    """The result for each node of one call of the adapter. With no node there is no call."""
    if not nodes:
        return {}
    try:
        results = {result.node: result for result in work()}
    except Exception as error:
        return {node: Applied(node, Effect.FAILED, failure(error)) for node in nodes}
    nothing = "the adapter did not say what became of it"
    return {node: results.get(node, Applied(node, Effect.FAILED, nothing)) for node in nodes}


def answer_of(case: EpisodeCase) -> Sent:
    """The answer to the newest attempt as it was written down, or to the last call that followed it."""
    attempt = case.attempts[-1]
    accepted = attempt.status is AttemptStatus.SENT
    message, name = attempt.message, attempt.request_id
    if case.detail.follow_id or case.detail.follow_message:
        message, name = case.detail.follow_message, case.detail.follow_id or name
    return Sent(Answer.ACCEPTED if accepted else Answer.AMBIGUOUS, message, name)


def mark_of(case: EpisodeCase, now: float) -> Mark:
    """The mark of an episode: what maintenance is for; or its first fault, how many more, and its first repair."""
    faults = case.detail.faults
    if case.detail.why:
        return Mark(printable(case.detail.why, 200), Action.NONE, now, cause=case.episode.cause)
    if not faults:
        return Mark(case.episode.cause, since=now, cause=case.episode.cause)
    check = faults[0].cause.partition("|")[0]
    why = faults[0].message if faults[0].message.startswith(check) else f"{check}: {faults[0].message}"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    why = grouping_text(why, faults[0].cause)
    return Mark(why + more, _ACTION.get(first_rung(faults), Action.INSPECT), now, cause=faults[0].cause)


_ACTION: Mapping[Rung, Action] = {
    Rung.RESTART_APP: Action.RESTART_APP, Rung.RESET_DEVICE: Action.RESET_DEVICE,
    Rung.RELOAD_DRIVER: Action.RELOAD_DRIVER, Rung.REBOOT: Action.REBOOT, Rung.REPLACE: Action.REPLACE,
}  # fmt: skip
