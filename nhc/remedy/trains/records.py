"""What a train keeps in the store: its own state, and its episodes, each with a hold that keeps repairs away."""

from __future__ import annotations

from typing import List, Optional

from sqlalchemy.engine import Connection

from nhc.remedy.cases import EpisodeCase, read_cases
from nhc.remedy.detail import Detail
from nhc.remedy.machine import ENDS, EpisodeEvent, EpisodeState, after
from nhc.remedy.records import Records
from nhc.remedy.trains.machine import TrainState
from nhc.remedy.trains.settings import TrainPlan
from nhc.remedy.view import Move
from nhc.store import episodes, holds, trains
from nhc.store.database import Fence, Store
from nhc.store.errors import Conflict
from nhc.store.trains import Train

ACTOR = "nhc train"


class TrainRecords(Records):
    """The store as one train uses it."""

    def __init__(self, store: Store, plan: TrainPlan, fence: Optional[Fence] = None) -> None:
        super().__init__(store, fence, ACTOR)
        self.plan = plan

    def row(self, connection: Connection) -> Train:
        """The train as it is now. Raises Conflict where it is gone."""
        train = trains.get(connection, self.plan.name)
        if train is None:
            raise Conflict(f"there is no train {self.plan.name}")
        return train

    def train(self, connection: Connection) -> Optional[int]:
        return self.row(connection).id

    def cases(self, connection: Connection) -> List[EpisodeCase]:
        """The train's nodes that are not done with, each with the work that is next or under way."""
        rows = trains.nodes_of(connection, self.row(connection).id)
        cases, self.broken = read_cases(connection, [row for row in rows if row.ended is None])
        last = len(self.plan.work) - 1
        return [case._replace(work=self.plan.work[min(case.done, last)]) for case in cases]

    def change(self, train: Train, state: TrainState, why: str, now: float, ended: Optional[float] = None) -> Train:
        """Change the train's own state. Raises Conflict, StoreError."""
        with self.store.write(self.fence) as connection:
            return trains.save_train(connection, train, state=state.value, by=self.actor, why=why, now=now, ended=ended)

    def _beside_it(self, connection: Connection, case: EpisodeCase, move: Move, now: float) -> Detail:
        """Set the hold before the mark, and end it with the episode. In the transaction that begins something, a
        person's hold or abort that came first holds, and so does a repair of the node.
        """
        detail, node = move.detail, case.episode.node
        begins = move.event is EpisodeEvent.MARK_ALLOWED
        if begins or move.begins:
            if self.row(connection).state != TrainState.RUNNING.value:
                raise Conflict(f"train {self.plan.name} runs no more")
            if not case.done and episodes.list_episodes(connection, node=node, is_open=True, limit=1):
                raise Conflict(f"{node} has an open episode")
        if begins:
            hold = holds.hold(connection, "node", node, by=self.actor, why=detail.why, now=now)
            detail = detail._replace(hold=hold.id)
        ends = move.event is not None and after(EpisodeState(case.episode.state), move.event) in ENDS
        if ends and detail.hold:
            holds.end(connection, detail.hold, by=self.actor, now=now, why=f"train {self.plan.name}")
            detail = detail._replace(hold=0)
        return detail
