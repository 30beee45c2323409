"""What the shell gets, in its own language: variables, and facts as the arrays that site scripts read."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Mapping, Tuple

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_READ_ONLY = frozenset(["BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"])
_MATCHERS = ("NHC_MCHECK_DELIM", "NHC_MCHECK_COMMAND")


def quote(text: str) -> str:
    """Any text as one word of shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def presets(settings: Mapping[str, str], check_all: bool, host: Host) -> Dict[str, str]:
    """The variables that LBNL NHC has set by the time it loads scripts.

    Marking a node is never the shell's: its helpers are there by name and do nothing.
    """
    name = settings.get("NAME", "nhc")
    directory = settings.get("CONFDIR", "/etc/nhc")
    values = {
        "NAME": name,
        "HOSTNAME": settings.get("HOSTNAME") or host.read_or("/proc/sys/kernel/hostname") or host.system.hostname(),
        "CONFDIR": directory,
        "CONFFILE": f"{directory}/{name}.conf",
        "INCDIR": f"{directory}/scripts",
        "HELPERDIR": "/usr/libexec/nhc" if host.isdir("/usr/libexec") else "/usr/lib/nhc",
        "LIBEXECDIR": "/usr/libexec" if host.isdir("/usr/libexec") else "/usr/lib",
        "SYSCONFIGDIR": "/etc/sysconfig" if host.isdir("/etc/sysconfig") else "/etc/default",
        "LOGFILE": f">>/var/log/{name}.log 2>&1",
        "RESULTFILE": f"/var/run/nhc/{name}.status",
        "TIMEOUT": "30",
        "DEBUG": "0",
        "TS": "0",
        "SILENT": "0",
        "VERBOSE": "0",
        "MARK_OFFLINE": "0",
        "DETACHED_MODE": "0",
        "NHC_CHECK_FORKED": "0",
        "PASSWD_DATA_SRC": "/etc/passwd",
        "LOGIN_DEFS_SRC": "/etc/login.defs",
    }
    values.update((key, value) for key, value in settings.items() if key in values)
    values.update(ONLINE_NODE=":", OFFLINE_NODE=":", NHC_CHECK_ALL="1" if check_all else "0")
    return values


def assignments(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Shell text that takes the settings from `old` to `new`."""
    if old is new:
        return ""
    lines = [
        f"export {name}={quote(value)}"
        for name, value in new.items()
        if old.get(name) != value and _IDENTIFIER.fullmatch(name) and name not in _READ_ONLY and name not in _MATCHERS
    ]
    if any(old.get(name) != value for name, value in new.items() if name.startswith(_MATCHERS)):
        from nhc.core.language.external_matcher import elements

        lines.extend(_array(name, elements(new, name).items()) for name in _MATCHERS)
    return "\n".join(lines)


def gather(what: str, host: Host) -> str:
    """Assignments of the arrays that LBNL NHC's `nhc_*_gather_data` fills. What cannot be read stays as it was."""
    try:
        return _GATHERERS[what](host)
    except (KeyError, OSError, ValueError):
        return ""


def _array(name: str, values: Iterable[Tuple[int, str]]) -> str:
    return f"{name}=( {' '.join(f'[{index}]={quote(value)}' for index, value in values)} )"


def _list(name: str, values: Iterable[str]) -> str:
    return f"{name}=( {' '.join(map(quote, values))} )"


def _hardware(host: Host) -> str:
    from nhc.node.facts.cpuinfo import topology
    from nhc.node.facts.infiniband import ports
    from nhc.node.facts.meminfo import memory
    from nhc.node.facts.netdev import interfaces

    def cpus() -> List[str]:
        cpu = host.fact(topology)
        # Where the kernel does not say, LBNL NHC counts every thread as a socket and a core of its own.
        sockets, cores = cpu.sockets or cpu.threads, cpu.cores or cpu.threads
        return [f"HW_SOCKETS={sockets} HW_CORES={cores} HW_THREADS={cpu.threads}"]

    def ram() -> List[str]:
        ram = host.fact(memory)
        return [
            f"HW_RAM_TOTAL={ram.total} HW_RAM_FREE={ram.reclaimable}",
            f"HW_SWAP_TOTAL={ram.swap_total} HW_SWAP_FREE={ram.swap_free}",
        ]

    def fabric() -> List[str]:
        links = host.fact(ports)
        return [
            _list("HW_IB_STATE", (port.state for port in links)),
            _list("HW_IB_PHYS_STATE", (port.phys_state for port in links)),
            _list("HW_IB_RATE", ("" if port.rate_gbps is None else f"{port.rate_gbps:g}" for port in links)),
            _list("HW_IB_DEV", (port.name for port in links)),
            f"HW_IB_UMAD_ABI_VER={quote(host.read_or('/sys/class/infiniband_mad/abi_version', '0'))}",
        ]

    def modules() -> List[str]:
        return [_list("HW_MODULES", (line.split(None, 1)[0] for line in host.lines("/proc/modules") if line.strip()))]

    lines: List[str] = []
    for assign in (cpus, ram, fabric, modules, lambda: [_list("HW_ETH_DEV", host.fact(interfaces))]):
        try:
            lines.extend(assign())
        except (OSError, ValueError):
            continue
    return "\n".join(lines)


def _processes(host: Host) -> str:
    from nhc.node.facts import processes, users

    now = host.fact(processes.clock)
    arguments = host.fact(processes.command_lines)
    columns: Dict[str, List[Tuple[int, str]]] = {
        name: [] for name in ("USER", "UID", "PPID", "PCPU", "PMEM", "RSS", "VSZ", "TIME", "ARGS")
    }
    for pid, process in sorted(host.fact(processes.stats).items()):
        uid = processes.owner(host, pid)
        if uid is None:
            continue
        seconds = processes.cpu_seconds(process, now)
        row = {
            "USER": users.user_name(host, uid),
            "UID": str(uid),
            "PPID": str(process.parent),
            "PCPU": processes.show_permille(processes.cpu_permille(process, now)),
            "PMEM": processes.show_permille(processes.memory_permille(process, now)),
            "RSS": str(processes.rss_kb(process, now)),
            "VSZ": str(process.vsize // 1024),
            "TIME": f"{seconds // 60}:{seconds % 60:02d}",
            "ARGS": arguments.get(pid) or f"[{process.name}]",
        }
        for name, value in row.items():
            columns[name].append((pid, value))
    pids = [str(pid) for pid, _user in columns["USER"]]
    return "\n".join([_list("PS_PROCS", pids), *(_array(f"PS_{name}", values) for name, values in columns.items())])


def _load_average(host: Host) -> str:
    fields = host.read("/proc/loadavg").split()
    running, _slash, total = fields[3].partition("/")
    whole = (field.split(".", 1)[0] for field in fields[:3])
    return "\n".join(
        [_list("LOADAVG", whole), f"RUNPROCS={quote(running)} TOTPROCS={quote(total)} LASTPID={quote(fields[4])}"]
    )


def _mounts(host: Host) -> str:
    from nhc.node.facts.mounts import mounts

    last = {mount.point: mount for mount in host.fact(mounts)}.values()  # a later mount hides an earlier one
    return "\n".join(
        [
            _list("FS_DEV", (mount.source for mount in last)),
            _list("FS_MNTPT", (mount.point for mount in last)),
            _list("FS_TYPE", (mount.type for mount in last)),
            _list("FS_OPTS", (mount.options for mount in last)),
        ]
    )


def _df(host: Host, prefix: str, command: str, flags: str, size: str, used: str, free: str) -> str:
    done = host.run([*command.split(), *flags.split()], timeout=10.0)
    if done.timed_out:
        return ""
    rows = [row for row in (line.split(None, 6) for line in done.stdout.splitlines()[1:]) if len(row) == 7]
    names = ("DEV", "TYPE", size, used, free, "PCT", "MNTPT")
    return "\n".join(
        _list(f"{prefix}_{name}", (_number(row[place]) if 2 <= place <= 5 else row[place] for row in rows))
        for place, name in enumerate(names)
    )


def _number(text: str) -> str:
    text = text.rstrip("%")
    return "0" if text == "-" else text


def _blocks(host: Host) -> str:
    command = host.setting("DF_CMD", "df")
    return _df(host, "DF", command, host.setting("DF_FLAGS", "-Tka"), "SIZE", "USED", "FREE")


def _inodes(host: Host) -> str:
    command = host.setting("DFI_CMD") or host.setting("DF_CMD", "df")
    return _df(host, "DFI", command, host.setting("DFI_FLAGS", "-Tia"), "INODES", "IUSED", "IFREE")


_GATHERERS: Dict[str, Callable[[Host], str]] = {
    "hw": _hardware,
    "ps": _processes,
    "loadavg": _load_average,
    "mounts": _mounts,
    "df": _blocks,
    "dfi": _inodes,
}
