"""The stores of findings in a memory: one for each source of kernel messages, and what was acknowledged of them."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable
from nhc.node.kernlog import findings
from nhc.node.kernlog.match import address
from nhc.node.kernlog.shape import acknowledged, fit
from nhc.node.kernlog.source import ACKS, STORE

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Sequence, Tuple

    from nhc.core.host import Memory
    from nhc.node.kernlog.state_types import Finding, LogState

FOREIGN = 64
"""Faults of volumes that the node does not mount, remembered until the next boot."""
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


def register(memory: Memory, store: str) -> None:
    """Keep the store's name, so that `nhc ack` finds it."""
    if store in stores(memory, ""):
        return

    def change(acks: Dict[str, Any]) -> None:
        names = acks.get("stores")
        acks["stores"] = [*(name for name in names if name != store), store] if isinstance(names, list) else [store]

    memory.update(ACKS, change)


def standing(memory: Memory) -> List[Tuple[str, str, Finding]]:
    """Every finding that stands: its store, its key, and itself."""
    kept = [(store, load(memory, store)) for store in stores(memory, STORE)]
    return [(store, key, finding) for store, state in kept for key, finding in findings.current(state)]


def named(
    memory: Memory, keys: Sequence[str] = (), device: str = "", *, everything: bool = False, drills: bool = False
) -> Dict[str, List[Tuple[str, Finding]]]:
    """The findings that stand and are named, by store: by key, by device, all, or all that `nhc inject` made."""
    wanted = address(device) if device else ""
    chosen: Dict[str, List[Tuple[str, Finding]]] = {}
    for store, key, finding in standing(memory):
        of_device = wanted and finding["device"] == wanted
        if everything or key in keys or of_device or (drills and finding.get("drill")):
            chosen.setdefault(store, []).append((key, finding))
    return chosen


def acknowledge(
    memory: Memory, chosen: Mapping[str, Sequence[Tuple[str, Finding]]], by: str, note: str, now: float
) -> List[str]:
    """End findings, by store, and remember who ended them and why. The keys of those that ended.

    How far each store had read is kept with it: where a store is lost, the same lines must not count again.
    """
    cursors: Dict[str, Dict[str, object]] = {}
    boot = ""
    for store, pairs in chosen.items():
        held = load(memory, store)
        boot = boot or held.get("boot", "")
        for key in drop(memory, store, pairs):
            cursors.setdefault(key, {})[store] = held.get("cursor")
    ended = sorted(cursors)
    acknowledgement = {"at": now, "by": printable(by, 80), "note": printable(note, 400), "boot": boot}
    entries = [{"key": key, **acknowledgement, "cursors": cursors[key]} for key in ended]

    def remember(held: Dict[str, Any]) -> None:
        held["acks"] = [*acknowledged(held), *entries][-KEPT:]

    if entries:
        from nhc.node.kernlog.lasting import store_acks, store_lasting

        memory.update(ACKS, remember)
        store_acks(memory)
        for store in chosen:
            store_lasting(memory, store, load(memory, store))
    return ended


def note_foreign(memory: Memory, store: str, state: LogState, gone: Sequence[Tuple[str, Finding]]) -> None:
    """Count the lines of findings that end because the node does not mount their volume: else nothing tells of them."""
    from nhc.node.kernlog.node_context import VOLUMES

    anew = {key: finding["count"] for key, finding in gone if finding["kind"] in VOLUMES}
    if not anew:
        return

    def change(held: Dict[str, Any]) -> None:
        foreign = fit(held).setdefault("foreign", {})
        for key, count in anew.items():
            foreign[key] = foreign.pop(key, 0) + count
        while len(foreign) > FOREIGN:
            del foreign[next(iter(foreign))]
        state["foreign"] = dict(foreign)

    memory.update(store, change)


def drop(memory: Memory, store: str, chosen: Sequence[Tuple[str, Finding]]) -> List[str]:
    """End findings of a store, those left out that came again since they were read. The keys of those that ended."""
    done: List[str] = []

    def change(held: Dict[str, Any]) -> None:
        done.extend(key for key, finding in chosen if findings.end(fit(held), key, finding))

    memory.update(store, change)
    return done


def ease(memory: Memory, store: str, state: LogState, pairs: Sequence[Tuple[str, Finding]]) -> None:
    """Remember which findings' devices named no repair any more, of those as they now stand."""
    before = state.get("findings", {})
    anew = {key: finding["eased"] for key, finding in pairs
            if "eased" in finding and before.get(key, finding).get("eased") != finding["eased"]}  # fmt: skip
    if not anew:
        return

    def change(held: Dict[str, Any]) -> None:
        findings = fit(held).get("findings", {})
        for key, count in anew.items():
            if key in findings:
                findings[key]["eased"] = count

    memory.update(store, change)
