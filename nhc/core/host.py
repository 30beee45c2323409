"""Host: a check's only door to files, commands, the kernel's answers and the clock.

Every path that a check reads goes below `root` and every other question goes through `System`, so
that a recorded machine (`nhc.lab.testing`) replays exactly, and a test writes only the files that matter.
"""

from __future__ import annotations

import errno
import os

from nhc.core.light import TYPE_CHECKING
from nhc.core.memory import Memory, RunMemory
from nhc.core.system import process
from nhc.core.system.machine import Filesystem, Stat, System
from nhc.core.system.process import Completed

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, TypeVar

    from nhc.core.system.process import Look

    T = TypeVar("T")

__all__ = ["BadRoot", "Completed", "Filesystem", "Host", "Memory", "RunMemory", "Stat", "System", "WatchOnly"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class BadRoot(Exception):
    """A directory is no node's root: one line."""


class WatchOnly(PermissionError):
    """The site asks that nothing is changed (NHC_WATCH_ONLY=1): an action of a check was not carried out."""


def switched_on(value: str) -> bool:
    """Whether a setting that is a switch is on: it holds something other than 0, no, off and false."""
    return value.strip().lower() not in ("", "0", "no", "off", "false")


def root_of(asked: str) -> str:
    """Where the root of the node to judge is: as asked, else $NHC_ROOT; "" for this process's own."""
    root = (asked or os.environ.get("NHC_ROOT", "")).rstrip("/")
    return os.path.abspath(root) if root else ""


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
        self.parts: Optional[FrozenSet[str]] = None
        """The parts of a slow source that are read in this view of the host (`Check.parts`), None for all of them."""
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

    def why_unread(self, path: str) -> str:
        """Why a file that is there cannot be read: `Input/output error (EIO)`. "" where it can be, where there is none,
        and where its driver says that the device has no such thing (EOPNOTSUPP).

        For who found no value with `read_or` or `number`: nothing that was asked for vanishes.
        """
        try:
            self.read_bytes(path, 1)
        except OSError as error:
            absent = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP)
            name = errno.errorcode.get(error.errno or 0, str(error.errno))
            return "" if absent else f"{error.strerror or 'unreadable'} ({name})"
        return ""

    def unread(self, directory: str, names: Sequence[str]) -> Dict[str, str]:
        """Why those of the named files in a directory that are there cannot be read, by name (`why_unread`)."""
        reasons = ((name, self.why_unread(f"{directory}/{name}")) for name in names)
        return {name: why for name, why in reasons if why}

    def boot_id(self) -> str:
        """The kernel's own name for this boot, "" where it has none."""
        return self.read_or(BOOT_ID)

    def number(self, path: str) -> Optional[int]:
        """The whole number that a small file holds, None where it cannot be read or holds something else."""
        from nhc.core.units import whole_of_digits  # a healthy hook's own process reads no number

        return whole_of_digits(self.read_or(path))

    def numbers(self, directory: str, names: Sequence[str]) -> Dict[str, int]:
        """Those of the named files in a directory that hold a whole number, by name."""
        read = ((name, self.number(f"{directory}/{name}")) for name in names)
        return {name: number for name, number in read if number is not None}

    def lines(self, path: str) -> List[str]:
        return self.read(path).splitlines()

    def exists(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def isdir(self, path: str) -> bool:
        return os.path.isdir(self.path(path))

    def read_each(self, directory: str, names: Sequence[str], leaf: str) -> Dict[str, Optional[str]]:
        """The first 64 KiB of `directory/NAME/leaf` for each name, fast and never held up
        (`nhc.core.system.deadline_read`).

        A name is left out where it has no such file; its value is None where the read did not return.
        """
        return self.system.read_each(directory, names, leaf)

    def listdir(self, path: str) -> List[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(self.path(path)))

    def names(self, path: str) -> List[str]:
        """Names in a directory, sorted; none where it cannot be listed."""
        try:
            return self.listdir(path)
        except OSError:
            return []

    def peek(self, path: str) -> Optional[str]:
        """One name in a directory, None where it is empty: asks the file system without listing it all."""
        with os.scandir(self.path(path)) as entries:
            return next((entry.name for entry in entries), None)

    def glob(self, pattern: str) -> List[str]:
        """Paths that match a shell pattern, sorted, as this host names them."""
        from glob import glob

        skip = 0 if self.root == "/" else len(self.root)
        return sorted(path[skip:] for path in glob(self.path(pattern)))

    def readlink(self, path: str) -> str:
        return os.readlink(self.path(path))

    def link_name(self, path: str) -> str:
        """The last part of what a link points to, as a device's driver; "" where there is no such link."""
        try:
            return self.readlink(path).rpartition("/")[2]
        except OSError:
            return ""

    def realpath(self, path: str) -> str:
        """`path` with symbolic links followed, links that leave the root included only as text."""
        resolved = os.path.realpath(self.path(path))
        if self.root == "/":
            return resolved
        base = os.path.realpath(self.root)
        return resolved[len(base) :] or "/" if resolved.startswith(base) else resolved

    def stat(self, path: str, follow: bool = True) -> Stat:
        return self.system.stat(path, follow)

    def statvfs(self, path: str) -> Filesystem:
        return self.system.statvfs(path)

    def access(self, path: str, mode: int) -> bool:
        return self.system.access(path, mode)

    def run(
        self, argv: Sequence[str], timeout: float = 5.0, stdin: str = "", during: Optional[Look] = None
    ) -> Completed:
        """Run a command with the configuration's PATH and the C locale. Raises OSError when it cannot be started.

        `during` is called every second while it runs, and must not raise.
        """
        env = {**self.environ, **self.settings, "PATH": process.extended(self.settings.get("PATH", "")), "LC_ALL": "C"}
        return self.system.run(argv, timeout, stdin, env, during)

    # What changes the node, and only because an option of a check asks for it. Where the site only watches, all raise
    # WatchOnly.

    def act(self, argv: Sequence[str], timeout: float) -> Completed:
        """Run a command that changes the node, to its end. Raises OSError as `run` does."""
        self._may_act()
        return self.run(argv, timeout)

    def start(self, argv: Sequence[str], timeout: float = 5.0) -> Completed:
        """Start a command that changes the node and do not wait for it; how the shell ended to which it is left.

        It is handed over word by word, not as text. Raises OSError where there is no shell.
        """
        return self.act(["sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "nhc", *argv], timeout)

    def kill(self, pid: int, started: int, number: int) -> None:
        """As `System.kill`."""
        self._may_act()
        self.system.kill(pid, started, number)

    def renice(self, pid: int, nice: int) -> None:
        """As `System.renice`."""
        self._may_act()
        self.system.renice(pid, nice)

    def _may_act(self) -> None:
        if switched_on(self.setting("NHC_WATCH_ONLY")):
            raise WatchOnly(1, "watch only")

    def which(self, command: str) -> Optional[str]:
        """The path of a command that could be run, None where there is none."""
        added = () if "/" in command else process.added(self.settings.get("PATH", ""))
        paths = (self.system.which(f"{directory}/{command}") for directory in added)
        return next(filter(None, paths), None) or self.system.which(command)

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

    def knows(self, gather: Callable[[Host], T]) -> bool:
        """Whether this fact has been gathered already, in vain or not."""
        return gather in self._facts

    def know(self, gather: Callable[[Host], T], value: T) -> None:
        """Take a fact as given: whoever starts the run has it already."""
        self._facts[gather] = (value, None)

    def remember_in(self, memory: Memory) -> None:
        """Where checks remember from now on."""
        self.memory = memory

    def without_facts(self, memory: Memory) -> Host:
        """The same host with nothing gathered yet, and another memory."""
        return self._copy(_facts={}, memory=memory)

    def forget(self) -> None:
        """Drop the gathered facts: the agent does so before each round."""
        self._facts.clear()

    def with_settings(self, settings: Mapping[str, str]) -> Host:
        """The same host and facts, seen under other settings."""
        return self if settings == self.settings else self._copy(settings=settings)

    def reading(self, parts: Optional[FrozenSet[str]]) -> Host:
        """The same host and facts for a caller that reads only these parts of a slow source; None for all of them."""
        return self if parts == self.parts else self._copy(parts=parts)

    def _copy(self, **changes: Any) -> Host:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, **changes)
        return twin
