"""What nhc remembers between runs: small JSON files, replaced atomically, never trusted.

A file that is damaged is set aside with a warning and its memory starts anew: a node's health must
never hang on the state of a state file. The default directory is on /run, which no hung disk holds
up and which a reboot clears.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time

from nhc.core.host import root_of
from nhc.core.light import TYPE_CHECKING
from nhc.core.system import written_files

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

RUN_DIRECTORY = "/run/nhc"
LASTING_DIRECTORY = "/var/lib/nhc/lasting"

LARGEST = 64 << 20
"""Bytes read of one file: more than nhc ever writes, and no more than a node can spare."""

LOCK_TIMEOUT = 1.0
"""Seconds a run waits for locks that another process holds, all of them together. An update takes milliseconds:
who holds one for longer hangs or is stopped, and no run may hang with it."""

_MISFITS = (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError)
"""What working with values of another shape raises."""


def default_directory() -> str:
    """`$NHC_STATE_DIR`, else /run/nhc for root, else a directory of the user's own."""
    named = os.environ.get("NHC_STATE_DIR")
    if named:
        return named
    if os.geteuid() == 0:
        return RUN_DIRECTORY
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return f"{runtime}/nhc" if runtime else f"/tmp/nhc-{os.geteuid()}"  # noqa: S108 (owner and mode are checked)


class State:
    """A directory of named JSON objects.

    No method raises: where the directory cannot be used, memory lasts for this run only and `warnings`
    says so, once. `lock_timeout` is how many seconds it waits for locks, all of them together.
    """

    def __init__(self, directory: Optional[str] = None, lock_timeout: float = LOCK_TIMEOUT) -> None:
        self.directory = directory or default_directory()
        self.warnings: List[str] = []
        self._memory: Dict[str, Dict[str, Any]] = {}
        self._unsaved: Dict[str, Dict[str, Any]] = {}
        self._usable: Optional[bool] = None
        self._lock_time = lock_timeout  # what is left of it

    def load(self, name: str) -> Dict[str, Any]:
        """The object called `name`, empty where there is none."""
        if not self.usable():
            return dict(self._memory.get(name, {}))
        if name in self._unsaved:  # what the file holds is older: the disk was full
            return self._unsaved[name]
        path = f"{self.directory}/{name}.json"
        try:
            content = _read(path)
            if content == b"{}":
                return {}
            from nhc.core.json_values import parse_object  # only where there is something to remember

            return parse_object(content.decode())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            self._set_aside(name, str(error))
            return {}
        except OSError as error:
            self._warn(f"{path}: {error.strerror}: memory starts anew")
            return {}

    def _set_aside(self, name: str, why: str) -> None:
        path = f"{self.directory}/{name}.json"
        self._warn(f"{path} is damaged ({why}): set aside as {name}.json.damaged, memory starts anew")
        try:
            os.replace(path, f"{path}.damaged")
        except OSError:
            pass

    def save(self, name: str, value: Dict[str, Any]) -> None:
        """Replace the object called `name`, so that a reader sees the old one or the new one whole.

        An empty one has no file.
        """
        self._memory[name] = value
        if not self.usable():
            return
        path = f"{self.directory}/{name}.json"
        try:
            if value:
                import json

                written_files.write_whole(path, json.dumps(value, separators=(",", ":")).encode())
            else:  # an empty state is no file: each run that finds one would load the reader of JSON
                _remove(path)
            self._unsaved.pop(name, None)
        except OSError as error:
            self._warn(f"{path}: {error.strerror}: not remembered")
            self._unsaved[name] = value

    def load_bytes(self, name: str) -> bytes:
        """A cache file's content, empty where there is none: what it holds can always be made anew."""
        if not self.usable():
            return b""
        try:
            return _read(f"{self.directory}/{name}")
        except (OSError, ValueError):
            return b""

    def save_bytes(self, name: str, content: bytes, most: int = 0) -> None:
        """Replace a cache file; where that fails there is no cache, and nothing to warn of.

        `most`: so many files of this kind (what the name has before its first `-`) are kept, those written last.
        """
        if not self.usable():
            return
        try:
            written_files.write_whole(f"{self.directory}/{name}", content)
            if most:
                remove_all_but_newest(self.directory, name.partition("-")[0] + "-", most)
        except OSError:
            pass

    def update(self, name: str, change: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
        """Load, let `change` edit in place, save, all under a lock that keeps other runs out. Returns the new value.

        Where another process keeps the lock beyond LOCK_TIMEOUT the change counts for this run alone, and a warning
        says so. `change` may be called twice: what it cannot work with is set aside, and it gets an empty object.
        """
        lock, held = self._lock(name, wait=True)
        try:
            if held:
                self._warn(f"{self.directory}/{name}.lock: held by another process: not remembered")
            return self._change(name, change, keep=not held)
        finally:
            if lock >= 0:
                os.close(lock)

    def lasting(self) -> State:
        """Where a restart of the node clears nothing: below /var/lib for the state on /run, else beside this one."""
        on_run = self.directory == RUN_DIRECTORY
        return State(f"{root_of('')}{LASTING_DIRECTORY}" if on_run else f"{self.directory}/lasting")

    def forget(self) -> int:
        """Delete every object; how many there were. What cannot be deleted is left, and a warning says so."""
        if not self.usable():
            return 0
        gone = 0
        try:
            for name in os.listdir(self.directory):
                if name.endswith(".json"):
                    _remove(f"{self.directory}/{name}")
                    gone += 1
        except OSError as error:
            self._warn(f"{self.directory}: {error.strerror}: not forgotten")
        return gone

    def try_update(self, name: str, change: Callable[[Dict[str, Any]], None]) -> bool:
        """The same without waiting: False, and nothing done, while another process has the lock."""
        lock, held = self._lock(name, wait=False)
        if held:
            return False
        try:
            self._change(name, change)
        finally:
            if lock >= 0:
                os.close(lock)
        return True

    def _change(self, name: str, change: Callable[[Dict[str, Any]], None], keep: bool = True) -> Dict[str, Any]:
        import json

        value = self.load(name)
        before = json.dumps(value, sort_keys=True)
        try:
            change(value)
        except _MISFITS as error:
            if before == "{}":
                raise
            value = {}
            change(value)  # raises once more where the memory is not to blame
            self._set_aside(name, f"{type(error).__name__}: {error}")
        if keep and (name in self._unsaved or json.dumps(value, sort_keys=True) != before):
            self.save(name, value)
        return value

    def claim_run(self) -> Optional[int]:
        """Mark this process as the run in progress, for its lifetime. Returns the pid of another that already is.

        The lock goes with the process, however that ends. Who has it tidies up what killed runs left half written.
        """
        lock, held = self._lock("run", wait=False)
        if held:
            return self._holder()
        if lock < 0:
            return None
        try:
            os.ftruncate(lock, 0)
            os.write(lock, str(os.getpid()).encode())
            if any(name.endswith(".tmp") for name in os.listdir(self.directory)):
                remove_stale(self.directory)
        except OSError as error:  # a full disk: the lock holds all the same
            self._warn(f"{self.directory}/run.lock: {error.strerror}: not written")
        return None

    def _holder(self) -> Optional[int]:
        try:
            return int(_read(f"{self.directory}/run.lock"))
        except (OSError, ValueError):
            return 0

    def _lock(self, name: str, wait: bool) -> Tuple[int, bool]:
        """The lock's descriptor, -1 where there is none, and whether that is because another process holds it."""
        if not self.usable():
            return -1, False
        path = f"{self.directory}/{name}.lock"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        except OSError as error:
            self._warn(f"{path}: {error.strerror}: no lock")
            return -1, False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd, False
            except BlockingIOError:
                if not wait or self._lock_time <= 0:
                    os.close(fd)
                    return -1, True
            except OSError as error:  # a file system without locks
                os.close(fd)
                self._warn(f"{path}: {error.strerror}: no lock")
                return -1, False
            time.sleep(0.002)
            self._lock_time -= 0.002

    def usable(self) -> bool:
        """Whether anything can be kept: the directory is there and nobody else could have put files into it."""
        if self._usable is None:
            try:
                os.makedirs(self.directory, mode=0o700, exist_ok=True)
                status = os.lstat(self.directory)
                if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
                    raise PermissionError(1, "not a directory of this user")
                if status.st_mode & (stat.S_IWOTH | stat.S_IWGRP):  # plans that are kept here are run
                    raise PermissionError(1, "others may write to it")
                if not os.access(self.directory, os.W_OK):
                    raise PermissionError(13, "not writable")
                self._usable = True
            except OSError as error:
                self._usable = False
                self._warn(f"{self.directory}: {error.strerror}: nothing is remembered from run to run")
        return self._usable

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _read(path: str) -> bytes:
    """A file's content. Raises OSError, and ValueError for what is no file of ours; a FIFO holds nobody up."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if status.st_size > LARGEST:
            raise ValueError(f"{status.st_size} bytes are more than nhc writes")
        return b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
    finally:
        os.close(fd)


OLD = 3600.0
"""Seconds after which a half-written file is nobody's, whoever has its pid now. Writing one takes milliseconds."""


def remove_stale(directory: str) -> None:
    """Remove half-written files (`NAME.PID.tmp`) of killed processes.

    Raises OSError where the directory cannot be listed.
    """
    for name in os.listdir(directory):
        if not name.endswith(".tmp"):
            continue
        pid = name[: -len(".tmp")].rpartition(".")[2]
        path = f"{directory}/{name}"
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            if not os.path.exists(f"/proc/{pid}") or time.time() - os.lstat(path).st_mtime > OLD:
                os.unlink(path)
        except OSError:
            continue


def remove_all_but_newest(directory: str, prefix: str, most: int) -> None:
    """Of the files whose name begins so, keep those written last. Raises OSError where DIRECTORY cannot be listed."""
    names = [name for name in os.listdir(directory) if name.startswith(prefix)]
    if len(names) <= most:
        return
    dated = []
    for name in names:
        try:
            dated.append((os.lstat(f"{directory}/{name}").st_mtime_ns, name))
        except OSError:  # another run has removed it
            continue
    for _written, name in sorted(dated)[:-most]:
        try:
            os.unlink(f"{directory}/{name}")
        except OSError:
            continue
