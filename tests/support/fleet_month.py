"""A month of a fleet's kernel logs, written from a seed: what healthy nodes log, and what faulty ones do.

Rates are a node's in 30 days. Faults: 419 unexpected interruptions of 16,384 GPUs in 54 days (Meta, "The Llama 3 Herd
of Models", table 5) are a tenth of a fault a node and month. The rest is assumed, so that each class comes often enough
to count: outages of file servers for all nodes at once, crash loops that wander from node to node, a rolling
maintenance with a reboot of every node, driver reloads, resets, links and cards plugged anew, volumes of pods that go
away, remote media.
"""

from __future__ import annotations

import random
from typing import Iterator, List, NamedTuple, Optional, Tuple

DAY, HOUR = 86400.0, 3600.0
MONTH = 30 * DAY
BUSES = ("1a", "3b", "4c", "5d", "9b", "ab", "bb", "cb")
PROGRAMS = tuple(f"train{number}" for number in range(60))
BOOTED = "boot"
"""An event that is no line: the node was rebooted."""
UNMOUNTED, MOUNTED = "unmounted", "mounted"
"""Events that are no line: kubelet has unmounted, or mounted, the volume sdb of a pod."""
TICK = "tick"
"""An event that is no line: a round of checks."""

FAULTS = 0.1
SINGLE_CRASHES, OOM_KILLS, CORRECTED, REPAIRED, REPLUGGED, LOST_VOLUMES, REMOTE_MEDIA, RESETS, RELOADS = (
    2.0, 6.0, 1.0, 0.1, 0.2, 0.2, 0.2, 0.1, 0.2,
)  # fmt: skip
CRASH_LOOPS = 150
"""Loops in the whole fleet: one program fails again and again on one node, for minutes or hours."""

BANNER = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024"


class Event(NamedTuple):
    """What a node logs (or what happens to it) at a time in seconds since the month began."""

    when: float
    node: int
    line: str


class Fault(NamedTuple):
    """A true fault of a node, until it is repaired."""

    when: float
    node: int
    kind: str
    repaired: float


class Month(NamedTuple):
    events: List[Event]
    faults: List[Fault]


def xid(bus: str, code: int, words: str, name: str = "python", pid: int = 0) -> str:
    number = pid or 1000 + sum(name.encode())
    return f"NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={number}, name={name}, {words}"


def hung(task: str, pid: int, seconds: int, frames: Tuple[str, ...]) -> List[str]:
    return [f"INFO: task {task}:{pid} blocked for more than {seconds} seconds.", *frames]


NFS = (" rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]", " nfs_file_read+0x6d/0xc0 [nfs]")
LUSTRE = (" cl_sync_io_wait+0x2a3/0x3d0 [obdclass]", " vvp_io_read_start+0x4f/0x6a0 [lustre]")
OWN = (" xfs_buf_lock+0x3a/0x100 [xfs]", " xfs_file_write_iter+0x48/0x7f0 [xfs]")


def month(seed: int, nodes: int = 1000) -> Month:
    """The logs of a fleet of `nodes`."""
    chance = random.Random(seed)
    events: List[Event] = []

    def say(when: float, node: int, *lines: str, apart: float = 0.05) -> None:
        events.extend(Event(when + index * apart, node, line) for index, line in enumerate(lines))

    def some(rate: float) -> Iterator[float]:
        """Times of something that comes `rate` times in a month."""
        at = chance.expovariate(rate / MONTH)
        while at < MONTH:
            yield at
            at += chance.expovariate(rate / MONTH)

    warnings = [10] * nodes  # kernel.hung_task_warnings: spent once in a boot
    boots = sorted((node * MONTH / nodes / 1.1 + 5 * DAY / 10, node) for node in range(nodes))
    for when, node in boots:
        say(when, node, BOOTED, "EXT4-fs (sda2): mounted filesystem with ordered data mode.", BANNER)
    for outage in range(5):
        when, length = (outage + chance.random()) * MONTH / 5, chance.uniform(300, 3 * HOUR)
        for node in range(nodes):
            if outage % 2 and node % 2:
                continue
            _outage(chance, say, when + chance.uniform(0, 30), length, node, bool(outage % 2), warnings)
    for _ in range(CRASH_LOOPS):
        _crash_loop(chance, say, nodes)
    for node in range(nodes):
        _healthy(chance, say, some, node)
    for rack in range(0, nodes, 32):  # a switch is replaced
        when = chance.uniform(0, MONTH)
        for node in range(rack, min(rack + 32, nodes)):
            say(when, node, "mlx5_core 0000:5e:00.0 eth2: Link down")
            say(when + 900, node, "mlx5_core 0000:5e:00.0 eth2: Link up")
    faults = _faults(chance, say, nodes)
    events.sort()
    return Month(events, faults)


def _outage(chance, say, when, length, node, lustre, warnings) -> None:  # type: ignore[no-untyped-def]
    """A file server is away: every node says so, and reports hung tasks as long as it has reports left."""
    lost = "Lustre: lfs-OST0001-osc-ff: Connection to lfs-OST0001 (at 10.0.0.2@o2ib) was lost; in progress operations"
    say(when, node, lost if lustre else "nfs: server nfs01 not responding, still trying")
    at, round_ = when + 122, 1
    while at < when + length and warnings[node]:
        for number in range(min(chance.randint(1, 10), warnings[node])):
            warnings[node] -= 1
            say(at, node, *hung("python", 1000 + number, 122 * round_, LUSTRE if lustre else NFS))
        at, round_ = at + 122, round_ + 1
    back = "Lustre: lfs-OST0001-osc-ff: Connection restored to lfs-OST0001 (at 10.0.0.2@o2ib)"
    say(when + length, node, back if lustre else "nfs: server nfs01 OK")


def _crash_loop(chance, say, nodes) -> None:  # type: ignore[no-untyped-def]
    """A pod crashes and is started again, with another process number each time."""
    node, program, when = chance.randrange(nodes), chance.choice(PROGRAMS), chance.uniform(0, MONTH)
    code, buses = chance.choice((13, 31, 43, 45)), chance.sample(BUSES, chance.choice((1, 1, 2, 8)))
    for number in range(chance.randint(3, 60)):
        for bus in buses:
            words = (
                "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 1): Out Of Range Address" if code == 13 else "Ch 0008"
            )
            say(when, node, xid(bus, code, words, program, 2000 + number))
            say(when + 0.1, node, xid(bus, 45, f"Ch 00000009 caused by previous Xid {code}", program, 2000 + number))
        when += chance.uniform(20, 600)


def _healthy(chance, say, some, node) -> None:  # type: ignore[no-untyped-def]
    """What a healthy node logs by itself."""
    for when in some(SINGLE_CRASHES):
        say(when, node, xid(chance.choice(BUSES), chance.choice((13, 31, 43)), "Ch 0009", chance.choice(PROGRAMS)))
    for when in some(OOM_KILLS):
        say(when, node, f"Memory cgroup out of memory: Killed process {chance.randint(1, 9999)} (python) total-vm:1kB")
    for when in some(CORRECTED):
        say(
            when,
            node,
            "pcieport 0000:17:01.0: AER: Corrected error message received from 0000:18:00.0",
            "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1)",
        )
    for when in some(REPAIRED):
        kind = chance.randrange(3)
        error = "pcieport 0000:17:01.0: AER: Uncorrectable ({}) error message received from 0000:18:00.0"
        if kind == 0:
            say(
                when,
                node,
                "pcieport 0000:17:01.0: DPC: containment event, status:0x1f01 source:0x0000",
                "pcieport 0000:17:01.0: AER: device recovery successful",
                apart=3.0,
            )
        elif kind == 1:
            say(when, node, error.format("Fatal"), "pcieport 0000:17:01.0: AER: device recovery successful", apart=1.0)
        else:
            say(
                when,
                node,
                error.format("Non-Fatal"),
                "megaraid_sas 0000:18:00.0: AER: can't recover (no error_detected callback)",
                "pcieport 0000:17:01.0: AER: device recovery failed",
            )
    for when in some(REPLUGGED):
        say(
            when,
            node,
            "pcieport 0000:64:02.0: pciehp: Slot(5): Link Down",
            "pcieport 0000:64:02.0: pciehp: Slot(5): Card not present",
            "pcieport 0000:64:02.0: pciehp: Slot(5): Card present",
            "pcieport 0000:64:02.0: pciehp: Slot(5): Link Up",
            "nvidia: probe of 0000:65:00.0 failed with error -16",
            apart=20.0,
        )
    for when in some(LOST_VOLUMES):
        say(
            when,
            node,
            "sd 6:0:0:0: rejecting I/O to offline device",
            "I/O error, dev sdb, sector 8 op 0x1:(WRITE)",
            "Aborting journal on device sdb-8.",
            "EXT4-fs (sdb): Remounting filesystem read-only",
        )
        say(when + 600, node, UNMOUNTED)
        say(when + HOUR, node, MOUNTED)
    for when in some(REMOTE_MEDIA):
        say(
            when,
            node,
            "blk_update_request: I/O error, dev sr0, sector 0 op 0x0:(READ)",
            "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ)",
            "Buffer I/O error on dev sr0, logical block 0",
        )
    for when in some(RESETS):  # an operator resets a GPU after its row was remapped: nothing waited for that
        say(
            when,
            node,
            xid(chance.choice(BUSES), 63, "Row Remapper: New row marked for remapping, reset gpu to activate"),
            xid(chance.choice(BUSES), 154, "GPU recovery action changed from 0x0 (None) to 0x0 (None)"),
        )
    for when in some(RELOADS):
        say(when, node, BANNER)


def _bad_gpu(chance: random.Random) -> List[Tuple[float, str]]:
    """A worn SM: the jobs of a day fail on it, and nowhere else."""
    bus, words = chance.choice(BUSES), "Graphics SM Warp Exception on (GPC 3, TPC 1, SM 0): Out Of Range Address"
    return [(number * HOUR, xid(bus, 13, words, program)) for number, program in enumerate(chance.sample(PROGRAMS, 4))]


def _faults(chance: random.Random, say, nodes: int) -> List[Fault]:  # type: ignore[no-untyped-def]
    """True faults, each on a node of its own, in turn of every kind."""
    kinds = ("off the bus", "double-bit", "gsp", "init", "nic", "nvme", "root", "memory", "disk", "pcie", "worn",
             "switch", "oops", "outlived", "contained")  # fmt: skip
    faults = []
    for index, node in enumerate(chance.sample(range(nodes), int(nodes * FAULTS))):
        kind = kinds[index % len(kinds)]
        when = chance.uniform(DAY, MONTH - 2 * DAY)
        bus = chance.choice(BUSES)
        lines: List[Tuple[float, str]] = {
            "off the bus": [(0.0, xid(bus, 79, "GPU has fallen off the bus."))],
            "double-bit": [(0.0, xid(bus, 48, "DBE (double bit error)")), (0.1, xid(bus, 45, "Ch 0008"))],
            "gsp": [(0.0, xid(bus, 119, "Timeout after 6s of waiting for RPC response from GPU4 GSP!")),
                    (1.0, xid(bus, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"))],
            "init": [(0.0, f"NVRM: GPU 0000:{bus}:00.0: RmInitAdapter failed! (0x26:0x56:1463)")],
            "nic": [(0.0, "mlx5_core 0000:5e:00.0: poll_health:825: device's health compromised - reached miss count")],
            "nvme": [(0.0, "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"),
                     (60.0, "nvme nvme0: Disabling device after reset failure: -19")],
            "root": [(0.0, "EXT4-fs (sda2): Remounting filesystem read-only")],
            "memory": [(0.0, "EDAC MC1: 2 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0")],
            "disk": [(at, line) for at in (0, 600) for line in hung("dd", 77, 122 + at, OWN)],
            "pcie": [(0.0, "pcieport 0000:17:01.0: AER: Uncorrectable (Fatal) error received: 0000:18:00.0"),
                     (2.0, "pcieport 0000:17:01.0: AER: device recovery failed")],
            "worn": _bad_gpu(chance),
            "switch": [(0.0, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")],
            "oops": [(0.0, "BUG: kernel NULL pointer dereference, address: 0000000000000008")],
            "outlived": [*((0.0, line) for line in hung("cp", 88, 122, NFS)), (60.0, "nfs: server nfs01 OK"),
                         *((900.0, line) for line in hung("cp", 88, 1022, NFS))],
            "contained": [(0.0, "pcieport 0000:17:01.0: DPC: containment event, status:0x1f01 source:0x0000")],
        }[kind]  # fmt: skip
        for index, (at, line) in enumerate(lines):
            say(when + at + index / 100, node, line)
        say(when + lines[-1][0] + 300, node, TICK)
        repaired = when + lines[-1][0] + chance.uniform(2 * HOUR, DAY)
        say(repaired, node, BOOTED, TICK)
        faults.append(Fault(when, node, kind, repaired))
    return faults


def faulty(faults: List[Fault], node: int, when: float) -> Optional[Fault]:
    """The fault that a node has at a time."""
    return next((one for one in faults if one.node == node and one.when - 1 <= when <= one.repaired + 1), None)
