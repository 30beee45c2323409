"""Processes: command lines, owners, CPU time and memory, read from /proc as ps(1) reads them.

Each source is read for all processes at once and kept for the run. Command lines cost 5 microseconds
a process; `stat` files 7; owners 2, and they are read only for the processes that matter.
"""

from __future__ import annotations

import os

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system.process_identity import ProcessStat, parse_stat

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Iterator, List, Optional, Tuple


def parse_cmdline(text: str) -> str:
    """A command line as ps prints it: NUL bytes and runs of blanks become one blank."""
    return " ".join(text.replace("\0", " ").split())


def first_word(args: str) -> str:
    """The program name in a command line: argv[0], up to its first blank.

    A daemon that rewrites its title (setproctitle) leaves `sshd: /usr/sbin/sshd -D [listener] 0 of
    10-100 startups` or `nginx: master process /usr/sbin/nginx`: then the result is the path that ends in the title's
    name, else that name without its colon.
    """
    program, _, rest = args.partition(" ")
    if not program.endswith(":") or len(program) < 2:
        return program
    name = program[:-1]
    return next((part for part in rest.split() if part.startswith("/") and part.endswith(f"/{name}")), name)


def is_ssh_session(args: str) -> bool:
    """Whether this is sshd serving one login, not the daemon that listens.

    Since OpenSSH 8.2 the listener's title has `[listener]`; before that it had its plain command line. Every other
    `sshd: ` title is a session's (setproctitle in sshd.c, auth.c and session.c).
    """
    return args.startswith("sshd: ") and "[listener]" not in args


def pids(host: Host) -> List[int]:
    """The processes there are, by number. Raises OSError if /proc cannot be listed."""
    return sorted(int(name) for name in host.listdir("/proc") if name.isdigit())


class Scan:
    """What /proc/PID/cmdline holds, read a few processes at a time: a daemon has a low number and is soon found.

    `raw` is None for a process whose command line could not be read in time. Our own processes are left out
    of what checks see: they can name what is looked for (`nhc check local --check 'check_ps_daemon sshd'`).
    """

    STEPS = (256, 1 << 22)

    def __init__(self, host: Host) -> None:
        self.host = host
        self.raw: Dict[int, Optional[str]] = {}
        self.left = host.fact(pids)
        self.step = 0
        self.ours = own(host)
        self.our_line = host.read("/proc/self/cmdline") if self.ours else ""

    def ours_too(self, pid: int) -> bool:
        """Whether this is our own process: this one, its parent, or another worker, all under the same command line."""
        return bool(self.ours) and self.raw.get(pid) == self.our_line

    def more(self) -> bool:
        """Read on; False at the end. Raises OSError if there are no processes to be seen: /proc is not mounted."""
        if not self.left:
            if not self.raw:
                raise FileNotFoundError(2, "no process found", "/proc")
            return False
        size = self.STEPS[min(self.step, len(self.STEPS) - 1)]
        batch, self.left, self.step = self.left[:size], self.left[size:], self.step + 1
        lines = self.host.read_each("/proc", [str(pid) for pid in batch], "cmdline")
        self.raw.update((pid, lines[str(pid)]) for pid in batch if str(pid) in lines)
        return True


def raw_command_lines(host: Host) -> Dict[int, Optional[str]]:
    """What /proc/PID/cmdline holds, for every process; None if it could not be read in time."""
    lines = host.fact(Scan)
    while lines.more():
        pass
    return lines.raw


def command_lines(host: Host) -> Dict[int, str]:
    """The command line of every process that has one, but our own; kernel threads and zombies have none."""
    raw = host.fact(raw_command_lines)
    ours = host.fact(Scan).ours_too
    return {pid: parse_cmdline(line) for pid, line in raw.items() if line and not ours(pid)}


def own(host: Host) -> Tuple[int, ...]:
    """Our own process and its parent, which may be the run's supervisor; nothing on a recorded machine."""
    return (os.getpid(), os.getppid()) if host.live else ()


def nameless(host: Host) -> Dict[int, str]:
    """What ps prints of the processes without a command line: `[kswapd0]`. Zombies are left out.

    Processes whose command line could not be read (`unreadable`) are included, in the same form.
    """
    wanted = [str(pid) for pid, raw in host.fact(raw_command_lines).items() if not raw]
    names = {}
    for text in host.read_each("/proc", wanted, "stat").values():
        try:
            process = parse_stat(text or "")
        except ValueError:  # it ended in between
            continue
        if process.state not in "ZX":
            names[process.pid] = f"[{process.name}]"
    return names


def unreadable(host: Host) -> FrozenSet[int]:
    """The processes whose command line could not be read: they hang, and hold their memory's lock."""
    return frozenset(pid for pid, raw in host.fact(raw_command_lines).items() if raw is None)


def args_of(host: Host, pid: int) -> str:
    """A process's command line as ps prints it, `[name]` where it has none, "" if it is gone."""
    return host.fact(command_lines).get(pid) or host.fact(nameless).get(pid, "")


def all_args(host: Host) -> Iterator[Tuple[int, str]]:
    """Every process with its command line as ps prints it: first those that have one, then the others.

    Reads only as far as the caller iterates.
    """
    lines = host.fact(Scan)
    at = 0
    while True:
        for pid in list(lines.raw)[at:]:
            raw = lines.raw[pid]
            if raw and not lines.ours_too(pid):
                yield pid, parse_cmdline(raw)
            at += 1
        if at == len(lines.raw) and not lines.more():
            break
    yield from host.fact(nameless).items()


def stat_of(host: Host, pid: int) -> Optional[ProcessStat]:
    """One process's `stat` as it is now, None if it is gone or a zombie."""
    try:
        process = parse_stat(host.read(f"/proc/{pid}/stat"))
    except (OSError, ValueError):
        return None
    return None if process.state in "ZX" else process


def switches(host: Host, pid: int) -> int:
    """How often a process gave up or lost the CPU: unchanged means that it has not run (proc_pid_status(5)).

    The kernel's khungtaskd compares the same counts. -1 if nothing tells.
    """
    lines = host.read_or(f"/proc/{pid}/status").splitlines()
    counts = [line.rpartition(":")[2].strip() for line in lines if "ctxt_switches:" in line]
    return sum(map(int, counts)) if counts and all(count.isdigit() for count in counts) else -1


def stats(host: Host) -> Dict[int, ProcessStat]:
    """Every process's `stat`, by number. Raises OSError if there are no processes to be seen."""
    by_pid = {}
    for text in host.read_each("/proc", [str(pid) for pid in host.fact(pids)], "stat").values():
        try:
            process = parse_stat(text or "")
        except ValueError:
            continue
        by_pid[process.pid] = process
    if not by_pid:
        raise FileNotFoundError(2, "no process found", "/proc")
    return by_pid


def owner(host: Host, pid: int) -> Optional[int]:
    """The effective user of a process, None if it is gone.

    The directory /proc/PID always belongs to it, also where the files in it are root's because the
    process must not be dumped (task_dump_owner in fs/proc/base.c).
    """
    try:
        return host.stat(f"/proc/{pid}").uid
    except OSError:
        return None


class Clock(NamedTuple):
    """Seconds since boot, clock ticks in a second, bytes in a page, kB of memory."""

    uptime: float
    ticks: int
    page: int
    memory_kb: int


def clock(host: Host) -> Clock:
    """What turns a `stat` into percentages. Raises OSError or ValueError if it cannot be read."""
    from nhc.node.facts.kernel import uptime
    from nhc.node.facts.meminfo import parse_meminfo

    memory = parse_meminfo(host.read("/proc/meminfo")).get("MemTotal")
    if memory is None:
        raise ValueError("/proc/meminfo has no MemTotal")
    return Clock(uptime(host), host.system.sysconf("SC_CLK_TCK"), host.system.sysconf("SC_PAGE_SIZE"), memory)


def cpu_permille(process: ProcessStat, now: Clock) -> int:
    """CPU time over the process's whole lifetime, in thousandths of one CPU: ps's %CPU before it is printed."""
    lived = int(now.uptime - process.started / now.ticks)
    return int(process.cpu * 1000 / now.ticks / lived) if lived > 0 else 0


def memory_permille(process: ProcessStat, now: Clock) -> int:
    """Resident memory in thousandths of the node's: ps's %MEM before it is printed."""
    return min(rss_kb(process, now) * 1000 // now.memory_kb, 999) if now.memory_kb else 0


def rss_kb(process: ProcessStat, now: Clock) -> int:
    return process.rss * now.page // 1024


def show_permille(value: int) -> str:
    """As ps prints a percentage: one decimal below 100, none above."""
    return f"{value // 10}" if value > 999 else f"{value // 10}.{value % 10}"


def cpu_seconds(process: ProcessStat, now: Clock) -> int:
    return process.cpu // now.ticks
