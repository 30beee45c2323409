"""Moab and TORQUE: the scheduler, its resource managers and the server answer and are healthy."""

from __future__ import annotations

import re

from nhc.core.check import check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Outcome, crit, ok, unknown
from nhc.core.units import text
from nhc.node.checks.cmd import MATCH, TIMEOUT, Command, judge_output, run_to_end

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

_VERSION = re.compile(r"Version:\s+(\d+(?:\.\d+)*)")
_ALERT = re.compile(r"ALERT:\s+(.*)$")
_MANAGER = re.compile(r"^([A-Z][A-Z]\[[^\]]+\])\s+State:\s*(\S+)")
_SCHEDULING = re.compile(r"set server scheduling = (\w+)")


def _lines(
    host: Host, argv: Tuple[str, ...], timeout: float, match: Sequence[str]
) -> Tuple[List[str], Optional[Outcome]]:
    """What a command prints; the second value is the failure if the command did not work."""
    command = Command(argv, " ".join(argv))
    ended, failed = run_to_end(host, command, timeout, None)
    failed = failed or judge_output(ended, command, timeout, None, match)
    lines = ended.stdout.splitlines()
    if failed is None and not lines:
        failed = unknown("NoOutput", f'"{command.line}" printed nothing')
    return lines, failed


def _mdiag(host: Host) -> str:
    return host.setting("MDIAG_CMD") or "mdiag"


@check(
    "check_moab_sched",
    TIMEOUT,
    MATCH,
    opt("-a --alert", "alert", text, "match string of the alerts that fail (default: none does)"),
    opt("-v --version", "version", text, "match string that Moab's version must match"),
    timeout=5.0,
)
def check_moab_sched(
    host: Host,
    timeout: float = 5.0,
    match: Sequence[str] = (),
    alert: Optional[str] = None,
    version: Optional[str] = None,
) -> Outcome:
    """The Moab scheduler answers, in the right version and without alerts.

    Reads the output of `mdiag -S -v` ($MDIAG_CMD names another command), as check_cmd_output does with
    -m and -t. With -a an alert that matches fails, with -v another version does.

    Example: master || check_moab_sched -t 45 -v 7.2.5 -a '/resource manager/'
    """
    lines, failed = _lines(host, (_mdiag(host), "-S", "-v"), timeout, match)
    if failed is not None:
        return failed
    versions = [line[1] for line in map(_VERSION.search, lines) if line]
    if version is not None and not versions:
        return unknown("NoVersion", "mdiag -S -v names no version", evidence=tuple(lines[:20]))
    for running in versions:
        if version is not None and not mcheck(running, version):
            return crit("MoabVersion", f"Moab version {running} != expected version {version}")
    for alarm in (line[1] for line in map(_ALERT.search, lines) if line):
        if alert is not None and mcheck(alarm, alert):
            return crit("MoabAlert", f"Moab Alert:  {alarm}", evidence=(alarm,))
    return ok(f"Moab {versions[0]} answers" if versions else "Moab answers")


@check("check_moab_rm", TIMEOUT, MATCH, timeout=5.0)
def check_moab_rm(host: Host, timeout: float = 5.0, match: Sequence[str] = ()) -> Outcome:
    """Every resource manager that Moab knows is active.

    Reads the output of `mdiag -R -v` ($MDIAG_CMD names another command), as check_cmd_output does with
    -m and -t. Moab's own, internal one is left out.

    Example: master || check_moab_rm -t 45
    """
    lines, failed = _lines(host, (_mdiag(host), "-R", "-v"), timeout, match)
    if failed is not None:
        return failed
    managers = [(manager[1], manager[2]) for manager in map(_MANAGER.search, lines) if manager]
    if not managers:
        return unknown("NoResourceManager", "mdiag -R -v names no resource manager", evidence=tuple(lines[:20]))
    for name, state in managers:
        if "internal" not in name and state != "Active":
            return crit("ResourceManagerState", f'External resource manager "{name}" is in state "{state}"')
    return ok(f"{len(managers)} resource manager(s) active")


@check("check_moab_torque", TIMEOUT, MATCH, timeout=5.0)
def check_moab_torque(host: Host, timeout: float = 5.0, match: Sequence[str] = ()) -> Outcome:
    """The TORQUE server answers and its scheduling is on.

    Reads the output of `qmgr -c 'print server'`, as check_cmd_output does with -m and -t.

    Example: master || check_moab_torque -t 45 -m '/^set server keep_completed = 300/'
    """
    lines, failed = _lines(host, ("qmgr", "-c", "print server"), timeout, match)
    if failed is not None:
        return failed
    for scheduling in map(_SCHEDULING.search, lines):
        if scheduling and scheduling[1] != "True":
            return crit("SchedulingOff", f'Scheduling not active (set to "{scheduling[1]}") in TORQUE configuration')
    if not any("set server" in line for line in lines):
        return unknown("NoServerSettings", "qmgr prints no server settings", evidence=tuple(lines[:20]))
    return ok("TORQUE answers, scheduling is active")
