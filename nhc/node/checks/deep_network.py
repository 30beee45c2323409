"""The node's network stack: iperf3 over loopback, or to a server of the site's.

iperf3 -J always ends with status 0. Source: esnet/iperf 3.12 (iperf_json).
"""

from __future__ import annotations

from nhc.core.check import check, opt
from nhc.core.host import Host
from nhc.core.json_values import object_in, object_of, whole_of
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Metric, Outcome, unknown
from nhc.core.units import seconds, text, whole
from nhc.node.checks import deep
from nhc.node.facts.tool_output import figure, json_object

if TYPE_CHECKING:
    from typing import Optional

    from nhc.core.host import Completed


class Iperf3(NamedTuple):
    """A TCP run: Gb/s sent and received, seconds, retransmitted segments (None if the system does not count them).

    `trouble` is its own word on a failure, "" for none; the figures are then 0.
    """

    version: str
    sent: float
    received: float
    seconds: float
    retransmits: Optional[int]
    trouble: str = ""


def parse_iperf3(text: str) -> Iperf3:
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


LOOPBACK = "127.0.0.1"
PORT = 5201 + 31000
"""Of our own server: iperf3's default, moved out of the way of a site's own server."""


@check(
    "check_deep_network",
    opt("-t --time", "duration", seconds, "how long to send", 10.0),
    opt("-H --server", "server", text, "an iperf3 server of the site's (default: one of our own, over loopback)", ""),
    opt("-p --port", "port", whole, "its port"),
    opt("-P --parallel", "parallel", whole, "streams at a time", 1),
    deep.FLOOR,
    timeout=deep.OVERHEAD,
    tags=("net",),
)
def check_deep_network(
    host: Host, duration: float = 10.0, server: str = "", port: Optional[int] = None, parallel: int = 1,
    floor: Optional[float] = None,
) -> Outcome:  # fmt: skip
    """The network stack carries data as fast as it should.

    Over loopback iperf3 shows what processors and kernel can do, not the wire; with -H it is the way to a server of the
    site's, which serves one client at a time. One iperf3 before 3.16 is one thread: it is no measure of more than 25
    Gb/s. UNKNOWN where the server is busy or cannot be reached.

    Example: * |context deep| check_deep_network -H iperf.example.org -f 9
    """
    at = str(port or (PORT if not server else 5201))
    argv = ["iperf3", "-c", server or LOOPBACK, "-p", at, "-t", str(max(1, round(duration))), "-P", str(parallel), "-J"]
    if server:
        done = deep.attempt(host, argv, duration + deep.START)
    else:
        listening = ["iperf3", "-s", "-1", "-B", LOOPBACK, "-p", at]
        done = deep.both_ends(host, listening, argv, "iperf3.log", duration + deep.START, deep.READY, _refused)
    if isinstance(done, Outcome):
        return done
    try:
        result = parse_iperf3(done.stdout)
    except ValueError as error:
        return deep.unreadable("iperf3", error, done)
    if result.trouble:
        return unknown("DeepToolFailed", f"iperf3: {result.trouble}", evidence=deep.tail(done))
    if result.seconds < duration * 0.9 or result.received <= 0:
        return deep.no_proof("iperf3", f"{result.seconds:g} of {duration:g} s", done)
    measured = deep.Measured("net_tcp" if server else "net_loopback", result.received, "Gb/s")
    judged = deep.hold(host, measured, floor)
    if result.retransmits is None:
        return judged
    return judged._replace(metrics=(*judged.metrics, Metric("net_retransmits", float(result.retransmits))))


def _refused(done: Completed) -> bool:
    try:
        return "refused" in parse_iperf3(done.stdout).trouble
    except ValueError:
        return False
