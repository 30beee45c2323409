"""Custom plugins of node-problem-detector: programs whose exit status tells of one problem each."""

from __future__ import annotations

from nhc.core.check import arg, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, Verdict, crit, ok, printable, unknown, warn
from nhc.core.units import seconds, show_seconds, text, whole
from nhc.node.checks.npd_programs import stand_in

if TYPE_CHECKING:
    from typing import Sequence

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
