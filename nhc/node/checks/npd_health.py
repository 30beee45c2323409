"""node-problem-detector's health-checker: a component answers, and its log does not complain."""

from __future__ import annotations

import re

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, Verdict, crit, ok, unknown
from nhc.core.units import one_of, seconds, show_seconds, text
from nhc.node.checks.kubelet import HEALTHZ, PROXY, ask
from nhc.node.checks.runtime import component_socket, probe
from nhc.node.facts import systemd

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

COMPONENTS = ("kubelet", "kube-proxy", "docker", "cri")


def counted_pattern(value: str) -> Tuple[int, str]:
    """`5:connection refused` is 5 and the pattern. Raises ValueError."""
    count, colon, pattern = value.partition(":")
    if not colon or not count.isascii() or not count.isdigit() or not int(count) or not pattern:
        raise ValueError(f"{value!r} is not COUNT:PATTERN, as 5:'connection refused'")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern: {error}") from None
    return int(count), pattern


@check(
    "check_npd_health",
    opt("-c --component", "component", one_of(COMPONENTS), "kubelet, kube-proxy, docker or cri", "kubelet"),
    opt("-s --service --systemd-service", "service", text, "its unit (default: the component; containerd for cri)"),
    opt("--cooldown-time", "cooldown", seconds, "how long the unit must be up before it is killed with --enable-repair",
        120.0),
    opt("--loopback-time", "loopback", seconds, "how far back the unit's log is read (0: since the unit began)", 0.0),
    opt("--health-check-timeout", "deadline", seconds, "how long the component may take to answer", 10.0),
    opt("--cri-socket-path", "socket", text, "the runtime's socket (default: the first that is there)"),
    opt("-p --log-pattern", "patterns", counted_pattern, "COUNT:PATTERN in the unit's log; may be repeated", many=True),
    opt("-u --url", "url", text, "another health endpoint of the kubelet or kube-proxy"),
    flag("--enable-repair", "repair", "kill the unit where it is unhealthy, so that systemd starts it anew"),
    timeout=30,
    every=30,
)  # fmt: skip
def check_npd_health(
    host: Host,
    component: str = "kubelet",
    service: Optional[str] = None,
    cooldown: float = 120.0,
    loopback: float = 0.0,
    deadline: float = 10.0,
    socket: Optional[str] = None,
    patterns: Sequence[Tuple[int, str]] = (),
    url: Optional[str] = None,
    repair: bool = False,
) -> Outcome:
    """A Kubernetes component is healthy, as node-problem-detector's health-checker judges it.

    Takes the place of that program, with its options: the kubelet must answer 200 to /healthz on port 10248,
    kube-proxy to /livez on 10256, docker and the CRI runtime on their sockets; and --log-pattern may not be found
    as often as it says in the unit's journal since the unit began, or for --loopback-time where it has run
    longer. Patterns match without regard to case. Both must hold, else CRIT. Two things differ: nothing is killed
    unless --enable-repair is given (health-checker's default is to), and what could not be asked (no journal, no
    systemd, no permission) is UNKNOWN. A repair is `systemctl kill --kill-who=main`, once the unit has been up
    for --cooldown-time (2 minutes).

    Example: * |every 30s| check_npd_health --component=cri --log-pattern=10:'connection refused' --loopback-time=10m
    """
    unit = service or ("containerd" if component == "cri" else component)
    outcome = _answers(host, component, deadline, socket, url)
    if outcome.verdict is Verdict.UNKNOWN:
        return outcome
    up: Optional[float] = None
    if patterns or (repair and outcome.reason):
        try:
            up = systemd.up_for(host, unit)
        except (systemd.SystemdError, OSError) as error:
            return (
                outcome
                if outcome.reason
                else unknown("UptimeUnknown", f"how long {unit} has run cannot be told: {error}")
            )
    if patterns and not outcome.reason and up is not None:
        span = min(up, loopback) if loopback else up
        complaint = _complaints(host, unit, span, patterns)
        outcome = complaint or outcome
    if outcome.verdict is Verdict.CRIT and repair and up is not None and up > cooldown:
        return _repaired(host, unit, outcome)
    return outcome


def _answers(host: Host, component: str, deadline: float, socket: Optional[str], url: Optional[str]) -> Outcome:
    if component in ("docker", "cri"):
        path = "/run/docker.sock" if component == "docker" and not socket else component_socket(host, socket)
        outcome = probe(host, path, deadline)
        # A pod network that is not ready is no fault of the runtime: crictl pods works.
        return outcome._replace(verdict=Verdict.OK, reason="") if outcome.reason == "NetworkNotReady" else outcome
    place = url or (HEALTHZ if component == "kubelet" else PROXY)
    status, body, took = ask(host, place, deadline)
    metrics = (Metric("response_time", took, "s"),)
    if status == 200:
        return ok(f"{component} is healthy", metrics=metrics)
    if status == -1:
        return unknown("NotPermitted", f"{place}: {body}")
    message = (
        f"{component} answers {status} to {place}: {body[:200]}" if status else f"{component} does not answer: {body}"
    )
    return crit("ComponentUnhealthy", message, target=component, metrics=metrics, action=Action.RESTART_APP)


def _complaints(host: Host, unit: str, span: float, patterns: Sequence[Tuple[int, str]]) -> Optional[Outcome]:
    """What the unit's log holds too often, UNKNOWN where it cannot be read, None where all is well."""
    from nhc.node.facts.journal import logged

    try:
        messages = logged(host, host.time() - span, f"--unit={unit}")
    except OSError as error:
        return unknown("JournalUnreadable", f"journalctl: {error.strerror}")
    for count, pattern in patterns:
        wanted = re.compile(pattern, re.IGNORECASE)
        lines: List[str] = [line for line in messages if wanted.search(line)]
        if len(lines) >= count:
            message = (
                f"the log of {unit} has {len(lines)} lines like {pattern!r} in {show_seconds(span)}, limit {count}"
            )
            return crit(
                "ComponentComplains", message, target=unit, action=Action.RESTART_APP, evidence=tuple(lines[-3:])
            )
    return None


def _repaired(host: Host, unit: str, outcome: Outcome) -> Outcome:
    """The same finding, with what the repair came to."""
    trouble = systemd.control(host, 10, "kill", "--kill-who=main", "--", systemd.full_name(unit))
    note = f"{unit} could not be killed: {trouble}" if trouble else f"{unit} was killed so that it starts anew"
    return outcome._replace(message=f"{outcome.message}; {note}")
