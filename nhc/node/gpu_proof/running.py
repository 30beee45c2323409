"""Finds nhc's own running proofs of GPUs, to distinguish them from processes that a job left behind."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List

    from nhc.core.host import Host

NAME = "nhc-gpu-proof"
"""The name of the processes that hold the GPUs, in /proc/PID/comm (at most 15 characters)."""


def is_proof(host: Host, pid: int) -> bool:
    """Whether a process is a proof: root's or our own user's. A process of another user with this name is not one."""
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
        return []  # no /proc: processes cannot be distinguished
    return [pid for pid in pids if is_proof(host, pid)]
