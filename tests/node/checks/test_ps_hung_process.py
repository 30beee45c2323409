"""A real process that holds its mmap lock in the kernel: what makes ps hang must not make a check hang."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.node.checks.ps import check_ps_daemon
from tests.support.require import need
from tests.support.waiting import until

# One thread's page fault waits for the frozen file system; another one's mprotect waits for the first and
# keeps the mmap lock meanwhile. The main thread just sleeps.
HANG = """
import ctypes, mmap, os, sys, threading, time
size = 2 << 20
mapped = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), size)
libc = ctypes.CDLL(None)
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=libc.memset, args=(address, 1, 1), daemon=True).start()
time.sleep(0.1)
threading.Thread(target=libc.mprotect, args=(address, size, 1), daemon=True).start()
time.sleep(600)
"""


@pytest.fixture
def mount(tmp_path):
    need("loop mounts", os.geteuid() == 0 and shutil.which("mkfs.ext4") and os.path.exists("/dev/loop-control"))
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True, text=True)
    need("loop mounts", mounted.returncode == 0, mounted.stderr.strip())
    (mount / "file").write_bytes(bytes(2 << 20))
    os.sync()
    yield mount
    until(lambda: subprocess.run(["umount", mount], capture_output=True).returncode == 0)


def states(pid):
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
            found[int(thread)] = file.read().rpartition(")")[2].split()[0]
    return found


@pytest.mark.thorough
def test_a_process_that_makes_ps_hang_does_not_hang_a_check(mount):
    child = subprocess.Popen(
        [sys.executable, "-c", HANG, mount / "file"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    subprocess.run(["fsfreeze", "-f", mount], check=True)
    try:
        child.stdin.write("go\n")
        child.stdin.flush()
        # The state that ps shows is the main thread's, asleep: it would not have warned anybody.
        until(lambda: sorted(states(child.pid).values()) == ["D", "D", "S"], what="two threads that hang, one asleep")
        ps = subprocess.Popen(["ps", "-o", "args=", "-p", str(child.pid)], stdout=subprocess.DEVNULL)
        with pytest.raises(subprocess.TimeoutExpired):
            ps.wait(0.5)
        begun = time.monotonic()

        missing = check_ps_daemon(Host(), "no-such-daemon", "root")

        assert time.monotonic() - begun < 30
        assert (missing.verdict, missing.reason) == (Verdict.UNKNOWN, "ProcessUnreadable")
        assert str(child.pid) in missing.message
        assert check_ps_daemon(Host(), "no-such-daemon", "nobody").verdict is Verdict.CRIT
    finally:
        subprocess.run(["fsfreeze", "-u", mount], check=True)
        child.kill()
        child.communicate()
    assert ps.wait(60) == 0
