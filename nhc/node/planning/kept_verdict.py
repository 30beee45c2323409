"""The healthy verdict as a small file that the prolog's wrapper reads by itself, without Python.

Kept only where `NHC_PROLOG_MAX_AGE` lets a prolog take a recent report, by the health check and by a prolog that judged
the whole node. adapters/slurm/prolog.sh takes it while the node runs since the same boot, the time has not passed, and
`stat` says of every file and directory that the verdict depends on what it said then. Anything else goes the full way:
docs/decisions/0013-kept-verdict.md.

The file lies in the state directory, which belongs to root and which nobody else can write to:

    nhc-prolog-healthy 1
    BOOT ID
    NODE
    UNTIL     seconds of /proc/uptime
    COUNT     paths that follow, one a line
    ...       what `stat` printed of them
"""

from __future__ import annotations

import os

from nhc.core.language import site_settings
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict
from nhc.core.state.store import State
from nhc.core.system import process, written_files
from nhc.core.system.bounded_read import read_text
from nhc.node.planning.cache import code_path

if TYPE_CHECKING:
    from typing import List, Mapping

    from nhc.core.plan import Plan

FILE = "prolog-healthy"
FORM = "nhc-prolog-healthy 1"
STAT = ("stat", "-L", "-c", "%n %d %i %s %.9Y %.9Z", "--")
"""Inode, size, times of content and of the inode: the last no user and no copying tool can set."""
SETTLED = 0.1
"""Seconds for which a file must have been unchanged before the run began: what was read is then what lies there."""


def keep(state: State, plan: Plan, report: Report, settings: Mapping[str, str], max_age: float, context: str) -> None:
    """Keep the verdict of a run of `plan` in `context`, or forget an earlier one where this is none to keep.

    Never raises.
    """
    try:
        content = _content(plan, report, settings, max_age, context)
        if content and state.usable():
            written_files.write_whole(f"{state.directory}/{FILE}", content.encode("utf-8", "surrogateescape"), 0o600)
            return
    except (OSError, ValueError):
        pass
    forget(state)


def forget(state: State) -> None:
    """Delete the kept verdict, so that the next prolog runs its checks. Never raises."""
    try:
        os.unlink(f"{state.directory}/{FILE}")
    except OSError:
        pass


def _content(plan: Plan, report: Report, settings: Mapping[str, str], max_age: float, context: str) -> str:
    """The file, "" where nothing may be kept. Raises OSError, ValueError."""
    if report.verdict is not Verdict.OK or report.not_run or not report.boot_id or max_age <= 0 or os.geteuid():
        return ""
    if not plan.inputs or plan.notes or not _covers(plan, context):
        return ""
    directory = settings.get("CONFDIR") or site_settings.CONFDIR
    own = f"{directory}/nhc-prolog.conf"
    if context != "prolog" and (os.path.exists(own) or settings.get("CONFFILE") != f"{directory}/nhc.conf"):
        return ""  # the prolog judges by another configuration
    paths = sorted({*plan.inputs, *site_settings.FILES, own, code_path()})
    if any("\n" in path or not path.startswith("/") for path in paths):
        return ""
    seen = process.run([*STAT, *paths], timeout=5.0, env={"LC_ALL": "C", "PATH": process.PATH})
    if seen.timed_out or any(_changed(path, report.started - SETTLED) for path in paths):
        return ""
    until = float(read_text("/proc/uptime").split()[0]) - report.elapsed + max_age
    lines: List[str] = [FORM, report.boot_id, report.host, str(int(until)), str(len(paths)), *paths]
    return "\n".join(lines) + "\n" + seen.stdout  # what is not there has no line


def _covers(plan: Plan, context: str) -> bool:
    """Whether a run in `context` has judged every line that a prolog would."""
    return all(not item.contexts or context in item.contexts or "prolog" not in item.contexts for item in plan.items)


def _changed(path: str, since: float) -> bool:
    try:
        return os.stat(path).st_ctime >= since
    except OSError:
        return False
