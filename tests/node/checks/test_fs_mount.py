import os
import time

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

MOUNTS = """/dev/sda2 / ext4 rw,relatime,errors=remount-ro 0 0
/dev/sda1 /boot ext4 ro,relatime 0 0
bluearc0:/home /home nfs rw,relatime,vers=3,hard,proto=tcp 0 0
bluearc0:/software /global/software nfs ro,relatime,vers=3,hard 0 0
/etc/auto.direct /direct autofs rw,relatime,direct 0 0
/dev/sdb1 /data xfs rw 0 0
/dev/sdc1 /data xfs ro 0 0
//nas/x /with\\040blank cifs rw 0 0
//nas/my\\040share /share cifs rw 0 0
"""


def node(*commands, **settings):
    """A node; the named commands work. /unmounted and /home are directories on it."""
    answers = dict.fromkeys(("sh", *commands), "")
    return FakeHost({"/proc/mounts": MOUNTS, "/unmounted/": "", "/home/": ""}, answers, settings)


@pytest.mark.parametrize(
    "line",
    [
        "check_fs_mount /",
        "check_fs_mount / /dev/sda2 ext4 '*errors=remount-ro*'",
        "check_fs_mount / '' 'ext*'",
        "check_fs_mount_rw /",
        "check_fs_mount_rw / /dev/sda2 ext4",
        "check_fs_mount_rw -f / -f /home",
        "check_fs_mount_rw -t nfs -s 'bluearc0:*' -o '*hard*' -f /home",
        "check_fs_mount_rw -t nfs -s 'bluearc0:*' /home",
        "check_fs_mount_ro -f /boot /global/software",
        "check_fs_mount -s '!/dev/*' -s '*:/*' -o '!*soft*' -t '/^nfs4?$/' -f /home/",
        "check_fs_mount -f '/with blank'",
        "check_fs_mount /direct",
        "check_fs_mount -0 -f /home",
    ],
)
def test_mounts_that_are_right_pass(line):
    assert judge(node(), line).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "reason", "message"),
    [
        ("check_fs_mount /unmounted", "FilesystemNotMounted", "/unmounted not mounted"),
        ("check_fs_mount_rw -f /unmounted", "FilesystemNotMounted", "/unmounted not mounted"),
        ("check_fs_mount /gone", "FilesystemNotMounted", "/gone not mounted; directory /gone missing"),
        ("check_fs_mount / /dev/sdz", "MountSourceMismatch", "/ mounted from /dev/sda2 (should match /dev/sdz)"),
        (
            "check_fs_mount -s '!/dev/*' -f /",
            "MountSourceMismatch",
            "/ mounted from /dev/sda2 (should NOT match /dev/*)",
        ),
        ("check_fs_mount / '' xfs", "MountTypeMismatch", "/ has incorrect type ext4 (should match xfs)"),
        ("check_fs_mount -t '!ext*' /", "MountTypeMismatch", "/ has incorrect type ext4 (should NOT match ext*)"),
        (
            "check_fs_mount -o '*soft*' /home",
            "MountOptionsMismatch",
            "/home mount options incorrect (should match *soft*)",
        ),
        (
            "check_fs_mount -o '!*hard*' /home",
            "MountOptionsMismatch",
            "/home mount options incorrect (should NOT match *hard*)",
        ),
        (
            "check_fs_mount_rw /boot",
            "FilesystemReadOnly",
            "/boot mount options incorrect (should match /(^|,)rw($|,)/)",
        ),
        (
            "check_fs_mount -o '*acl*' /boot",
            "MountOptionsMismatch",
            "/boot mount options incorrect (should match *acl*)",
        ),
        ("check_fs_mount_ro -f /", "MountOptionsMismatch", "/ mount options incorrect (should match /(^|,)ro($|,)/)"),
        (
            "check_fs_mount_rw /data",
            "FilesystemReadOnly",
            "/data mount options incorrect (should match /(^|,)rw($|,)/)",
        ),
    ],
)
def test_mounts_that_are_wrong_fail(line, reason, message):
    outcome = judge(node(), line)

    assert (outcome.verdict, outcome.reason, outcome.message) == (Verdict.CRIT, reason, message)


def test_each_bad_mount_is_an_outcome_of_its_own():
    bad = judge_all(node(), "check_fs_mount_rw -f / /boot /unmounted /home")

    assert [outcome.target for outcome in bad] == ["/boot", "/unmounted"]
    assert bad[0].evidence == ("/dev/sda1 /boot ext4 ro,relatime",)


def test_nonfatal_is_a_warning():
    outcome = judge(node(), "check_fs_mount -0 -f /unmounted")

    assert (outcome.verdict, outcome.message) == (Verdict.WARN, "/unmounted not mounted (non-fatal)")


def test_mounts_that_cannot_be_read_are_unknown():
    assert judge(FakeHost(), "check_fs_mount /").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("line", ["check_fs_mount", "check_fs_mount -t nfs", "check_fs_mount / a b c d"])
def test_a_line_that_names_nothing_or_too_much_is_unknown(line):
    assert judge(node(), line).reason == "BadArguments"


def test_an_unknown_option_is_refused():
    with pytest.raises(BadArguments, match="Invalid option:  -z"):
        judge(node(), "check_fs_mount -z -f /")


def test_a_hang_is_the_fault_of_the_mount():
    for name in ("check_fs_mount", "check_fs_mount_rw", "check_fs_mount_ro"):
        assert (find(name).on_timeout, find(name).timeout) == ("crit", 5)


# Automounts


def test_an_automount_is_looked_up_and_then_read_afresh():
    host = node()
    judge(host, "check_fs_mount /")  # the mounts are known by now
    looked = []

    def look(path, follow):
        looked.append(path)
        host.write("/proc/mounts", MOUNTS + "nas:/auto /direct nfs rw 0 0\n")

    host.system.stat = look

    assert judge(host, "check_fs_mount_rw -t nfs -F /direct").verdict is Verdict.OK
    assert looked == ["/direct/."]


def test_the_automounters_own_entry_is_no_mount():
    outcome = judge(node(), "check_fs_mount -F /direct")

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "FilesystemNotMounted")


# Repairs


def started(host):
    """What was put into the background, without the shell that did."""
    return [argv[4:] for argv in host.system.ran if argv[0] == "sh"]


def test_nothing_runs_unless_an_option_asks():
    host = node("bash", "mount", "mkdir")
    judge(host, "check_fs_mount_rw -f / /boot /gone /unmounted")

    assert host.system.ran == []


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("check_fs_mount -r -f /unmounted", ("mount", "/unmounted")),
        ("check_fs_mount -r -O ro,hard -f /unmounted", ("mount", "-o", "ro,hard", "/unmounted")),
        ("check_fs_mount_rw -r -f /boot", ("mount", "-o", "remount", "/boot")),
        ("check_fs_mount_rw -r -O rw -f /boot", ("mount", "-o", "remount,rw", "/boot")),
        ("check_fs_mount -e 'service x restart; date' -f /unmounted", ("bash", "-c", "service x restart; date")),
        ("check_fs_mount -E 'touch /home/ok' -f /home", ("bash", "-c", "touch /home/ok")),
    ],
)
def test_what_an_option_asks_for_is_started(line, command):
    host = node("bash", "mount")
    judge(host, line)

    assert started(host) == [command]


def test_a_path_from_the_configuration_is_never_shell_text():
    host = node("mount")
    judge(host, "check_fs_mount -r -f '/x; rm -rf $(y)'")

    assert started(host) == [("mount", "/x; rm -rf $(y)")]


def test_the_mount_command_is_a_setting():
    host = node("/opt/mnt", MOUNT_CMD="/opt/mnt -v")
    judge(host, "check_fs_mount -r -f /unmounted")

    assert started(host) == [("/opt/mnt", "-v", "/unmounted")]


def test_a_missing_directory_is_made_where_a_repair_was_asked_for():
    host = node("mount", "mkdir")
    outcome = judge(host, "check_fs_mount -r -f /gone")

    assert outcome.message == "/gone not mounted; directory /gone missing (auto-fixed)"
    assert ("mkdir", "-p", "-m", "0755", "/gone") in host.system.ran
    assert outcome.evidence == ("started: mount /gone",)


def test_a_directory_that_cannot_be_made_is_not_called_fixed():
    outcome = judge(node("mount"), "check_fs_mount -r -f /gone")

    assert outcome.message == "/gone not mounted; directory /gone missing"


def test_a_repair_that_cannot_start_is_said():
    assert judge(node(), "check_fs_mount -r -f /unmounted").evidence == (
        "not started, there is no mount: mount /unmounted",
    )


def test_an_action_runs_in_the_background_and_the_check_does_not_wait(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text(MOUNTS)
    (tmp_path / "unmounted").mkdir()
    os.mkfifo(tmp_path / "go")
    action = f"read line < {tmp_path}/go; echo $line > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/done"
    begin = time.monotonic()
    outcome = judge(Host(str(tmp_path)), f"check_fs_mount -e '{action}' -f /unmounted")

    assert outcome.evidence[0].startswith("started: bash -c read")
    assert time.monotonic() - begin < 30
    assert not (tmp_path / "done").exists()
    with open(tmp_path / "go", "w") as go:
        go.write("it ran\n")
    deadline = time.monotonic() + 60
    while not (tmp_path / "done").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / "done").read_text() == "it ran\n"


@pytest.mark.parametrize(
    "line",
    [
        "check_fs_mount -s '//nas/my share' -f /share", r"check_fs_mount -s '//nas/my\040share' -f /share",
        r"check_fs_mount -s '//nas/my\\040share' -f /share", r"check_fs_mount -s '*my\040*' -f /share",
        r"check_fs_mount -s '/^\/\/nas\/my\\040share$/' -f /share", "check_fs_mount -s '/my share$/' -f /share",
        "check_fs_mount -s '//nas/my*share' -f /share", r"check_fs_mount -s '!//nas/your\040share' -f /share",
        r"check_fs_mount -f '/with\040blank' -s //nas/x", "check_fs_mount '/with blank' //nas/x cifs",
        r"check_fs_mount_rw '/with\040blank' //nas/x cifs",
    ],
)  # fmt: skip
def test_blanks_may_be_written_as_blanks_or_as_the_kernel_writes_them(line):
    assert judge(node(), line).verdict is Verdict.OK


@pytest.mark.parametrize("source", ["//nas/my share", r"//nas/my\040share"])
def test_a_source_with_blanks_can_be_forbidden(source):
    outcome = judge(node(), f"check_fs_mount -s '!{source}' -f /share")
    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "MountSourceMismatch")
