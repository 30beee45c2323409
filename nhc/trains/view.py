"""The input and the result of a decision about one node of a train: values alone."""

from __future__ import annotations

import json
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from nhc.model import printable
from nhc.ports.adapter import NodeState
from nhc.ports.repair import Progress, Sighting
from nhc.remedy.bounds import Usage
from nhc.remedy.ladder import Ability
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import Health
from nhc.store.trains import TrainAct
from nhc.system.steady_time import SteadyTime
from nhc.trains.machine import Stop, TrainState
from nhc.trains.settings import TrainPlan, Work


class StopDetail(NamedTuple):
    """What a node of a train remembers. Times are Unix seconds, 0.0 for not yet.

    `entered` is when the state was entered, `effect` when the last work's effect was seen, `healthy` the time of the
    first report in a row that says healthy. `waiting` says what holds it, since `waiting_since`. `hold` is the number
    of our hold. `ends` is the state that RETURNING leads to. `ask_after` is when work that was refused for now may be
    asked for again. `boot` is the boot before the work. `follow_id` and `follow_message` answer the call that follows a
    first one. `forced` says that work is done although the node is busy.
    """

    entered: float = 0.0
    effect: float = 0.0
    healthy: float = 0.0
    waiting: str = ""
    waiting_since: float = 0.0
    hold: int = 0
    ends: str = ""
    because: str = ""
    ask_after: float = 0.0
    boot: str = ""
    follow_id: str = ""
    follow_message: str = ""
    forced: bool = False

    def text(self) -> str:
        """As JSON, without what is as in the beginning."""
        default = StopDetail()
        value = {name: found for name, found in self._asdict().items() if found != getattr(default, name)}
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


class BadStop(ValueError):
    """A detail that cannot be read: nothing may be done with its node."""


def read_detail(text: str) -> StopDetail:
    """The detail in a row. Raises BadStop."""
    default = StopDetail()._asdict()
    try:
        value: Dict[str, object] = json.loads(text)
        for name, found in value.items():
            if type(found) is int and isinstance(default[name], float):
                value[name] = float(found)
            elif type(found) is not type(default[name]):
                raise ValueError(f"{name} is no {type(default[name]).__name__}")
        return StopDetail(**value)  # type: ignore[arg-type]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadStop(f"its detail cannot be read: {printable(str(error), 200)}") from None


class StopView(NamedTuple):
    """One node and all that bears on its next step.

    `seen` is None where the cluster does not know the node; `known` is false while it could not be asked. `held` is
    somebody's hold, `hold_stands` whether our own is in force, `episode` the number of an open episode, 0 for none.
    `suite` is the newest verdict of the deep suite and when it was. Asked for only where the state needs them:
    `sighting`, `unseen`, `claims`, `progress`, `unwatched` (why it could not be asked for).
    """

    node: str
    wave: int
    state: Stop
    step: int
    detail: StopDetail
    act: Optional[TrainAct] = None
    seen: Optional[NodeState] = None
    known: bool = True
    health: Optional[Health] = None
    held: str = ""
    hold_stands: bool = True
    episode: int = 0
    suite: Optional[Tuple[str, float]] = None
    sighting: Optional[Sighting] = None
    unseen: str = ""
    claims: str = ""
    progress: Optional[Progress] = None
    unwatched: str = ""


class TrainScene(NamedTuple):
    """What all nodes share in one pass. `turn` is the wave whose nodes may begin, 0 for none, and `why` says why none.

    `can` says whether somebody can do a piece of work on a node. `breaker` says why it is open.
    """

    plan: TrainPlan
    settings: RemedySettings
    usage: Usage
    time: SteadyTime
    train: TrainState
    turn: int
    why: str
    breaker: str
    can: Callable[[str, Work], Ability]

    @property
    def now(self) -> float:
        return self.time.now

    @property
    def going(self) -> bool:
        """Whether work may begin."""
        return self.train is TrainState.RUNNING


class StopMove(NamedTuple):
    """The decision: the next state, or None to wait; `begins` asks for the act to be written down with it.

    `act` is what became of the work that is under way: a state of its row, "" for nothing new. `bound` names what
    holds, `step` the work that is next.
    """

    to: Optional[Stop]
    detail: StopDetail
    because: str = ""
    bound: str = ""
    begins: bool = False
    act: str = ""
    step: Optional[int] = None
