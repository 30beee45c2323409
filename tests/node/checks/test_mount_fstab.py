"""/etc/fstab against what is mounted."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge, judge_all

MOUNTS = (
    "/dev/sda2 / ext4 rw 0 0\n"
    "server:/export /scratch nfs4 rw,addr=10.0.0.9 0 0\n"
    "systemd-1 /data autofs rw,direct 0 0\n"
    "/dev/sdb1 /my\\040disk xfs rw 0 0\n"
    "s3fs /s3 fuse.s3fs rw,user_id=0 0 0\n"
    "/dev/mapper/shared /shared gfs2 rw 0 0\n"
)


def node(fstab, mounts=MOUNTS, swaps="Filename Type Size Used Priority\n", **files):
    return FakeHost({"/etc/fstab": fstab, "/proc/mounts": mounts, "/proc/swaps": swaps, **files})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("UUID=1 / ext4 defaults 0 1", None),
        ("server:/export/ /scratch nfs defaults 0 0", None),
        ("other:/export /scratch nfs defaults 0 0", (Verdict.WARN, "MountedElsewhere")),
        ("bucket /s3 fuse.s3fs _netdev 0 0", None),
        ("UUID=7 /shared gfs2 _netdev 0 0", None),
        ("/dev/sdc1 /local xfs defaults 0 0", (Verdict.CRIT, "NotMounted")),
        ("/dev/sdc1 /local xfs nofail 0 0", (Verdict.WARN, "NotMounted")),
        ("/dev/sdc1 /local xfs noauto 0 0", (Verdict.SKIP, "NothingExpected")),
        ("server:/data /data nfs x-systemd.automount 0 0", None),
        ("/dev/sdb1 /my\\040disk xfs defaults", None),
        ("/dev/sdb1 /my xfs defaults", (Verdict.CRIT, "NotMounted")),
        ("# /dev/sdc1 /local xfs defaults 0 0", (Verdict.SKIP, "NothingExpected")),
    ],
)
def test_one_line(line, expected):
    found = judge(node(line + "\n"), "check_mount_fstab")
    assert (found.verdict, found.reason) == (expected or (Verdict.OK, ""))


def test_a_mount_point_that_is_a_link():
    host = node("/dev/sdb1 /local ext4 defaults\n", "/dev/sdb1 /srv/local ext4 rw 0 0\n")
    host.write("/srv/local/", "")
    host.write("/local", Symlink("srv/local"))
    assert judge(host, "check_mount_fstab").verdict is Verdict.OK


def test_what_is_left_out():
    host = node("/dev/sdc1 /mnt/a ext4 defaults\n/dev/sdc2 /mnt/b ext4 defaults\n/dev/sda2 / ext4 defaults\n")
    assert [o.target for o in judge_all(host, "check_mount_fstab")] == ["/mnt/a", "/mnt/b"]
    assert judge(host, "check_mount_fstab -i '/mnt/*'").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("used", "expected"), [("/dev/dm-1 partition 1024 0 -2\n", Verdict.OK), ("", Verdict.WARN)], ids=["used", "unused"]
)
def test_swap_by_its_uuid(used, expected):
    host = node("UUID=ab-12 none swap sw 0 0\n", swaps=f"Filename Type Size Used Priority\n{used}")
    host.write("/dev/dm-1", "")
    host.write("/dev/disk/by-uuid/ab-12", Symlink("../../dm-1"))

    found = judge(host, "check_mount_fstab")
    assert found.verdict is expected
    assert found.reason == ("" if used else "SwapMissing")


def test_no_fstab_at_all():
    assert judge(FakeHost({"/proc/mounts": MOUNTS}), "check_mount_fstab").verdict is Verdict.SKIP
