"""The actions of a train's round, each stored before it is carried out: mark, clear, evict, begin work, continue it."""

from __future__ import annotations

from typing import AbstractSet, Callable, Dict, List, Mapping, Sequence, Set, Tuple

from sqlalchemy.engine import Connection

from nhc.ports.adapter import Applied, Effect
from nhc.ports.marks import clears_later
from nhc.ports.repair import Answer, Sent, Stage
from nhc.remedy.last_look import HeldNow, ToSend, held_back, lent
from nhc.remedy.settings import RemedySettings
from nhc.store import trains
from nhc.store.trains import Train
from nhc.trains.book import Ride, RideWritten, TrainBook
from nhc.trains.hands import TrainHands
from nhc.trains.machine import STOP_ENDS, Stop
from nhc.trains.steps import TRIES
from nhc.trains.view import StopMove, StopView


class TrainWork:
    """Acts for one train. A node is marked, cleared or evicted at most once a round; work is begun once in all."""

    def __init__(
        self, book: TrainBook, hands: TrainHands, clock: Callable[[], float], settings: RemedySettings, held: HeldNow
    ) -> None:  # fmt: skip
        self.book, self.hands, self.clock, self.settings, self.held = book, hands, clock, settings, held
        self.plan, self.store = book.plan, book.store
        self._fresh: Set[str] = set()
        self._tried: Set[str] = set()

    def begin_round(self) -> None:
        """Let each node be tried again."""
        self._tried = set()

    def note_begun(self, written: Sequence[RideWritten]) -> None:
        """Remember which of these moves begin work: it is to be sent, once."""
        self._fresh |= {one.ride.act.key for one in written if one.move.begins and one.ride.act is not None}

    def perform(
        self, train: Train, rides: Sequence[Ride], views: Mapping[str, StopView], waits: AbstractSet[str]
    ) -> List[RideWritten]:  # fmt: skip
        """Do what is due for each node, and nothing new to those that wait. Returns what was written down of it."""
        todo = [ride for ride in rides if ride.row.node not in self._tried]
        marking = [ride for ride in todo if ride.state is Stop.MARKING and ride.row.node not in waits]
        found = self._marks(train, [ride for ride in marking if _ours(views, ride)])
        back = [ride for ride in todo if ride.state is Stop.RETURNING and _ours(views, ride)]
        found += self._clears(train, [ride for ride in back if not clears_later(views[ride.row.node].seen)])
        kept = (Stop.DRAINING, Stop.WATCHING, Stop.VERIFYING)
        old = [ride.row.node for ride in todo
               if ride.state in kept and _ours(views, ride) and lent(views[ride.row.node].seen)]  # fmt: skip
        if old:  # what fails is tried again in the next round
            self._tried |= set(old)
            self.hands.mark(old, self.clock())
        draining = [ride for ride in todo if ride.state is Stop.DRAINING and _ours(views, ride)]
        busy = [ride.row.node for ride in draining if _busy(views, ride)]
        if self.plan.drain.evict and busy:
            self._tried |= set(busy)
            self.hands.hands.evict(busy)
        found += self._sends(train, [ride for ride in rides if ride.state is Stop.ACTING and self.is_fresh(ride)])
        for ride in todo:
            view = views[ride.row.node]
            if ride.state is Stop.WATCHING and view.progress is not None and view.progress.stage is Stage.HALFWAY:
                self._follow(train, ride)
        return found

    def is_fresh(self, ride: Ride) -> bool:
        """Whether this round wrote the beginning of the node's work, which is not sent yet."""
        return ride.act is not None and ride.act.key in self._fresh

    def _marks(self, train: Train, rides: Sequence[Ride]) -> List[RideWritten]:
        now = self.clock()
        self._tried |= {ride.row.node for ride in rides}
        applied = self.hands.mark([ride.row.node for ride in rides], now)
        return self._applied(train, rides, applied, Stop.DRAINING, "mark", now)

    def _clears(self, train: Train, rides: Sequence[Ride]) -> List[RideWritten]:
        now, found = self.clock(), []
        self._tried |= {ride.row.node for ride in rides}
        applied = self.hands.clear([ride.row.node for ride in rides])
        for ride in rides:
            found += self._applied(train, [ride], applied, Stop(ride.detail.ends or Stop.DONE.value), "clear", now)
        return found

    def _applied(
        self, train: Train, rides: Sequence[Ride], applied: Mapping[str, Applied], then: Stop, what: str, now: float
    ) -> List[RideWritten]:
        moves: List[Tuple[Ride, StopMove]] = []
        for ride in rides:
            one, detail = applied[ride.row.node], ride.detail._replace(waiting="", waiting_since=0.0)
            said = one.message or ride.detail.because
            if one.effect in (Effect.CHANGED, Effect.UNCHANGED):
                line = ride.detail.because if then in STOP_ENDS else said
                moves.append((ride, StopMove(then, detail, line)))
            elif one.effect is Effect.REFUSED:
                moves.append((ride, StopMove(Stop.LEFT, detail, said)))
            elif ride.detail.waiting != f"{what}: {said}":
                since = ride.detail.waiting_since or now
                moves.append((ride, StopMove(None, detail._replace(waiting=f"{what}: {said}", waiting_since=since))))
        return [one for one in self.book.save(train, moves, now, {}, {}) if one.move.to is not None]

    def _sends(self, train: Train, rides: Sequence[Ride]) -> List[RideWritten]:
        """Begin what was written down, and write each answer down as soon as it is there."""
        if not rides:
            return []
        for ride in rides:
            if ride.act is not None:
                self._fresh.discard(ride.act.key)  # whatever comes of it, it is not begun again
        back = self._held_back(train, rides)
        todo = [ride for ride in rides if ride.row.node not in back]
        found = []
        for ride in rides:
            why = back.get(ride.row.node, "")
            if why:
                detail = ride.detail._replace(waiting="", waiting_since=0.0)
                move = StopMove(Stop.DRAINING, detail, why, act="refused")
                written = self.book.answered(train, ride, move, "", self.clock())
                found += [written] if written is not None else []
        for ride, sent in zip(todo, self.hands.hands.each(self.hands.send, todo)):
            written = self.book.answered(train, ride, self._answer(ride, sent), sent.request_id, self.clock())
            found += [written] if written is not None else []
        return found

    def _held_back(self, train: Train, rides: Sequence[Ride]) -> Dict[str, str]:
        """Where work is not to begin after all, and why; "" where somebody has changed the row."""
        orders = [self._to_send(train, ride) for ride in rides]
        back = held_back(
            orders, self.store, self.book.fence, self.hands.hands, self.settings.bounds, self.held, self.clock
        )
        return {node: why and f"not begun: {why}" for node, why in back.items()}

    def _to_send(self, train: Train, ride: Ride) -> ToSend:
        row = ride.row

        def unchanged(connection: Connection) -> bool:
            return any(
                one.node == row.node and one.version == row.version for one in trains.nodes_of(connection, train.id)
            )

        action = "" if row.step else self.plan.work[0].rung.value  # a node that is half done is finished
        return ToSend(row.node, row.node, unchanged, action, not ride.detail.forced, ride.detail.hold)

    def _answer(self, ride: Ride, sent: Sent) -> StopMove:
        detail = ride.detail._replace(waiting="", waiting_since=0.0)
        if sent.answer is not Answer.REFUSED:
            act = "sent" if sent.answer is Answer.ACCEPTED else "ambiguous"
            return StopMove(Stop.WATCHING, detail, sent.message, act=act)
        tries = ride.act.tries if ride.act is not None else TRIES
        if sent.retry_after > 0 and tries < TRIES:
            detail = detail._replace(ask_after=self.clock() + sent.retry_after)
            return StopMove(Stop.DRAINING, detail, sent.message, act="refused")
        to = Stop.FAILED if ride.row.step else Stop.RETURNING
        ends = "" if ride.row.step else Stop.SKIPPED.value
        detail = detail._replace(ends=ends, because=sent.message)
        return StopMove(to, detail, sent.message, act="refused")

    def _follow(self, train: Train, ride: Ride) -> None:
        """The call that follows the first: written down before. It changes nothing where it took effect already."""
        self._tried.add(ride.row.node)
        line = "the call that follows is sent"
        for one in self.book.save(train, [(ride, StopMove(None, ride.detail, line))], self.clock(), {}, {}):
            sent = self.hands.complete(one.ride)
            if sent.answer is Answer.ACCEPTED:
                detail = one.ride.detail._replace(follow_id=sent.request_id, follow_message=sent.message or "accepted")
                self.book.save(train, [(one.ride, StopMove(None, detail, sent.message))], self.clock(), {}, {})


def _ours(views: Mapping[str, StopView], ride: Ride) -> bool:
    return views[ride.row.node].known and not views[ride.row.node].held


def _busy(views: Mapping[str, StopView], ride: Ride) -> bool:
    seen = views[ride.row.node].seen
    return seen is not None and seen.busy
