"""Sequences of kernel messages with what stands in the end, and a node that says them to what watches it."""

import os
import socket

import pytest

from nhc.agent.event_loop import Loop
from nhc.agent.kmsg_follower import Follower
from nhc.core.host import BOOT_ID
from nhc.core.model import Verdict
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge_all

HOUR = 3600
BOOT = "Linux version 5.14.0-503.el9.x86_64 (gcc 11.5.0) #1 SMP"
BANNER = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024"
SEVERITY = {Verdict.CRIT: "fatal", Verdict.WARN: "degraded"}

ROOT = "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n"
POD = "90 22 8:16 / /var/lib/kubelet/pods/0f/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdb rw\n"
FILES = {
    "/proc/bus/pci/devices": "", "/proc/swaps": "Filename\n", "/proc/self/mountinfo": ROOT + POD,
    "/sys/dev/block/8:2": Symlink("../../devices/ata1/block/sda/sda2"),
    "/sys/dev/block/8:16": Symlink("../../devices/platform/host6/session1/block/sdb"),
    "/sys/class/block/sda2": Symlink("../../devices/ata1/block/sda/sda2"),
    "/sys/class/block/sdb/removable": "0\n", "/sys/bus/pci/devices/0000:5e:00.0/vendor": "0x15b3\n",
}  # fmt: skip
UNMOUNTED = {"/proc/self/mountinfo": ROOT}


def xid(code, words="words", bus="3b", name="python", pid=0):
    pid = pid or 1000 + sum(name.encode())
    return f"NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name={name}, {words}"


def repair(to, bus="3b"):
    return xid(154, f"GPU recovery action changed from 0x1 (GPU Reset Required) to {to}", bus)


def hung(at, module, tasks=10, seconds=122, task="python"):
    """What khungtaskd prints at one moment: INFO line, stack, for each task."""
    lines = []
    for number in range(tasks):
        lines += [
            f"INFO: task {task}:{100 + number} blocked for more than {seconds} seconds.",
            "      Not tainted 5.14.0-503.el9.x86_64 #1", "Call Trace:", " <TASK>", " __schedule+0x2d0/0x880",
            f" some_wait_function+0x1e/0xa0 [{module}]", " </TASK>",
        ]  # fmt: skip
    return [(at + index / 1000, line) for index, line in enumerate(lines)]


NFS_AWAY, NFS_BACK = "nfs: server nfs01 not responding, still trying", "nfs: server nfs01 OK"
OST = "Lustre: lfs-OST0001-osc-ff: Connection {} lfs-OST0001 (at 10.0.0.2@o2ib){}"
PORT = "pcieport 0000:17:01.0: "
NONFATAL = f"{PORT}AER: Uncorrectable (Non-Fatal) error message received from 0000:18:00.0"
SLOT = f"{PORT}pciehp: Slot(3): "
NVME_LOST = "nvme nvme0: Disabling device after reset failure: -19"
MLX5 = "mlx5_core 0000:5e:00.0: poll_health:825: device's health compromised - reached miss count."
ABORT = [
    (10, "blk_update_request: I/O error, dev {0}, sector 9 op 0x1:(WRITE)"), (11, "Aborting journal on device {0}-8."),
    (12, "EXT4-fs error (device {0}): ext4_journal_check_start:83: comm x: Detected aborted journal"),
    (13, "EXT4-fs ({0}): Remounting filesystem read-only"),
]  # fmt: skip


def abort(device):
    return [(at, line.format(device)) for at, line in ABORT]


# Name: lines with their seconds since boot, what stands in the end, and how the node then is.
SCENARIOS = {
    "nfs outage and return": ([(10, NFS_AWAY), *hung(150, "sunrpc"), *hung(270, "nfs", 3), (900, NFS_BACK)], {}, {}),
    "nfs outage goes on": (
        [(10, NFS_AWAY), *hung(150, "sunrpc"), *hung(HOUR, "nfs", 10, HOUR)],
        {"NfsServerNotResponding nfs01": ("degraded", "inspect"), "TaskHung ": ("degraded", "inspect")}, {},
    ),
    "lustre outage and return": (
        [(10, OST.format("to", " was lost; in progress operations")), *hung(150, "ptlrpc"),
         (400, OST.format("restored to", ""))], {}, {},
    ),
    "a hang outlives the return": (
        [(10, NFS_AWAY), *hung(150, "nfs", 2), (200, NFS_BACK), *hung(900, "nfs", 1, 870)],
        {"TaskHung ": ("fatal", "reboot")}, {},
    ),
    "a local disk hangs": (
        [*hung(150, "xfs", 2), *hung(750, "xfs", 2, 722)], {"TaskHung ": ("degraded", "inspect")},
        {"/proc/self/mountinfo": ROOT + POD.replace("ext4", "xfs")},
    ),
    "the node's own disk hangs": (
        [*hung(150, "xfs", 2), *hung(750, "xfs", 2, 722)], {"TaskHung ": ("fatal", "reboot")},
        {"/proc/self/mountinfo": ROOT.replace("ext4", "xfs")},
    ),
    "crash loop": (
        [(number * 600, xid(31, pid=number)) for number in range(1, 60)],
        {"Xid31 0000:3b:00.0": ("degraded", "inspect")}, {},
    ),
    "crash loop on every GPU": (
        [(number * 600 + place, xid(31, bus=bus)) for number in range(1, 9) for place, bus in enumerate(("3b", "5e"))],
        {}, {},
    ),
    "two programs fail on one GPU": (
        [(number * HOUR, xid(31, name="ab"[number % 2])) for number in range(1, 5)],
        {"Xid31 0000:3b:00.0": ("fatal", "inspect")}, {},
    ),
    "three programs fail on one GPU": (
        [(number * HOUR, xid(31, name="abc"[number % 3])) for number in range(1, 4)],
        {"Xid31 0000:3b:00.0": ("fatal", "inspect")}, {},
    ),
    "a crash loop, and one crash of another program": (
        [*[(number * 600, xid(31, pid=number)) for number in range(1, 60)], (40_000, xid(31, name="other"))],
        {"Xid31 0000:3b:00.0": ("degraded", "inspect")}, {},
    ),
    "clean-ups that name their cause": (
        [(number * HOUR, xid(45, "Ch 00000008 caused by previous Xid 31")) for number in range(1, 9)], {}, {},
    ),
    "gpu reset": ([(10, xid(119)), (11, repair("0x1 (GPU Reset Required)")), (90, repair("0x0 (None)"))], {}, {}),
    "partial recovery": (
        [(10, xid(48)), (11, xid(48, bus="5e")), (90, repair("0x0 (None)"))],
        {"Xid48 0000:5e:00.0": ("fatal", "reset-device")}, {},
    ),
    "driver reload": ([(10, "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1463)"), (60, BANNER)], {}, {}),
    "driver reload that fails": (
        [(10, xid(48)), (60, "nvidia: probe of 0000:3b:00.0 failed with error -1"), (60.4, BANNER)],
        {"ProbeFailed 0000:3b:00.0": ("fatal", "reload-driver")}, {},
    ),
    "replacement pending": (
        [*[(number * HOUR, xid(95)) for number in range(1, 6)], (6 * HOUR, repair("0x0 (None)")), (6.1 * HOUR, BANNER)],
        {"Xid95 0000:3b:00.0": ("fatal", "replace")}, {},
    ),
    "reboot": ([(10, "Oops: 0000 [#1] SMP NOPTI"), (11, MLX5), (0, BOOT), (20, "usb 1-1: new device")], {}, {}),
    "reboot without the device": (
        [(10, "Oops: 0000 [#1] SMP NOPTI"), (11, MLX5.replace("5e", "5f")), (0, BOOT), (20, "usb 1-1: new device")],
        {"Mlx5HealthCompromised 0000:5f:00.0": ("fatal", "reload-driver")}, {},
    ),
    "containment and recovery": (
        [(10, f"{PORT}DPC: containment event, status:0x1f01 source:0x0000"),
         (14, f"{PORT}AER: device recovery successful")], {}, {},
    ),
    "containment without recovery": (
        [(10, f"{PORT}DPC: containment event, status:0x1f01 source:0x0000"),
         (70, f"{PORT}AER: device recovery failed")],
        {"PcieContained 0000:17:01.0": ("fatal", "reboot"), "PcieRecoveryFailed 0000:17:01.0": ("fatal", "reboot")}, {},
    ),
    "non-fatal error, no callback": (
        [(10, NONFATAL), (10.1, "mpt3sas 0000:18:00.0: AER: can't recover (no error_detected callback)"),
         (10.2, f"{PORT}AER: device recovery failed")],
        {"PcieUncorrectedNonFatal 0000:18:00.0": ("degraded", "inspect"),
         "PcieRecoveryFailed 0000:17:01.0": ("degraded", "inspect")}, {},
    ),
    "a pod's volume fails": (
        abort("sdb"),
        {"BlockIoError sdb": ("degraded", "inspect"), "Ext4JournalAborted sdb": ("degraded", "inspect"),
         "Ext4ReadOnly sdb": ("degraded", "inspect")}, {},
    ),
    "a pod's volume fails and is unmounted": (
        [*abort("sdb"), (60, "EXT4-fs (sdb): unmounting filesystem 2b3c.")],
        {"BlockIoError sdb": ("degraded", "inspect")},
        UNMOUNTED,
    ),
    "a pod's volume fails and its mount is gone": (
        abort("sdb"), {"BlockIoError sdb": ("degraded", "inspect")}, UNMOUNTED,
    ),
    "the node's own file system fails": (
        abort("sda2"),
        {"Ext4JournalAborted sda2": ("fatal", "reboot"), "Ext4ReadOnly sda2": ("fatal", "reboot"),
         "BlockIoError sda2": ("degraded", "inspect")}, {},
    ),
    "a file system shut down by hand and mounted again": (
        [(10, "XFS (sda2): User initiated shutdown received."),
         (11, "XFS (sda2): Filesystem has been shut down due to log error (0x2)."),
         (60, "XFS (sda2): Unmounting Filesystem"), (61, "XFS (sda2): Mounting V5 Filesystem")], {}, {},
    ),
    "an empty floppy drive": ([(10, "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ)")], {}, {}),
    "link flap": (
        [(10, "mlx5_core 0000:5e:00.0 eth2: Link down"), (12, "mlx5_core 0000:5e:00.0 eth2: Link up")], {}, {},
    ),
    "nvme controller down and back": (
        [(10, "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"),
         (14, "nvme nvme0: 8/0/0 default/read/poll queues")], {}, {},
    ),
    "nvme controller down for good": (
        [(10, "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"),
         (70, "nvme nvme0: Disabling device after reset failure: -19")],
        {"NvmeDown nvme0": ("fatal", "reboot"), "NvmeDisabled nvme0": ("fatal", "reboot")}, {},
    ),
    "a drive is taken out with the button": (
        [(10, f"{SLOT}Button press: will power off in 5 sec"), (12, f"{SLOT}Link Down"),
         (12, f"{SLOT}Card not present"), (13, NVME_LOST)],
        {"NvmeDisabled nvme0": ("degraded", "inspect")}, {},
    ),
    "a drive is pulled": (
        [(10, f"{SLOT}Link Down"), (10, f"{SLOT}Card not present"), (30, NVME_LOST)],
        {"PcieSlotLinkDown 0000:17:01.0": ("degraded", "inspect"), "NvmeDisabled nvme0": ("degraded", "inspect")}, {},
    ),
    "a drive is pulled and another is put in": (
        [(10, f"{SLOT}Link Down"), (10, f"{SLOT}Card not present"), (30, NVME_LOST),
         (60, f"{SLOT}Card present"), (61, f"{SLOT}Link Up"),
         (62, "nvme nvme0: 8/0/0 default/read/poll queues")], {}, {},
    ),
    "a drive dies in its slot": (
        [(10, f"{SLOT}Link Down"), (30, NVME_LOST)],
        {"PcieSlotLinkDown 0000:17:01.0": ("degraded", "inspect"), "NvmeDisabled nvme0": ("fatal", "reboot")}, {},
    ),
    "the drive that the node mounts is pulled": (
        [(10, f"{SLOT}Card not present"), (30, NVME_LOST)],
        {"PcieSlotLinkDown 0000:17:01.0": ("degraded", "inspect"), "NvmeDisabled nvme0": ("fatal", "reboot")},
        {"/proc/self/mountinfo": ROOT.replace("8:2", "0:31").replace("/dev/sda2", "/dev/nvme0n1p2")},
    ),
    "the button was pressed, and pressed again": (
        [(10, f"{SLOT}Powering off due to button press"), (12, f"{SLOT}Button cancel"),
         (14, f"{SLOT}Link Down")],
        {"PcieSlotLinkDown 0000:17:01.0": ("degraded", "inspect")}, {},
    ),
    "nvme controller reset": (
        [(10, "nvme nvme0: I/O 1 QID 2 timeout, reset controller"), (40, "nvme nvme0: 8/0/0 default/read/poll queues")],
        {}, {},
    ),
}  # fmt: skip


class Node:
    """A node whose kernel says the lines of a scenario, and the process that watches it."""

    def __init__(self, directory, live):
        self.directory, self.live = str(directory), live
        self.boots = 0
        self.zero = 1_700_000_000.0
        self.host = FakeHost({**FILES, BOOT_ID: "boot-0\n"})
        self.host.system.kernel = [f"6,0,0,-;{BOOT}"]
        self.number = 1
        self.clock(1)
        self.start()

    def start(self):
        """Begin anew, with what is on the disk."""
        self.state = State(os.path.join(self.directory, "state"))
        self.host.memory = self.state
        self.host.forget()
        if self.live:
            self.loop = Loop(complain=lambda line: pytest.fail(line))
            self.follower = Follower(self.loop, self.host, self.state, lambda: None, lambda line: pytest.fail(line))
            self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs.setblocking(False)
            self.follower.follow(theirs.detach())
        self.judge()

    def stop(self):
        if self.live:
            self.ours.close()
            self.follower.close()

    def clock(self, at):
        self.host.system.uptime, self.host.system.now = at, self.zero + at

    def says(self, at, line):
        if line == BOOT:
            self.boots += 1
            self.zero = self.host.system.now
            self.stop()
            self.host.write(BOOT_ID, f"boot-{self.boots}\n")
            self.host.system.kernel, self.number = [f"6,0,0,-;{BOOT}"], 1
            self.clock(at)
            self.start()
            return
        self.clock(at)
        record = f"3,{self.number},{int(at * 1e6)},-;{line}"
        self.number += 1
        self.host.system.kernel.append(record)
        if self.live:
            self.ours.send(record.encode() + b"\n")
            self.loop.once(0.0)

    def judge(self):
        self.host.forget()
        return {
            f"{one.reason} {one.target}": (SEVERITY[one.verdict], one.action.value)
            for one in judge_all(self.host, "check_kmsg")[:-1]
        }

    def ends(self, files):
        for path, content in files.items():
            self.host.write(path, content)
        self.clock(self.host.system.uptime + 300)
        return self.judge()
