"""The write probe, on real file systems: full, read-only, not there; and what it leaves behind."""

import os
import shutil
import subprocess

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.model import Verdict
from tests.support.judge import judge
from tests.support.require import need


class Node(Host):
    """A node whose root is a directory, with a mount table of our writing."""

    def __init__(self, root, mounts="server:/export /scratch nfs4 rw 0 0\n"):
        super().__init__(str(root))
        (root / "proc").mkdir()
        (root / "proc/mounts").write_text(f"/dev/sda2 / ext4 rw 0 0\n{mounts}")
        (root / "scratch").mkdir()


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.mark.parametrize("size", ["", "-b 1", "-b 1M"])
def test_what_is_written_comes_back_and_nothing_stays(node, tmp_path, size):
    found = judge(node, f"check_fs_write {size} /scratch")
    assert found.verdict is Verdict.OK, found
    assert {metric.name for metric in found.metrics} >= {"write_time", "sync_time", "read_time", "remove_time"}
    assert os.listdir(tmp_path / "scratch") == []


def test_a_directory_on_the_nodes_own_disk_is_not_the_file_system_that_was_meant(node, tmp_path):
    (tmp_path / "local").mkdir()
    assert judge(node, "check_fs_write /local").reason == "NotMounted"
    assert judge(node, "check_fs_write -l /local").verdict is Verdict.OK
    assert judge(node, "check_fs_write /scratch/missing").reason == "NotMounted"


@pytest.mark.parametrize("kind", ["fuse.rclone", "fuse", "fuse.goofys", "dvs", "gfs2", "cvfs", "hyperfs2031"])
def test_a_mount_point_of_its_own_is_tried_unless_its_type_is_known_to_be_local(tmp_path, kind):
    host = Node(tmp_path, f"data /scratch {kind} rw 0 0\n")
    assert judge(host, "check_fs_write /scratch").verdict is Verdict.OK


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "fuseblk", "fuse.lxcfs", "overlay"])
def test_a_disk_mounted_in_its_place_is_still_not_the_file_system_that_was_meant(tmp_path, kind):
    assert judge(Node(tmp_path, f"data /scratch {kind} rw 0 0\n"), "check_fs_write /scratch").reason == "NotMounted"


def test_what_a_killed_probe_left_is_removed_and_nothing_else(node, tmp_path):
    left = tmp_path / "scratch/.nhc-write-node-71-2"
    other = tmp_path / "scratch/.nhc-write-node-71-3"
    running = tmp_path / "scratch/.nhc-write-node-72-3"
    (tmp_path / "proc/72").mkdir()
    for path in (left, other, running):
        path.write_text("x")
    node.memory.update("write_probe", lambda stored: stored.update({"/scratch": [left.name, running.name]}))
    assert judge(node, "check_fs_write /scratch").verdict is Verdict.OK
    assert sorted(os.listdir(tmp_path / "scratch")) == sorted([other.name, running.name])
    os.rmdir(tmp_path / "proc/72")
    assert judge(node, "check_fs_write /scratch").verdict is Verdict.OK
    assert os.listdir(tmp_path / "scratch") == [other.name]

    victim = tmp_path / "victim"
    victim.write_text("x")
    node.memory.update("write_probe", lambda stored: stored.update({"/scratch": ["../victim", 7]}))
    judge(node, "check_fs_write /scratch")
    assert victim.exists()


def test_slow_is_a_warning(node):
    assert judge(node, "check_fs_write -s 0s /scratch").reason == "WriteSlow"


@pytest.fixture
def tmpfs(tmp_path):
    """Mounts a small tmpfs where it is asked to, and unmounts it."""
    need("mount", os.geteuid() == 0 and shutil.which("mount"), "root")
    made = []

    def mount(at, options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(at)], capture_output=True, text=True)
        need("mount", done.returncode == 0, done.stderr)
        made.append(at)

    yield mount
    for at in made:
        subprocess.run(["umount", str(at)], check=True)


@pytest.mark.parametrize(("options", "reason"), [("size=16k", "NoSpace"), ("size=1m,ro", "FilesystemReadOnly")])
def test_full_and_read_only_are_told_apart(node, tmp_path, tmpfs, options, reason):
    tmpfs(tmp_path / "scratch", options)
    found = judge(node, "check_fs_write /scratch")
    assert (found.verdict, found.reason) == (Verdict.CRIT, reason), found
    assert os.listdir(tmp_path / "scratch") == []


@pytest.mark.parametrize(
    ("number", "reason"), [(122, "QuotaExceeded"), (116, "MountStale"), (5, "WriteFails"), (1, "NotPermitted")]
)
def test_what_only_a_server_can_say(node, number, reason):
    said = {"steps": {}, "direct": False, "failed": "close", "errno": number, "error": os.strerror(number)}
    node.system.ask = lambda question, answer: said
    assert judge(node, "check_fs_write /scratch").reason == reason


def test_other_data_than_was_written(node, tmp_path, monkeypatch):
    """What a server with a broken cache does, at the system call."""
    true = os.readv

    def damaged(fd, buffers):
        got = true(fd, buffers)
        buffers[0][100] ^= 1
        return got

    monkeypatch.setattr(os, "readv", damaged)
    found = judge(node, "check_fs_write /scratch")
    assert (found.verdict, found.reason) == (Verdict.CRIT, "DataDiffers")
    assert os.listdir(tmp_path / "scratch") == []


@pytest.mark.parametrize("words", [["-b", "0", "/x"], ["-b", "1G", "/x"], []])
def test_arguments_that_make_no_sense(words):
    with pytest.raises(BadArguments):
        find("check_fs_write").parse(words)
