"""The breaker: what opens it by itself. Pure.

A component that is wrong about many nodes at once, or a repair that does not help anywhere, is no fault of the nodes.
Then the breaker opens: no mark is set and no repair begins until a person closes it. It never prevents that a mark is
cleared, a sent repair is watched, or a node is verified: nodes must not stay out because of it.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

from nhc.core.limits import Limit, read_limit
from nhc.core.settings import declared

NAME = "remedy"
"""Its row in the store."""


@declared.settings
class BreakerSettings(NamedTuple):
    """When it opens.

    `faults` is how many nodes may become faulty within `within` seconds. `blind` is how many may have no verdict
    (UNKNOWN, or no fresh report) at one time. `failures` is how many repairs in a row may end without a healthy node;
    0 switches that off.
    """

    faults: Limit = declared.converted(
        "faults", read_limit, Limit(share=0.10, least=5), "nodes that fall sick within a time", show=Limit.written
    )
    within: float = declared.seconds("within", 900.0, "that time", least=1.0)
    failures: int = declared.count("failures", 5, "repairs in a row that leave no node healthy; 0: never")
    blind: Limit = declared.converted(
        "blind", read_limit, Limit(share=0.30, least=5), "nodes without a verdict", show=Limit.written
    )


class BreakerInput(NamedTuple):
    """What it judges: the fleet's size, the nodes that became faulty within the time, those without a verdict, and the
    results of the last repairs, the newest last (true: the node was healthy afterwards).
    """

    nodes: int
    faulty: int
    blind: int
    repairs: Sequence[bool]


def opens(settings: BreakerSettings, seen: BreakerInput) -> str:
    """Why the breaker must open now and stay open until a person closes it, "" if it need not."""
    limit = settings.faults.of(seen.nodes)
    if seen.faulty > limit:
        return (
            f"{seen.faulty} of {seen.nodes} nodes fell sick within {settings.within:g} s, more than "
            f"{settings.faults.show()}: look for a common cause"
        )
    last = list(seen.repairs)[-settings.failures :] if settings.failures else []
    if last and len(last) == settings.failures and not any(last):
        return f"the last {len(last)} repairs left no node healthy"
    return ""


def blind(settings: BreakerSettings, seen: BreakerInput) -> str:
    """Why nothing may begin while so many nodes have no verdict, "" if enough have one.

    This ends by itself when reports arrive again.
    """
    if seen.blind <= settings.blind.of(seen.nodes):
        return ""
    return (
        f"{seen.blind} of {seen.nodes} nodes have no fresh verdict, more than {settings.blind.show()}: "
        "what reports about them is not to be trusted now"
    )
