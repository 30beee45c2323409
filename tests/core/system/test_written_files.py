"""Files that a report is written to: whole or not at all, never through somebody else's link, never over a device."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nhc.core.system import written_files
from tests.support.require import need
from tests.support.run import nhc
from tests.support.size_limit import files_of_at_most

OTHER = 64179


def write(path, text="new\n"):
    written_files.replace_output(str(path), lambda file: file.write(text))


def test_a_file_is_replaced_whole_and_a_failure_leaves_it(tmp_path):
    path = tmp_path / "report"
    path.write_text("old\n")
    with pytest.raises(ValueError, match="stop"):
        written_files.replace_output(str(path), lambda file: (_ for _ in ()).throw(ValueError("stop")))
    assert path.read_text() == "old\n"
    write(path)
    assert path.read_text() == "new\n"
    assert os.listdir(tmp_path) == ["report"]


def test_a_file_in_shared_memory_is_a_file():
    """/dev/shm is below /dev, and no device."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "report"
        path.write_text("older and longer\n")
        (Path(directory) / "link").symlink_to(path)
        write(Path(directory) / "link")
        assert path.read_text() == "new\n"
        assert sorted(os.listdir(directory)) == ["link", "report"]


def test_ones_own_link_is_followed(tmp_path):
    (tmp_path / "real").write_text("old\n")
    (tmp_path / "second").symlink_to("real")
    (tmp_path / "link").symlink_to(tmp_path / "second")
    write(tmp_path / "link")
    assert (tmp_path / "real").read_text() == "new\n"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "fleet"])
def test_a_link_that_another_user_planted_is_not_followed(tmp_path, kind):
    need("root", os.geteuid() == 0, "to plant a link as another user")
    victim, link = tmp_path / "victim", tmp_path / "report"
    victim.write_text("precious\n")
    link.symlink_to(victim)
    os.lchown(link, OTHER, OTHER)
    if kind == "local":
        (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
        done = nhc("check", "local", "-c", tmp_path / "nhc.conf", "--profile", "none", "-o", link)
    else:
        (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
        done = nhc("fleet", "check", "-w", "here", "--set", "transport=local", "-c", tmp_path / "nhc.conf",
                   "--set", "keep-history=false",
                   "--set", f"json={link}", "--set", f"node-dir={tmp_path / 'node'}")  # fmt: skip
    assert done.returncode != 0
    assert f"{link}: a symbolic link of another user ({OTHER}): not followed" in done.stderr
    assert victim.read_text() == "precious\n"


def test_links_to_themselves_are_one_line(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        write(tmp_path / "a")


def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    script = (
        "from nhc.core.system.written_files import replace_output; "
        "replace_output('/dev/stdout', lambda file: file.write('said'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.stdout == "said"
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe")
    assert os.read(reading, 100) == b"new\n"
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    os.close(reading)


def test_a_name_that_utf8_cannot_hold_is_written_escaped(tmp_path):
    write(tmp_path / "report", "\udc80\n")
    assert (tmp_path / "report").read_text() == "\\udc80\n"


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_whole_and_one_that_cannot_be_leaves_the_old_one_alone(tmp_path, durable):
    path = tmp_path / "file"
    written_files.write_whole(str(path), b"old", 0o600, durable=durable)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"old", 0o600)
    with files_of_at_most(10), pytest.raises(OSError, match="too large"):
        written_files.write_whole(str(path), b"new" * 10, durable=durable)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])
    written_files.write_whole(str(path), b"new" * 10, durable=durable)
    assert path.read_bytes() == b"new" * 10


def test_what_a_killed_process_of_our_number_has_left_is_replaced_and_no_link_is_followed(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"theirs")
    os.symlink(other, tmp_path / f"file.{os.getpid()}.tmp")
    written_files.write_whole(str(tmp_path / "file"), b"ours")
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"file": b"ours", "other": b"theirs"}


def test_a_file_of_the_current_directory_is_written_to_the_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written_files.write_whole("file", b"x", durable=True)
    assert (tmp_path / "file").read_bytes() == b"x"
