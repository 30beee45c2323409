"""RDMA links that come and go: a cable or transceiver that is about to fail, and stalls every job meanwhile."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown
from nhc.core.units import integer, show_seconds, text
from nhc.core.units import number as decimal
from nhc.node.checks.ib import NO_PORT
from nhc.node.facts import carrier
from nhc.node.facts.history import amount, growth
from nhc.node.facts.ib_counters import EFA_LAYER, read_counters
from nhc.node.facts.infiniband import Port, ports
from nhc.node.facts.kmsg import boot_time

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

SYSLOG_FILES = ("/var/log/syslog", "/var/log/messages")


def positive(value: str) -> int:
    number = integer(value)
    if number < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return number


@check(
    "check_ib_link_flapping",
    arg("hours", decimal, "the time over which losses of a link count", 24.0),
    arg("flaps", positive, "losses of one link within that time from which on it is flapping", 5),
    rest("logs", text, "log files to read (.gz too); where none is given /var/log/syslog or /var/log/messages"),
    timeout=15,
)
def check_ib_link_flapping(host: Host, hours: float = 24.0, flaps: int = 5, logs: Sequence[str] = ()) -> Judged:
    """No RDMA link comes and goes.

    Counts how often each link was lost within 24 hours, since boot, and is CRIT from 5 times on: the name,
    arguments and defaults of Azure's check. The count is the largest of four that see the same event: the port's
    link_downed counter and its interface's carrier_down_count, as they grew from run to run; and the lines
    `lost carrier` of the network daemon and `Link down` of the driver in the given logs, with any kind of time stamp.
    Interfaces count that belong to an RDMA port or whose name begins with ib. A log that was given
    and cannot be read is UNKNOWN. Where there is no log by default, the counters alone judge. SKIP on a node without
    RDMA port where no log is given.

    Example: {gpu[01-64]} || check_ib_link_flapping 24 5 /var/log/syslog /var/log/syslog.1
    """
    links = [port for port in host.fact(ports) if port.link_layer != EFA_LAYER]
    if not links and not logs:
        return NO_PORT
    window = hours * 3600
    counts = _counted(host, links, window)
    logged, outcomes, unplaced = _logged(host, links, logs, window)
    for name, (number_of, where) in logged.items():
        if number_of > counts.get(name, (0, ""))[0]:
            counts[name] = (number_of, where)
    for name, (number_of, where) in sorted(counts.items()):
        if number_of >= flaps:
            message = (
                f"IB link flapping detected: {name} was lost {number_of} times in {show_seconds(window)} ({where})"
            )
            metrics = (Metric("ib_link_losses", number_of),)
            outcomes.append(crit("IbLinkFlapping", message, target=name, metrics=metrics, action=Action.INSPECT))
    if unplaced >= flaps and not outcomes:
        message = f"{unplaced} losses of a carrier are logged with time stamps that cannot be read"
        outcomes.append(unknown("LogStampUnknown", message))
    most = max((number_of for number_of, _ in counts.values()), default=0)
    metrics = (Metric("ib_link_losses", most),)
    return outcomes or ok(f"no link was lost {flaps} times in {show_seconds(window)} (at most {most})", metrics=metrics)


def _counted(host: Host, links: Sequence[Port], window: float) -> Dict[str, Tuple[int, str]]:
    """The losses of each link by its counters, under the interface's name where it has one, else the port's."""
    downed: Dict[str, float] = {}
    carriers: Dict[str, float] = {}
    for port in links:
        value = read_counters(host, port, ("link_downed",)).get("link_downed")
        if value is not None:
            downed[_label(port)] = float(value)
        lost = host.number(f"/sys/class/net/{port.netdev}/carrier_down_count") if port.netdev else None
        if lost is not None:
            carriers[_label(port)] = float(lost)
    counts: Dict[str, Tuple[int, str]] = {}
    # An interface's count begins with the interface. A port's survives a restart of a virtual machine.
    for store, values, since_boot in (("ib-downed", downed, False), ("ib-carrier", carriers, True)):
        grown = growth(host, f"{store}-{window:g}", values, window, since_boot=since_boot)
        for name in values:
            # Not rounded up: of a loss before the window's edge only a share counts.
            number_of = int(amount(grown, name))
            if number_of > counts.get(name, (-1, ""))[0]:
                counts[name] = (number_of, "link_downed" if store == "ib-downed" else "carrier_down_count")
    return counts


def _label(port: Port) -> str:
    return port.netdev or port.name


def _logged(
    host: Host, links: Sequence[Port], logs: Sequence[str], window: float
) -> Tuple[Dict[str, Tuple[int, str]], List[Outcome], int]:
    """The losses of each interface by the logs, what could not be read, and how many lines have no readable stamp."""
    paths = list(dict.fromkeys(logs)) or [path for path in SYSLOG_FILES if host.exists(path)][:1]
    interfaces = {port.netdev for port in links if port.netdev}
    oldest = max(host.time() - window, boot_time(host) - 1)
    seen: Dict[Tuple[str, str], set[int]] = {}
    outcomes: List[Outcome] = []
    unplaced = 0
    for path in paths:
        try:
            losses = carrier.losses(host, path)
        except OSError as error:
            if logs:
                message = f"{path} cannot be read: {error.strerror}"
                outcomes.append(unknown("LogUnreadable", message, target=path))
            continue
        for loss in losses:
            if loss.interface not in interfaces and not loss.interface.startswith("ib"):
                continue
            if loss.when is None:
                unplaced += 1
            elif loss.when >= oldest:
                seen.setdefault((loss.interface, loss.kind), set()).add(int(loss.when))
    counts: Dict[str, Tuple[int, str]] = {}
    for (name, kind), times in seen.items():
        if len(times) > counts.get(name, (0, ""))[0]:
            counts[name] = (len(times), f"`{kind}` in the log")
    return counts, outcomes, unplaced
