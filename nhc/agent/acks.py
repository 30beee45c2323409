"""An acknowledgement through the agent: the same as `nhc ack`, and as lasting."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from nhc.kernlog import STORE, drop
from nhc.kernlog.catalogue import address
from nhc.kernlog.findings import Finding, current
from nhc.kernlog.shape import ACKS, acknowledged, load, stores
from nhc.model import printable
from nhc.state.store import State

KEPT = 256


def end_findings(
    state: State, keys: Sequence[str], device: str, everything: bool, by: str, note: str, now: float
) -> List[str]:
    """End the findings that are named; returns their keys."""
    wanted = address(device) if device else ""
    chosen: Dict[str, List[Tuple[str, Finding]]] = {}
    for store in stores(state, STORE):
        for key, finding in current(load(state, store)):
            if everything or key in keys or (wanted and finding["device"] == wanted):
                chosen.setdefault(store, []).append((key, finding))
    ended = sorted({key for store, pairs in chosen.items() for key in drop(state, store, pairs)})
    entries = [{"key": key, "at": now, "by": printable(by, 80), "note": printable(note, 400)} for key in ended]

    def remember(held: Dict[str, Any]) -> None:
        held["acks"] = [*acknowledged(held), *entries][-KEPT:]

    if entries:
        state.update(ACKS, remember)
    return ended
