"""What checks remember from run to run, as they see it. `nhc.core.state.store.State` is the one that lasts."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Protocol
else:
    Protocol = object  # typing's costs more of a start than this whole module


class Memory(Protocol):
    """What checks remember from run to run: named JSON objects. `nhc.core.state.store.State` is one that lasts."""

    def load(self, name: str) -> Dict[str, Any]: ...

    def update(self, name: str, change: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]: ...

    def lasting(self) -> Optional[Memory]:
        """The memory beside this one that a restart of the node does not clear, None where there is none."""


class RunMemory:
    """A Memory that lasts as long as the object: a check on it sees every counter for the first time."""

    def __init__(self) -> None:
        self._objects: Dict[str, Dict[str, Any]] = {}

    def load(self, name: str) -> Dict[str, Any]:
        return self._objects.get(name, {})

    def update(self, name: str, change: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
        value = self._objects.setdefault(name, {})
        change(value)
        return value

    def lasting(self) -> Optional[Memory]:
        return None


def recall(memory: Memory, name: str) -> Dict[str, Any]:
    """An object of this memory, else of the lasting one beside it: what must outlive a restart."""
    held = memory.load(name)
    where = None if held else memory.lasting()
    return held if where is None else where.load(name)


def store_everywhere(memory: Memory, name: str, value: Dict[str, Any]) -> None:
    """Replace an object in this memory and in the lasting one, if it has changed."""
    if memory.load(name) == value:
        return

    def change(held: Dict[str, Any]) -> None:
        held.clear()
        held.update(value)

    memory.update(name, change)
    where = memory.lasting()
    if where is not None:
        where.update(name, change)


def revise(memory: Memory, name: str, change: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
    """Edit an object in place in this memory and in the lasting one; what it then is.

    Each under its own lock, so that what another run changes meanwhile stays.
    """
    where = memory.lasting()

    def from_lasting(held: Dict[str, Any]) -> None:
        if not held and where is not None:
            held.update(where.load(name))
        change(held)

    revised = memory.update(name, from_lasting)
    if where is not None:
        where.update(name, change)
    return revised
