"""Sockets that must (or must not) be open, and hosts that must answer every ping quickly."""

from __future__ import annotations

import re

from nhc.core.check import check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.nodeset import matcher
from nhc.core.model import Metric, Outcome, crit, known, ok, unknown, warn
from nhc.core.system.process_identity import parse_stat
from nhc.core.units import number, percent, seconds, show_seconds, text, whole
from nhc.node.checks.ps import any_matches
from nhc.node.facts.processes import command_lines, first_word, owner, pids
from nhc.node.facts.sockets import INTERNET, Socket, inodes_of, sockets
from nhc.node.facts.users import user_name

if TYPE_CHECKING:
    from typing import Callable, FrozenSet, List, Optional, Sequence, Tuple

    from typing_extensions import TypeAlias

_LOSS = re.compile(r"(\d+(?:\.\d+)?)% packet loss")
_TIMES = re.compile(r"(?:rtt|round-trip)\s+min/avg/max(?:/\S+)?\s*=\s*([\d.]+)/([\d.]+)/([\d.]+)")


class PingSummary(NamedTuple):
    """Round-trip times in seconds, None if nothing came back; `loss` in percent, None if it is not known."""

    loss: Optional[float]
    average: Optional[float] = None
    longest: Optional[float] = None


def parse_ping_summary(text: str) -> PingSummary:
    """The last lines of `ping -q`, of iputils, inetutils, busybox and the BSDs."""
    loss, times = _LOSS.search(text), _TIMES.search(text)
    return PingSummary(
        float(loss[1]) if loss else None,
        float(times[2]) / 1000 if times else None,
        float(times[3]) / 1000 if times else None,
    )


Test: TypeAlias = "Callable[[Socket], bool]"


def _protocol(value: str) -> str:
    """A match string that fits the name of a protocol: a port, which belongs to -l, would never be found."""
    if value and not any(any_matches((name,), value) for name in (*INTERNET, "unix")):
        raise ValueError(f"{value!r} matches none of {', '.join(INTERNET)}, unix (a port is `-l '*:22'`)")
    return value


class HeldSockets(NamedTuple):
    """The sockets that processes of interest hold, those that other ones hold, and whether all could be looked at."""

    by_them: FrozenSet[int]
    by_others: FrozenSet[int]
    complete: bool


def _held(host: Host, wanted: Callable[[int], bool], unowned: bool) -> HeldSockets:
    """`unowned` says that a socket without a process is wanted too: then the other processes' are needed."""
    them: List[int] = []
    others: List[int] = []
    for pid in host.fact(pids):
        (them if wanted(pid) else others).append(pid)
    by_them, complete = inodes_of(host, them)
    by_others, others_complete = inodes_of(host, others) if unowned else (frozenset(), True)
    return HeldSockets(by_them, by_others, complete and others_complete)


def program_names(host: Host, pid: int, comm: str) -> Tuple[str, ...]:
    """A program's name as netstat prints it (the end of argv[0]) and as ss does (the kernel's name for it)."""
    program = first_word(host.fact(command_lines).get(pid, "")).rpartition("/")[2]
    return (program, comm) if program else (comm,)


def _by_program(host: Host, pattern: str) -> Tuple[Test, bool]:
    """Whether a socket's program matches; a socket without a process belongs to `unknown`, as in LBNL NHC."""
    negated = pattern.startswith("!")
    core = pattern[1:] if negated else pattern
    names = {}
    for pid, stat in host.read_each("/proc", [str(pid) for pid in host.fact(pids)], "stat").items():
        try:
            names[int(pid)] = parse_stat(stat or "").name
        except ValueError:
            continue
    unowned = matcher(core)("unknown")
    held = _held(host, lambda pid: any_matches(program_names(host, pid, names.get(pid, "")), core), unowned)

    def test(socket: Socket) -> bool:
        return (socket.inode in held.by_them or (unowned and socket.inode not in held.by_others)) != negated

    return test, held.complete


def _by_user(host: Host, pattern: str) -> Tuple[Test, bool]:
    """Whether a socket's user matches, by name or number; a Unix socket's is its process's, as the kernel says none."""
    negated = pattern.startswith("!")
    core = pattern[1:] if negated else pattern
    known = {}

    def matches(uid: Optional[int]) -> bool:
        if uid not in known:
            known[uid] = uid is not None and any_matches((user_name(host, uid), str(uid)), core)
        return known[uid]

    held: List[HeldSockets] = []

    def test(socket: Socket) -> bool:
        if socket.uid is not None:
            return matches(socket.uid) != negated
        if not held:
            held.append(_held(host, lambda pid: matches(owner(host, pid)), False))
        return (socket.inode in held[0].by_them) != negated

    return test, True


_FIELDS = ("protocol", "localaddr", "remoteaddr", "state", "type", "user", "daemon")


def _find(host: Host, asked: Sequence[Optional[str]], every: bool) -> Tuple[List[Socket], bool]:
    """The sockets that match all conditions, and whether every process involved could be read."""
    protocol, local, remote, state, kind, user, daemon = asked
    left = [
        socket
        for socket in host.fact(sockets)
        if (protocol is None or any_matches(socket.protocol, protocol))
        and (local is None or any_matches(socket.local, local))
        and (remote is None or any_matches(socket.remote, remote))
        and (state is None or any_matches((socket.state,), state))
        and (kind is None or any_matches((socket.type,), kind))
    ]
    complete = True
    for pattern, by in ((user, _by_user), (daemon, _by_program)):
        if pattern is not None and left:
            test, whole = by(host, pattern)
            left = [socket for socket in left if test(socket)]
            complete = complete and whole
    return (left if every else left[:1]), complete


def socket_text(socket: Socket) -> str:
    """One line of evidence."""
    kind = f".{socket.type}" if socket.type else ""
    remote = f" -> {socket.remote[0]}" if socket.remote[0] else ""
    state = f" ({socket.state})" if socket.state else ""
    return f"{socket.protocol[0]}{kind} {socket.local[0]}{remote}{state}"


@check(
    "check_net_socket",
    flag("-! --not", "negate", "such a socket must not exist"),
    flag("-0 --non-fatal", "nonfatal", "only warn"),
    flag("-a --all", "every", "count all matching sockets, not only the first"),
    opt("-n --name", "name", text, "what messages call the sockets"),
    opt("-p --protocol", "protocol", _protocol, "match string of tcp, tcp6, udp, udp6, raw, unix"),
    opt("-l --local", "local", text, "match string of ADDRESS:PORT or a path"),
    opt("-r --remote", "remote", text, "match string of ADDRESS:PORT"),
    opt("-s --state", "state", text, "match string of LISTEN, ESTABLISHED, LISTENING, CONNECTED ..."),
    opt("-t --type", "kind", text, "match string of STREAM, DGRAM, SEQPACKET (Unix sockets)"),
    opt("-u --user", "user", text, "match string of its user's name or number"),
    opt("-d --daemon", "daemon", text, "match string of the program that holds it"),
    opt("-e --exec", "action", text, "command for bash to run, without waiting, where none is found", changes=True),
    opt(
        "-E --exec-found",
        "found_action",
        text,
        "command for bash to run, without waiting, where one is found",
        changes=True,
    ),
    timeout=10.0,
)
def check_net_socket(
    host: Host,
    negate: bool = False,
    nonfatal: bool = False,
    every: bool = False,
    name: Optional[str] = None,
    protocol: Optional[str] = None,
    local: Optional[str] = None,
    remote: Optional[str] = None,
    state: Optional[str] = None,
    kind: Optional[str] = None,
    user: Optional[str] = None,
    daemon: Optional[str] = None,
    action: Optional[str] = None,
    found_action: Optional[str] = None,
) -> Outcome:
    """A socket as described is open, or with -! none is.

    Reads /proc/net/tcp, udp, raw, unix and their IPv6 twins; with -d also which processes hold what is
    left. Addresses match as netstat writes them (`0.0.0.0:22`, `:::22`, `0.0.0.0:*`) and as ss does
    (`[::]:22`, `*:22`); an IPv6 socket matches `tcp` as well as `tcp6`; a socket without a process belongs
    to `unknown`. Without root the holders of other users' sockets cannot be told: then a miss is UNKNOWN.

    Example: * || check_net_socket -n "HTTP daemon" -p tcp -s LISTEN -l '*:80' -d httpd
    """
    asked = (protocol, local, remote, state, kind, user, daemon)
    described = [f'({field} =~ "{value}")' for field, value in zip(_FIELDS, asked) if value]
    if not described:
        return unknown("BadArguments", "No match criteria supplied.")
    sought = " && ".join(described)
    sought += "".join(
        note for given, note in ((every, " (all)"), (nonfatal, " (non-fatal)"), (negate, " (NEGATED)")) if given
    )
    try:
        open_sockets, complete = _find(host, [value or None for value in asked], every)
    except OSError as error:
        return unknown("SocketsUnreadable", f"{error.filename or '/proc/net'}: {error.strerror}")
    except ValueError as error:
        return unknown("SocketsUnreadable", f"/proc/net is not as expected: {error}")
    if not complete and (not open_sockets or str(daemon).startswith("!")):
        return unknown("NotPermitted", f"not every process may be looked into for its sockets, as root may ({sought})")
    metrics = (Metric("sockets", len(open_sockets)),)
    evidence = tuple(socket_text(socket) for socket in open_sockets[:20])
    # LBNL NHC runs -E only where it does not return at once: with -! or -a.
    todo = action if not open_sockets else found_action
    if todo:
        try:
            host.start(("bash", "-c", todo))
        except OSError as error:
            evidence += (f'"{todo}" not started: {error.strerror}',)
    what = name or "matching"
    if bool(open_sockets) != negate:
        message = f"{len(open_sockets)} {what} socket(s) found" if open_sockets else f"no {what} sockets found"
        return ok(message, metrics=metrics)
    message = (
        f"{len(open_sockets)} {what} socket(s) found ({sought})"
        if open_sockets
        else f"No {what} sockets found ({sought})"
    )
    reason = "SocketForbidden" if open_sockets else "SocketMissing"
    if nonfatal:
        return warn(reason, f"{message} (non-fatal)", metrics=metrics, evidence=evidence)
    return crit(reason, message, metrics=metrics, evidence=evidence)


_PRIVILEGE = ("not permitted", "Permission denied", "usage:", "Usage:", "invalid argument", "invalid option")
"""Parts of ping's messages if it could not even try."""


@check(
    "check_net_ping",
    opt("-I --interface", "interface", text, "interface or address to send from"),
    opt("-W --wait", "wait", number, "seconds to wait for an answer"),
    opt("-c --count", "count", whole, "packets to send (default 1)", 1),
    opt("-i --interval", "interval", number, "seconds between packets"),
    opt("-s --size", "size", whole, "bytes of data in a packet"),
    opt("-t --ttl", "ttl", whole, "hops a packet may take (default 2)", 2),
    opt("-w --deadline", "deadline", whole, "seconds for one target, all packets (default 1)", 1),
    opt("-a --average", "average", seconds, "longest average round trip, as 500ms"),
    opt("-m --max", "longest", seconds, "longest round trip of any packet"),
    opt("-l --loss", "loss", percent, "share of packets that may be lost; without it every packet must come back"),
    flag("-0 --non-fatal", "nonfatal", "only warn of what is slow or lost; no answer at all stays CRIT"),
    rest("targets", text, "hosts to ping", required=True),
    timeout=30.0,
)
def check_net_ping(
    host: Host,
    targets: Sequence[str],
    interface: Optional[str] = None,
    wait: Optional[float] = None,
    count: int = 1,
    interval: Optional[float] = None,
    size: Optional[int] = None,
    ttl: int = 2,
    deadline: int = 1,
    average: Optional[float] = None,
    longest: Optional[float] = None,
    loss: Optional[float] = None,
    nonfatal: bool = False,
) -> Outcome:
    """Every given host answers a ping.

    Runs `ping -q -n` once for each host with the options as given; the default of two hops keeps it in the
    cluster. Stops at the first host that does not answer, or answers too slowly (-a, -m) or too seldom (-l). LBNL
    NHC's check has no such limits; without them this one judges as it does. Give -c and -w with them: one packet
    tells little, and packets are a second apart unless -i says less.

    Example: * || check_net_ping -I eth0 -W 3 -c 5 -i 0.2 -w 3 -a 2ms -l 0 10.0.0.1
    """
    options: List[str] = []
    for letter, value in (("-I", interface), ("-i", interval), ("-s", size), ("-t", ttl), ("-c", count),
                          ("-w", deadline), ("-W", wait)):  # fmt: skip
        if value is not None:
            options += [letter, value if isinstance(value, str) else f"{value:g}"]
    limits = (average, longest, loss)
    metrics: Tuple[Metric, ...] = ()
    for target in targets:
        try:
            ended = host.run(("ping", "-q", "-n", *options, "--", target), timeout=max(deadline, 1) + 1.0)
        except OSError as error:
            return unknown("CommandMissing", f"ping: {error.strerror}")
        lines = ended.tail(10)
        if ended.status and any(sign in line for line in lines for sign in _PRIVILEGE):
            return unknown("PingFailed", f"ping cannot be used: {lines[-1]}", evidence=lines)
        summary = parse_ping_summary(ended.stdout)
        # With -c and -w ping's status is 1 as soon as one packet of them is missing.
        some = loss is not None and summary.loss is not None and summary.loss < 100
        if ended.timed_out or (ended.status and not some):
            return crit("NoResponse", f"No response received from {target}", evidence=lines)
        if limits == (None, None, None):
            continue
        metrics = (
            *known("%", packet_loss=summary.loss),
            *known("s", round_trip_average=summary.average, round_trip_max=summary.longest),
        )
        outcome = _judge(target, summary, limits, metrics, warn if nonfatal else crit, lines)
        if outcome:
            return outcome
    return ok(f"{len(targets)} host(s) answer", metrics=metrics if len(targets) == 1 else ())


def _judge(
    target: str,
    summary: PingSummary,
    limits: Tuple[Optional[float], Optional[float], Optional[float]],
    metrics: Tuple[Metric, ...],
    say: Callable[..., Outcome],
    lines: Tuple[str, ...],
) -> Optional[Outcome]:
    """What is wrong with a host's answers, None if nothing is. `say` makes the outcome."""
    average, longest, loss = limits
    if (summary.loss is None and loss is not None) or (summary.average is None and (average or longest)):
        return unknown("PingUnreadable", f"ping's summary for {target} is not understood", evidence=lines)
    if loss is not None and (summary.loss or 0.0) > loss:
        message = f"{summary.loss:g} % of packets to {target} are lost, limit {loss:g} %"
        return say("PacketLoss", message, target=target, metrics=metrics, evidence=lines)
    for limit, time, what in ((average, summary.average, "on average"), (longest, summary.longest, "at most")):
        if limit is not None and time is not None and time > limit:
            message = f"{target} answers in {_short(time)} {what}, limit {_short(limit)}"
            return say("LatencyHigh", message, target=target, metrics=metrics, evidence=lines)
    return None


def _short(value: float) -> str:
    return f"{value * 1000:.3g}ms" if value < 1 else show_seconds(value)
