"""Mounts that answer, and that stay writable."""

import errno

import pytest

from nhc.core.host import Filesystem
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

FIGURES = Filesystem(1 << 40, 1 << 39, 1 << 39, 1000, 500, 500, False)
BOOT = {"/proc/sys/kernel/random/boot_id": "aaaa\n"}


def node(*lines, fstab=None):
    files = {"/proc/mounts": "".join(f"{line} 0 0\n" for line in lines), **BOOT}
    if fstab is not None:
        files["/etc/fstab"] = fstab
    host = FakeHost(files)
    for line in lines:
        point = line.split()[1]
        if point != "/":
            host.write(f"{point}/", "")
        host.system.filesystems[point] = FIGURES
    return host


NFS = "server:/home /home nfs4 rw,relatime,hard"
LUSTRE = "10.0.0.1@o2ib:/scratch /scratch lustre rw,flock"
ROOT = "/dev/sda1 / ext4 rw,relatime"


def failing(host, point, number):
    real = host.system.statvfs

    def statvfs(path):
        if path == point:
            raise OSError(number, errno.errorcode[number], path)
        return real(path)

    host.system.statvfs = statvfs
    return host


def test_network_mounts_are_found():
    assert judge(node(ROOT, NFS, LUSTRE), "check_mount_responds").message == "/home, /scratch answer"
    assert judge(node(ROOT, NFS, LUSTRE), "check_mount_responds -t lustre").message == "/scratch answers"
    assert judge(node(ROOT), "check_mount_responds").verdict is Verdict.SKIP


def test_what_a_user_mounted_for_himself_is_his_affair():
    """Root gets EACCES there, and a hang is made by stopping one's own sshfs."""
    sshfs = "me@there: /home/me/there fuse.sshfs rw,nosuid,nodev,relatime,user_id={},group_id=100"
    host = failing(node(sshfs.format(1001)), "/home/me/there", errno.EACCES)
    assert judge(host, "check_mount_responds").verdict is Verdict.SKIP
    assert judge(host, "check_mount_responds /home/me/there").verdict is Verdict.CRIT
    host = failing(node(sshfs.format(0)), "/home/me/there", errno.ENOTCONN)
    assert judge(host, "check_mount_responds").verdict is Verdict.CRIT


@pytest.mark.parametrize("line", [
    "cvmfs2 /cvmfs/atlas.cern.ch fuse ro,nosuid,nodev,user_id=0,group_id=0,allow_other",
    "cvmfs2 /cvmfs/cms.cern.ch fuse ro,nosuid,nodev,user_id=998,group_id=998,default_permissions,allow_other",
    "remote: /datasets fuse.rclone rw,nosuid,nodev,user_id=1001,group_id=1001,allow_other",
    "remote: /cloud fuse.rclone rw,user_id=0,group_id=0",
    "mountpoint-s3 /bucket fuse rw,user_id=0,group_id=0",
    "/dvs /dvs dvs rw,path=/dvs",
    "stornext /stornext cvfs rw",
    "/dev/sdc1 /shared ocfs2 rw,_netdev",
    "//srv/share /share smb2 rw",
    "cluster:/vol /vol hyperfs2031 rw",
])  # fmt: skip
def test_a_mount_of_another_machine_is_asked_whatever_its_type_is_called(line):
    """No list of file systems is complete: what FUSE mounts, and a type that nobody knows, is asked."""
    point = line.split()[1]
    assert judge(node(ROOT, line), "check_mount_responds").message == f"{point} answers"
    found = judge(failing(node(ROOT, line), point, errno.ENOTCONN), "check_mount_responds")
    assert (found.verdict, found.reason, found.target) == (Verdict.CRIT, "MountFails", point)


@pytest.mark.parametrize("line", [
    "/dev/sdb1 /data fuseblk rw,user_id=0", "lxcfs /var/lib/lxcfs fuse.lxcfs rw,user_id=0",
    "portal /run/doc fuse.portal rw,user_id=0", "squashfuse /img fuse.squashfuse_ll ro,user_id=0",
    "gvfsd-fuse /run/gvfs fuse.gvfsd-fuse rw,user_id=0", "Tool.AppImage /tmp/.mount fuse.Tool.AppImage ro,user_id=0",
    "/etc/auto.cvmfs /cvmfs autofs rw", "tmpfs /tmp tmpfs rw", "none /sys/fs/bpf bpf rw", "hyper / hyperfs2031 rw",
])  # fmt: skip
def test_what_lies_on_this_node_is_not_asked(line):
    assert judge(node(line), "check_mount_responds").verdict is Verdict.SKIP


def test_faults_of_a_mount():
    for number, reason in ((errno.ESTALE, "MountStale"), (errno.EIO, "MountFails"), (errno.ENOTCONN, "MountFails")):
        found = judge_all(failing(node(NFS, LUSTRE), "/scratch", number), "check_mount_responds")
        assert [(o.verdict, o.reason, o.target) for o in found] == [(Verdict.CRIT, reason, "/scratch")]


def test_a_server_that_lets_no_one_in_has_answered():
    host = node(NFS)

    def closed(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    host.peek = closed
    assert judge(host, "check_mount_responds").verdict is Verdict.OK


def test_nothing_mounted():
    host = node(NFS)
    host.write("/scratch/", "")
    host.system.filesystems["/scratch"] = FIGURES

    assert judge(host, "check_mount_responds /scratch").reason == "NotMounted"
    assert judge(host, "check_mount_responds /nope").reason == "NotMounted"
    assert judge(host, "check_mount_responds /home/").verdict is Verdict.OK


def test_slow_answer():
    host = node(NFS)
    times = iter([100.0, 103.5, 200.0, 203.5])
    host.system.monotonic = lambda: next(times)

    assert judge(host, "check_mount_responds").reason == "MountSlow"
    assert judge(host, "check_mount_responds -s 10").verdict is Verdict.OK


def test_a_hang_is_critical():
    from nhc.core.check import find

    assert find("check_mount_responds").on_timeout == "crit"


FSTAB = """\
# a comment
UUID=1 / ext4 defaults 0 1
server:/home /home nfs4 rw,hard 0 0
server:/sw /sw nfs4 ro,hard 0 0
/dev/sdb1 none swap sw 0 0
short line
"""


def test_writable_as_fstab_says():
    sw = "server:/sw /sw nfs4 ro,hard"

    assert judge(node(ROOT, NFS, sw, fstab=FSTAB), "check_mount_readonly").message == "2 file systems writable"


def test_read_only_in_spite_of_fstab():
    found = judge_all(node(ROOT.replace("rw", "ro"), NFS, fstab=FSTAB), "check_mount_readonly")

    assert [(o.verdict, o.reason, o.target) for o in found] == [(Verdict.CRIT, "FilesystemReadOnly", "/")]


def test_remounted_read_only_since_an_earlier_run():
    host = node(ROOT, LUSTRE)
    assert judge(host, "check_mount_readonly").verdict is Verdict.OK

    host.write("/proc/mounts", f"{ROOT.replace('rw', 'ro')} 0 0\n{LUSTRE} 0 0\n")
    found = judge(host, "check_mount_readonly")
    assert (found.reason, found.target) == ("FilesystemReadOnly", "/")
    assert "an earlier run saw" in found.message

    host.write("/proc/sys/kernel/random/boot_id", "bbbb\n")  # booted from a read-only image: nothing was expected
    assert judge(host, "check_mount_readonly").verdict is Verdict.OK


def test_paths_that_the_configuration_names():
    image = node("/dev/loop0 / squashfs ro")

    assert judge(image, "check_mount_readonly").verdict is Verdict.SKIP
    assert judge(image, "check_mount_readonly /").verdict is Verdict.CRIT
    assert judge(node(ROOT), "check_mount_readonly /scratch").reason == "NotMounted"


def test_a_file_system_that_shut_down():
    assert judge(node("/dev/sda1 / ext4 rw,emergency_ro"), "check_mount_readonly").reason == "FilesystemShutdown"


def test_no_mount_table():
    assert judge(FakeHost(BOOT), "check_mount_readonly").verdict is Verdict.UNKNOWN
    assert judge(FakeHost(BOOT), "check_mount_responds").verdict is Verdict.UNKNOWN
