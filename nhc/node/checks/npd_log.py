"""node-problem-detector's log-counter: how often the journal holds a pattern."""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Metric, Outcome, crit, ok, unknown, warn
from nhc.core.units import integer, seconds, show_seconds, text
from nhc.node.facts.journal import messages
from nhc.node.facts.kernel import uptime
from nhc.node.kernlog.npd_rules import compile_go

if TYPE_CHECKING:
    from typing import Optional, Pattern


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
