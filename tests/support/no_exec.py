"""Run nhc where no program can be started and no connection opened: the kernel ends whoever tries.

    python -m tests.support.no_exec replay DIR

A seccomp filter (Documentation/userspace-api/seccomp_filter.rst) kills a process that calls execve, execveat, or
socket for anything but a Unix socket; children inherit it. Forks are free: a run's workers are forks.
"""

import ctypes
import os
import platform
import struct
import sys

_CALLS = {"x86_64": (59, 322, 41, 0xC000003E), "aarch64": (221, 281, 198, 0xC00000B7)}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL, _ALLOW = 0x80000000, 0x7FFF0000


def _filter() -> bytes:
    execve, execveat, socket, audit = _CALLS[platform.machine()]
    steps = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 0, 7, audit),
        (_LOAD, 0, 0, 0),  # the system call
        (_EQUAL, 5, 0, execve),
        (_EQUAL, 4, 0, execveat),
        (_EQUAL, 0, 2, socket),
        (_LOAD, 0, 0, 16),  # its first argument
        (_EQUAL, 0, 1, 1),  # AF_UNIX
        (_RETURN, 0, 0, _ALLOW),  # step 8
        (_RETURN, 0, 0, _KILL),  # step 9
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def lock_down() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    program = _filter()
    buffer = ctypes.create_string_buffer(program, len(program))
    prog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, prog, 0, 0):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    from nhc.cli.main import entry

    lock_down()
    sys.argv = ["nhc", *sys.argv[1:]]
    entry()
