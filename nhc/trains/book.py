"""What a train keeps in the store: each move with its hold, its work and its audit row in one transaction.

A move is written before anything that follows from it is done. Where somebody else changed the row, or the train, since
it was read, the move is dropped: the next round reads again and decides again.
"""

from __future__ import annotations

import json
import uuid
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple, Union

from sqlalchemy.engine import Connection

from nhc.ports.repair import Sighting
from nhc.remedy import room
from nhc.remedy.room import Room
from nhc.store import episodes, holds, trains
from nhc.store.database import Fence, Store
from nhc.store.errors import Conflict
from nhc.store.trains import Train, TrainAct, TrainNode
from nhc.trains.machine import STOP_ENDS, Stop, TrainState, allowed
from nhc.trains.settings import TrainPlan
from nhc.trains.view import StopDetail, StopMove, read_detail

ACTOR = "nhc train"


class Ride(NamedTuple):
    """A node of a train as it was read."""

    row: TrainNode
    detail: StopDetail
    act: Optional[TrainAct] = None

    @property
    def state(self) -> Stop:
        return Stop(self.row.state)


class RideWritten(NamedTuple):
    """A move that is in the store: the node after it, and what was decided."""

    ride: Ride
    move: StopMove
    before: Stop


class BadStep(Exception):
    """A move that the tables do not know: a mistake of the caller, and nothing may be done."""


class TrainBook:
    """The store as one train uses it."""

    def __init__(self, store: Store, plan: TrainPlan, fence: Optional[Fence] = None, actor: str = ACTOR) -> None:
        self.store, self.plan, self.fence, self.actor = store, plan, fence, actor
        self.others: FrozenSet[Room] = frozenset()
        """What the loop and other trains had taken of the bounds when ours was counted."""

    def train(self, connection: Connection) -> Train:
        """The train as it is now. Raises Conflict where it is gone."""
        found = trains.get(connection, self.plan.name)
        if found is None:
            raise Conflict(f"there is no train {self.plan.name}")
        return found

    def note_others(self, connection: Connection, train: Train) -> None:
        """Remember what the loop and other trains have taken of the bounds. Call it before ours is counted."""
        self.others = room.of_others(connection, train.id)

    def rides(self, connection: Connection, train: Train) -> List[Ride]:
        """All nodes of a train, each with the work that it is at."""
        acts = {(act.node, act.step): act for act in trains.acts_of(connection, train.id)}
        return [
            Ride(row, read_detail(row.detail), acts.get((row.node, row.step)))
            for row in trains.nodes_of(connection, train.id)
        ]

    def change(self, train: Train, state: TrainState, why: str, now: float, ended: Optional[float] = None) -> Train:
        """Change the train's own state. Raises Conflict, StoreError."""
        with self.store.write(self.fence) as connection:
            return trains.save_train(
                connection, train, state=state.value, by=self.actor, why=why, now=now, ended=ended
            )  # fmt: skip

    def save(
        self, train: Train, moves: Sequence[Tuple[Ride, StopMove]], now: float, seen: Dict[str, Sighting],
        repairers: Dict[str, str],
    ) -> List[RideWritten]:  # fmt: skip
        """Write moves down; those that are in the store afterwards. `seen` and `repairers` are of those that begin."""
        found: List[RideWritten] = []
        for ride, move in moves:
            with self.store.write(self.fence) as connection:
                try:
                    with connection.begin_nested():
                        node = ride.row.node
                        after = self._save(connection, train, ride, move, now, seen.get(node), repairers.get(node, ""))
                except Conflict:
                    continue
            found.append(RideWritten(after, move, ride.state))
        return found

    def _save(
        self, connection: Connection, train: Train, ride: Ride, move: StopMove, now: float,
        sighting: Optional[Sighting], repairer: str,
    ) -> Ride:  # fmt: skip
        row, act, detail = ride.row, ride.act, move.detail
        if move.act and act is not None and act.state not in ("succeeded", "failed", "refused"):
            over = None if move.act in ("ambiguous", "sent") else now
            act = trains.save_act(
                connection, act, by=self.actor, now=now, state=move.act, message=move.because, ended=over
            )  # fmt: skip
        changes: Dict[str, Union[str, float, int, None]] = {}
        what = "train.node-waits"
        if move.to is not None:
            if not allowed(ride.state, move.to):
                raise BadStep(f"a node that is {ride.state.value} does not become {move.to.value}")
            if move.to is Stop.MARKING or move.begins:
                self._still_runs(connection, train, row)
            detail = detail._replace(entered=now)
            what = f"train.node-{move.to.value}"
            changes["state"] = move.to.value
            if move.to is Stop.MARKING:
                why = f"train {train.name}: {self.plan.why}"
                hold = holds.hold(connection, "node", row.node, by=self.actor, why=why, now=now)
                detail = detail._replace(hold=hold.id)
                changes["marked"] = now
            if move.to in STOP_ENDS:
                changes["ended"], changes["outcome"] = now, move.because
                if detail.hold:
                    holds.end(connection, detail.hold, by=self.actor, now=now, why=f"train {train.name}")
                    detail = detail._replace(hold=0)
        if move.step is not None:
            changes["step"] = move.step
        recorded = {"because": move.because, "step": (move.step if move.step is not None else row.step) + 1}
        row = trains.save_node(
            connection, train, row, what, recorded, by=self.actor, now=now, detail=detail.text(), **changes
        )  # fmt: skip
        if move.begins:
            act = trains.write_act(connection, self._act(row, sighting, repairer, now), by=self.actor, now=now)
        return Ride(row, detail, act if move.step is None else None)

    def _still_runs(self, connection: Connection, train: Train, row: TrainNode) -> None:
        """In the transaction that begins something: a person's hold or abort that came first holds. So does an episode,
        and what the loop or another train has taken of the bounds since they were counted.

        Raises Conflict.
        """
        now = trains.get(connection, train.name)
        if now is None or now.state != TrainState.RUNNING.value:
            raise Conflict(f"train {train.name} runs no more")
        if room.has_grown(connection, self.others, train.id):
            raise Conflict("somebody else has taken of the bounds since they were counted")
        if row.step == 0 and episodes.list_episodes(connection, node=row.node, is_open=True, limit=1):
            raise Conflict(f"{row.node} has an open episode")

    def _act(self, row: TrainNode, sighting: Optional[Sighting], repairer: str, now: float) -> TrainAct:
        work = self.plan.work[row.step]
        before = json.dumps((sighting or Sighting(now))._asdict(), sort_keys=True)
        return TrainAct(
            row.train, row.node, row.step, work.what[:500], work.rung.value, repairer,
            str(uuid.uuid4()), "written", 1, "", "", before, now, None,
        )  # fmt: skip

    def answered(self, train: Train, ride: Ride, move: StopMove, request: str, now: float) -> Optional[RideWritten]:
        """Write down what the other side answered, with the move that follows; None where a person was first."""
        assert ride.act is not None
        with self.store.write(self.fence) as connection:
            try:
                with connection.begin_nested():
                    act = trains.save_act(
                        connection, ride.act, by=self.actor, now=now, state=move.act, message=move.because,
                        request_id=request, ended=now if move.act == "refused" else None,
                    )  # fmt: skip
                    after = self._save(
                        connection, train, ride._replace(act=act), move._replace(act=""), now, None, ""
                    )  # fmt: skip
            except Conflict:
                return None
        return RideWritten(after, move, ride.state)
