"""iperf3 -J, which ends with status 0 whatever happened. Source: esnet/iperf 3.12 (iperf_json)."""

from __future__ import annotations

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
    start = root.get("start")
    version = str(start.get("version", "")) if isinstance(start, dict) else ""
    if root.get("error"):
        return Iperf3(version, 0.0, 0.0, 0.0, None, str(root["error"])[:300])
    end = root.get("end")
    if not isinstance(end, dict) or not isinstance(end.get("sum_sent"), dict):
        raise ValueError("no sum_sent in it")
    sent, received = end["sum_sent"], end.get("sum_received")
    if not isinstance(received, dict):
        raise ValueError("no sum_received in it")
    again = sent.get("retransmits")
    return Iperf3(
        version, figure(sent.get("bits_per_second")) / 1e9, figure(received.get("bits_per_second")) / 1e9,
        figure(received.get("seconds")), again if isinstance(again, int) else None,
    )  # fmt: skip
