"""Carries out the actions that are in the store, and stores their results."""

from __future__ import annotations

from typing import AbstractSet, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from nhc.core.model import DeviceId
from nhc.marks.ports.adapter import Applied, Effect
from nhc.marks.ports.repair import Answer, Progress, Rung, Sent, Stage
from nhc.remedy.actuators import Actuators
from nhc.remedy.after_repair import bare, borrowed, unmarked, weakened
from nhc.remedy.cases import EpisodeCase, Written, changes
from nhc.remedy.detail import Detail
from nhc.remedy.final_check import HeldNow, ToSend, held_back
from nhc.remedy.machine import EpisodeEvent, EpisodeState
from nhc.remedy.moves import WORK, postponed, same_wait
from nhc.remedy.records import Records
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import NEW_BOOT, EpisodeView, Move
from nhc.store.attempts import AttemptStatus
from nhc.store.errors import LeadershipLost, StoreError


class Performer:
    """Carries out the states MARKING, RETURNING and ACTING, and the calls that follow a first one."""

    def __init__(
        self, records: Records, actuators: Actuators, clock: Callable[[], float], settings: RemedySettings,
        held: HeldNow,
    ) -> None:  # fmt: skip
        self.records, self.actuators, self.clock, self.settings, self.held = records, actuators, clock, settings, held
        self._fresh: Set[str] = set()
        """Keys of attempts that this process stored and has not sent. Other attempts found in ACTING are never sent."""
        self._tried: Set[int] = set()

    def begin(self) -> None:
        """A new round: marks that failed may be tried again."""
        self._tried.clear()

    def wrote(self, written: Sequence[Written]) -> None:
        """Attempts that were just stored and must now be sent."""
        self._fresh |= {stored.case.attempts[-1].key for stored in written if stored.move.begins}

    def is_fresh(self, case: EpisodeCase) -> bool:
        """Whether an episode in ACTING waits for us to send it."""
        return bool(case.attempts) and case.attempts[-1].key in self._fresh

    def act(
        self, cases: Sequence[EpisodeCase], views: Mapping[int, EpisodeView], waits: AbstractSet[int]
    ) -> List[Written]:  # fmt: skip
        """Act, and return what was stored afterwards. `waits` are episodes that must not move: if a hold came after a
        mark was stored, the mark is neither set nor cleared.
        """
        written = self.mark(cases, views, waits)
        free = self._free(cases, views)
        anew = self._mark_again([case for case in free if _to_mark_again(case, views[case.episode.id])], views)
        cases, free = _as_written(cases, anew), _as_written(free, anew)
        written += self._clear([case for case in free if _to_clear(case, views[case.episode.id], waits)], views)
        self._evict([case for case in free if case.state is EpisodeState.DRAINING], views)
        written += self._send([case for case in cases if case.state is EpisodeState.ACTING and self.is_fresh(case)])
        moved = self._move_work([case for case in cases if _fenced(case, views[case.episode.id])])
        halfway = [case for case in cases if _halfway(case, views[case.episode.id].progress)]
        self._follow(_as_written(halfway, moved))
        return written

    def mark(
        self, cases: Sequence[EpisodeCase], views: Mapping[int, EpisodeView], waits: AbstractSet[int]
    ) -> List[Written]:  # fmt: skip
        """Set the marks that are stored and not yet set, and return what was stored afterwards."""
        marking = [case for case in self._free(cases, views) if case.state is EpisodeState.MARKING]
        return self._mark([case for case in marking if case.episode.id not in waits])

    def _free(self, cases: Sequence[EpisodeCase], views: Mapping[int, EpisodeView]) -> List[EpisodeCase]:
        """The episodes without a hold, on known nodes, that this round has not tried."""
        return [
            case for case in cases
            if not views[case.episode.id].held and views[case.episode.id].nodes_known
            and case.episode.id not in self._tried
        ]  # fmt: skip

    def _as_leader(self, cases: Sequence[EpisodeCase]) -> Sequence[EpisodeCase]:
        """The cases, if they may be acted on now; none if the store does not answer. Raises LeadershipLost."""
        if not cases:
            return ()
        try:
            self.records.ask_lead()
        except LeadershipLost:
            raise
        except StoreError:
            return ()  # the next round says so
        return cases

    def _mark(self, cases: Sequence[EpisodeCase]) -> List[Written]:
        now, cases = self.clock(), self._as_leader(cases)
        applied = self.actuators.mark(cases, now)
        return self._applied(cases, [(case, marked(case, applied[case.episode.id], now)) for case in cases], now)

    def _mark_again(self, cases: Sequence[EpisodeCase], views: Mapping[int, EpisodeView]) -> List[Written]:
        """Set our mark again, or see that it is set; the episode records what prevents it."""
        now, cases = self.clock(), self._as_leader(cases)
        applied = self.actuators.mark(cases, now)
        moves = []
        for case in cases:
            done, node = applied[case.episode.id], views[case.episode.id].node
            if done.effect is Effect.UNCHANGED and node is not None and node.undone:
                continue  # its adapter does not see it as we did a moment ago
            if done.effect in (Effect.CHANGED, Effect.UNCHANGED):
                uid = node.uid if node is not None else ""  # another machine may have the name by now
                detail = case.detail._replace(kept_out=now, uid=uid, waiting="", waiting_since=0.0)
                lost = node.undone if node is not None else ""
                why = f"its {lost} was gone, which is nobody's decision" if lost else done.message
                moves.append((case, Move(None, detail, f"marked anew: {why}")))
            else:
                moves.append((case, _again(case.detail, f"mark: {done.message}", now)))
        return self._applied(cases, moves, now)

    def _clear(self, cases: Sequence[EpisodeCase], views: Mapping[int, EpisodeView]) -> List[Written]:
        now = self.clock()
        cases = self._as_leader(cases)
        standing = [case for case in cases if views[case.episode.id].node is not None or case.detail.successor]
        applied = self.actuators.clear(standing)
        gone = Applied("", Effect.UNCHANGED, "the node is gone, and with it our mark")
        return self._applied(
            cases, [(case, cleared(case, applied.get(case.episode.id, gone), now)) for case in cases], now
        )

    def _move_work(self, cases: Sequence[EpisodeCase]) -> List[Written]:
        """Let the work of dead machines start elsewhere before they are switched on again. The audit log records it."""
        cases = self._as_leader(cases) if self.settings.silence.move_work else ()
        done = self.actuators.move_work([case.episode.node for case in cases]) if cases else {}
        now, moves = self.clock(), []
        for case in cases:
            result = done.get(case.episode.node)
            if result is not None and result.effect is not Effect.UNCHANGED:
                why = f"its work may move: {result.message}"
                moves.append((case, Move(None, case.detail._replace(moved=now), why)))
        return self.records.save(moves, now)

    def _applied(
        self, cases: Sequence[EpisodeCase], moves: Sequence[Tuple[EpisodeCase, Move]], now: float
    ) -> List[Written]:
        self._tried |= {case.episode.id for case in cases}
        some = [(case, move) for case, move in moves if changes(case.detail, move)]
        return self.records.save(some, now)

    def _send(self, cases: Sequence[EpisodeCase]) -> List[Written]:
        """Send the stored attempts, and store each answer as soon as it arrives."""
        if not cases:
            return []
        for case in cases:
            self._fresh.discard(case.attempts[-1].key)  # whatever comes of it, it is not sent again
        back = self._held_back(cases)
        todo = [case for case in cases if case.episode.id not in back]
        saved = self.records.save(
            [(case, unsent(case, back[case.episode.id])) for case in cases if back.get(case.episode.id)],
            self.clock(),
        )  # fmt: skip
        for case, sent in zip(todo, self.actuators.each(self._send_as_leader, todo)):
            written = self._answered(case, sent)
            saved += [written] if written is not None else []
        return saved

    def _send_as_leader(self, case: EpisodeCase) -> Sent:
        """Send one attempt, which may have waited for the answers to others. Raises LeadershipLost."""
        if self._as_leader([case]):
            return self.actuators.send(case)
        return Sent(Answer.REFUSED, "nothing sent: the store does not answer", retry_after=30.0)

    def _held_back(self, cases: Sequence[EpisodeCase]) -> Dict[int, str]:
        """The attempts that must not be sent after all, and why; "" if the episode was changed meanwhile."""
        orders = {case.episode.id: self._to_send(case) for case in cases}
        back = held_back(
            list(orders.values()), self.records.store, self.records.fence, self.actuators, self.settings.bounds,
            self.held, self.clock,
        )  # fmt: skip
        return {
            number: why and f"not sent: {why}" for number, order in orders.items() for why in [back.get(order.key)]
            if why is not None
        }  # fmt: skip

    def _to_send(self, case: EpisodeCase) -> ToSend:
        idle = case.rung in self.settings.drain.rungs
        action = "" if case.done else case.rung.value  # a node that is half done is finished
        return ToSend(
            case.attempts[-1].key, case.episode.node, case.episode, action, idle, case.detail.forced, case.detail.hold,
            case.detail.about,
        )  # fmt: skip

    def _answered(self, case: EpisodeCase, sent: Sent) -> Optional[Written]:
        now = self.clock()
        detail = case.detail._replace(waiting="", waiting_since=0.0)
        if sent.answer is Answer.ACCEPTED:
            detail = detail._replace(not_now=0.0, ask_after=0.0)
            move = Move(EpisodeEvent.SENT, detail, sent.message)
            after_it = self.records.accepted(case, move, sent.message, sent.request_id, now)
            return Written(after_it, move, case.state) if after_it is not None else None
        if sent.answer is Answer.AMBIGUOUS:
            if sent.request_id:  # what the watch needs of a call whose answer is lost
                detail = detail._replace(follow_id=sent.request_id, follow_message=sent.message)
            move = Move(EpisodeEvent.SENT, detail, sent.message, ends=AttemptStatus.AMBIGUOUS)
        elif sent.retry_after > 0 and not sent.by_machine and not sent.right:
            unsent_too = (*detail.unsent, case.attempts[-1].number)
            detail = postponed(detail._replace(unsent=unsent_too), now, sent.message, sent.retry_after)
            move = Move(EpisodeEvent.NOT_BEGUN, detail, sent.message, ends=AttemptStatus.REFUSED)
        else:
            detail = detail._replace(denied=sent.right)
            if sent.retry_after > 0:
                again = (*detail.again, case.attempts[-1].number)
                detail = detail._replace(ask_after=now + sent.retry_after, again=again)
            move = Move(EpisodeEvent.REFUSED, detail, sent.message, ends=AttemptStatus.REFUSED)
        return next(iter(self.records.save([(case, move)], now)), None)

    def _evict(self, cases: Sequence[EpisodeCase], views: Mapping[int, EpisodeView]) -> None:
        """Ask work to leave, once a round; the episode records what prevents it."""
        busy = []
        for case in cases:
            node = views[case.episode.id].node
            # What holds one device leaves by its own mark; the node's other work stays.
            if self.settings.drain.evict and node is not None and node.busy and not case.detail.about.known:
                busy.append(case)
        self._tried |= {case.episode.id for case in busy}
        busy = list(self._as_leader(busy))
        left = self.actuators.evict([case.episode.node for case in busy])
        now, moves = self.clock(), []
        for case in busy:
            why = left.get(case.episode.node, "")
            move = _again(case.detail, f"{WORK}: {why}", now, exactly=True)
            if why and changes(case.detail, move):
                moves.append((case, move))
        self.records.save(moves, now)

    def _follow(self, cases: Sequence[EpisodeCase]) -> None:
        """Send the next call of a repair that takes several calls. Each is stored first. By its contract it may be
        repeated: it changes nothing if it took effect already.
        """
        for case in cases:
            if case.episode.id in self._tried:
                continue
            self._tried.add(case.episode.id)
            detail = case.detail._replace(followed=case.detail.followed + 1)
            written = self.records.save([(case, Move(None, detail, "the call that follows is sent"))], self.clock())
            for stored in written:
                sent = self.actuators.complete(stored.case)
                if sent.answer is Answer.ACCEPTED:
                    detail = detail._replace(follow_id=sent.request_id, follow_message=sent.message or "accepted")
                self.records.save([(stored.case, Move(None, detail, sent.message))], self.clock())


def _as_written(cases: Sequence[EpisodeCase], written: Sequence[Written]) -> List[EpisodeCase]:
    """The cases with the rows that were written since: a change based on an older row is dropped."""
    rows = {stored.case.episode.id: stored.case for stored in written}
    return [rows.get(case.episode.id, case) for case in cases]


def unsent(case: EpisodeCase, why: str) -> Move:
    """An attempt that was stored but is not sent. It does not count as one of the rung's attempts."""
    numbers = (*case.detail.unsent, case.attempts[-1].number)
    detail = case.detail._replace(waiting="", waiting_since=0.0, unsent=numbers)
    return Move(EpisodeEvent.REFUSED, detail, why, ends=AttemptStatus.REFUSED)


def marked(case: EpisodeCase, applied: Applied, now: float) -> Move:
    """What follows from an attempt to mark a node."""
    detail = case.detail._replace(waiting="", waiting_since=0.0)
    if applied.effect in (Effect.CHANGED, Effect.UNCHANGED):
        return Move(EpisodeEvent.MARK_SET, detail._replace(marked=now, widened=DeviceId()), applied.message)
    if applied.effect is Effect.REFUSED and detail.about.known:
        return Move(None, detail._replace(about=DeviceId()), f"the node is marked instead: {applied.message}")
    if applied.effect is Effect.REFUSED and detail.widened.known:  # the device still carries our mark
        return Move(EpisodeEvent.GIVEN_UP, detail, applied.message)
    if applied.effect is Effect.REFUSED:
        return Move(EpisodeEvent.MARK_REFUSED, detail, applied.message)
    return _again(case.detail, f"mark: {applied.message}", now)


def cleared(case: EpisodeCase, applied: Applied, now: float) -> Move:
    """What follows from an attempt to clear our mark. A node that carries none of ours is back already."""
    detail = case.detail._replace(waiting="", waiting_since=0.0)
    if applied.effect in (Effect.CHANGED, Effect.UNCHANGED):
        event = EpisodeEvent.SKIP if detail.put_back else EpisodeEvent.MARK_CLEARED
        return Move(event, detail, detail.put_back or applied.message)
    if applied.effect is Effect.REFUSED:
        return Move(EpisodeEvent.MARK_LOST, detail, applied.message)
    return _again(case.detail, f"clear: {applied.message}", now)


def _to_clear(case: EpisodeCase, view: EpisodeView, waits: AbstractSet[int]) -> bool:
    """Whether a pass has seen that the node is about to be put back, and the door allowed it."""
    return case.state is view.state is EpisodeState.RETURNING and case.episode.id not in waits


def _to_mark_again(case: EpisodeCase, view: EpisodeView) -> bool:
    """Whether our mark is gone from a node that is not proved yet, or is one that others may clear."""
    if _halfway(case, view.progress):
        return False  # first the call that follows: what is marked anew is not tried again in this round
    view = view._replace(detail=case.detail)
    # Nothing comes between what was decided and its sending, and a node that is about to be cleared needs no mark.
    if case.state not in (EpisodeState.ACTING, EpisodeState.RETURNING) and (
        borrowed(view) or bare(view) or weakened(view)
    ):
        return True
    return unmarked(view) and view.node is not None and not case.detail.replacement


def _again(detail: Detail, waiting: str, now: float, exactly: bool = False) -> Move:
    """Wait for this; `exactly`: a figure in it is news, as how many pods are left."""
    if waiting == detail.waiting or (not exactly and same_wait(detail.waiting, waiting)):
        return Move(None, detail)
    return Move(None, detail._replace(waiting=waiting, waiting_since=detail.waiting_since or now), waiting)


def _fenced(case: EpisodeCase, view: EpisodeView) -> bool:
    """Whether the machine of a silent node is proved to be off, or to have restarted."""
    if not case.attempts or view.node is None or view.node.silence is None or view.node.silence.heard:
        return False
    off = _halfway(case, view.progress) and case.rung is Rung.POWER_CYCLE
    ended = case.attempts[-1].status is AttemptStatus.SUCCEEDED
    return off or (case.state is EpisodeState.VERIFYING and ended and Rung(case.attempts[-1].rung) in NEW_BOOT)


def _halfway(case: EpisodeCase, progress: Optional[Progress]) -> bool:
    return case.state is EpisodeState.WATCHING and progress is not None and progress.stage is Stage.HALFWAY
