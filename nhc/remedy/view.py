"""The input and the result of a decision about one episode: only values."""

from __future__ import annotations

from typing import Callable, Mapping, NamedTuple, Optional, Tuple

from nhc.core.model import Verdict
from nhc.core.system.steady_time import SteadyTime
from nhc.core.timestamps import is_recent
from nhc.marks.policy.bounds import Usage
from nhc.marks.ports.adapter import NodeState
from nhc.marks.ports.repair import Progress, Rung, Sighting
from nhc.remedy.detail import Detail
from nhc.remedy.ladder import Ability, NodeFault, Try
from nhc.remedy.machine import EpisodeEvent, EpisodeState
from nhc.remedy.settings import RemedySettings, Work
from nhc.store.attempts import AttemptStatus

NEW_BOOT = frozenset({Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE})
"""Rungs after which the machine has another boot id."""


class Health(NamedTuple):
    """The newest report of a node. `at` is when its run began (Unix time), `boot` the boot in which it ran.

    `faults` are its failures; none if the verdict is not CRIT. `since` is since when its reports say so without a gap,
    0.0 if unknown.
    """

    verdict: Verdict
    at: float
    boot: str = ""
    faults: Tuple[NodeFault, ...] = ()
    source: str = "store"
    since: float = 0.0

    @property
    def healthy(self) -> bool:
        """UNKNOWN is neither healthy nor a fault."""
        return self.verdict in (Verdict.OK, Verdict.WARN)

    def lasts(self, seconds: float) -> bool:
        """Whether reports have said so for that long, from the first to the newest; true if the first is not known."""
        return not self.since or self.at - self.since >= seconds

    def is_fresh(self, now: float, max_age: float) -> bool:
        """Whether it is young enough to be believed."""
        return is_recent(self.at, now, max_age)


class Consent(NamedTuple):
    """Persons' decisions on the next attempt: who agreed, and who refused ("" if no one did)."""

    agreed: Tuple[str, ...] = ()
    refused: str = ""


class EpisodeView(NamedTuple):
    """One episode and all that bears on its next step.

    `node` is None if the cluster does not know it; `nodes_known` is false while the cluster could not be asked.
    `successor` is the node of `detail.successor`, which replaced it under another name. `health` is of the node, or of
    its successor once it has been replaced. `held` says why a person holds the node, `breaker` why the breaker is open.
    Read only if the state needs them: `sighting`, `unseen` (why the machine could not be observed), `claims` (who else
    acts, or that this cannot be read), `progress`, `proved` (the result of the deep suite: None while it runs or was
    not asked for). `joined`: the node whose machine is `detail.replacement`, "" while none has joined. `taken_back`:
    the episode is for a person's request that has been taken back. `boot` is the boot id that the cluster, or the
    newest report, says the machine has now. `shared` says why the node's silence is not its own fault, "" if it is.
    `node_out`: why the whole node is out by a mark of ours, if the episode is about one device. Of maintenance: `work`
    is the step that is next or under way, `done` how many are done, `wave` the node's; `hold_stands` says whether our
    own hold is in force, `repairing` is the number of an open repair of the node, 0 for none. `replaced`: another
    machine took the node's name since the episode began, and no replacement of ours was asked for.
    """

    number: int
    name: str
    state: EpisodeState
    rung: Rung
    detail: Detail
    tries: Tuple[Try, ...] = ()
    node: Optional[NodeState] = None
    successor: Optional[NodeState] = None
    nodes_known: bool = True
    health: Optional[Health] = None
    held: str = ""
    breaker: str = ""
    consent: Consent = Consent()
    sighting: Optional[Sighting] = None
    unseen: str = ""
    claims: str = ""
    progress: Optional[Progress] = None
    proved: Optional[bool] = None
    collected: bool = False
    taken_back: bool = False
    joined: str = ""
    boot: str = ""
    shared: str = ""
    node_out: str = ""
    work: Optional[Work] = None
    done: int = 0
    wave: int = 0
    hold_stands: bool = True
    repairing: int = 0
    replaced: bool = False

    @property
    def stage(self) -> str:
        """See nhc.store.rounds.loop.ItemView."""
        return self.state.value

    @property
    def new_boot(self) -> bool:
        """Whether the newest attempt changes the boot id: its rung does, a command alone does not."""
        return self.last is not None and self.last.rung in NEW_BOOT and not (self.work and self.work.argv)

    @property
    def silent(self) -> bool:
        """Whether the scheduler or cluster cannot use the node because the node's daemon fails."""
        return self.node is not None and self.node.silence is not None

    @property
    def last(self) -> Optional[Try]:
        """The newest attempt."""
        return self.tries[-1] if self.tries else None


class Scene(NamedTuple):
    """What all episodes of a round share. `can` says whether a repairer can do a rung (or a command) on a node, and
    which.
    """

    settings: RemedySettings
    usage: Usage
    time: SteadyTime
    enabled_at: Optional[float]
    can: Callable[..., Ability]

    @property
    def now(self) -> float:
        return self.time.now


class Move(NamedTuple):
    """The decision: an event, or None to wait; `detail` to be stored, `because` one line for the audit.

    `rung` is the new rung, if one was chosen. `ends` is how the attempt that is under way ends. `bound` names the bound
    that holds it, for metrics. `begins` is true if an attempt must be stored with the step.
    """

    event: Optional[EpisodeEvent]
    detail: Detail
    because: str = ""
    rung: Optional[Rung] = None
    ends: Optional[AttemptStatus] = None
    bound: str = ""
    begins: bool = False
    recorded: Mapping[str, object] = {}

    @property
    def leads(self) -> str:
        """See nhc.store.rounds.loop.FlowMove."""
        return self.event.value if self.event is not None else ""

    @property
    def waits_for(self) -> str:
        """See nhc.store.rounds.loop.FlowMove."""
        return self.because or self.detail.waiting
