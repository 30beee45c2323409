import errno
import os

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.host import Filesystem
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge

MOUNTS = (
    "/dev/sda2 / ext4 rw 0 0\nproc /proc proc rw 0 0\nnas:/home /home nfs rw,hard 0 0\n"
    "/dev/sdb /data btrfs rw 0 0\n/dev/sdc /my\\040disk xfs rw 0 0\n"
)
KB, GB = 1024, 1024**3


def node():
    host = FakeHost({"/proc/mounts": MOUNTS})
    # 100 GB, 5 of them kept for root: df calls 76 of 95 used 80%.
    root = Filesystem(100 * GB, 24 * GB, 19 * GB, 2_000_000, 500_000, 500_000, False)
    host.system.filesystems = {
        "/": root,
        "/my disk": root,
        "/proc": Filesystem(0, 0, 0, 0, 0, 0, False),
        "/data": Filesystem(100 * GB, 50 * GB, 50 * GB, 0, 0, 0, False),
        "/var/tmp": root,
    }
    return host


@pytest.mark.parametrize(
    "line",
    [
        "check_fs_size / 100G 100G",
        "check_fs_size / '' 1T",
        "check_fs_size /",
        "check_fs_size '/my disk' 1G",
        "check_fs_free / 20%",
        "check_fs_free / 19G",
        "check_fs_used / 81%",
        "check_fs_used / 77G",
        "check_fs_inodes / 2M 2M",
        "check_fs_ifree / 25%",
        "check_fs_ifree / 500k",
        "check_fs_iused / 76%",
        "check_fs_iused / 2M",
        "check_fs_free /data/ 10%",
    ],
)
def test_room_enough_passes(line):
    assert judge(node(), line).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("size / 200G", "/ size 100GB less than minimum of 200GB"),
        ("size / 10M 50g", "/ size 100GB exceeds maximum of 50GB"),
        ("free / 21%", "/ has only 20% free (19GB), minimum is 21%"),
        ("free / 20G", "/ has only 19GB free, minimum is 20GB"),
        ("used / 80%", "/ is 80% full (76GB), threshold is 80%"),
        ("used / 76G", "/ has 76GB used, threshold is 76GB"),
        ("inodes / 3M", "/ inodes 2000000 less than minimum of 3M"),
        ("inodes / 1k 10k", "/ inodes 2000000 exceeds maximum of 10k"),
        ("ifree / 26%", "/ has only 25% of inodes free (500000), minimum is 26%"),
        ("ifree / 1M", "/ has only 500000 inodes free, minimum is 1M"),
        ("iused / 75%", "/ has 75% of inodes used (1500000), threshold is 75%"),
        ("iused / 1500k", "/ has 1500000 inodes used, threshold is 1500k"),
    ],
)
def test_a_limit_that_is_crossed_fails(line, message):
    outcome = judge(node(), f"check_fs_{line}")

    assert (outcome.verdict, outcome.message, outcome.target) == (Verdict.CRIT, message, "/")
    assert outcome.metrics


ALL = [
    f"check_fs_{what} {{}} 1" for what in ("size", "free", "used", "inodes", "ifree", "iused")
]  # fmt: skip


@pytest.mark.parametrize("line", ALL)
@pytest.mark.parametrize("path", ["/var/tmp", "/nope"])
def test_a_path_where_nothing_is_mounted_fails(line, path):
    """LBNL NHC lets it pass, and with it a scratch disk that did not mount."""
    outcome = judge(node(), line.format(path))

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "FilesystemNotMounted")
    assert outcome.message == f"{path} not mounted"


def test_a_file_system_without_a_size_is_unknown():
    assert judge(node(), "check_fs_free /proc 5%").reason == "FilesystemNoSize"
    assert judge(node(), "check_fs_size /proc").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("line", ["check_fs_inodes /data 1", "check_fs_ifree /data 5%", "check_fs_iused /data 5%"])
def test_a_file_system_without_a_number_of_inodes_is_skipped(line):
    assert judge(node(), line).verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (errno.ESTALE, Verdict.CRIT),
        (errno.ENOTCONN, Verdict.CRIT),
        (errno.EIO, Verdict.CRIT),
        (errno.EACCES, Verdict.UNKNOWN),
    ],
)
def test_a_mount_that_does_not_answer_is_told_from_one_that_may_not_be_asked(number, verdict):
    host = node()

    def refuse(path):
        raise OSError(number, os.strerror(number), path)

    host.system.statvfs = refuse
    outcome = judge(host, "check_fs_free /home 5%")

    assert (outcome.verdict, outcome.reason) == (verdict, "FilesystemUnusable")
    assert outcome.message == f"/home does not tell its size: {os.strerror(number)}"


def test_no_other_file_system_is_asked():
    host = node()
    asked = []
    real = host.system.statvfs
    host.system.statvfs = lambda path: asked.append(path) or real(path)

    judge(host, "check_fs_used /data 99%")

    assert asked == ["/data"]


def test_the_root_is_judged_even_without_a_line_of_its_own():
    host = node()
    host.write("/proc/mounts", "proc /proc proc rw 0 0\n")

    assert judge(host, "check_fs_used / 81%").verdict is Verdict.OK


def test_what_users_may_not_take_counts_as_neither_used_nor_free():
    host = node()
    host.system.filesystems["/"] = Filesystem(1000 * KB, 60 * KB, 10 * KB, 0, 0, 0, False)

    assert judge(host, "check_fs_used / 100%").verdict is Verdict.OK
    assert judge(host, "check_fs_used / 99%").message == "/ is 99% full (940kB), threshold is 99%"


def test_a_hang_is_the_fault_of_the_file_system():
    for name in ("size", "free", "used", "inodes", "ifree", "iused"):
        assert find(f"check_fs_{name}").on_timeout == "crit"


@pytest.mark.parametrize("line", ["check_fs_free /", "check_fs_used / 101%", "check_fs_size / big", "check_fs_free"])
def test_bad_limits_are_refused(line):
    with pytest.raises(BadArguments):
        judge(node(), line)


def test_this_machine_agrees_with_df():
    """The numbers are those that df(1) prints, which is what thresholds were made with."""
    import shutil

    from nhc.core.host import Host
    from nhc.node.checks.fs import SpaceUsage
    from tests.support.require import need

    df = shutil.which("df")
    need("df", df)
    host = Host()
    ended = host.run([df, "-Pk", "/"])
    percent = int(ended.stdout.splitlines()[1].split()[4].rstrip("%"))
    found = host.statvfs("/")
    ours = SpaceUsage(found.size // KB, (found.size - found.free) // KB, found.available // KB)

    assert abs(ours.percent - percent) <= 1  # the disk may fill between the two looks


def test_a_device_stands_for_the_file_system_that_it_is_mounted_as():
    """Sites name the device (`check_fs_free /dev/mapper/root 5%`), which LBNL NHC never finds and lets pass."""
    assert judge(node(), "check_fs_free /dev/sda2 20%").verdict is Verdict.OK
    full = judge(node(), "check_fs_free /dev/sda2 21%")
    assert (full.verdict, full.message) == (Verdict.CRIT, "/dev/sda2 has only 20% free (19GB), minimum is 21%")
    assert judge(node(), "check_fs_free /dev/sdz 5%").reason == "FilesystemNotMounted"
