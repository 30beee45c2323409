"""Files that are replaced whole, or not at all."""

import os
import stat

import pytest

from nhc.core.system import whole_file
from tests.support.size_limit import files_of_at_most


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_whole_and_one_that_cannot_be_leaves_the_old_one_alone(tmp_path, durable):
    path = tmp_path / "file"
    whole_file.write(str(path), b"old", 0o600, durable=durable)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"old", 0o600)
    with files_of_at_most(10), pytest.raises(OSError, match="too large"):
        whole_file.write(str(path), b"new" * 10, durable=durable)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])
    whole_file.write(str(path), b"new" * 10, durable=durable)
    assert path.read_bytes() == b"new" * 10


def test_what_a_killed_process_of_our_number_has_left_is_replaced_and_no_link_is_followed(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"theirs")
    os.symlink(other, tmp_path / f"file.{os.getpid()}.tmp")
    whole_file.write(str(tmp_path / "file"), b"ours")
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"file": b"ours", "other": b"theirs"}


def test_a_file_of_the_current_directory_is_written_to_the_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole_file.write("file", b"x", durable=True)
    assert (tmp_path / "file").read_bytes() == b"x"
