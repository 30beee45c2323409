"""iperf3 -J, which ends with status 0 whatever happened. Source: esnet/iperf 3.12 (iperf_json)."""

from __future__ import annotations

from nhc.core.json_values import object_in, object_of, whole_of
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure, json_object

if TYPE_CHECKING:
    from typing import Optional


class Iperf3(NamedTuple):
    """A TCP run: Gb/s sent and received, seconds, retransmitted segments (None where the system does not count them).

    `trouble` is its own word on a failure, "" for none; the figures are then 0.
    """

    version: str
    sent: float
    received: float
    seconds: float
    retransmits: Optional[int]
    trouble: str = ""


def parse(text: str) -> Iperf3:
    """What the client printed. Raises ValueError."""
    root = json_object(text)
    version = str(object_of(root.get("start")).get("version", ""))
    if root.get("error"):
        return Iperf3(version, 0.0, 0.0, 0.0, None, str(root["error"])[:300])
    end = object_in(root, "end")
    sent, received = object_in(end, "sum_sent"), object_in(end, "sum_received")
    return Iperf3(
        version, figure(sent.get("bits_per_second")) / 1e9, figure(received.get("bits_per_second")) / 1e9,
        figure(received.get("seconds")), whole_of(sent.get("retransmits")),
    )  # fmt: skip
