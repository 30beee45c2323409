"""What nhc remembers between runs: small JSON files, replaced atomically, never trusted.

A file that is damaged is set aside with a warning and its memory starts anew: a node's health must
never hang on the state of a state file. The default directory is on /run, which no hung disk holds
up and which a reboot clears.
"""

from __future__ import annotations

import fcntl
import os
import stat

from nhc.values import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

RUN_DIRECTORY = "/run/nhc"


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
    says so, once.
    """

    def __init__(self, directory: Optional[str] = None) -> None:
        self.directory = directory or default_directory()
        self.warnings: List[str] = []
        self._memory: Dict[str, Dict[str, Any]] = {}
        self._unsaved: Dict[str, Dict[str, Any]] = {}
        self._usable: Optional[bool] = None

    def load(self, name: str) -> Dict[str, Any]:
        """The object called `name`, empty where there is none."""
        if not self._ready():
            return dict(self._memory.get(name, {}))
        if name in self._unsaved:  # what the file holds is older: the disk was full
            return self._unsaved[name]
        path = f"{self.directory}/{name}.json"
        try:
            with open(path, encoding="utf-8") as file:
                import json  # only where there is something to remember: most nodes have nothing

                value = json.load(file)
            if not isinstance(value, dict):
                raise ValueError("not a JSON object")
            return value
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError) as error:
            self._warn(f"{path} is damaged ({error}): set aside as {name}.json.damaged, memory starts anew")
            try:
                os.replace(path, f"{path}.damaged")
            except OSError:
                pass
            return {}
        except OSError as error:
            self._warn(f"{path}: {error.strerror}: memory starts anew")
            return {}

    def save(self, name: str, value: Dict[str, Any]) -> None:
        """Replace the object called `name`, so that a reader sees the old one or the new one whole."""
        self._memory[name] = value
        if not self._ready():
            return
        path = f"{self.directory}/{name}.json"
        temporary = f"{path}.{os.getpid()}.tmp"
        import json

        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(value, file, separators=(",", ":"))
            os.replace(temporary, path)
            self._unsaved.pop(name, None)
        except OSError as error:
            self._warn(f"{path}: {error.strerror}: not remembered")
            self._unsaved[name] = value
            try:
                os.unlink(temporary)
            except OSError:
                pass

    def load_bytes(self, name: str) -> bytes:
        """A cache file's content, empty where there is none: what it holds can always be made anew."""
        if not self._ready():
            return b""
        try:
            with open(f"{self.directory}/{name}", "rb") as file:
                return file.read()
        except OSError:
            return b""

    def save_bytes(self, name: str, content: bytes) -> None:
        """Replace a cache file; where that fails there is no cache, and nothing to warn of."""
        if not self._ready():
            return
        path = f"{self.directory}/{name}"
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except OSError:
            pass

    def update(self, name: str, change: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
        """Load, let `change` edit in place, save, all under a lock that keeps other runs out. Returns the new value."""
        lock = self._lock(name, wait=True)
        try:
            return self._change(name, change)
        finally:
            if lock is not None:
                os.close(lock)

    def try_update(self, name: str, change: Callable[[Dict[str, Any]], None]) -> bool:
        """The same without waiting: False, and nothing done, while another process has the lock."""
        lock = self._lock(name, wait=False)
        if lock is None and self._usable and self._held(name):
            return False
        try:
            self._change(name, change)
        finally:
            if lock is not None:
                os.close(lock)
        return True

    def _change(self, name: str, change: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
        import json

        value = self.load(name)
        before = json.dumps(value, sort_keys=True)
        change(value)
        if name in self._unsaved or json.dumps(value, sort_keys=True) != before:
            self.save(name, value)
        return value

    def _held(self, name: str) -> bool:
        """Whether the lock is there to be waited for: one that cannot be made is not."""
        return os.access(f"{self.directory}/{name}.lock", os.W_OK)

    def claim_run(self) -> Optional[int]:
        """Mark this process as the run in progress, for its lifetime. Returns the pid of another that already is.

        The lock goes with the process, however that ends.
        """
        lock = self._lock("run", wait=False)
        if lock is None:
            return self._holder() if self._usable else None
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        return None

    def _holder(self) -> Optional[int]:
        try:
            with open(f"{self.directory}/run.lock", encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def _lock(self, name: str, wait: bool) -> Optional[int]:
        if not self._ready():
            return None
        try:
            fd = os.open(f"{self.directory}/{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._warn(f"{self.directory}/{name}.lock: {error.strerror}: no lock")
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(fd)
            return None
        return fd

    def _ready(self) -> bool:
        """Whether the directory is there and nobody else could have put files into it."""
        if self._usable is None:
            try:
                os.makedirs(self.directory, mode=0o700, exist_ok=True)
                found = os.lstat(self.directory)
                if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
                    raise PermissionError(1, "not a directory of this user")
                if found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):  # plans that are kept here are run
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
