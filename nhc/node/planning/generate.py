"""A configuration out of what a node is and has: candidate lines in groups, for `nhc genconf`.

Each group says what its lines are for. Candidates are generous; the command then runs them and keeps those
that hold, so nothing here needs to know on which nodes a check makes sense. Nothing that could be a secret is
written: no serial numbers, no command lines, no mount options but rw and ro.
"""

from __future__ import annotations

import re
import tempfile
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.check import find
from nhc.core.host import Host
from nhc.core.language import loader
from nhc.core.language.shell_words import quote
from nhc.core.model import Outcome
from nhc.core.plugins import CHECKS, offers
from nhc.core.resource_manager import MANAGERS
from nhc.core.state.store import State
from nhc.node.facts import ethernet, md_arrays, mounts
from nhc.node.facts.cpuinfo import numa_nodes, topology
from nhc.node.facts.dmi import DmiUnreadable, NoDmi, structures
from nhc.node.facts.fstab import holds_data, is_users_own, may_hang
from nhc.node.facts.infiniband import EFA_LAYER, Port, ports
from nhc.node.facts.meminfo import memory
from nhc.node.facts.mounts import Mount
from nhc.node.facts.processes import command_lines, first_word, is_ssh_session, owner
from nhc.node.planning.local import default_text
from nhc.node.run.engine import run

DMI_MATCH = r"([Ss]peed|[Vv]ersion)"
"""Which of the firmware's properties are worth a line: LBNL NHC's default."""


class LineGroup(NamedTuple):
    """Lines that belong together. `about` are lines of comment, `lines` checks without their target."""

    title: str
    about: Tuple[str, ...]
    lines: Tuple[str, ...]


def tried(lines: Sequence[str], node: str, host: Host) -> Dict[str, List[Outcome]]:
    """What each line, a check without its target, says of this node now, without any memory of earlier runs."""
    every = list(dict.fromkeys(lines))
    plan = loader.load_text("".join(f"* || {line}\n" for line in every), "tried", node)
    with tempfile.TemporaryDirectory() as memory:
        report = run(plan, host, state=State(memory), check_all=True, deadline=120)
    said: Dict[str, List[Outcome]] = {}
    for result in report.results:
        said.setdefault(every[int(result.source.rpartition(":")[2]) - 1], []).append(result.outcome)
    return said


def literal(pattern: str) -> bool:
    """Whether a match string of these characters matches just them: no glob, no /regex/, no {range}."""
    return not re.search(r"[*?\[\]{}!'\\]", pattern) and not (len(pattern) > 1 and pattern[0] == pattern[-1] == "/")


def groups(host: Host, dmi_match: str = DMI_MATCH) -> List[LineGroup]:
    """All groups for this node. A source that cannot be read leaves its lines out."""
    makers: Tuple[Callable[[Host], LineGroup], ...] = (
        _processors, _memory, _filesystems, _storage, _ethernet, _rdma, _accelerators, _pci, _board, _daemons, _kernel,
        lambda host: _firmware(host, dmi_match), _offered,
    )  # fmt: skip
    tried = [_tried(make, host) for make in makers]
    made = [group for group in tried if group is not None and group.lines]
    return [*made, _built_in({line.split()[0] for group in made for line in group.lines})]


def _built_in(asked: Set[str]) -> LineGroup:
    """What the built-in configuration asks and no line above does: a file of the site's takes that one's place."""
    lines = (line.partition("||")[2].strip() for line in default_text().splitlines() if line[:1] == "*")
    about = ("What nhc asks where there is no configuration, besides the lines above.",)
    return LineGroup("Built in", about, tuple(line for line in lines if line.split()[0] not in asked))


def _tried(make: Callable[[Host], LineGroup], host: Host) -> Optional[LineGroup]:
    try:
        return make(host)
    except (OSError, ValueError):
        return None


def _processors(host: Host) -> LineGroup:
    counts = host.fact(topology)
    arguments = ["" if value is None else str(value) for value in counts]
    lines = ["check_hw_cpuinfo " + " ".join(argument or "''" for argument in arguments), "check_cpu_governor",
             "check_cpu_clocksource", "check_mce_events"]  # fmt: skip
    nodes = _numa(host)
    lines += [f"check_hw_numa {nodes}"] if nodes else []
    return LineGroup(
        "Processors", ("Sockets, cores and threads; a core that the firmware took out shows here.",), tuple(lines)
    )


def _numa(host: Host) -> str:
    """How many NUMA nodes there are, as arguments of check_hw_numa."""
    try:
        found = numa_nodes(host)
    except (OSError, ValueError):
        return ""
    every = f"-a {len(found.all)} " if len(found.all) != len(found.with_cpus) else ""
    return f"{every}{len(found.with_cpus)}"


def _memory(host: Host) -> LineGroup:
    sizes = host.fact(memory)
    ram, swap = sizes.total, sizes.swap_total
    lines = [f"check_hw_physmem {ram // 1024}MB {ram // 1024}MB 3%"]
    lines.append(f"check_hw_swap {swap // 1024}MB {swap // 1024}MB 3%" if swap >= 1024 else "check_hw_swap 0 0")
    lines += ["check_hw_mem_free 64MB", "check_edac_errors", "check_oom_kills"]
    about = ("RAM and swap within 3 %, as the kernel keeps some for itself. check_hw_mem_free is a last resort: raise",
             "it to what a job must find.")  # fmt: skip
    return LineGroup("Memory", about, tuple(lines))


_HIDDEN = ("/proc", "/sys", "/dev", "/run", "/var/lib/docker", "/var/lib/containers", "/var/lib/kubelet", "/snap",
           "/var/lib/containerd", "/var/lib/lxcfs")  # fmt: skip
_FULL = (95, 98)
"""Percent at which a file system is too full, and where it is nearly that full already."""


def _below(point: str, places: Tuple[str, ...]) -> bool:
    return any(point == place or point.startswith(f"{place}/") for place in places)


def _kept(host: Host) -> List[Mount]:
    """The mounts that a node is meant to have: on disks or servers, not of a container or of an automounter."""
    table = host.fact(mounts.mounts)
    automounted = tuple(mount.point for mount in table if mount.type == "autofs")
    last = {mount.point: mount for mount in table}  # a later mount covers an earlier one at the same place
    return [
        mount
        for mount in last.values()
        if (holds_data(mount) or mount.point == "/" or (mount.type == "tmpfs" and mount.point in ("/tmp", "/scratch")))  # noqa: S108
        and mount.type != "squashfs" and not is_users_own(mount)
        and not _below(mount.point, _HIDDEN) and not _below(mount.point, automounted)
        and host.isdir(mount.point)
    ]  # fmt: skip


def _filesystems(host: Host) -> LineGroup:
    lines: List[str] = []
    for mount in _kept(host):
        kind = "ro" if mount.read_only else "rw"
        arguments = [f"check_fs_mount_{kind}"]
        if literal(mount.type):
            arguments += ["-t", quote([mount.type])]
        # A source with a user and password in it, as some FUSE file systems have, is nobody's business.
        if literal(mount.source) and not re.search(r"://[^/]*@", mount.source) and mount.source not in ("", "none"):
            arguments += ["-s", quote([mount.source])]
        lines.append(" ".join([*arguments, "-f", quote([mount.point])]))
        if may_hang(mount):
            lines.append(f"check_mount_responds {quote([mount.point])}")
            continue
        if not mount.read_only:
            lines.append(f"check_fs_used {quote([mount.point])} {_limit(host, mount.point, False)}%")
            lines.append(f"check_fs_iused {quote([mount.point])} {_limit(host, mount.point, True)}%")
    lines += ["check_mount_fstab", "check_mount_readonly"]
    about = ("Mounted, from the right place, writable where they are now, not full. Network file systems get a line",
             "of their own that asks them to answer in time. Automounted ones are left out.")  # fmt: skip
    return LineGroup("File systems", about, tuple(lines))


def _limit(host: Host, point: str, inodes: bool) -> int:
    try:
        space = host.statvfs(point)
    except OSError:
        return _FULL[0]
    total, free = (space.inodes, space.inodes_available) if inodes else (space.size, space.available)
    return _FULL[0] if total and (total - free) * 100 / total < _FULL[0] - 3 else _FULL[1]


def _storage(host: Host) -> LineGroup:
    try:
        names = host.listdir("/sys/class/block")
    except OSError:
        names = []
    count = sum(1 for name in names if re.fullmatch(r"nvme\d+n1", name))
    lines = [f"check_nvme_count {count}"] if count else []
    return LineGroup("Drives", ("How many NVMe drives there are, and what drives say of themselves.",),
                 (*lines, "check_nvme_health", "check_smart_health", *_arrays(host)))  # fmt: skip


def _arrays(host: Host) -> List[str]:
    names = [array.name for array in md_arrays.arrays(host)]
    return [f"check_md {' '.join(names)}"] if names else []


def _ethernet(host: Host) -> LineGroup:
    lines = []
    rdma = {port.netdev for port in host.fact(ports)}
    for interface in ethernet.interfaces(host):
        lines.append(f"check_hw_eth {interface.name}")
        if interface.up and interface.carrier:
            lines.append(f"check_eth_carrier {interface.name}")
            if interface.has_speed and interface.speed and not interface.bond and interface.name not in rdma:
                lines.append(f"check_eth_speed -m {interface.speed} {interface.name}")
    about = ("Each port that has a link now must keep it, at the speed that it has now (in Mb/s).",)
    return LineGroup("Ethernet", about, (*lines, "check_eth_mtu", "check_eth_errors"))


def _rdma(host: Host) -> LineGroup:
    every_port = host.fact(ports)
    up = [port for port in every_port if port.up and port.link_layer != EFA_LAYER]
    lines = [f"check_hw_ib {p.rate_gbps:g} {p.name}" if p.rate_gbps else f"check_ib_state {p.name}" for p in up]
    for (kind, rate), alike in sorted(_alike(up).items()):
        lines.append(f"check_ib_ports -l {kind} {len(alike)} {rate:g}")
    if up:
        lines += [
            "check_ib_state",
            "check_nic_roles",
            "check_ib_firmware",
            "check_ib_guid",
            "check_ib_errors",
            "check_ib_link_flapping 24 5",
        ]
    roce = [port for port in up if port.link_layer == "Ethernet"]
    if roce:
        sizes = [int(size) for size in (host.read_or(f"/sys/class/net/{p.netdev}/mtu") for p in roce) if size.isdigit()]
        names = " ".join(port.name for port in roce)
        lines.append(f"check_roce_ports {f'-m {min(sizes)} ' if sizes else ''}{names}")
    from nhc.node.facts.infiniband import efa_devices

    adapters = len(host.fact(efa_devices))
    if adapters:
        lines += [f"check_efa_devices {adapters}", "check_efa_errors"]
    about = ("InfiniBand, RoCE and EFA: every port that is up now, at its rate; the number of them whatever their",
             "names; one firmware; few errors, no link that comes and goes.")  # fmt: skip
    return LineGroup("Fabric", about, tuple(lines))


def _alike(candidates: List[Port]) -> Dict[Tuple[str, float], List[Port]]:
    by_kind: Dict[Tuple[str, float], List[Port]] = {}
    for port in candidates:
        kind = {"InfiniBand": "ib", "Ethernet": "roce"}.get(port.link_layer)
        if port.rate_gbps and kind:
            by_kind.setdefault((kind, port.rate_gbps), []).append(port)
    return by_kind


def _accelerators(host: Host) -> LineGroup:
    from nhc.node.facts.accelerator import accelerators

    inventory = accelerators(host)
    lines = [f"check_gpu_count {len(source.devices)} {source.vendor}" for source in inventory.sources]
    others = [f"{function.vendor:04x}" for function in inventory.others if function.driver]
    lines += [f"check_gpu_count {others.count(vendor)} {vendor}" for vendor in sorted(set(others))]
    versions = {device.driver for device in inventory.devices if device.driver}
    if inventory.on_bus:
        lines += ["check_gpu_lost", "check_gpu_ecc", "check_gpu_row_remap", "check_gpu_retired_pages",
                  "check_gpu_links", "check_gpu_ifoe", "check_gpu_p2p", "check_gpu_fabric", "check_fabric_manager",
                  "check_gpu_pcie", "check_gpu_clock_throttling", "check_gpu_temp", "check_gpu_xid",
                  "check_vbios_version", "check_gpu_persistence"]  # fmt: skip
        if host.which("dcgmi"):
            lines.append("check_dcgm_health")
        if len(versions) == 1:
            lines.append(f"check_gpu_driver {quote([versions.pop()])}")
    about = ("How many there are, that none is lost, and what they say of their memory, links, heat and firmware.",
             "The driver's version is worth a line where all nodes should have one.")  # fmt: skip
    return LineGroup("Accelerators", about, tuple(lines))


def _board(host: Host) -> LineGroup:
    about = ("Temperatures and fans as the kernel reads them. The management controller's own view (check_bmc_sensors,",
             "check_bmc_sel) takes seconds: ask it in the agent, with |every 10m|, and not before a job.")  # fmt: skip
    return LineGroup("Board", about, ("check_sensors_hwmon",))


def _pci(host: Host) -> LineGroup:
    return LineGroup(
        "PCIe", ("Links at full width and speed, few errors.",), ("check_pcie_link", "check_pcie_aer", "check_pcie_acs")
    )


_DAEMONS = (
    "sshd", "crond", "cron", "atd", "rsyslogd", "syslog-ng", "auditd", "chronyd", "ntpd", "ptp4l", "sssd", "nslcd",
    "nscd",
    *(name for manager in MANAGERS for name in manager.daemons), "munged", "kubelet", "containerd", "dockerd",
    "crio", "nvidia-persistenced", "nv-fabricmanager", "nv-hostengine", "rpcbind", "rpc.statd", "rpc.mountd",
    "automount",
    "mmfsd", "gssproxy", "irqbalance", "opensm", "rasdaemon", "mcelog", "smartd", "node_exporter", "dcgm-exporter",
)  # fmt: skip


def _daemons(host: Host) -> LineGroup:
    lines = list(dict.fromkeys(_running(host)))
    threads = host.fact(topology).threads
    lines += [
        "check_runtime_ready",
        "check_kubelet_healthz",
        "check_systemd_failed",
        "check_clock_sync",
        "check_clock_offset",
    ]
    lines.append(f"check_ps_loadavg {threads * 2} {threads * 2} {threads * 2}")
    lines += [
        "check_ps_dstate",
        "check_ps_zombies",
        "check_limits_fds",
        "check_limits_pids",
        "check_limits_inodes",
        "check_limits_conntrack",
        "check_limits_neighbours",
        "check_limits_tasks",
    ]
    about = ("Daemons that run now, as the user that they run as. To have nhc start one that is missing, say -S",
             "(check_ps_service -S -u root sshd). The load may be twice the number of threads.")  # fmt: skip
    return LineGroup("Daemons and processes", about, tuple(lines))


def _running(host: Host) -> Iterator[str]:
    for pid, args in sorted(host.fact(command_lines).items()):
        name = first_word(args).rsplit("/", 1)[-1]
        if name not in _DAEMONS or is_ssh_session(args):
            continue
        uid = owner(host, pid)
        user = host.system.user_name(uid) if uid is not None else ""
        yield f"check_ps_service {f'-u {quote([user])} ' if user else ''}{name}"


def _kernel(host: Host) -> LineGroup:
    about = (
        "No fault in the kernel's log that still stands, no sign of damage, nothing that the cloud has announced.",
    )
    return LineGroup("Kernel and cloud", about, ("check_kmsg", "check_kernel_taint", "check_reboot_pending",
                 "check_pstore_panic", "check_cloud_maintenance"))  # fmt: skip


def _offered(host: Host) -> LineGroup:
    """The checks of installed packages that can be asked without arguments and only look."""
    checks = filter(None, map(find, sorted(offers(CHECKS))))
    lines = [c.name for c in checks if c.distribution and not c.changes and not any(p.required for p in c.params)]
    about = ("Checks that came with other packages: nhc explain tells which.",)
    return LineGroup("From installed packages", about, tuple(lines))


_PRIVATE = re.compile(r"serial|uuid|asset|guid|mac address|password", re.IGNORECASE)
_TYPES = {0: "BIOS", 1: "System", 2: "Base Board", 4: "Processor", 17: "Memory Device"}


def _firmware(host: Host, match: str) -> LineGroup:
    """Properties of the firmware's tables, without those that name this one machine."""
    try:
        tables = structures(host)
    except (NoDmi, DmiUnreadable):
        return LineGroup("Firmware", (), ())
    wanted = re.compile(match)
    lines: Dict[str, None] = {}
    for table in tables:
        if table.type not in _TYPES:
            continue
        for line in table.lines:
            value = line.rpartition(": ")[2].strip()
            if wanted.search(line) and not _PRIVATE.search(line) and literal(line) and value not in ("", "Unknown"):
                lines[f"check_dmi_data_match -t {table.type} {quote([line])}"] = None
    about = ("Firmware versions and speeds, so that a board that was exchanged or reset shows.",)
    return LineGroup("Firmware", about, tuple(lines))
