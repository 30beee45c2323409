"""Host: a check's only door to files, commands, the kernel's answers and the clock.

Every path that a check reads goes below `root` and every other question goes through `System`, so
that a recorded machine (`nhc.testing`) replays exactly, and a test writes only the files that matter.
"""

from __future__ import annotations

import os
import time

from nhc.light import TYPE_CHECKING, NamedTuple
from nhc.memory import Memory, RunMemory
from nhc.system import process
from nhc.system.process import Completed

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

    T = TypeVar("T")

__all__ = ["BadRoot", "Completed", "Filesystem", "Host", "Memory", "RunMemory", "Stat", "System"]


class BadRoot(Exception):
    """A directory is no node's root: one line."""


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

    def __init__(self, root: str = "/", watch: Optional[process.Watcher] = None) -> None:
        self.root = root
        self.watch = watch

    def _below(self, path: str, follow: bool = True) -> str:
        return path if self.root == "/" else self.root + path

    def run(self, argv: Sequence[str], timeout: float, stdin: str, env: Mapping[str, str]) -> Completed:
        return process.run(argv, timeout=timeout, env=env, stdin=stdin, watch=self.watch)

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
        found = os.stat(self._below(path, follow), follow_symlinks=follow)
        return Stat(
            found.st_mode, found.st_uid, found.st_gid, found.st_size,
            found.st_atime, found.st_mtime, found.st_ctime,
            found.st_dev, found.st_ino, found.st_nlink, found.st_rdev,
        )  # fmt: skip

    def statvfs(self, path: str) -> Filesystem:
        found = os.statvfs(self._below(path))
        unit = found.f_frsize or found.f_bsize
        return Filesystem(
            found.f_blocks * unit, found.f_bfree * unit, found.f_bavail * unit,
            found.f_files, found.f_ffree, found.f_favail,
            bool(found.f_flag & os.ST_RDONLY),
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
        from nhc.system.deadline_read import read_each

        found = read_each(self._below(directory), names, leaf)
        return {name: None if data is None else data.decode(errors="replace") for name, data in found.items()}

    def ask(self, question: str, answer: Callable[[], Any]) -> Any:
        """What a library says, in plain JSON values: `answer()` asks it, `question` names it in a recording."""
        return answer()

    def kernel_log(self, after: int) -> List[str]:
        """The records of /dev/kmsg numbered above `after`, raw, without waiting for more. Raises OSError."""
        from nhc.system import kernel_ring

        return kernel_ring.read(self._below(kernel_ring.KMSG), after)

    def log_tail(self, path: str, offset: int, limit: int) -> List[Any]:
        """The lines of a log file from `offset` on, where they end, what was left out: see `kernel_ring.tail`."""
        from nhc.system import kernel_ring

        return list(kernel_ring.tail(self._below(path), offset, limit))

    # What a check does to the machine, and only because one of its options asks for it.

    def kill(self, pid: int, started: int, number: int) -> None:
        """Send a signal to the process `pid` that began `started` clock ticks after boot, and to no other.

        Raises ProcessLookupError when it is gone, even if its number is in use again; OSError otherwise.
        """
        from nhc.system.signals import kill

        kill(pid, started, number)

    def renice(self, pid: int, nice: int) -> None:
        """Set a process's nice value: what `renice -n` of util-linux does, again and again alike. Raises OSError."""
        os.setpriority(os.PRIO_PROCESS, pid, nice)

    def syslog(self, text: str) -> None:
        """Write one line to the system log: daemon.err, under the name nhc, as LBNL NHC does."""
        import syslog

        syslog.openlog("nhc", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_ERR, text)


class Host:
    """What a check sees of the node it judges.

    `memory` keeps what checks remember between runs (the engine's caller passes a `State`).
    `root` is "/" on a live node and a recorded tree in a test. `settings` are the variables that the
    configuration has set by the time this check runs (`NHC_AUTH_USERS`, `MCELOG_MAX_CORRECTED_RATE` ...).
    """

    def __init__(
        self,
        root: str = "/",
        system: Optional[System] = None,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        memory: Optional[Memory] = None,
    ) -> None:
        self.memory: Memory = RunMemory() if memory is None else memory
        self.root = root.rstrip("/") or "/"
        self.live = self.root == "/"  # whether our own processes are among those seen
        self.system = system or System(self.root)
        self.settings: Mapping[str, str] = settings or {}
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self._facts: Dict[Any, Any] = {}

    @property
    def ours(self) -> Host:
        """Where nhc's own files are, such as profiles."""
        return self

    # Files. All raise OSError as the operating system does.

    def path(self, path: str) -> str:
        """Where `path` lies on the machine that runs this code."""
        return path if self.root == "/" else self.root + path

    def read_bytes(self, path: str, limit: int = 64 << 20) -> bytes:
        """A file's first `limit` bytes. Read in steps: files of /proc and /sys have no size beforehand."""
        fd = os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, min(16384, limit))
            if len(data) < 4096:  # the whole of nearly every file in /proc and /sys, in one call
                more = os.read(fd, 16384) if data else b""
                if not more:
                    return data
                data += more
            parts = [data]
            size = len(data)
            while size < limit:
                data = os.read(fd, min(262144, limit - size))
                if not data:
                    break
                parts.append(data)
                size += len(data)
            return b"".join(parts)
        finally:
            os.close(fd)

    def read(self, path: str, limit: int = 64 << 20) -> str:
        """A text file's content; undecodable bytes are replaced."""
        return self.read_bytes(path, limit).decode(errors="replace")

    def read_or(self, path: str, default: str = "") -> str:
        """A small file's content without surrounding blanks, `default` where it cannot be read."""
        try:
            return self.read(path).strip()
        except OSError:
            return default

    def lines(self, path: str) -> List[str]:
        return self.read(path).splitlines()

    def exists(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def isdir(self, path: str) -> bool:
        return os.path.isdir(self.path(path))

    def read_each(self, directory: str, names: Sequence[str], leaf: str) -> Dict[str, Optional[str]]:
        """The first 64 KiB of `directory/NAME/leaf` for each name, fast and never held up (`nhc.system.deadline_read`).

        A name is left out where it has no such file; its value is None where the read did not return.
        """
        return self.system.read_each(directory, names, leaf)

    def listdir(self, path: str) -> List[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(self.path(path)))

    def peek(self, path: str) -> Optional[str]:
        """One name in a directory, None where it is empty: asks the file system without listing it all."""
        with os.scandir(self.path(path)) as entries:
            return next((entry.name for entry in entries), None)

    def glob(self, pattern: str) -> List[str]:
        """Paths that match a shell pattern, sorted, as this host names them."""
        from glob import glob

        skip = 0 if self.root == "/" else len(self.root)
        return sorted(found[skip:] for found in glob(self.path(pattern)))

    def readlink(self, path: str) -> str:
        return os.readlink(self.path(path))

    def realpath(self, path: str) -> str:
        """`path` with symbolic links followed, links that leave the root included only as text."""
        found = os.path.realpath(self.path(path))
        if self.root == "/":
            return found
        base = os.path.realpath(self.root)
        return found[len(base) :] or "/" if found.startswith(base) else found

    def stat(self, path: str, follow: bool = True) -> Stat:
        return self.system.stat(path, follow)

    def statvfs(self, path: str) -> Filesystem:
        return self.system.statvfs(path)

    def access(self, path: str, mode: int) -> bool:
        return self.system.access(path, mode)

    def run(self, argv: Sequence[str], timeout: float = 5.0, stdin: str = "") -> Completed:
        """Run a command with the configuration's PATH and the C locale. Raises OSError when it cannot be started."""
        env = {**self.environ, **self.settings, "PATH": process.extended(self.settings.get("PATH", "")), "LC_ALL": "C"}
        return self.system.run(argv, timeout, stdin, env)

    def start(self, argv: Sequence[str]) -> None:
        """Start a command and do not wait for it: for an action that an option of a check asks for.

        Raises OSError where there is no shell to leave it to.
        """
        self.run(["sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "nhc", *argv])

    def which(self, command: str) -> Optional[str]:
        """The path of a command that could be run, None where there is none."""
        added = () if "/" in command else process.added(self.settings.get("PATH", ""))
        found = (self.system.which(f"{directory}/{command}") for directory in added)
        return next(filter(None, found), None) or self.system.which(command)

    # The clock, names, and this run's memory.

    def time(self) -> float:
        return self.system.time()

    def monotonic(self) -> float:
        return self.system.monotonic()

    def setting(self, name: str, default: str = "") -> str:
        """A variable as the configuration set it, else as the environment has it."""
        return self.settings[name] if name in self.settings else self.environ.get(name, default)

    def fact(self, gather: Callable[[Host], T]) -> T:
        """What `gather(host)` returns, gathered once a run. An exception is raised again, not gathered again."""
        if gather not in self._facts:
            try:
                self._facts[gather] = (gather(self), None)
            except Exception as error:
                self._facts[gather] = (None, error)
        value, failure = self._facts[gather]
        if failure is not None:
            raise failure
        return value  # type: ignore[no-any-return]

    def know(self, gather: Callable[[Host], T], value: T) -> None:
        """Take a fact as given: whoever starts the run has it already."""
        self._facts[gather] = (value, None)

    def anew(self, memory: Memory) -> Host:
        """The same host with nothing gathered yet, and another memory."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, _facts={}, memory=memory)
        return twin

    def forget(self) -> None:
        """Drop the gathered facts: the agent does so before each round."""
        self._facts.clear()

    def with_settings(self, settings: Mapping[str, str]) -> Host:
        """The same host and facts, seen under other settings."""
        if settings == self.settings:
            return self
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, settings=settings)
        return twin
