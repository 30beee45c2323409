"""RDMA links that flap or were down: the cable or transceiver is about to fail, and jobs already end because of it."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.timestamps import utc
from nhc.core.units import integer, seconds, show_seconds, text
from nhc.core.units import number as decimal
from nhc.node.checks.ib import NO_PORT
from nhc.node.facts import carrier
from nhc.node.facts.carrier import LONG_OUTAGE, joined_outages, paired_outages, seen_outages
from nhc.node.facts.history import amount, growth
from nhc.node.facts.infiniband import EFA_LAYER, Port, ports, read_counters
from nhc.node.facts.kmsg import boot_time
from nhc.node.kernlog.source import SYSLOG_FILES

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

    from nhc.node.facts.carrier import CarrierChange, Outage


def positive(value: str) -> int:
    number = integer(value)
    if number < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return number


@check(
    "check_ib_link_flapping",
    opt(
        "-w --warn",
        "long",
        seconds,
        "WARN where a link was away this long within the last hour; 0 for never",
        LONG_OUTAGE,
    ),
    opt(
        "-c --crit",
        "most",
        seconds,
        "CRIT where it was away this long in all, or twice half as long; 0 for never",
        60.0,
    ),
    arg("hours", decimal, "the time over which losses of a link count", 24.0),
    arg("flaps", positive, "losses of one link within that time from which on it is flapping", 5),
    rest("logs", text, "log files to read (.gz too); where none is given /var/log/syslog, messages or kern.log"),
    timeout=15,
)
def check_ib_link_flapping(
    host: Host,
    hours: float = 24.0,
    flaps: int = 5,
    logs: Sequence[str] = (),
    long: float = LONG_OUTAGE,
    most: float = 60.0,
) -> Judged:
    """No RDMA link comes and goes, and none was away for long.

    Counts how often each link was lost within 24 hours, since boot, and is CRIT from 5 times on: the name,
    arguments and defaults of Azure's check. The count is the largest of four that see the same event: the port's
    link_downed counter and its interface's carrier_down_count, as they grew from run to run; and the lines
    `lost carrier` of the network daemon and `Link down` of the driver in the given logs, with any kind of time stamp.
    A link that is up again was away from such a line to the one with which it came back, or from a look of an earlier
    run that found it down. NCCL gives up after about 7 seconds: WARN where a link was away that long within the last
    hour (-w), CRIT for the second time of 30 s, or 60 s in all (-c).
    Interfaces count that belong to an RDMA port or whose name begins with ib. A log that was given
    and cannot be read is UNKNOWN. Where there is no log by default, the kernel's own log is read. SKIP on a node
    without RDMA port where no log is given.

    Example: {gpu[01-64]} || check_ib_link_flapping 24 5 /var/log/syslog /var/log/syslog.1
    """
    links = [port for port in host.fact(ports) if port.link_layer != EFA_LAYER]
    if not links and not logs:
        return NO_PORT
    window = hours * 3600
    counts = _counted(host, links, window)
    changes, outcomes = _read(host, links, logs)
    logged, unplaced = _losses(host, changes, window)
    away = joined_outages(paired_outages(changes, boot_time(host)), host.fact(seen_outages))
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
    outcomes += _judge_outages(away, host.time(), long, most)
    highest = max((number_of for number_of, _ in counts.values()), default=0)
    metrics = (Metric("ib_link_losses", highest),)
    text = f"no link was lost {flaps} times in {show_seconds(window)} (at most {highest})"
    return outcomes or ok(text, metrics=metrics)


_HOUR = 3600.0


def _judge_outages(away: Sequence[Outage], now: float, long: float, most: float) -> List[Outcome]:
    """The outcome of each link that was down within the last hour."""
    by_link: Dict[str, List[Outage]] = {}
    for outage in away:
        if outage.end > now - _HOUR:
            by_link.setdefault(outage.link, []).append(outage._replace(begin=max(outage.begin, now - _HOUR)))
    outcomes: List[Outcome] = []
    for link, recent in sorted(by_link.items()):
        total = sum(outage.seconds for outage in recent)
        worst = max(recent, key=lambda outage: outage.seconds)
        twice = most and sum(outage.seconds >= most / 2 for outage in recent) > 1
        metrics = (Metric("ib_link_outage", total, "s"),)
        evidence = tuple(f"{link}: {show_seconds(o.seconds)} from {utc(o.begin)}" for o in recent[-20:])
        message = f"{link} was away for {show_seconds(worst.seconds)} from {utc(worst.begin)}, and is up again"
        if len(recent) > 1:
            message += f"; {len(recent)} times, {show_seconds(total)} in all, within the last hour"
        if most and (total >= most or twice):
            outcomes.append(crit("IbLinkOutage", message, target=link, metrics=metrics, action=Action.INSPECT,
                                 evidence=evidence))  # fmt: skip
        elif long and worst.seconds >= long:
            outcomes.append(warn("IbLinkOutage", message, target=link, metrics=metrics, action=Action.INSPECT,
                                 evidence=evidence))  # fmt: skip
    return outcomes


def _counted(host: Host, links: Sequence[Port], window: float) -> Dict[str, Tuple[int, str]]:
    """The losses of each link by its counters, under the interface's name where it has one, else the port's."""
    downed: Dict[str, float] = {}
    carriers: Dict[str, float] = {}
    for port in links:
        value = read_counters(host, port, ("link_downed",)).get("link_downed")
        if value is not None:
            downed[port.label] = float(value)
        lost = host.number(f"/sys/class/net/{port.netdev}/carrier_down_count") if port.netdev else None
        if lost is not None:
            carriers[port.label] = float(lost)
    counts: Dict[str, Tuple[int, str]] = {}
    # An interface's count begins with the interface. A port's survives a restart of a virtual machine.
    for store, values, since_boot in (("ib-downed", downed, False), ("ib-carrier", carriers, True)):
        grown = growth(host, f"{store}-{window:g}", values, window, since_boot=since_boot)
        for name in values:
            # Not rounded up: only a share of a loss at the window's edge counts.
            number_of = int(amount(grown, name))
            if number_of > counts.get(name, (-1, ""))[0]:
                counts[name] = (number_of, "link_downed" if store == "ib-downed" else "carrier_down_count")
    return counts


def _read(host: Host, links: Sequence[Port], logs: Sequence[str]) -> Tuple[List[CarrierChange], List[Outcome]]:
    """What the logs tell of the node's links, each called by its label, and what could not be read."""
    paths = list(dict.fromkeys(logs)) or [path for path in SYSLOG_FILES if host.exists(path)][:1] or [carrier.RING]
    labels = {name: port.label for port in links for name in (port.netdev, port.name) if name}
    found: List[CarrierChange] = []
    outcomes: List[Outcome] = []
    for path in paths:
        try:
            changes = carrier.changes(host, path)
        except OSError as error:
            if logs:
                message = f"{path} cannot be read: {error.strerror}"
                outcomes.append(unknown("LogUnreadable", message, target=path))
            continue
        found += [
            change._replace(interface=labels.get(change.interface, change.interface))
            for change in changes
            if change.interface in labels or change.interface.startswith("ib")
        ]
    return found, outcomes


def _losses(host: Host, changes: Sequence[CarrierChange], window: float) -> Tuple[Dict[str, Tuple[int, str]], int]:
    """The losses of each link by the logs, and how many lines have no readable stamp."""
    oldest = max(host.time() - window, boot_time(host) - 1)
    seen: Dict[Tuple[str, str], set[int]] = {}
    unplaced = 0
    for change in changes:
        if change.up:
            continue
        if change.when is None:
            unplaced += 1
        elif change.when >= oldest:
            seen.setdefault((change.interface, change.kind), set()).add(int(change.when))
    counts: Dict[str, Tuple[int, str]] = {}
    for (name, kind), times in seen.items():
        if len(times) > counts.get(name, (0, ""))[0]:
            counts[name] = (len(times), f"`{kind}` in the log")
    return counts, unplaced
