"""`nhc inject`: a chosen fault in the kernel log, or a full file system, to see that all that should react does.

The line carries the mark `nhc-drill`, which shows in the finding, its evidence and its message, and
`nhc inject end` writes a line that ends what drills caused (or `nhc ack --drills` does). It is written as a user's
line: the kernel lets nobody pose as itself. A file that fills a file system (`nhc.lab.commands.inject`) is
removed by `nhc inject end`, too.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system import written_files
from nhc.core.system.bounded_read import read_text
from nhc.core.units import percent
from nhc.marks.policy.ledger import default_directory
from nhc.node.facts.meminfo import memory
from nhc.node.facts.mounts import at, mounts
from nhc.node.facts.pci import normal_address
from nhc.node.kernlog.match import DRILL

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence


# `nhc inject full-disk`: fill a small file system of this node with one file, as a drill; `nhc inject end` removes it.
#
# What is on the node is written down before it is made, in `drill.json` beside the ledger, so that it is found after a
# kill and after a reboot. Only a file of our name is ever removed, and only where that record says so.


NAME = ".nhc-drill-fill"
KINDS = ("ext2", "ext3", "ext4", "xfs", "tmpfs")
"""Local file systems that take space for a file at once, by fallocate(2). A shared one would fill for every node."""
LARGEST = 16 << 30
"""Bytes of the file at most: the drill is for a small file system."""
MOST = 99.0
"""Per cent: the last of it stays free, so that who writes there is slowed down by a check and not by ENOSPC."""
_RECORD = 64 << 10


class NotDone(Exception):
    """Why a drill cannot be done, or not be undone: one line for a person."""


def record_path() -> str:
    """Where it is written down what drills have put on this node."""
    return f"{default_directory()}/drill.json"


class TakenOut(NamedTuple):
    """A GPU that a drill has taken out: its PCI address, and whether its persistence mode was on."""

    pci: str
    persistence: bool


class DrillsDone(NamedTuple):
    """What drills have done to this node and not undone."""

    files: List[str]
    gpus: List[TakenOut]


def recorded() -> DrillsDone:
    """What drills have done to this node and not undone. Raises NotDone."""
    path = record_path()
    try:
        kept = json.loads(read_text(path, _RECORD))
    except FileNotFoundError:
        return DrillsDone([], [])
    except (OSError, ValueError) as error:
        raise NotDone(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    files, gpus = (kept.get("files", []), kept.get("gpus", [])) if isinstance(kept, dict) else (None, None)
    if not isinstance(files, list) or not all(isinstance(file, str) and _ours(file) for file in files):
        raise NotDone(f"{path}: not a record of nhc's: expected the files that drills have made")
    if not isinstance(gpus, list) or not all(_is_gpu(gpu) for gpu in gpus):
        raise NotDone(f"{path}: not a record of nhc's: expected the GPUs that drills have taken out")
    return DrillsDone(files, [TakenOut(pci, persistence) for pci, persistence in gpus])


def _is_gpu(value: Any) -> bool:
    told = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], bool)
    return told and _ADDRESS.fullmatch(value[0]) is not None


def filled() -> List[str]:
    """The files that drills have made and not removed. Raises NotDone."""
    return recorded().files


def needed(point: str, share: float) -> int:
    """The bytes that fill the file system at `point` to `share` per cent, as df(1) counts them. Raises NotDone."""
    if not 1 <= share <= MOST:
        raise NotDone(f"--to {share:g}%: expected 1% to {MOST:g}%")
    try:
        host = Host()
        mount = at(mounts(host), point)
        if mount is None or not point.startswith("/"):
            raise NotDone(f"{point}: no file system is mounted there")
        if mount.point == "/" or mount.type not in KINDS:
            what = "the root file system" if mount.point == "/" else f"a {mount.type}"
            raise NotDone(f"{point} is {what}: expected a local one of its own ({', '.join(KINDS)})")
        space = os.statvfs(mount.point)
        free_memory = (memory(host).available or 0) * 1024 if mount.type == "tmpfs" else None
    except (OSError, ValueError) as error:
        raise NotDone(f"{point}: {getattr(error, 'strerror', None) or error}") from None
    used = (space.f_blocks - space.f_bfree) * space.f_frsize
    whole = used + space.f_bavail * space.f_frsize
    size = int(whole * share / 100) + space.f_frsize - used
    if size <= 0:
        raise NotDone(f"{point} is {used / whole:.0%} full already")
    if size > LARGEST:
        raise NotDone(f"{point} needs a file of {size >> 30} GiB: at most {LARGEST >> 30} GiB are written")
    if free_memory is not None and size > free_memory // 2:
        raise NotDone(f"{point} is in memory, and {size >> 20} MiB are more than half of what is free of it")
    return size


def fill(point: str, share: float) -> str:
    """Fill it; what was done. Raises NotDone, and leaves nothing then."""
    size = needed(point, share)
    path = f"{point.rstrip('/')}/{NAME}"
    files = filled()
    if path in files or os.path.lexists(path):
        raise NotDone(f"{path} is there already: nhc inject end")
    _record(recorded()._replace(files=[*files, path]))  # before it: a record of nothing, after a kill, is no harm
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError as error:
        _remove([path], files)
        raise NotDone(f"{path}: {error.strerror}") from None
    return f"{path} takes {size >> 10} KiB: {point} is {share:g}% full"


def empty() -> List[str]:
    """Remove what drills have made; the files that were there. Raises NotDone where one cannot be removed."""
    files = filled()
    return _remove(files, []) if files else []


def _remove(files: Sequence[str], rest: List[str]) -> List[str]:
    """Remove files, and keep the rest in the record; those that were there. Raises NotDone, and records all then."""
    removed: List[str] = []
    for path in files:
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.unlink(path)
                removed.append(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise NotDone(f"{path}: {error.strerror}") from None
    _record(recorded()._replace(files=rest))
    return removed


def _ours(path: str) -> bool:
    return path.startswith("/") and os.path.basename(path) == NAME and ".." not in path.split("/")


def _record(done: DrillsDone) -> None:
    path = record_path()
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        if done != DrillsDone([], []):
            kept = {"files": done.files, "gpus": [list(gpu) for gpu in done.gpus]}
            written_files.write_whole(path, json.dumps(kept).encode() + b"\n", 0o600)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise NotDone(f"{path}: {error.strerror}: nothing is done without a record of it") from None


# `nhc inject gpu-gone`: take a GPU from the driver and from the PCI bus, as if it had died; `nhc inject end` has the
# bus searched and the driver find it again. NVML refuses while a process holds the GPU.

GPU_GONE = "gpu-gone"
PCI = "/sys/bus/pci"
_NVML_SECONDS = 60.0
"""A GPU that is found again is initialised and its memory scrubbed, which takes seconds (nvml.h)."""


def _nvml(act: Callable[[], Dict[str, Any]], what: str) -> Dict[str, Any]:
    """NVML's answer, asked in a process of its own, as a driver can hang. Raises NotDone."""
    from nhc.core.system.children import ask_child
    from nhc.node.facts.nvml_codes import error_text

    try:
        answer = ask_child(act, _NVML_SECONDS)
    except OSError as error:
        raise NotDone(f"{what}: {error.strerror}") from None
    if not isinstance(answer, dict):
        raise NotDone(f"{what}: the driver gave no answer within {_NVML_SECONDS:.0f} s")
    if "error" in answer:
        step = f" ({answer['step']})" if "step" in answer else ""
        raise NotDone(f"{what}: {error_text(answer['error'])}{step}")
    return answer


def take_out(pci: str) -> str:
    """Take out the GPU at this address; what was done. Raises NotDone, and leaves all as it was then."""
    from nhc.node.facts import nvml

    done = recorded()
    if any(gpu.pci == pci for gpu in done.gpus):
        raise NotDone(f"{pci} is out already: nhc inject end")
    _record(done._replace(gpus=[*done.gpus, TakenOut(pci, True)]))  # before: a kill in between must not forget it
    try:
        answer = _nvml(lambda: nvml.take_out(pci), f"GPU {pci} cannot be taken out")
    except NotDone:
        _record(done)
        raise
    _record(done._replace(gpus=[*done.gpus, TakenOut(pci, bool(answer["persistence"]))]))
    _tell_bus(f"devices/{pci}/remove")
    return f"GPU {pci} is gone from the driver and the PCI bus"


def put_back() -> List[str]:
    """Have the bus and the driver find again what drills took out; the addresses. Raises NotDone for the first."""
    from nhc.node.facts import nvml

    found: List[str] = []
    for gpu in recorded().gpus:
        _tell_bus("rescan")
        pci, persistence = gpu
        _nvml(lambda pci=pci, on=persistence: nvml.put_back(pci, on), f"GPU {pci} does not come back")  # type: ignore[misc]
        done = recorded()
        _record(done._replace(gpus=[other for other in done.gpus if other.pci != pci]))
        found.append(pci)
    return found


def _tell_bus(name: str) -> None:
    """Write 1 into a file of the PCI bus (Documentation/ABI/testing/sysfs-bus-pci), where there is one."""
    try:
        fd = os.open(f"{PCI}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1\n")
        finally:
            os.close(fd)
    except FileNotFoundError:
        pass  # NVML's removal has taken the device from the bus already
    except OSError as error:
        raise NotDone(f"{PCI}/{name}: {error.strerror}") from None


ENDED = f"{DRILL} ended"

GPU = "0000:00:00.0"
"""The device of a drill that names none: no real device has this address but the host bridge."""

FULL_DISK = "full-disk"
"""A fault that is no line: `--device` names the file system."""

_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")


class Drill(NamedTuple):
    """A fault's line, with places for the device and the code, and the level that drivers log it at."""

    line: str
    device: str = GPU
    level: int = 3


FAULTS: Dict[str, Drill] = {
    "xid": Drill("NVRM: Xid (PCI:{pci}): {code}, pid='<unknown>', name=<unknown>, {words}"),
    "sxid": Drill("nvidia-nvswitch0: SXid (PCI:{device}): {code}, Fatal, Link 00 {words}"),
    "gpu-off-bus": Drill("NVRM: GPU {device}: GPU has fallen off the bus."),
    "gpu-init": Drill("NVRM: GPU {device}: RmInitAdapter failed! (0x00:0x0:0)"),
    "amd-ras": Drill("amdgpu {device}: amdgpu: 1 uncorrectable hardware errors detected in umc block", level=6),
    "neuron-sram": Drill("NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR nd-id=0 nc-id=0", ""),
    "neuron-nc": Drill("NEURON_HW_ERR=NC_UNCORRECTABLE_ERROR nd-id=0 nc-id=0", ""),
    "neuron-hbm": Drill("NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=0 nc-id=0", ""),
    "neuron-dma": Drill("NEURON_HW_ERR=DMA_ERROR nd-id=0 nc-id=0", ""),
    "neuron-hang": Drill("NEURON_HW_ERR=HANG_ON_COLLECTIVES nd-id=0 nc-id=0", ""),
    "mlx5-health": Drill("mlx5_core {device}: poll_health:825: device's health compromised - reached miss count."),
    "efa-timeout": Drill("efa {device}: Wait for completion (polling) timeout"),
    "pcie-fatal": Drill("pcieport {device}: AER: Uncorrected (Fatal) error received: {device}"),
    "mce": Drill("mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 0: b200000000000000", "", 0),
    "edac-ue": Drill("EDAC MC0: 1 UE memory read error on drill (channel:0 slot:0)", "", 0),
    "ghes-fatal": Drill("{{1}}[Hardware Error]: event severity: fatal", "", 0),
    "nvme-down": Drill("nvme {device}: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "nvme99"),
    "disk-io": Drill("I/O error, dev {device}, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0", "sdzz"),
    "md-failed": Drill("md/raid0:{device}: Disk failure on sdzz detected, failing array.", "md999"),
    "ext4-readonly": Drill("EXT4-fs ({device}): Remounting filesystem read-only", "sdzz1"),
    "xfs-shutdown": Drill("XFS ({device}): Shutting down filesystem", "sdzz1"),
    "nfs-hang": Drill("nfs: server {device} not responding, still trying", "drill.invalid"),
    "lustre-evicted": Drill(
        "LustreError: 167-0: drill: This client was evicted by {device}; in progress operations using this service "
        "will fail.", "drill-OST0000",
    ),
    "oom": Drill("Out of memory: Killed process 0 (drill) total-vm:0kB, anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", ""),
    "oom-container": Drill(
        "Memory cgroup out of memory: Killed process 0 (drill) total-vm:0kB, anon-rss:0kB, file-rss:0kB", "",
    ),
    "hung-task": Drill("INFO: task drill:0 blocked for more than 120 seconds.", ""),
    "soft-lockup": Drill("watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [drill:0]", "", 0),
    "hard-lockup": Drill("watchdog: Watchdog detected hard LOCKUP on cpu 0", "", 0),
    "end": Drill("nhc: drill over:", "", 6),
    "oops": Drill("BUG: kernel NULL pointer dereference, address: 0000000000000000", "", 1),
}  # fmt: skip

_WORDS = {
    79: "GPU has fallen off the bus.",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    74: "NVLink: fatal error detected on link 0(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
}


def line_of(fault: str, device: Optional[str] = None) -> str:
    """The line that a drill writes for a name of FAULTS, xid and sxid with a code: `xid-79`. Raises ValueError."""
    name, code = fault, 0
    numbered = re.fullmatch(r"(xid|sxid)[-:=]?(\d{1,5})", fault.lower())
    if numbered:
        name, code = numbered[1], int(numbered[2])
    if name not in FAULTS or (name in ("xid", "sxid") and not numbered):
        names = ", ".join(f"{known}-CODE" if known in ("xid", "sxid") else known for known in FAULTS)
        raise ValueError(f"no fault {fault!r}: expected one of {names}")
    given = FAULTS[name]
    if device and not given.device:
        raise ValueError(f"{name} names no device of its own")
    where = device or given.device
    if given.device == GPU and not _ADDRESS.fullmatch(where):
        raise ValueError(f"{where!r} is not a PCI address (as 0000:3b:00.0)")
    if given.device == GPU:
        from nhc.node.kernlog.match import address

        where = address(where)
    elif where and not re.fullmatch(r"[\w.:@-]{1,64}", where):
        raise ValueError(f"{where!r} is not a device's name")
    pci = where.rpartition(".")[0] if given.device == GPU else where
    words = _WORDS.get(code, "a drill") if name == "xid" else "a drill"
    return f"{given.line.format(device=where, pci=pci, code=code, words=words)} {ENDED if name == 'end' else DRILL}"


def inject_command(
    fault: str,
    *,
    device: Optional[str] = None,
    yes: bool = False,
    dry_run: bool = False,
    list_faults: bool = False,
    path: str = "/dev/kmsg",
    to: float = 97.0,
) -> int:
    """Write a fault into the kernel log of this node, or fill a file system `to` that per cent, as a drill. Root only.

    Without `yes` it asks, and where nobody can be asked it refuses. `dry_run` prints the line and writes nothing;
    `list_faults` prints what can be injected. Returns 0; 1 where the person said no or the line could not be written; 2
    for wrong usage.
    """
    if list_faults:
        for name, given in FAULTS.items():
            print(f"{name + '-CODE' if name in ('xid', 'sxid') else name}\t{given.line.replace('{{1}}', '{1}')}")
        print(f"{FULL_DISK}\tfills the file system that --device names to --to per cent")
        print(f"{GPU_GONE}\ttakes the idle NVIDIA GPU that --device names from the driver and the bus")
        return EXIT_HEALTHY
    if fault == FULL_DISK:
        return _carry_out(lambda: _full_disk(device or "", to), yes=yes, dry_run=dry_run)
    if fault == GPU_GONE:
        return _carry_out(lambda: _gpu_gone(device or ""), yes=yes, dry_run=dry_run)
    try:
        line = line_of(fault, device)
    except ValueError as error:
        print(f"nhc inject: {error}", file=sys.stderr)
        return EXIT_USAGE
    if dry_run:
        print(line)
        return EXIT_HEALTHY
    if os.geteuid() != 0:
        print("nhc inject: only root writes into the kernel log", file=sys.stderr)
        return EXIT_USAGE
    if not yes and fault != "end":
        warning = (
            f"This writes into the kernel log of {os.uname().nodename}, and can take the node out of service:\n  {line}"
        )
        refused = _asked(warning, "Write it?")
        if refused is not None:
            return refused
    from nhc.core.system import kernel_ring

    status = _undone() if fault == "end" else EXIT_HEALTHY

    numbered = re.match(r"s?xid", fault.lower())
    level = FAULTS[numbered[0] if numbered else fault].level
    try:
        kernel_ring.write(line, level, path)
    except OSError as error:
        print(f"nhc inject: {path}: {error.strerror}", file=sys.stderr)
        return EXIT_UNHEALTHY
    print(f"written: {line}")
    return status


def _asked(warning: str, question: str) -> Optional[int]:
    """Ask a person; the exit status where it must not be done, None where it may."""
    if not sys.stdin.isatty():
        print("nhc inject: this can take the node out of service: confirm with --apply", file=sys.stderr)
        return EXIT_USAGE
    print(warning)
    return None if input(f"{question} [y/N] ").strip().lower() in ("y", "yes") else EXIT_UNHEALTHY


class _NodeDrill(NamedTuple):
    """A drill that does more than write a line: what it would do, how far that reaches, and who may."""

    plan: str
    warning: str
    question: str
    who: str
    act: Callable[[], str]


def _full_disk(point: str, to: float) -> _NodeDrill:
    """Raises NotDone."""
    if not point:
        raise NotDone(f"{FULL_DISK} needs --device: the file system's mount point")
    size = needed(point, to)
    plan = f"would write {size >> 10} KiB into {point}, which is then {to:g}% full"
    return _NodeDrill(plan, "that can take the node out of service", "Fill it?", "only root fills a file system",
                  lambda: fill(point, to))  # fmt: skip


def _gpu_gone(device: str) -> _NodeDrill:
    """Raises NotDone."""
    if not _ADDRESS.fullmatch(device):
        raise NotDone(f"{GPU_GONE} needs --device: the GPU's PCI address (as 0000:3b:00.0)")
    pci = normal_address(device)
    plan = f"would drain GPU {pci}, and remove it from the driver and the PCI bus until nhc inject end"
    return _NodeDrill(plan, "that takes the node out of service", "Take it out?", "only root takes a GPU out",
                  lambda: take_out(pci))  # fmt: skip


def _carry_out(drill: Callable[[], _NodeDrill], *, yes: bool, dry_run: bool) -> int:
    """Show a drill, or do it where somebody agrees; the exit status."""
    try:
        made = drill()
        if dry_run:
            print(made.plan)
            return EXIT_HEALTHY
        if os.geteuid() != 0:
            raise NotDone(made.who)
        refused = None if yes else _asked(f"{made.plan}: {made.warning}", made.question)
        if refused is not None:
            return refused
        print(made.act())
    except NotDone as error:
        print(f"nhc inject: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_HEALTHY


def _undone() -> int:
    """Remove the files of drills, and put back the GPUs that they took out; the exit status."""
    try:
        for path in empty():
            print(f"removed: {path}")
        for pci in put_back():
            print(f"back: GPU {pci}")
    except NotDone as error:
        print(f"nhc inject: {error}", file=sys.stderr)
        return EXIT_UNHEALTHY
    return EXIT_HEALTHY


class InjectOptions(options.CommandOptions):
    fault: str = options.argument("[FAULT]")
    device: Optional[str] = options.text(
        "--device", "DEVICE", "The device to name. Default: the fault's own example.", None
    )
    to: float = options.text("--to", "SHARE", "For full-disk: how full.", "97%", convert=percent)
    yes: bool = options.flag("--apply", "Do it, without a question.")
    dry_run: bool = options.flag("--dry-run", "Say what would be done; write nothing.")
    list_faults: bool = options.flag("--list", "Print what can be injected.")


@click_command
def inject(args: InjectOptions) -> int:
    """Write FAULT (xid-79, ...) into this node's kernel log, marked as a drill. Root only.

    Whatever watches the kernel log acts as if the fault were real: that is the point of a drill. The fault full-disk
    fills the small local file system that --device names, up to --to, with one file; gpu-gone takes the idle NVIDIA GPU
    that --device names from the driver and the PCI bus. `nhc inject end` ends what was written, removes the file, and
    puts the GPU back.
    """
    if not args.fault and not args.list_faults:
        raise click.UsageError("name a fault, or --list them")
    return inject_command(
        args.fault, device=args.device, yes=args.yes, dry_run=args.dry_run, list_faults=args.list_faults, to=args.to
    )
