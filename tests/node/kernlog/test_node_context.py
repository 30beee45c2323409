"""Findings beside the node: whose volume it is, whether a task still hangs. Judged by check_kmsg, as a user sees it."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge_all
from tests.support.kernel_sequences import xid
from tests.support.nvml.fake import ADDRESSES, pci_tree

BOOT = {"/proc/sys/kernel/random/boot_id": "boot-1\n", "/proc/bus/pci/devices": ""}
ROOT = "22 1 8:2 / / rw - ext4 /dev/sda2 rw"
POD = "90 22 8:16 / /var/lib/kubelet/pods/0f/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdb rw"
BTRFS_OWN = "92 22 0:40 / /data rw - btrfs /dev/sda3 rw"
BTRFS_POD = "93 22 0:41 / /var/lib/kubelet/pods/0f/volumes/kubernetes.io~csi/pvc-2/mount rw - btrfs /dev/sdb rw"
SCRATCH = "91 22 253:0 / /scratch rw - xfs /dev/mapper/vg-scratch rw"
DISKS = {
    "/sys/dev/block/8:2": Symlink("../../devices/pci0000:00/ata1/block/sda/sda2"),
    "/sys/dev/block/8:16": Symlink("../../devices/platform/host6/session1/block/sdb"),
    "/sys/dev/block/253:0": Symlink("../../devices/virtual/block/dm-0"),
    "/sys/class/block/sda2": Symlink("../../devices/pci0000:00/ata1/block/sda/sda2"),
    "/sys/class/block/sde": Symlink("../../devices/pci0000:00/ata2/block/sde"),
    "/sys/devices/pci0000:00/ata2/block/sde/removable": "0\n",
    "/sys/class/block/sda/removable": "0\n", "/sys/class/block/sdb/removable": "0\n",
    "/sys/class/block/sdc/removable": "0\n", "/sys/class/block/sdz/removable": "1\n",
    "/sys/class/block/dm-0/slaves/sdc": "", "/sys/class/scsi_device/0:0:0:0/device/block/sda/dev": "8:0\n",
    "/sys/class/scsi_device/6:0:0:0/device/block/sdb/dev": "8:16\n",
}  # fmt: skip


class Node:
    def __init__(self, mounts=(ROOT, POD, SCRATCH), files=None):
        self.host = FakeHost({**BOOT, **DISKS, "/proc/swaps": "Filename\n", **(files or {})})
        self.number = 0
        self.mounts(*mounts)

    def mounts(self, *lines):
        self.host.write("/proc/self/mountinfo", "".join(f"{line}\n" for line in lines))

    def says(self, *lines):
        for line in lines:
            at = int((self.host.system.uptime - 1) * 1e6)
            self.host.system.kernel.append(f"3,{self.number},{at},-;{line}")
            self.number += 1

    def passes(self, seconds):
        self.host.system.now += seconds
        self.host.system.uptime += seconds

    def judge(self):
        self.host.forget()
        return {o.target: o for o in judge_all(self.host, "check_kmsg")[:-1]}

    def verdicts(self):
        return {target: outcome.verdict for target, outcome in self.judge().items()}


READ_ONLY = "EXT4-fs ({}): Remounting filesystem read-only"
SHUTDOWN = "XFS ({}): Filesystem has been shut down due to log error (0x2)."
SCSI = "sd {}: rejecting I/O to offline device"
SATA = "{}.00: disable device"
OFFLINE = "sd 0:0:0:0: [{}] rejecting I/O to offline device"


@pytest.mark.parametrize(
    ("line", "device", "verdict"),
    [
        (READ_ONLY, "sda2", Verdict.CRIT), (READ_ONLY, "sdb", Verdict.WARN), (SHUTDOWN, "dm-0", Verdict.CRIT),
        (SHUTDOWN, "sdx", None), (OFFLINE, "sda", Verdict.CRIT), (OFFLINE, "sdb", Verdict.WARN),
        (SCSI, "0:0:0:0", Verdict.CRIT), (SCSI, "6:0:0:0", Verdict.WARN), (SCSI, "9:0:0:0", None),
        (OFFLINE, "sdc", Verdict.CRIT), (OFFLINE, "sdz", None), (OFFLINE, "sdq", None),
        (SATA, "ata1", Verdict.CRIT), (SATA, "ata2", Verdict.WARN), (SATA, "ata7", None),
    ],
)  # fmt: skip
def test_a_volume_takes_the_node_out_only_where_the_node_itself_mounts_it(line, device, verdict):
    node = Node()
    node.says(line.format(device))
    assert node.verdicts().get(device) is verdict


@pytest.mark.parametrize(("uuid", "verdict"), [("mpath-3600a098\n", Verdict.WARN), ("LVM-abc\n", Verdict.CRIT)])
def test_one_path_of_a_multipath_map_takes_no_node_out(uuid, verdict):
    """A cable pulled in a fabric takes one path of many: the map has others, and says so itself when it has none."""
    node = Node(files={"/sys/class/block/dm-0/dm/uuid": uuid})
    node.says(OFFLINE.format("sdc"))
    assert node.verdicts()["sdc"] is verdict
    node.says(SHUTDOWN.format("dm-0"))
    assert node.verdicts()["dm-0"] is Verdict.CRIT


def test_the_unmount_of_a_volume_ends_its_fault():
    node = Node()
    node.says(READ_ONLY.format("sdb"), SHUTDOWN.format("dm-0"))
    assert node.verdicts() == {"sdb": Verdict.WARN, "dm-0": Verdict.CRIT}
    node.mounts(ROOT, SCRATCH)
    assert node.verdicts() == {"dm-0": Verdict.CRIT}
    node.says("XFS (dm-0): Unmounting Filesystem")
    assert node.verdicts() == {}


@pytest.mark.parametrize(
    ("mounts", "verdict"), [((), None), ((BTRFS_OWN,), Verdict.CRIT), ((BTRFS_OWN, BTRFS_POD), Verdict.WARN)]
)
def test_a_fault_of_a_file_system_that_is_not_named_is_one_of_its_type(mounts, verdict):
    node = Node()
    node.mounts(ROOT, *mounts)
    node.says("BTRFS: Transaction aborted (error -2)")
    assert node.verdicts().get("") is verdict


def test_a_swap_device_is_the_nodes_own():
    node = Node(files={"/proc/swaps": "Filename Type Size Used Priority\n/dev/sdc partition 1 0 -2\n"})
    node.mounts(ROOT)
    node.says(OFFLINE.format("sdc"))
    assert node.verdicts() == {"sdc": Verdict.CRIT}


def test_where_the_mounts_cannot_be_read_nothing_is_fatal():
    node = Node()
    node.host.remove("/proc/self/mountinfo")
    node.says(READ_ONLY.format("sda2"))
    outcome = node.judge()["sda2"]
    assert outcome.verdict is Verdict.WARN
    assert "cannot be told" in outcome.message


def test_a_file_system_shut_down_by_hand_is_a_warning():
    node = Node()
    node.says("XFS (dm-0): User initiated shutdown received.",
              "XFS (dm-0): Log I/O Error (0x6) detected at xfs_fs_goingdown+0x93/0xd0 [xfs] (fs/xfs/xfs_fsops.c:458).  "
              "Shutting down filesystem.", SHUTDOWN.format("dm-0"))  # fmt: skip
    assert node.verdicts() == {"dm-0": Verdict.WARN}


@pytest.mark.parametrize(("transport", "verdict"), [("tcp", Verdict.WARN), ("pcie", Verdict.CRIT)])
def test_an_nvme_controller_over_a_network_is_a_volume_and_one_in_the_node_is_not(transport, verdict):
    node = Node(files={"/sys/class/nvme/nvme5/transport": f"{transport}\n"})
    node.says("nvme nvme5: Removing after probe failure status: -19")
    assert node.verdicts() == {"nvme5": verdict}


def stat(pid, name, state):
    return f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194304 0 0 0 0 1 1 0 0 20 0 1 0 100 1000 10 0 0 0 0 0\n"


HUNG = ("INFO: task dd:100 blocked for more than 122 seconds.", " xfs_buf_lock+0x3a/0x100 [xfs]")
PROCESSES = {
    "/proc/2/stat": stat(2, "kthreadd", "S"), "/proc/100/stat": stat(100, "dd", "D"),
    "/proc/100/status": "Name:\tdd\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t1\n",
}  # fmt: skip


def test_a_hang_is_over_when_no_reported_task_is_in_state_d():
    node = Node(files=PROCESSES)
    node.says(*HUNG)
    assert node.verdicts() == {"": Verdict.WARN}
    node.host.write("/proc/100/stat", stat(100, "dd", "S"))
    assert node.verdicts() == {}
    node.host.write("/proc/100/stat", stat(100, "dd", "D"))
    assert node.verdicts() == {}, "and a later wait of the same task is no news"


def test_a_task_that_does_not_move_on_the_nodes_own_disk_takes_it_out():
    """The kernel reports no more than ten hung tasks: later ones are silence, which shows nothing."""
    node = Node(files=PROCESSES)
    node.says(*HUNG)
    assert node.verdicts() == {"": Verdict.WARN}
    node.passes(601)
    (outcome,) = node.judge().values()
    assert (outcome.verdict, outcome.action.value) == (Verdict.CRIT, "reboot")
    node.host.write("/proc/100/status", "voluntary_ctxt_switches:\t8\nnonvoluntary_ctxt_switches:\t1\n")
    assert node.verdicts() == {"": Verdict.WARN}, "it moved: it only waits again"


@pytest.mark.parametrize("stack", [" nfs_file_read+0x6d/0xc0 [nfs]", " ext4_file_write_iter+0x48/0x7f0"])
def test_a_task_in_a_servers_file_system_or_in_one_that_a_pod_may_have_never_does(stack):
    node = Node(files=PROCESSES)
    node.says(HUNG[0], stack)
    node.judge()
    node.passes(7200)
    assert node.verdicts() == {"": Verdict.WARN}


def test_in_a_container_that_does_not_see_the_nodes_processes_the_hang_stands():
    node = Node(files={"/proc/2/stat": stat(2, "sh", "S")})
    node.says(*HUNG)
    assert node.verdicts() == {"": Verdict.WARN}


@pytest.mark.parametrize(("gpus", "verdict"), [(1, Verdict.WARN), (2, Verdict.CRIT)])
def test_a_node_with_one_gpu_has_no_other_to_compare_it_with(gpus, verdict):
    """That no other GPU had the fault says nothing there: it can be the programs' as well."""
    node = Node(files=pci_tree(ADDRESSES[:gpus]))
    for program in ("mixer", "solver", "mixer", "solver"):
        node.passes(3600)
        node.says(xid(31, bus="0f", name=program))
        outcomes = judge_all(node.host.without_facts(node.host.memory), "check_kmsg")
    assert (outcomes[0].verdict, outcomes[0].reason) == (verdict, "Xid31")
    assert "run diagnostics" in outcomes[0].message or verdict is Verdict.CRIT


@pytest.mark.parametrize(
    ("line", "reason"),
    [("XFS (sdc): log mount/recovery failed: error -117", "XfsLogMountFailed"),
     ("EXT4-fs (sdc): error loading journal", "Ext4MountFailed"),
     ("BTRFS error (device sdc): open_ctree failed: -5", "BtrfsMountFailed")],
)  # fmt: skip
def test_a_mount_that_failed_stands_until_one_succeeds(line, reason):
    """The mount table cannot have it: that is what the line says."""
    node = Node(mounts=(ROOT,), files={"/sys/class/block/sdc/size": "1\n"})
    node.says(line)
    assert [(o.verdict, o.reason) for o in judge_all(node.host, "check_kmsg")[:-1]] == [(Verdict.WARN, reason)]
    node.mounts(ROOT, "92 22 8:32 / /data rw - xfs /dev/sdc rw")
    assert judge_all(node.host.without_facts(node.host.memory), "check_kmsg")[0].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "key"), [(READ_ONLY, "ext4/ReadOnly/sdx"), (SHUTDOWN, "xfs/Shutdown/sdx"), (OFFLINE, "block/Offline/sdx")]
)
def test_a_fault_of_a_volume_that_the_node_does_not_mount_is_counted_and_said(line, key):
    node = Node()
    node.says(line.format("sdx"), line.format("sdx"))
    for _round in range(2):
        node.host.forget()
        (last,) = judge_all(node.host, "check_kmsg")
        assert last.verdict is Verdict.OK
        assert key in last.message
        assert next(m.value for m in last.metrics if m.name == "kernel_log_foreign_lines") == 2
    node.says(line.format("sdx"))
    node.host.forget()
    (last,) = judge_all(node.host, "check_kmsg")
    assert next(m.value for m in last.metrics if m.name == "kernel_log_foreign_lines") == 3


def test_a_log_without_such_faults_says_nothing_of_them():
    node = Node()
    node.says("usb 1-1: new device")
    (last,) = judge_all(node.host, "check_kmsg")
    assert "mount" not in last.message
    assert all(metric.name != "kernel_log_foreign_lines" for metric in last.metrics)
