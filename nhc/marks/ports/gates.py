"""What a gate asks of a scheduler and of a cloud: keep work off a node until its suite has passed, then let it in.

A gatekeeper's mark is its own, apart from the marks of hooks, syncs and the remedy loop (`marks`): those put a node
back when it is healthy, and a gate only when its suite has passed. `nhc.remedy.gates` decides; an adapter carries it
out and never changes what somebody else has set.
"""

from __future__ import annotations

from enum import Enum
from typing import Callable, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple
from typing import runtime_checkable as port

from nhc.core.limits import Limit
from nhc.marks.ports.adapter import Applied, NodeState


class GateStanding(NamedTuple):
    """How a scheduler has one node.

    `held` says that the gate's own mark keeps new work away, `busy` that work runs on it. `other` names someone else
    who keeps it out of service, "" for none. `asked` is when a person last asked the scheduler for the suite (Unix
    time), 0 for never; `opened` says that this person opened the gate instead, `adopted` that a node without a verdict
    is to be taken as it is. `shown` is its state in the scheduler's words.
    """

    held: bool
    busy: bool
    other: str = ""
    asked: float = 0.0
    opened: bool = False
    shown: str = ""
    adopted: bool = False


class GateNews(NamedTuple):
    """The state of a gate, to be published: `state` is a value of `nhc.core.state.gate_record.GateState`, `why` one
    line.
    """

    state: str
    suite: str
    why: str
    at: float
    boot_id: str


class Gatekeeper(Protocol):
    """Keeps work off nodes. Every call raises AdapterError if the other side cannot be asked."""

    def standing(self, node: str) -> Optional[GateStanding]:
        """The node's state in the scheduler, None if the scheduler does not know the node."""

    def hold(self, node: str, why: str) -> Applied:
        """Keep new work away. UNCHANGED if it is so already, REFUSED if someone else has taken the node out."""

    def release(self, node: str) -> Applied:
        """Let work in again, but only if the gate's own mark keeps it out."""

    def publish(self, node: str, news: GateNews) -> None:
        """Show the gate's state in the place where the scheduler's users look."""


class GateLimit(NamedTuple):
    """Something that gives up on a node, or needs a setting, while its suite runs.

    `who` is one object or daemon by name. `seconds` is how long it waits, None if time does not matter and `problem`
    holds in any case. `problem` says what it does then, `remedy` what to set.
    """

    who: str
    seconds: Optional[float]
    problem: str
    remedy: str


@port
class HasLimits(Protocol):
    """A gatekeeper that knows the time limits of its system."""

    def limits(self) -> List[GateLimit]:
        """Every limit that applies. Raises AdapterError."""


@port
class ShowsNodes(Protocol):
    """A gatekeeper that shows all nodes, so that a gate sees how many of its group are out."""

    def nodes(self) -> List[NodeState]:
        """Raises AdapterError."""


class GroupOfNodes(NamedTuple):
    """What a gatekeeper of a whole cluster needs of a group's rules: who is in it, what makes its gate close, and how
    many of its nodes may be out where closing may wait.
    """

    name: str
    contains: Callable[[str], bool]
    on: Tuple[str, ...]
    out: Limit = Limit()


class Turn(NamedTuple):
    """What was done, or would be, to the gate of one node of a cluster; `done` is False in a dry run."""

    node: str
    what: str
    why: str
    done: bool
    failed: str = ""


@port
class KeepsCluster(Protocol):
    """A gatekeeper that sees all nodes from outside, and carries out what gates on the nodes have published."""

    def keep(self, groups: Sequence[GroupOfNodes], *, apply: bool) -> List[Turn]:
        """One round: close the gates of new and changed nodes, open those whose suite passed. Raises AdapterError."""


class GateOrder(str, Enum):
    """What a person orders of a node's gate: open it, close it so that its suite runs, or adopt a node as it is."""

    OPEN = "open"
    CLOSE = "close"
    ADOPT = "adopt"


@port
class TakesOrders(Protocol):
    """A gatekeeper through which a person opens and closes the gate of another node."""

    def order(self, node: str, what: GateOrder, why: str, by: str) -> Applied:
        """Leave an order where the node's gate reads it. Raises AdapterError."""


class LifecycleHook(Protocol):
    """A cloud that waits with a new instance until it is asked to go on. Each call raises AdapterError."""

    def waits(self) -> str:
        """The cloud's state of this instance if it waits at this hook; "" if it does not."""

    def heartbeat(self) -> None:
        """Ask for more time."""

    def complete(self, passed: bool) -> str:
        """Let the instance into service, or give it up. Returns the answer, for the log."""

    def limits(self) -> List[GateLimit]:
        """How long the cloud waits, and what it does then."""


class MakeGatekeeper(Protocol):
    """How nhc constructs what stands in `nhc.marks.plugins.GATEKEEPERS` and `LIFECYCLE_HOOKS`."""

    def __call__(
        self, settings: Mapping[str, str], environ: Optional[Mapping[str, str]] = None, timeout: float = 30.0
    ) -> Gatekeeper:
        """Raises AdapterError if the settings are invalid."""
