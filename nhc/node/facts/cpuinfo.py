"""How many sockets, cores and hardware threads the kernel runs on.

/sys/devices/system/cpu is asked first: it is right on every architecture (ARM's /proc/cpuinfo names
neither sockets nor cores), and a few short reads answer where /proc/cpuinfo would print a megabyte
and, on kernels before 5.18, interrupt every CPU for its frequency. See the kernel's
Documentation/admin-guide/cputopology.rst.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

CPU = "/sys/devices/system/cpu"
MAX_CPUS = 1 << 16
"""No kernel is built for more; a list with more is not a list of CPUs."""


class CpuCounts(NamedTuple):
    """Counts of what is online. `sockets` and `cores` are None if the kernel does not know them."""

    sockets: Optional[int]
    cores: Optional[int]
    threads: int


def parse_cpu_list(text: str) -> List[int]:
    """The numbers in a kernel CPU list such as `0-3,8,10-11`. Raises ValueError on anything else."""
    numbers: List[int] = []
    for part in text.strip().split(","):
        if not part:
            continue
        low, dash, high = part.partition("-")
        begin = _cpu(low)
        end = _cpu(high) if dash else begin
        if end < begin:
            raise ValueError(f"{part!r} is not a range of CPUs")
        numbers.extend(range(begin, end + 1))
    return numbers


def cpu_list(numbers: Sequence[int]) -> str:
    """Numbers as the kernel writes a CPU list, ascending: `0-3,8,10-11`."""
    ranges: List[List[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in ranges)


def parse_cpuinfo(text: str) -> CpuCounts:
    """The counts that /proc/cpuinfo holds. Raises ValueError if it lists no processor.

    Cores are summed over the sockets' own `cpu cores`, so that sockets may differ. Where there is no
    `physical id` (ARM, POWER, a kernel without SMP) only the threads are known.
    """
    threads = 0
    cores: Dict[str, int] = {}
    # Splitting is twenty times as fast as reading line by line: only 3 of some 28 lines a CPU matter.
    for stanza in text.split("processor\t")[1:]:
        if not stanza.lstrip().startswith(":"):
            continue
        threads += 1
        socket = _field(stanza, "physical id\t")
        if socket:
            count = _field(stanza, "cpu cores\t")
            cores[socket] = int(count) if count.isascii() and count.isdigit() else 0
    if not threads:
        raise ValueError("no processor is listed")
    if not cores:
        return CpuCounts(None, None, threads)
    return CpuCounts(len(cores), sum(cores.values()) if all(cores.values()) else None, threads)


def topology(host: Host) -> CpuCounts:
    """The node's counts, from /sys, else from /proc/cpuinfo. Raises OSError or ValueError if neither tells."""
    try:
        online = parse_cpu_list(host.read(f"{CPU}/online"))
        if online and host.exists(f"{CPU}/cpu{online[0]}/topology"):
            return _from_sys(host, online)
    except (OSError, ValueError):
        pass
    return parse_cpuinfo(host.read("/proc/cpuinfo"))


def offline(host: Host) -> Tuple[int, ...]:
    """The CPUs that the node has and does not run on; none if the kernel has no such lists.

    Raises OSError if it has, and they cannot be read.

    If simultaneous multithreading is switched off (smt/control), the other threads are offline on purpose: their number
    is a multiple of the running CPUs, if no core is missing.
    """
    try:
        online = set(parse_cpu_list(host.read(f"{CPU}/online")))
        present = parse_cpu_list(host.read(f"{CPU}/present"))
    except (FileNotFoundError, ValueError):
        return ()
    missing = tuple(number for number in present if number not in online)
    if online and host.read_or(f"{CPU}/smt/control") in ("off", "forceoff") and not len(missing) % len(online):
        return ()
    return missing


NODES = "/sys/devices/system/node"


class NumaNodes(NamedTuple):
    """The NUMA nodes that are online, and those of them that have CPUs: memory of GPUs and of CXL has none."""

    all: Tuple[int, ...]
    with_cpus: Tuple[int, ...]


def numa_nodes(host: Host) -> NumaNodes:
    """The node's NUMA nodes. Raises OSError or ValueError if the kernel does not tell."""
    nodes = parse_cpu_list(host.read(f"{NODES}/online"))
    with_cpus = [number for number in nodes if host.read(f"{NODES}/node{number}/cpulist").strip()]
    return NumaNodes(tuple(nodes), tuple(with_cpus))


def node_memory(host: Host, node: int) -> Optional[int]:
    """The kB of memory that a NUMA node has (`Node 1 MemTotal: 0 kB`); None if it does not say."""
    words = host.read_or(f"{NODES}/node{node}/meminfo").split("\n", 1)[0].split()
    return int(words[3]) if words[2:3] == ["MemTotal:"] and words[3].isdigit() else None


def _from_sys(host: Host, online: List[int]) -> CpuCounts:
    sockets: Optional[int] = None
    # -1: the firmware does not say (ARM boards described by a device tree without sockets).
    if host.read_or(f"{CPU}/cpu{online[0]}/topology/physical_package_id") not in ("", "-1"):
        sockets = _groups(host, online, ("package_cpus_list", "core_siblings_list"))
    if host.read_or(f"{CPU}/smt/active") == "0":
        return CpuCounts(sockets, len(online), len(online))
    cores = _groups(host, online, ("core_cpus_list", "thread_siblings_list"))
    return CpuCounts(sockets, cores, len(online))


def _groups(host: Host, online: List[int], names: Tuple[str, ...]) -> int:
    """How many sets of CPUs there are: one file is read for each set, not for each CPU."""
    name = next((name for name in names if host.exists(f"{CPU}/cpu{online[0]}/topology/{name}")), names[-1])
    seen = set()
    count = 0
    for number in online:
        if number not in seen:
            count += 1
            seen.add(number)
            seen.update(parse_cpu_list(host.read(f"{CPU}/cpu{number}/topology/{name}")))
    return count


def _cpu(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:9]) >= MAX_CPUS:
        raise ValueError(f"{text[:20]!r} is not a CPU")
    return int(text[:9])


def _field(stanza: str, name: str) -> str:
    at = stanza.find(name)
    if at < 0:
        return ""
    end = stanza.find("\n", at)
    return stanza[at + len(name) : end if end >= 0 else None].lstrip("\t :").rstrip()
