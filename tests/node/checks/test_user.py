"""Paths that a user must be able to enter, asked of the real kernel as that user."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from nhc.core.host import Completed, Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all
from tests.support.require import need

PASSWD = "alice:x:4711:4711::/home/alice:/bin/sh\n"


@pytest.fixture
def tree():
    """Directories that `nobody` can reach, up to what a test closes."""
    need("setpriv", os.geteuid() == 0 and shutil.which("setpriv"), "root, package util-linux")
    # Not below pytest's own directory: every pytest that starts closes it to others.
    with tempfile.TemporaryDirectory(prefix="nhc-test-user-") as name:
        at = Path(name)
        (at / "scratch/project").mkdir(parents=True)
        at.chmod(0o755)
        yield at


@pytest.mark.parametrize(
    ("mode", "owner", "options", "expected"),
    [
        (0o755, 0, "", None),
        (0o711, 0, "", None),
        (0o711, 0, "-r", "PathClosed"),
        (0o755, 0, "-w", "PathClosed"),
        (0o777, 0, "-rw", None),
        (0o700, 0, "", "PathClosed"),
        (0o700, 65534, "-w", None),
        (0o077, 65534, "", "PathClosed"),
    ],
)
def test_a_directory_with_a_mode(tree, mode, owner, options, expected):
    place = tree / "scratch/project"
    os.chown(place, owner, 0)
    place.chmod(mode)
    found = judge(Host(), f"check_user_paths -u nobody {options} {place}")
    assert (found.verdict, found.reason) == ((Verdict.CRIT, expected) if expected else (Verdict.OK, "")), found


def test_what_is_in_the_way_is_named(tree):
    (tree / "scratch").chmod(0o750)
    found = judge(Host(), f"check_user_paths -u nobody {tree}/scratch/project")
    assert found.reason == "PathClosed"
    assert f"{tree}/scratch (drwxr-x--- root) lets others not pass" in found.message


def test_a_path_that_is_not_there_and_one_that_is_no_directory(tree):
    (tree / "file").write_text("x")
    found = judge_all(Host(), f"check_user_paths -u nobody {tree}/none {tree}/file {tree}")
    assert [(o.reason, o.target) for o in found] == [("PathMissing", f"{tree}/none"), ("PathClosed", f"{tree}/file")]
    assert judge(Host(), f"check_user_paths -u no-such-user {tree}").reason == "NoSuchUser"


def test_the_groups_are_the_users_and_not_roots():
    host = FakeHost({}, {("getent", "passwd"): PASSWD, ("id", "-G"): "4711 50 100\n", "setpriv": ""})
    assert judge(host, "check_user_paths -u alice ~ ~/data /scratch").message == (
        "alice can enter /home/alice, /home/alice/data, /scratch"
    )
    asked = [argv for argv in host.system.ran if argv[0] == "setpriv"]
    assert asked[0] == (
        "setpriv",
        "--reuid=4711",
        "--regid=4711",
        "--groups=50,100,4711",
        "--",
        "test",
        "-d",
        "/home/alice",
    )


def test_what_cannot_be_told_is_unknown_and_a_hang_is_a_fault():
    known = {("getent", "passwd"): PASSWD, ("id", "-G"): "4711\n"}
    host = FakeHost({}, {**known, "setpriv": ""})
    host.system.uid = 1000
    assert judge(host, "check_user_paths -u alice /x").reason == "NotPermitted"
    assert judge(FakeHost({}, known), "check_user_paths -u alice /x").reason == "CommandMissing"
    assert judge(FakeHost(), "check_user_paths -u alice /x").reason == "CommandMissing"
    assert judge(FakeHost(), "check_user_paths /x").reason == "BadArguments"
    refused = FakeHost({}, {**known, "setpriv": Completed(127, "", "setpriv: setresuid failed")})
    assert judge(refused, "check_user_paths -u alice /x").verdict is Verdict.UNKNOWN
    for groups in (Completed(143, "", "", True), Completed(1, "", "id: cannot get the groups of alice")):
        half_told = FakeHost({}, {**known, ("id", "-G"): groups, "setpriv": Completed(1)})
        assert judge(half_told, "check_user_paths -u alice /x").verdict is Verdict.UNKNOWN
    hung = FakeHost({}, {**known, "setpriv": Completed(143, "", "", True)})
    assert judge(hung, "check_user_paths -u alice /x").reason == "PathHangs"
