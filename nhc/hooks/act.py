"""Mark or clear this node from a hook, through the adapter of its resource manager.

A node does this alone, without a fleet's policy, so it carries one bound of its own: no more than
NHC_MAX_DRAINED nodes (`50%` unless set; `20`, `10%`, `20 10%` for the lower of both, `off`) may carry our
mark at once. The count is the scheduler's own, so no restart of anything forgets it.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional

from nhc.hooks import log
from nhc.policy import Ceiling
from nhc.ports import Applied, Effect, Mark, may_mark

MAX_DRAINED = "50%"
TIMEOUT = 6.0
"""Seconds for one of the scheduler's commands: three of them, after the checks, stay inside slurmd's 60 s."""


def scheduler(environ: Mapping[str, str], settings: Mapping[str, str]) -> Optional[Any]:
    """The adapter, None where marking is switched off or no resource manager is there."""
    if settings.get("MARK_OFFLINE", "1") == "0":
        return None
    from nhc.hooks.manager import detect
    from nhc.host import Host
    from nhc.registry import NoAdapter, adapter

    name, how = detect(environ, settings, Host())
    if name is None:
        log.info(f"nothing is marked: {how}")
        return None
    try:
        return adapter(name)(settings, environ, TIMEOUT)
    except NoAdapter as error:
        log.error(f"nothing is marked: {error} (found by {how})")
        return None


def ceiling(text: str) -> Ceiling:
    """`20`, `10%`, both, or `off`. Raises ValueError."""
    nodes: Optional[int] = None
    share: Optional[float] = None
    if text.strip().lower() == "off":
        return Ceiling()
    for word in text.replace(",", " ").split():
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", word)
        if match is None or (match[2] and float(match[1]) > 100) or (not match[2] and "." in match[1]):
            raise ValueError(f"NHC_MAX_DRAINED: {word!r} is not a number of nodes or a share such as 10%")
        if match[2]:
            share = float(match[1]) / 100
        else:
            nodes = int(match[1])
    return Ceiling(nodes, share)


def take_out(adapter: Any, node: str, mark: Mark, settings: Mapping[str, str]) -> Applied:
    """Mark this node unless enough others are marked already. Raises AdapterError."""
    seen = adapter.nodes([node])
    state = next((found for found in seen if found.name == node), None)
    effect, why = may_mark(state, mark)
    if effect is not Effect.CHANGED or state is None:
        return Applied(node, effect, why)
    if state.available:
        try:
            bound = ceiling(settings.get("NHC_MAX_DRAINED", "") or MAX_DRAINED)
        except ValueError as error:
            log.error(f"{error}; using {MAX_DRAINED}")
            bound = ceiling(MAX_DRAINED)
        if bound != Ceiling():
            everyone = adapter.nodes()
            limit = bound.limit(len(everyone))
            out = sum(1 for other in everyone if not other.available and other.mark and other.mark.ours)
            if limit is not None and out >= limit:
                said = f"{out} of {len(everyone)} nodes are marked already, NHC_MAX_DRAINED is {bound.show()}"
                return Applied(node, Effect.REFUSED, said)
    applied: Applied = adapter.mark({node: mark}, seen)[0]
    return applied


def put_back(adapter: Any, node: str) -> Applied:
    """Clear our mark from this node. Raises AdapterError."""
    applied: Applied = adapter.clear([node])[0]
    return applied
