"""What nhc asks of a pool of spare nodes: which nodes wait, put one into service, take one back. `nhc.remedy.spares`
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
        """Let a spare take work; UNCHANGED if it no longer waits. Never raises for what the other side does."""

    def back(self, node: str) -> Applied:
        """Let a node wait as a spare again; FAILED while work runs on it, UNCHANGED if it waits already."""


class AddedPhase(str, Enum):
    """The phase of an added node, from its provider."""

    COMING = "coming"
    RUNNING = "running"
    FAILED = "failed"
    LEAVING = "leaving"
    GONE = "gone"


class AddedNode(NamedTuple):
    """A node that was added. `shown` is its state in the provider's words; `names` are those by which the scheduler may
    know it.
    """

    phase: AddedPhase
    shown: str
    names: Tuple[str, ...] = ()


class AddFailed(AdapterError):
    """No node is known to have been added. `refused`: surely none was; otherwise ask again with the same token."""

    def __init__(self, message: str, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


@port
class CapacityPool(Protocol):
    """Adds a node when one is needed, instead of keeping nodes that wait."""

    token_valid: float
    """Seconds for which the provider answers the same token with the same node."""
    deletes: bool
    """Whether an added node is deleted when the node that it replaced is back; otherwise it stays."""

    def name(self) -> str:
        """The group to which nodes are added."""

    def room(self) -> int:
        """How many more nodes it may have. Raises AdapterError."""

    def add(self, token: str) -> str:
        """Ask for one node; its id. The same token never makes a second one. Raises AddFailed."""

    def find(self, added: str) -> AddedNode:
        """The node with this id. Raises AdapterError."""

    def launched(self, since: float) -> List[str]:
        """Ids of nodes that were launched since then (Unix time), for a person. Raises AdapterError."""

    def delete(self, added: str) -> Applied:
        """Delete this node. REFUSED if it surely was not begun, FAILED if that is not known. Never raises."""


SpareSource = Union[SparePool, CapacityPool]


class MakeSparePool(Protocol):
    """How nhc constructs one: it calls what is registered under its name. This sends no request yet."""

    def __call__(
        self, settings: Optional[Mapping[str, str]] = None, environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> SpareSource:  # fmt: skip
        """`settings` are its table in the settings of spares. Raises AdapterError."""
