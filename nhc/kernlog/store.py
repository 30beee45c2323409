"""The stores of findings in a memory: one for each source of kernel messages, and what was acknowledged of them."""

from __future__ import annotations

from nhc.kernlog import findings
from nhc.kernlog.shape import fit
from nhc.light import TYPE_CHECKING
from nhc.model import printable

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Sequence, Tuple

    from nhc.host import Memory
    from nhc.kernlog.state_types import Finding, LogState

ACKS = "kernel-log-acks"
"""Memory of what was acknowledged, by whom, and of the stores there are."""
KEPT = 256
"""Acknowledgements remembered; the oldest are forgotten first."""


def load(memory: Memory, store: str) -> LogState:
    """A store as it is remembered, what does not fit left out."""
    return fit(memory.load(store))


def stores(memory: Memory, default: str) -> List[str]:
    """The names of the stores that there are."""
    kept = memory.load(ACKS).get("stores")
    names = [name for name in kept if isinstance(name, str) and "/" not in name] if isinstance(kept, list) else []
    return names or [default]


def acknowledged(kept: Dict[str, Any]) -> List[Any]:
    """The acknowledgements that are remembered."""
    found = kept.get("acks")
    return found if isinstance(found, list) else []


def register(memory: Memory, store: str) -> None:
    """Keep the store's name, so that `nhc ack` finds it."""
    if store in stores(memory, ""):
        return

    def change(acks: Dict[str, Any]) -> None:
        names = acks.get("stores")
        acks["stores"] = [*(name for name in names if name != store), store] if isinstance(names, list) else [store]

    memory.update(ACKS, change)


def acknowledge(
    memory: Memory, chosen: Mapping[str, Sequence[Tuple[str, Finding]]], by: str, note: str, now: float
) -> List[str]:
    """End findings, by store, and remember who ended them and why. The keys of those that ended."""
    ended = sorted({key for store, pairs in chosen.items() for key in drop(memory, store, pairs)})
    entries = [{"key": key, "at": now, "by": printable(by, 80), "note": printable(note, 400)} for key in ended]

    def remember(held: Dict[str, Any]) -> None:
        held["acks"] = [*acknowledged(held), *entries][-KEPT:]

    if entries:
        memory.update(ACKS, remember)
    return ended


def drop(memory: Memory, store: str, chosen: Sequence[Tuple[str, Finding]]) -> List[str]:
    """End findings of a store, those left out that came again since they were read. The keys of those that ended."""
    done: List[str] = []

    def change(held: Dict[str, Any]) -> None:
        done.extend(key for key, finding in chosen if findings.end(fit(held), key, finding))

    memory.update(store, change)
    return done
