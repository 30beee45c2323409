"""The machine behind a Host: commands, the kernel's answers, the clock. Files are the Host's own matter."""

from __future__ import annotations

import os
import time

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system import process
from nhc.core.system.process import Completed

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

    from nhc.core.system.process import Look


class Stat(NamedTuple):
    """What stat(2) says of a path. Times are Unix times in seconds."""

    mode: int
    uid: int
    gid: int
    size: int
    atime: float
    mtime: float
    ctime: float
    dev: int
    ino: int
    nlink: int
    rdev: int


class Filesystem(NamedTuple):
    """What statvfs(3) says of a mounted file system. Sizes in bytes.

    `free` counts the blocks reserved for root, `available` does not.
    """

    size: int
    free: int
    available: int
    inodes: int
    inodes_free: int
    inodes_available: int
    read_only: bool


class System:
    """The machine behind a Host: everything that is not the content of a file.

    Each method returns plain values, so that `nhc record` can keep every answer and a replay can
    give it again. Paths are as the check names them; `root` is put in front here.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.watch: Optional[process.Watcher] = None

    def report_commands(self, watch: Optional[process.Watcher]) -> None:
        """Tell `watch` of each command that begins and ends."""
        self.watch = watch

    def _below(self, path: str, follow: bool = True) -> str:
        return path if self.root == "/" else self.root + path

    def run(
        self, argv: Sequence[str], timeout: float, stdin: str, env: Mapping[str, str], during: Optional[Look] = None
    ) -> Completed:
        return process.run(argv, timeout=timeout, env=env, stdin=stdin, watch=self.watch, during=during)

    def started(self, program: str, argv: Sequence[str]) -> Tuple[str, List[str]]:
        """What to execute, and as which argv, so that `program` of this machine runs. Raises OSError."""
        return program, list(argv)

    def which(self, command: str) -> Optional[str]:
        return process.find(command)

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def stat(self, path: str, follow: bool) -> Stat:
        stat = os.stat(self._below(path, follow), follow_symlinks=follow)
        return Stat(
            stat.st_mode, stat.st_uid, stat.st_gid, stat.st_size, stat.st_atime, stat.st_mtime, stat.st_ctime,
            stat.st_dev, stat.st_ino, stat.st_nlink, stat.st_rdev,
        )  # fmt: skip

    def statvfs(self, path: str) -> Filesystem:
        space = os.statvfs(self._below(path))
        unit = space.f_frsize or space.f_bsize
        return Filesystem(
            space.f_blocks * unit, space.f_bfree * unit, space.f_bavail * unit,
            space.f_files, space.f_ffree, space.f_favail, bool(space.f_flag & os.ST_RDONLY),
        )  # fmt: skip

    def access(self, path: str, mode: int) -> bool:
        return os.access(self._below(path), mode)

    def user_name(self, uid: int) -> str:
        """The user's name, or the number as text where the name service knows none."""
        import pwd

        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def user_id(self, name: str) -> Optional[int]:
        import pwd

        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            return None

    def group_name(self, gid: int) -> str:
        import grp

        try:
            return grp.getgrgid(gid).gr_name
        except KeyError:
            return str(gid)

    def resolve(self, name: str) -> List[str]:
        """The addresses of a host name, in the resolver's order. Raises OSError when there are none."""
        import socket

        return list(dict.fromkeys(str(at[4][0]) for at in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)))

    def in_network(self) -> bool:
        """Whether this process is in the node's own network, so that 127.0.0.1 is the node."""
        return True

    def connect(self, address: str, port: int, timeout: float) -> float:
        """Seconds that a TCP connection took to open. Raises OSError when it does not."""
        import socket

        begin = time.monotonic()
        socket.create_connection((address, port), timeout).close()
        return time.monotonic() - begin

    def hostname(self) -> str:
        return os.uname().nodename

    def effective_uid(self) -> int:
        return os.geteuid()

    def effective_gid(self) -> int:
        return os.getegid()

    def sysconf(self, name: str) -> int:
        """One of the numbers of the system, as `SC_PAGE_SIZE`."""
        return os.sysconf(name)

    def read_each(self, directory: str, names: Sequence[str], leaf: str) -> Dict[str, Optional[str]]:
        """The text of `directory/NAME/leaf` for each name that has one; None where the read was held up."""
        from nhc.core.system.deadline_read import read_each

        contents = read_each(self._below(directory), names, leaf)
        return {name: None if data is None else data.decode(errors="replace") for name, data in contents.items()}

    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        """What a library says, in plain JSON values: `answer()` asks it, `question` names it in a recording."""
        return answer()

    def kernel_log(self, after: int) -> List[str]:
        """The records of /dev/kmsg numbered above `after`, raw, without waiting for more. Raises OSError."""
        from nhc.core.system import kernel_ring

        return kernel_ring.read(self._below(kernel_ring.KMSG), after)

    def log_tail(self, path: str, offset: int, limit: int) -> List[Any]:
        """The lines of a log file from `offset` on, where they end, what was left out: see `kernel_ring.tail`."""
        from nhc.core.system import kernel_ring

        return list(kernel_ring.tail(self._below(path), offset, limit))

    # What a check does to the machine, and only because one of its options asks for it.

    def kill(self, pid: int, started: int, number: int) -> None:
        """Send a signal to the process `pid` that began `started` clock ticks after boot, and to no other.

        Raises ProcessLookupError when it is gone, even if its number is in use again; OSError otherwise.
        """
        from nhc.core.system.process_identity import signal_process

        signal_process(pid, started, number)

    def renice(self, pid: int, nice: int) -> None:
        """Set a process's nice value: what `renice -n` of util-linux does, again and again alike. Raises OSError."""
        os.setpriority(os.PRIO_PROCESS, pid, nice)

    def syslog(self, text: str) -> None:
        """Write one line to the system log: daemon.err, under the name nhc, as LBNL NHC does."""
        import syslog

        syslog.openlog("nhc", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_ERR, text)
