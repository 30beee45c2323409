"""The program's record of a repair, on the node's disk before the repair begins: one file per order, named by its key.

A running repair holds a lock, which tells it from a killed one: the kernel releases the lock when its last process
ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.system import written_files
from nhc.core.system.bounded_read import read_text
from nhc_adapters.node.hand.values import NotPossible, Undo

DIRECTORY = "/var/lib/nhc/repairs"
KEPT = 50
"""Ended repairs that are remembered."""

BEGUN, ACTING, BOOTING, ENDED = "begun", "acting", "booting", "ended"


def is_held(lock: str) -> bool:
    """Whether a process holds this lock. Raises OSError."""
    fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class RepairState(NamedTuple):
    """One repair. `left` is what must still be put back, the last first. `outcome` is done or failed, "" before."""

    key: str
    rung: str
    device: str
    because: str
    boot: str
    began: float
    phase: str = BEGUN
    outcome: str = ""
    message: str = ""
    results: Mapping[str, str] = {}
    left: Tuple[Undo, ...] = ()


class RepairJournal:
    """The directory of one node's repairs."""

    def __init__(self, root: str = "") -> None:
        self.directory = root + DIRECTORY

    def _path(self, key: str) -> str:
        if not re.fullmatch(r"[0-9A-Za-z-]{8,64}", key):
            raise NotPossible(f"{key[:80]!r} is no key of a repair")
        return f"{self.directory}/{key}.json"

    def lock(self, seconds: float = 2.0) -> Optional[int]:
        """Take the node's lock; None while a repair runs. It goes with the descriptor. Raises OSError."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        fd = os.open(f"{self.directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    os.close(fd)
                    return None
                time.sleep(0.05)
            else:
                return fd

    def busy(self) -> bool:
        """Whether a repair runs now."""
        try:
            return is_held(f"{self.directory}/lock")
        except FileNotFoundError:
            return False

    def load(self, key: str) -> Optional[RepairState]:
        """A repair, None if there was none. Raises NotPossible for a file that cannot be read."""
        path = self._path(key)
        try:
            value = json.loads(read_text(path))
            left = tuple(Undo(*map(str, undo)) for undo in value.pop("left"))
            return RepairState(**{**value, "left": left})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise NotPossible(f"{path}: {error}") from None

    def save(self, state: RepairState) -> None:
        """On the disk when it returns. Raises OSError."""
        value: Dict[str, object] = {**state._asdict(), "left": [list(undo) for undo in state.left]}
        written_files.write_whole(self._path(state.key), json.dumps(value).encode(), 0o600, durable=True)

    def states(self) -> List[RepairState]:
        """All that are readable, the oldest first."""
        states = []
        for name in os.listdir(self.directory) if os.path.isdir(self.directory) else ():
            if name.endswith(".json"):
                try:
                    state = self.load(name[:-5])
                except NotPossible:
                    continue
                if state is not None:
                    states.append(state)
        return sorted(states, key=lambda repair: repair.began)

    def forget(self) -> None:
        """Delete the oldest ended repairs."""
        ended = [state for state in self.states() if state.phase == ENDED]
        for state in ended[:-KEPT]:
            os.unlink(self._path(state.key))
