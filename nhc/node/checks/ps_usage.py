"""Processes that use too much: CPU, memory, CPU time."""

from __future__ import annotations

import re

from nhc.core.check import Param, arg, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.system.process_identity import ProcessStat
from nhc.core.units import integer, show_kb, size_kb, text
from nhc.node.checks.ps import OwnerTest, any_matches, cannot_read, kill_process, no_processes
from nhc.node.facts.processes import (
    Clock,
    args_of,
    clock,
    cpu_permille,
    cpu_seconds,
    first_word,
    memory_permille,
    owner,
    rss_kb,
    show_permille,
    stats,
    unreadable,
)
from nhc.node.facts.users import max_system_uid, user_name

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple


class Measure(NamedTuple):
    """What is measured of a process, from what value on it is too much, and how both are shown."""

    check: str
    reason: str
    of: Callable[[ProcessStat, Clock], float]
    limit: float
    show: Callable[[ProcessStat, Clock], str]
    passed: str


class Options(NamedTuple):
    """The options that the checks of this family share."""

    nonfatal: bool = False
    every_user: bool = False
    every_process: bool = False
    action: Optional[str] = None
    full: bool = False
    kill: bool = False
    kill_parent: bool = False
    log: bool = False
    match: str = "*"
    nice: Optional[int] = None
    syslog: bool = False
    user: Optional[str] = None


class Hit(NamedTuple):
    process: ProcessStat
    uid: int
    program: str


SHARED: Tuple[Param, ...] = (
    flag("-0 --non-fatal", "nonfatal", "only warn"),
    flag(
        "-A --all-users", "every_user", "judge system users' processes too (up to $MAX_SYS_UID; -u USER does for USER)"
    ),
    flag("-a --all", "every_process", "find and act on all matching processes, not only the first"),
    opt("-e --exec", "action", text, "command for bash to run, without waiting, where one is found", changes=True),
    flag("-f --full", "full", "match and show the whole command line, not its first word"),
    flag("-k --kill", "kill", "kill what is found (SIGKILL)", changes=True),
    flag("-K --kill-parent", "kill_parent", "kill its parent, if that is the same user's", changes=True),
    flag("-l --log", "log", "keep a line for each in the report, also where the check only warns"),
    opt("-m --match", "match", text, "match string of the programs to judge (default all)", "*"),
    opt("-r --renice", "nice", integer, "nice value to give to what is found", changes=True),
    flag("-s --syslog", "syslog", "write a line for each to the system log"),
    opt("-u --user", "user", text, "match string of the users to judge, or a number"),
)


def _judge(host: Host, measure: Measure, options: Options) -> Outcome:
    try:
        hits, hang = _over(host, measure, options)
    except OSError as error:
        return no_processes(error)
    except ValueError as error:
        return unknown("ProcUnreadable", str(error))
    if not hits:
        if hang:
            return cannot_read(hang, f"{measure.passed}, as far as can be told")
        return ok(measure.passed)
    now = host.fact(clock)
    messages = []
    for hit in hits if options.every_process else hits[:1]:
        whose = f'Process "{hit.program}" ({hit.process.pid}) of {user_name(host, hit.uid)}'
        message = f"{whose} {measure.show(hit.process, now)}"
        message += "".join(f"; {action}" for action in _act(host, hit, options))
        messages.append(message)
        if options.syslog:
            host.system.syslog(f"{measure.check}:  {message}")
    message = messages[-1]
    if options.every_process and not options.nonfatal:
        message += f" (last of {len(messages)})"
    metrics = (Metric("processes", len(hits)), Metric("worst", max(measure.of(hit.process, now) for hit in hits)))
    evidence = tuple(messages) if options.log or len(messages) > 1 else ()
    if options.nonfatal:
        return warn(measure.reason, f"{message} (non-fatal)", metrics=metrics, evidence=evidence)
    return crit(measure.reason, message, metrics=metrics, evidence=evidence, action=Action.RESTART_APP)


def _over(host: Host, measure: Measure, options: Options) -> Tuple[List[Hit], List[int]]:
    """The processes at or over the limit, by number; and those that could be meant but hang."""
    now = host.fact(clock)
    owned = OwnerTest(host, options.user)
    # If users are named, system users count too: `-u root`. 1.4.3 leaves out no user, later versions all system users.
    named = owned.pattern and not owned.negated
    system = -1 if options.every_user or named else max_system_uid(host)
    hits: List[Hit] = []
    hang: List[int] = []
    for process in host.fact(stats).values():
        if measure.of(process, now) < measure.limit or process.state in "ZX":
            continue
        uid = owner(host, process.pid)
        if uid is None or uid <= system or not owned(process.pid):
            continue
        args = args_of(host, process.pid)
        program = args if options.full else args.partition(" ")[0]
        names = (args,) if options.full else (program, first_word(args))
        if program and any_matches(names, options.match):
            hits.append(Hit(process, uid, program))
        elif process.pid in host.fact(unreadable):
            hang.append(process.pid)
    return hits, hang


def _act(host: Host, hit: Hit, options: Options) -> List[str]:
    """Do what the options ask for, and report it."""
    done = []
    pid = hit.process.pid
    if options.action:
        try:
            host.start(("bash", "-c", options.action))
        except OSError as error:
            done.append(f'"{options.action}" not started ({error.strerror})')
    if options.kill:
        done.append(_kill(host, hit.process, "killed", "not killed"))
    elif options.nice is not None:
        try:
            host.renice(pid, options.nice)
            done.append(f"reniced {options.nice:+d}")
        except OSError as error:
            done.append(f"not reniced ({error.strerror})")
    if options.kill_parent:
        number = hit.process.parent
        parent = host.fact(stats).get(number)
        if number == 1:
            done.append("parent 1 not killed (PPID is 1)")
        elif parent is None or owner(host, number) != hit.uid:
            done.append(f"parent {number} not killed (owner mismatch)")
        else:
            done.append(_kill(host, parent, f"killed parent {number}", f"parent {number} not killed"))
    return done


def _kill(host: Host, process: ProcessStat, done: str, not_done: str) -> str:
    try:
        kill_process(host, process)
    except OSError as error:
        return f"{not_done} ({error.strerror})"
    return done


def cpu_percentage(value: str) -> float:
    """A percentage of one CPU, the sign optional; a process with threads can use more than 100."""
    digits = value[:-1] if value.endswith("%") else value
    if not re.fullmatch(r"\d+(\.\d+)?", digits):
        raise ValueError(f"{value!r} is not a percentage of one CPU")
    return float(digits)


@check("check_ps_cpu", *SHARED, arg("limit", cpu_percentage, "percent of one CPU", required=True), timeout=5.0)
def check_ps_cpu(host: Host, limit: float, **shared: object) -> Outcome:
    """No user's process has used more than a share of a CPU over its life.

    CPU time divided by age, as ps prints it, from /proc/PID/stat; reaching the limit fails. System users'
    processes (up to $MAX_SYS_UID, by login.defs) are left out unless -A is given. -k, -K, -r and -e act
    on what is found, and the message says what was done.

    Example: * || check_ps_cpu -u '!root' -m '/rogue/' -k 90%
    """

    def show(process: ProcessStat, now: Clock) -> str:
        return f"using {show_permille(cpu_permille(process, now))}% CPU (limit {limit:g}%)"

    def percent(process: ProcessStat, now: Clock) -> float:
        return cpu_permille(process, now) / 10

    measure = Measure("check_ps_cpu", "ProcessCpuHigh", percent, limit, show, f"no process uses {limit:g}% CPU")
    return _judge(host, measure, Options(**shared))  # type: ignore[arg-type]


def _by_size(name: str, reason: str, of: Callable[[ProcessStat, Clock], int], limit: int, what: str) -> Measure:
    def show(process: ProcessStat, now: Clock) -> str:
        return f"using {show_kb(of(process, now))} {what} (limit {show_kb(limit)})"

    return Measure(name, reason, of, limit, show, f"no process uses {show_kb(limit)} {what}")


def absolute_size(value: str) -> int:
    """A size in kB, with a word for who gives a percentage."""
    if value.endswith("%"):
        raise ValueError("Percentage not supported by this check.")
    return size_kb(value)


@check("check_ps_mem", *SHARED, arg("limit", absolute_size, "size, kB by default", required=True), timeout=5.0)
def check_ps_mem(host: Host, limit: int, **shared: object) -> Outcome:
    """No user's process has more than so much memory mapped, in RAM or not.

    The virtual size (VSZ of ps) from /proc/PID/stat; reaching the limit fails. GPU programs reserve
    hundreds of GB that they never use: check_ps_physmem judges what is in RAM. Options as check_ps_cpu.

    Example: * || check_ps_mem -u '!root' 1TB
    """
    measure = _by_size("check_ps_mem", "ProcessMemoryHigh", lambda p, _now: p.vsize // 1024, limit, "memory (RAM+swap)")
    return _judge(host, measure, Options(**shared))  # type: ignore[arg-type]


class Share(NamedTuple):
    """A size in kB or, if `percent` is not None, a share of the node's memory."""

    kb: int
    percent: Optional[float] = None


def size_or_share(value: str) -> Share:
    if value.endswith("%"):
        if not re.fullmatch(r"\d+(\.\d+)?%", value):
            raise ValueError(f"{value!r} is not a percentage")
        return Share(0, float(value[:-1]))
    return Share(size_kb(value))


@check(
    "check_ps_physmem", *SHARED, arg("limit", size_or_share, "size (kB by default) or percentage", required=True),
    timeout=5.0,
)  # fmt: skip
def check_ps_physmem(host: Host, limit: Share, **shared: object) -> Outcome:
    """No user's process holds more than so much RAM.

    The resident size (RSS of ps) from /proc/PID/stat, as a size or as a share of the node's memory;
    reaching the limit fails. Options as check_ps_cpu.

    Example: * || check_ps_physmem -0 -s 90%
    """
    most = limit.percent
    if most is None:
        measure = _by_size("check_ps_physmem", "ProcessMemoryHigh", rss_kb, limit.kb, "RAM")
    else:

        def show(process: ProcessStat, now: Clock) -> str:
            return f"using {show_permille(memory_permille(process, now))}% RAM (limit {most:g}%)"

        def percent(process: ProcessStat, now: Clock) -> float:
            return memory_permille(process, now) / 10

        measure = Measure(
            "check_ps_physmem", "ProcessMemoryHigh", percent, most, show, f"no process uses {most:g}% RAM"
        )
    return _judge(host, measure, Options(**shared))  # type: ignore[arg-type]


def minutes_seconds(value: str) -> int:
    """Seconds of CPU time: `90`, `90s`, `120m`, `60m30s`; `08m09s` is decimal."""
    match = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s?)?", value, re.IGNORECASE)
    if not match or not value:
        raise ValueError(f"{value!r} is no CPU time (minutes and seconds, as in 90, 90s, 120m or 60m30s)")
    return int(match[1] or 0) * 60 + int(match[2] or 0)


@check("check_ps_time", *SHARED, arg("limit", minutes_seconds, "CPU time, seconds or 60m30s", required=True),
       timeout=5.0)  # fmt: skip
def check_ps_time(host: Host, limit: int, **shared: object) -> Outcome:
    """No user's process has consumed more than so much CPU time.

    User and system time from /proc/PID/stat; reaching the limit fails. Options as check_ps_cpu.

    Example: * || check_ps_time -0 -m '/runawayd/' -e '/sbin/service runawayd restart' 3600m
    """

    def show(process: ProcessStat, now: Clock) -> str:
        spent = cpu_seconds(process, now)
        return f"has consumed {spent // 60}:{spent % 60:02} of CPU time (limit {limit // 60}m{limit % 60}s)"

    measure = Measure("check_ps_time", "ProcessTimeHigh", cpu_seconds, limit, show, f"no process has used {limit} s")
    return _judge(host, measure, Options(**shared))  # type: ignore[arg-type]
