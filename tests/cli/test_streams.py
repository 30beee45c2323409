"""Where a report goes: streams that the caller closed, readers that have gone, full disks, devices."""

import os
import stat
import subprocess
import sys

import pytest

from nhc.core.command_line.options import UsageError
from nhc.core.command_line.report_output import write_atomically
from nhc.core.system.written_files import replace_output
from tests.support.run import ROOT

HEALTHY = "* || check_fs_mount -f /\n"


@pytest.fixture
def shell(tmp_path):
    """Run `nhc check local` (`$NHC`) in a line of shell."""
    (tmp_path / "nhc.conf").write_text(HEALTHY)
    script = tmp_path / "nhc"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m nhc "$@"\n')
    script.chmod(0o755)

    def run(line, **env):
        nhc = f"{script} check local --profile none -c {tmp_path}/nhc.conf"
        env = {**os.environ, "NHC_STATE_DIR": str(tmp_path / "state"), "NHC": nhc, **env}
        return subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    return run


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_nothing(shell, closed):
    done = shell(f"$NHC {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert ("check_fs_mount" in done.stdout) == (">&- 2" not in closed and closed != ">&-")


@pytest.mark.thorough
def test_a_reader_that_has_gone_does_not_make_the_node_unhealthy(shell):
    done = shell("mkfifo f; (exec 3<f) & exec 4>f; wait; $NHC >&4; echo $?")
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.thorough
def test_a_report_that_cannot_be_printed_is_one_line_and_status_3(shell):
    done = shell("$NHC > /dev/full")
    assert done.returncode == 3
    assert done.stderr.startswith("nhc check local: standard output: No space left on device")


@pytest.mark.parametrize(("mask", "mode"), [("0", 0o644), ("002", 0o664), ("022", 0o644), ("077", 0o600)])
def test_whatever_the_umask_others_cannot_write_what_is_written(shell, tmp_path, mask, mode):
    assert shell(f"umask {mask}; $NHC -o report; {sys.executable} -m nhc genconf -c made.conf").stderr
    assert oct((tmp_path / "report").stat().st_mode & 0o777) == oct(mode)
    loose = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_mode & 0o002]
    assert loose == []


def test_a_small_character_set_is_no_obstacle(shell, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_file_test -f /\u00e4\n")
    done = shell("$NHC", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "/\\xe4" in done.stdout


@pytest.mark.parametrize("path", ["-", "/dev/stdout"])
def test_output_to_standard_output(shell, path, tmp_path):
    done = shell(f"echo before > log; $NHC -o {path} >> log; echo after >> log; cat log")
    assert done.stdout.startswith("before\nOK ")
    assert done.stdout.endswith("\nafter\n")
    assert not (tmp_path / "-").exists()


def test_output_to_something_that_is_no_file_leaves_it_what_it_is(shell, tmp_path):
    done = shell("mkfifo pipe; cat pipe & $NHC -o pipe; wait")
    assert "check_fs_mount" in done.stdout
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_output_to_a_link_replaces_what_it_points_to(shell, tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert shell("$NHC -o link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert "check_fs_mount" in (tmp_path / "real").read_text()


def test_a_link_that_somebody_put_where_a_report_is_written_first_is_not_followed(tmp_path):
    """In a directory like /tmp, on a system without fs.protected_symlinks, root would write over what it names."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for number, write in enumerate(
        (write_atomically, lambda path, text: replace_output(path, lambda f: f.write(text)))
    ):
        path = tmp_path / f"report{number}"
        (tmp_path / f"{path.name}.{os.getpid()}.tmp").symlink_to(precious)
        with pytest.raises((UsageError, OSError)):
            write(str(path), "a report")
        assert precious.read_text() == "precious"
        write(str(path), "a report")
        assert path.read_text() == "a report"
