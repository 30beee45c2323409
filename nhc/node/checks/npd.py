"""Custom plugins of node-problem-detector: programs whose exit status reports one problem each.

Its stock monitors call its own programs health-checker (a component answers, and its log does not complain) and
log-counter (how often the journal holds a pattern). A node that no longer has node-problem-detector may still have the
monitors' files, but not the programs: our checks accept their command lines.
"""

from __future__ import annotations

import re

from nhc.core.check import BadArguments, arg, check, find, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, Verdict, crit, ok, printable, unknown, warn
from nhc.core.units import integer, one_of, seconds, show_seconds, text, whole
from nhc.node.checks.runtime import HEALTHZ, PROXY, component_socket, probe, query_http
from nhc.node.facts import systemd
from nhc.node.facts.journal import messages
from nhc.node.facts.kernel import uptime
from nhc.node.kernlog.npd_rules import compile_go

if TYPE_CHECKING:
    from typing import List, Optional, Pattern, Sequence, Tuple

READ = 4096
"""Bytes of a plugin's output that count: as many as node-problem-detector reads."""


@check(
    "check_npd_plugin",
    opt("-t --timeout", "timeout", seconds, "how long the plugin may take", 5.0),
    opt("-m --max-output", "limit", whole, "bytes of its output that are kept", 80),
    opt("-r --reason", "reason", text, "the problem's name", "PluginProblem"),
    flag("--temporary", "temporary", "a problem that passes: a warning"),
    arg("path", text, "the plugin", required=True),
    rest("words", text, "its arguments"),
    every=30,
)
def check_npd_plugin(
    host: Host, path: str, timeout: float, limit: int, reason: str, temporary: bool, words: Sequence[str]
) -> Outcome:
    """A node-problem-detector plugin reports no problem.

    Runs a custom plugin by its protocol (pkg/custompluginmonitor of node-problem-detector): exit status 0 is well,
    1 a problem, anything else, a signal or no answer in time is "could not tell". Its output, trimmed and cut to
    `--max-output` bytes, is the message. A plugin that does not end is killed with all it started, and a child of
    it that keeps its output open is not waited for. Where node-problem-detector's own health-checker or log-counter
    is named and not installed, check_npd_health or check_npd_log_counter answers in its place.

    Example: * || check_npd_plugin --reason NtpIsDown /opt/npd/check_ntp.sh
    """
    try:
        ended = host.run([path, *words], timeout=timeout)
    except FileNotFoundError as error:
        replaced = stand_in(host, path, words)
        if replaced is None:
            return unknown("PluginUnusable", f"{path} cannot be run: {error.strerror}")
        message = replaced.message.encode()[:limit].decode(errors="ignore")
        if replaced.verdict is Verdict.OK:
            return ok(message)
        if replaced.verdict is Verdict.UNKNOWN:
            return replaced if replaced.reason == "PluginUnusable" else unknown("PluginUnknown", message)
        return (warn if temporary else crit)(reason, message, evidence=(replaced.message, *replaced.evidence))
    except OSError as error:
        return unknown("PluginUnusable", f"{path} cannot be run: {error.strerror}")
    output = printable(ended.stdout.encode()[:READ].decode(errors="ignore").strip())
    output = output.encode()[:limit].decode(errors="ignore").strip()
    evidence = tuple(ended.stderr.splitlines()[-5:])
    if ended.timed_out:
        return unknown("PluginTimeout", f"no answer within {show_seconds(timeout)}", evidence=evidence)
    if ended.status == 0:
        return ok(output)
    if ended.status == 1:
        return (warn if temporary else crit)(reason, output or reason, evidence=evidence)
    return unknown("PluginUnknown", output or f"exit status {ended.status}", evidence=evidence)


PROGRAMS = {"health-checker": "check_npd_health", "log-counter": "check_npd_log_counter"}
_DURATIONS = ("cooldown-time", "loopback-time", "health-check-timeout", "lookback", "delay")
_IGNORED = ("v", "vmodule", "logtostderr", "crictl-path", "cri-timeout")
"""Options of its logging, and of crictl, which we do not need."""
_KNOWN = (*_DURATIONS, "component", "service", "systemd-service", "cri-socket-path", "journald-source", "log-path",
          "count", "pattern", "revert-pattern")  # fmt: skip


def stand_in(host: Host, path: str, arguments: Sequence[str]) -> Optional[Outcome]:
    """The outcome of our check instead of the program's; None for a program of another name."""
    name = PROGRAMS.get(path.rsplit("/", 1)[-1])
    check = find(name) if name else None
    if check is None:
        return None
    try:
        outcome = check.run(host, **check.parse(translate(arguments)))
    except BadArguments as error:
        return unknown("PluginUnusable", f"{path} is not installed, and {name} does not understand: {error}")
    assert isinstance(outcome, Outcome)
    return outcome


def translate(arguments: Sequence[str]) -> List[str]:
    """Its command line in the form of our checks. Raises BadArguments."""
    options: List[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            raise BadArguments(f"unexpected argument {argument!r}")
        if name == "enable-repair":
            if (value or "true").lower() in ("true", "t", "1"):
                options.append("--enable-repair")
            continue
        if name == "logtostderr" or (name in _IGNORED and equals):
            continue
        if not equals:
            if not left:
                raise BadArguments(f"Option --{name} requires an argument.")
            value = left.pop(0)
        if name in _IGNORED:
            continue
        if name == "log-pattern":
            for each in value.split(","):
                options += ["--log-pattern", each]
        elif name in _KNOWN:
            if name in _DURATIONS and not value:
                continue
            options += [f"--{name}", _seconds(value) if name in _DURATIONS else value]
        else:
            raise BadArguments(f"Invalid option:  --{name}")
    return options


def _seconds(value: str) -> str:
    """A duration as Go writes it, in seconds. Raises BadArguments."""
    from nhc.node.kernlog.npd_rules import go_duration

    try:
        return f"{go_duration(value):f}"
    except ValueError as error:
        raise BadArguments(str(error)) from None


def pattern(value: str) -> Pattern[str]:
    """A pattern as Go reads it, which must match to the end of a message. Raises ValueError."""
    return compile_go(value, "--pattern", r"\Z")


@check(
    "check_npd_log_counter",
    opt("-s --journald-source", "source", text, "SYSLOG_IDENTIFIER of the messages", "kernel"),
    opt("-d --log-path", "directory", text, "directory of the journal; the system's own where not given"),
    opt("-l --lookback", "lookback", seconds, "how far back messages count; since boot where not given"),
    opt("--delay", "delay", seconds, "nothing counts from the node's first seconds of uptime", 0.0),
    opt("-c --count", "count", integer, "so often the pattern must be found to be a problem", 1),
    opt("-p --pattern", "wanted", pattern, "regular expression, which must match to the end of the message"),
    opt("-r --revert-pattern", "revert", pattern, "a message like this takes one from the count"),
    opt("--reason", "reason", text, "the problem's name", "LogPattern"),
    flag("-0 --non-fatal", "nonfatal", "only warn"),
    timeout=20,
    every=300,
)  # fmt: skip
def check_npd_log_counter(
    host: Host,
    wanted: Optional[Pattern[str]] = None,
    source: str = "kernel",
    directory: Optional[str] = None,
    lookback: Optional[float] = None,
    delay: float = 0.0,
    count: int = 1,
    revert: Optional[Pattern[str]] = None,
    reason: str = "LogPattern",
    nonfatal: bool = False,
) -> Outcome:
    r"""The journal does not hold a pattern too often.

    Takes the place of node-problem-detector's log-counter, with its options: messages of one source in the
    journal, from --lookback ago and this boot on, each that matches --pattern counts one, each that matches
    --revert-pattern takes one away; --count of them are a problem. As there, a pattern must match to the end of
    the message, and may begin anywhere. Where this node has been up for less than --delay, the result is OK and
    nothing is read. log-counter looks at single messages too: a pattern over several lines never matched in it.
    The
    kernel's messages are read from /dev/kmsg where there is no journal. UNKNOWN where neither can be read.

    Example: * |every 5m| check_npd_log_counter --lookback=20m --count=3 --pattern='.*waiting for \w+ to become free.*'
    """
    if wanted is None:
        return unknown("BadArguments", "needs --pattern")
    try:
        up = uptime(host)
    except (OSError, ValueError):
        return unknown("BadData", "/proc/uptime does not tell how long this node is up")
    if up < delay:
        return ok(f"this node is up for {show_seconds(up)}, the log counts after {show_seconds(delay)}")
    span = min(up, lookback) if lookback is not None else up
    try:
        logged = messages(host, source, host.time() - min(span, up - delay), directory or "")
    except OSError as error:
        return unknown("JournalUnreadable", f"journalctl: {error.strerror}")
    matched = [message for message in logged if wanted.search(message)]
    number = len(matched) - sum(1 for message in logged if revert is not None and revert.search(message))
    metrics = (Metric("log_matches", number),)
    text = f"{number} messages of {source} in {show_seconds(span)} match"
    if number < count:
        return ok(text, metrics=metrics)
    say = warn if nonfatal else crit
    return say(reason, f"{text}, limit {count}: {matched[-1][:200]}", metrics=metrics, evidence=tuple(matched[-3:]))


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
    status, body, took = query_http(host, place, deadline)
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
    """What the unit's log holds too often, UNKNOWN if it cannot be read, None if all is well."""
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
    """The same finding, with the result of the repair."""
    trouble = systemd.control(host, 10, "kill", "--kill-who=main", "--", systemd.full_name(unit))
    note = f"{unit} could not be killed: {trouble}" if trouble else f"{unit} was killed so that it starts anew"
    return outcome._replace(message=f"{outcome.message}; {note}")
