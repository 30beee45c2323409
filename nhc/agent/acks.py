"""An acknowledgement through the agent: the same as `nhc ack`, and as lasting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from nhc.kernlog.findings import current
from nhc.kernlog.match import address
from nhc.kernlog.source import STORE
from nhc.kernlog.store import acknowledge, load, stores
from nhc.state.store import State

if TYPE_CHECKING:
    from nhc.kernlog.state_types import Finding


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
    return acknowledge(state, chosen, by, note, now)
