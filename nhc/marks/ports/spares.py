"""What nhc asks of those that keep spare nodes: which nodes wait, one into service, one back. `nhc.remedy.spares`
decides.
"""

from __future__ import annotations

from enum import Enum
from typing import List, Mapping, NamedTuple, Optional, Protocol, Tuple, Union
from typing import runtime_checkable as port

from nhc.marks.ports.adapter import AdapterError, Applied


class SparePool(Protocol):
    """Nodes that are kept free of work until one of them has to stand in for another."""

    def waiting(self) -> List[str]:
        """The nodes that wait now, sorted. Raises AdapterError."""

    def into_service(self, node: str) -> Applied:
        """Let a spare take work; UNCHANGED where it waits no more. Never raises for what the other side does."""

    def back(self, node: str) -> Applied:
        """Let a node wait as a spare again; FAILED while work runs on it, UNCHANGED where it waits already."""


class AddedPhase(str, Enum):
    """How far a node that was added is, by its provider."""

    COMING = "coming"
    RUNNING = "running"
    FAILED = "failed"
    LEAVING = "leaving"
    GONE = "gone"


class AddedNode(NamedTuple):
    """A node that was added. `shown` is its state in the provider's words; by `names` the scheduler may know it."""

    phase: AddedPhase
    shown: str
    names: Tuple[str, ...] = ()


class AddFailed(AdapterError):
    """No node is known to be added. `refused`: surely none was; otherwise the same token must be asked again."""

    def __init__(self, message: str, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


@port
class CapacityPool(Protocol):
    """What adds a node where one is needed, in place of nodes that wait."""

    token_valid: float
    """Seconds for which the provider answers a token that it has seen with the same node."""
    deletes: bool
    """Whether an added node is deleted when the node that it stood in for is back; else it is kept."""

    def name(self) -> str:
        """What nodes are added to."""

    def room(self) -> int:
        """How many more nodes it may have. Raises AdapterError."""

    def add(self, token: str) -> str:
        """Ask for one node; its id. The same token never makes a second one. Raises AddFailed."""

    def find(self, added: str) -> AddedNode:
        """The node with this id. Raises AdapterError."""

    def launched(self, since: float) -> List[str]:
        """Ids of nodes that were launched since then (Unix time), for a person. Raises AdapterError."""

    def delete(self, added: str) -> Applied:
        """Delete this node. REFUSED where it surely was not begun, FAILED where that is not known. Never raises."""


SpareSource = Union[SparePool, CapacityPool]


class MakeSparePool(Protocol):
    """How nhc constructs one: what stands under its name is called like this, and reaches nobody yet."""

    def __call__(
        self, settings: Optional[Mapping[str, str]] = None, environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> SpareSource:  # fmt: skip
        """`settings` are its table in the settings of spares. Raises AdapterError."""
