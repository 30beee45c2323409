"""nhc's own proofs of GPUs that run now: whoever looks for what a job left tells them from it."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List

    from nhc.core.host import Host

NAME = "nhc-gpu-proof"
"""What the processes that hold the GPUs call themselves, in /proc/PID/comm (at most 15 characters)."""


def is_proof(host: Host, pid: int) -> bool:
    """Whether a process is a proof: root's or our own user's. A process of another user that takes the name is none."""
    if host.read_or(f"/proc/{pid}/comm") != NAME:
        return False
    try:
        # The directory always belongs to the process's effective user (task_dump_owner in the kernel's fs/proc/base.c).
        return host.stat(f"/proc/{pid}").uid in (0, host.system.effective_uid())
    except OSError:
        return False  # it has just ended


def proofs(host: Host) -> List[int]:
    """The numbers of the proofs' processes."""
    try:
        pids = [int(name) for name in host.listdir("/proc") if name.isdigit()]
    except OSError:
        return []  # no /proc: nobody can be told from anybody
    return [pid for pid in pids if is_proof(host, pid)]
