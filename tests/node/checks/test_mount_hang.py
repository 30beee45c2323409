"""A mount whose server never answers, for real: a FUSE file system with nobody behind it."""

import ctypes
import os
import subprocess
import sys
import time

import pytest

from tests.support.require import need

_DETACH = 2  # MNT_DETACH


def _mount(point: str) -> int:
    """Mount a file system that answers nothing; its descriptor, whose closing ends every wait on it."""
    need("FUSE", os.path.exists("/dev/fuse") and os.geteuid() == 0, "needs /dev/fuse and root")
    server = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    mounted = libc.mount(b"nowhere", point.encode(), b"fuse", 0, options) == 0
    if not mounted:
        os.close(server)
    need("FUSE", mounted, "mount(2) of a FUSE file system is refused")
    return server


@pytest.fixture
def dead_mount(tmp_path):
    point = str(tmp_path / "scratch")
    os.mkdir(point)
    server = _mount(point)
    yield point
    os.close(server)
    ctypes.CDLL(None).umount2(point.encode(), _DETACH)


@pytest.mark.thorough
@pytest.mark.service
def test_a_mount_that_never_answers_is_critical_and_named_within_its_deadline(dead_mount, tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text(f"* |timeout 500ms| check_mount_responds {dead_mount}\n* || check_uptime -x 0\n")
    begin = time.monotonic()

    ended = subprocess.run(
        [sys.executable, "-m", "nhc", "check", "local", "--all", "-c", str(config)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "NHC_STATE_DIR": str(tmp_path / "state")},
    )  # fmt: skip

    assert time.monotonic() - begin < 30, "it never answers"
    assert ended.returncode == 1, ended.stderr
    failed = next(line for line in ended.stdout.splitlines() if "check_mount_responds" in line)
    assert "CRIT" in failed
    assert dead_mount in failed
    assert "check_uptime: up for" in ended.stdout  # the other line has its result
