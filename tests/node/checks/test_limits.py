"""File handles, process numbers, inodes; and kills for want of memory."""

import pytest

from nhc.core.host import Filesystem
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all


@pytest.mark.parametrize(("used", "verdict"), [(79, Verdict.OK), (80, Verdict.WARN), (95, Verdict.CRIT)])
def test_levels_of_file_handles_and_process_numbers(used, verdict):
    files = {
        "/proc/sys/fs/file-nr": f"{used}0\t0\t1000\n",
        "/proc/loadavg": f"0.1 0.2 0.3 2/{used} 12345\n",
        "/proc/sys/kernel/pid_max": "4194304\n",
        "/proc/sys/kernel/threads-max": "100\n",
    }
    assert judge(FakeHost(files), "check_limits_fds").verdict is verdict
    assert judge(FakeHost(files), "check_limits_pids").verdict is verdict


def test_file_handles_without_a_limit_and_other_levels():
    found = judge(FakeHost({"/proc/sys/fs/file-nr": "5000\t0\t9223372036854775807\n"}), "check_limits_fds")
    assert (found.verdict, found.message) == (Verdict.OK, "5000 file handles in use, without a limit")
    assert [(metric.name, metric.value) for metric in found.metrics] == [("file_handles_used", 5000)]
    host = FakeHost({"/proc/sys/fs/file-nr": "50\t0\t100\n"})
    assert judge(host, "check_limits_fds -w 50").verdict is Verdict.WARN


@pytest.mark.parametrize("junk", ["", "1 2\n", "a b c\n", "1 2 0\n"])
def test_junk_is_unknown(junk):
    files = {"/proc/sys/fs/file-nr": junk, "/proc/loadavg": junk, "/proc/sys/kernel/pid_max": junk,
             "/proc/sys/kernel/threads-max": junk}  # fmt: skip
    assert judge(FakeHost(files), "check_limits_fds").verdict is Verdict.UNKNOWN
    assert judge(FakeHost(files), "check_limits_pids").verdict is Verdict.UNKNOWN
    assert judge(FakeHost(), "check_limits_pids").verdict is Verdict.UNKNOWN


def figures(used, total=100):
    return Filesystem(1 << 30, 1 << 29, 1 << 29, total, total - used, total - used, False)


def disks(**used):
    lines = {"root": "/dev/sda1 / ext4 rw", "shm": "tmpfs /dev/shm tmpfs rw", "var": "/dev/sda2 /var btrfs rw",
             "home": "server:/home /home nfs4 rw", "image": "/dev/loop0 /snap squashfs ro"}  # fmt: skip
    points = {"root": "/", "shm": "/dev/shm", "var": "/var", "home": "/home", "image": "/snap"}
    host = FakeHost({"/proc/mounts": "".join(f"{lines[name]} 0 0\n" for name in used)})
    for name, number in used.items():
        host.system.filesystems[points[name]] = figures(number) if number is not None else figures(0, 0)
    return host


def test_a_file_system_without_a_limit_of_inodes_is_never_the_fullest():
    host = disks(root=10, shm=20)
    host.system.filesystems["/dev/shm"] = figures(5, (1 << 64) - 1)
    found = judge(host, "check_limits_inodes")
    assert found.message.startswith("2 file systems, fullest: 10.0 % of inodes on /")
    host = disks(shm=20)
    host.system.filesystems["/dev/shm"] = figures(5, (1 << 64) - 1)
    found = judge(host, "check_limits_inodes")
    assert found.message == "1 file systems, fullest: 5 inodes on /dev/shm in use, without a limit"
    assert [metric.name for metric in found.metrics] == ["inodes_used"]


def test_inodes():
    assert judge(disks(root=10, shm=20), "check_limits_inodes").message.startswith("2 file systems, fullest: 20.0 %")
    found = judge_all(disks(root=85, shm=96), "check_limits_inodes")
    assert [(o.verdict, o.target) for o in found] == [(Verdict.WARN, "/"), (Verdict.CRIT, "/dev/shm")]
    assert judge(disks(root=10, shm=96), "check_limits_inodes -i '/dev/*'").verdict is Verdict.OK


def test_inodes_of_others_are_not_judged():
    assert judge(disks(home=99, image=100), "check_limits_inodes").verdict is Verdict.SKIP
    assert judge(disks(var=None), "check_limits_inodes").verdict is Verdict.SKIP


def test_inodes_that_cannot_be_told():
    host = disks(root=10)
    host.system.filesystems.clear()

    assert judge(host, "check_limits_inodes").verdict is Verdict.UNKNOWN


def vmstat(kills):
    return {"/proc/vmstat": f"nr_free_pages 1\noom_kill {kills}\nunevictable_pgs_culled 0\n"}


def test_oom_kills_within_the_hour():
    host = FakeHost(vmstat(0))
    assert judge(host, "check_oom_kills").verdict is Verdict.OK

    host.system.uptime += 60
    host.write("/proc/vmstat", vmstat(3)["/proc/vmstat"])
    assert judge(host, "check_oom_kills").verdict is Verdict.WARN
    assert judge(host, "check_oom_kills -c 3").verdict is Verdict.CRIT

    for minutes in range(10, 90, 10):
        host.system.uptime = 100_060.0 + minutes * 60
        last = judge(host, "check_oom_kills -c 1")
    assert last.verdict is Verdict.OK
    assert judge(host, "check_oom_kills -b -c 3").verdict is Verdict.CRIT


def test_oom_kills_that_are_not_counted():
    assert judge(FakeHost({"/proc/vmstat": "nr_free_pages 1\n"}), "check_oom_kills").verdict is Verdict.UNKNOWN
    assert judge(FakeHost(), "check_oom_kills").verdict is Verdict.UNKNOWN


def test_the_inodes_of_a_login_are_its_own_affair():
    """Whoever is logged in can use them up, and only his own."""
    host = FakeHost({"/proc/mounts": "tmpfs /run/user/1001 tmpfs rw 0 0\n/dev/sda1 / ext4 rw 0 0\n"})
    host.system.filesystems.update({"/run/user/1001": figures(100), "/": figures(10)})
    assert judge(host, "check_limits_inodes").verdict is Verdict.OK
