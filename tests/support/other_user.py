"""Become another user in a child that root has started: permissions and limits hold for others than root alone.

A checkout may lie below a directory that is closed to others, such as /root. There the child keeps the one capability
that lets it read and search what its user could not (CAP_DAC_READ_SEARCH), and no other: limits hold as they do for
that user.
"""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH = 2
_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def closed() -> bool:
    """Whether others cannot reach this checkout."""
    return any(not part.stat().st_mode & stat.S_IXOTH for part in (ROOT, *ROOT.parents))


def become(uid: int) -> None:
    """Be this user and group from here on, in programs started from here, too. For a child of root's."""
    reach = closed()
    if reach:
        _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if reach:
        bit = 1 << _CAP_DAC_READ_SEARCH
        head = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)  # effective, permitted, inheritable
        _call("capset", ctypes.byref(head), ctypes.byref(sets))
        _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
