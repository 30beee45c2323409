"""What nhc asks of those that keep spare nodes: which nodes wait, one into service, one back. `nhc.spares` decides."""

from __future__ import annotations

from typing import List, Mapping, Optional, Protocol

from nhc.ports import Applied


class SparePool(Protocol):
    """Nodes that are kept free of work until one of them has to stand in for another."""

    def waiting(self) -> List[str]:
        """The nodes that wait now, sorted. Raises AdapterError."""
        ...

    def into_service(self, node: str) -> Applied:
        """Let a spare take work; UNCHANGED where it waits no more. Never raises for what the other side does."""
        ...

    def back(self, node: str) -> Applied:
        """Let a node wait as a spare again; FAILED while work runs on it, UNCHANGED where it waits already."""
        ...


class MakeSparePool(Protocol):
    """How nhc constructs one: what stands under its name is called like this, and reaches nobody yet."""

    def __call__(
        self, settings: Optional[Mapping[str, str]] = None, environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> SparePool:  # fmt: skip
        """`settings` are its table in the settings of spares. Raises nhc.ports.AdapterError."""
        ...
