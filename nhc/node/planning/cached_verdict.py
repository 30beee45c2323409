"""The healthy verdict as a small file that the hooks' wrappers read by themselves, without Python.

Kept only where `NHC_PROLOG_MAX_AGE` lets a prolog take a recent report, by the health check and by a prolog that judged
the whole node. adapters/slurm/prolog.sh takes it while the node runs since the same boot, the time has not passed, and
`stat` says of every file and directory that the verdict depends on what it said then. Anything else goes the full way:
docs/decisions/0013-kept-verdict.md.

The health check's (`NHC_HEALTHCHECK_MAX_AGE`) counts only beside the agent's: the agent judges the same lines all the
time, and says in a file of its own since when every one of them was good. adapters/slurm/healthcheck.sh takes both.

The files lie in the state directory, which belongs to root and which nobody else can write to:

    nhc-prolog-healthy 1       nhc-healthcheck-healthy 1               nhc-agent-healthy 1
    BOOT ID                    BOOT ID                                 BOOT ID
    NODE                       NODE                                    NODE
    UNTIL                      UNTIL                                   JUDGED
                               AGE of the agent's results, at most     LINES
                               LINES that the agent judges, a digest
    COUNT                      COUNT     paths that follow, one a line
    ...                        ...       what `stat` printed of them

UNTIL and JUDGED, when the oldest result was found, are seconds of /proc/uptime.
"""

from __future__ import annotations

import os
import time

from nhc.core.language import site_settings
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict
from nhc.core.state.store import State
from nhc.core.system import process, written_files
from nhc.core.system.bounded_read import read_text
from nhc.node.planning.cache import code_path

if TYPE_CHECKING:
    from typing import Iterable, Mapping, Tuple

    from nhc.core.plan import Item, Plan

FILE, HEALTHCHECK, AGENT = "prolog-healthy", "healthcheck-healthy", "agent-healthy"
STAT = ("stat", "-L", "-c", "%n %d %i %s %.9Y %.9Z", "--")
"""Inode, size, times of content and of the inode: the last no user and no copying tool can set."""
SETTLED = 0.1
"""Seconds for which a file must have been unchanged before the run began: what was read is then what lies there."""


def store_verdict(
    state: State, plan: Plan, report: Report, settings: Mapping[str, str], max_age: float, context: str
) -> None:
    """Keep the verdict of a run of `plan` in `context`, or forget an earlier one where this is none to keep.

    Never raises.
    """
    own = f"{_directory(settings)}/nhc-prolog.conf"
    # A health check and an agent may judge by another configuration than the prolog.
    others = context != "prolog" and (
        os.path.exists(own) or settings.get("CONFFILE") != f"{_directory(settings)}/nhc.conf"
    )
    content = ""
    if max_age > 0 and not others and _covers(plan, context):
        content = _content(plan, report, settings, "prolog", max_age - report.elapsed)
    _write(state, FILE, content)


def store_healthcheck_verdict(
    state: State, plan: Plan, report: Report, settings: Mapping[str, str], left: float, age: float, lines: str
) -> None:
    """Keep the verdict of a health check for the next `left` seconds, or forget an earlier one. Never raises.

    It counts while the agent judges `lines`, and found all of them good at most `age` seconds ago.
    """
    content = _content(plan, report, settings, "healthcheck", left, (str(int(age)), lines)) if lines else ""
    _write(state, HEALTHCHECK, content)


def store_agent_verdict(state: State, report: Report, lines: str) -> None:
    """The agent's part: since when every line was good. Written where a health check waits for it. Never raises."""
    if report.verdict is not Verdict.OK:
        drop_verdict(state)
    elif os.path.exists(f"{state.directory}/{HEALTHCHECK}"):
        try:
            judged = _uptime() - max(time.time() - report.started, 0.0)
        except (OSError, ValueError):
            return
        said = ("nhc-agent-healthy 1", report.boot_id, report.host, str(int(judged)), lines, "")
        _write(state, AGENT, "\n".join(said))


def lines_digest(items: Iterable[Item]) -> str:
    """A digest of the lines that the agent judges."""
    import hashlib

    named = sorted(f"{item.source}\0{item.line}" for item in items)
    return hashlib.sha256("\0".join(named).encode("utf-8", "surrogateescape")).hexdigest()


def drop_verdict(state: State) -> None:
    """Delete the kept verdicts, so that the next hooks run their checks. Never raises."""
    for name in (FILE, HEALTHCHECK, AGENT):
        _write(state, name, "")


def _write(state: State, name: str, content: str) -> None:
    """Write one of the files, or delete it: without a content, and where it cannot be written."""
    path = f"{state.directory}/{name}"
    try:
        if content and state.usable():
            written_files.write_whole(path, content.encode("utf-8", "surrogateescape"), 0o600)
            return
    except (OSError, ValueError):
        pass
    try:
        os.unlink(path)
    except OSError:
        pass


def _uptime() -> float:
    return float(read_text("/proc/uptime").split()[0])


def _directory(settings: Mapping[str, str]) -> str:
    return settings.get("CONFDIR") or site_settings.CONFDIR


def _content(
    plan: Plan, report: Report, settings: Mapping[str, str], hook: str, left: float, more: Tuple[str, ...] = ()
) -> str:
    """The file of a verdict that counts for `left` seconds, "" if none may be kept."""
    if report.verdict is not Verdict.OK or report.not_run or not report.boot_id or left <= 0 or os.geteuid():
        return ""
    if not plan.inputs or plan.notes:
        return ""
    paths = sorted({*plan.inputs, *site_settings.FILES, f"{_directory(settings)}/nhc-prolog.conf", code_path()})
    if any("\n" in path or not path.startswith("/") for path in paths):
        return ""
    try:
        seen = process.run([*STAT, *paths], timeout=5.0, env={"LC_ALL": "C", "PATH": process.PATH})
        until = _uptime() + left
    except (OSError, ValueError):
        return ""
    if seen.timed_out or any(_changed(path, report.started - SETTLED) for path in paths):
        return ""
    form = f"nhc-{hook}-healthy 1"
    lines = [form, report.boot_id, report.host, str(int(until)), *more, str(len(paths)), *paths]
    return "\n".join(lines) + "\n" + seen.stdout  # what is not there has no line


def _covers(plan: Plan, context: str) -> bool:
    """Whether a run in `context` has judged every line that a prolog would."""
    return all(not item.contexts or context in item.contexts or "prolog" not in item.contexts for item in plan.items)


def _changed(path: str, since: float) -> bool:
    try:
        return os.stat(path).st_ctime >= since
    except OSError:
        return False
