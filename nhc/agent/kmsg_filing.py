"""What the live kernel log's records mean, filed in the store of findings, which is not the agent's alone.

`check_kmsg`, `nhc check local` and `nhc ack` share it, under its lock: the first reader of a record files it, and
nobody files it twice. A finding does not wait for the lock, which a stopped process can hold: `standing` shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from nhc.agent.event_loop import Loop, Timer
from nhc.core.host import Host
from nhc.core.state.store import State
from nhc.node.facts.kernel_lines import Record
from nhc.node.kernlog.judge import take_in
from nhc.node.kernlog.programs import origin
from nhc.node.kernlog.shape import fit
from nhc.node.kernlog.source import STORE
from nhc.node.kernlog.store import load

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import LogState

WAITING = 4096
"""Records that wait for the store's lock, at most."""
LOCKED = 0.02
"""Seconds after which a store that was locked is tried again."""
UNREAD = 0.2
"""The same for a store that a first check of this boot has still to bring up to where the follower began."""


class Filing:
    """Files records. `on_finding` is called when findings have changed. `first`, `last`: numbers of records read."""

    def __init__(self, loop: Loop, host: Host, state: State, on_finding: Callable[[], None]) -> None:
        self.loop, self.host, self.state, self.on_finding = loop, host, state, on_finding
        self.boot = host.boot_id()
        self.first: Optional[int] = None
        self.last: Optional[int] = None
        self._noted: Optional[int] = None
        self._retry: Optional[Timer] = None
        self._waiting: List[Record] = []

    def begin_after(self, last: Optional[int]) -> None:
        """The follower begins behind the record with this number; None where the log is empty."""
        self.first = None if last is None else last + 1
        self.last = last

    def read_up_to(self, last: int) -> None:
        """The follower has read up to this record; some after it are lost."""
        self.last = last

    def read(self, first: int, last: int) -> None:
        """The follower has read the records with these numbers."""
        if self.first is None:
            self.first = first
        self.last = last if self.last is None else max(self.last, last)

    def file(self, records: Sequence[Record]) -> None:
        """Put what the records mean into the store, those left out that a check has read already.

        Never waits: another process that holds the store's lock may be stopped. New findings are reported all the same.
        """
        self._waiting.extend(records)
        del self._waiting[:-WAITING]
        changed: List[Optional[bool]] = []

        def change(store: Dict[str, Any]) -> None:
            changed.append(self._advance(fit(store)))

        filed = self.state.try_update(STORE, change)
        if filed and changed[-1] is not None:
            self._waiting.clear()
            self._noted = self.last
        elif self._retry is None:
            self._retry = self.loop.after(UNREAD if filed else LOCKED, self._file_again)
        if changed[-1] if filed and changed[-1] is not None else records:
            self.on_finding()

    def _advance(self, store: LogState) -> Optional[bool]:
        """Add to a store what waits. Whether other findings stand then; None where lines before ours are unread yet."""
        cursor = self._cursor(store)
        if cursor is None:
            return None
        fresh = [record for record in self._waiting if record.number > cursor]
        if not fresh:
            return bool(self._waiting)  # a check has filed them, and may take a while yet to say so
        before = _standing(store)
        messages = [(record.text, record.when) for record in fresh]
        take_in(store, messages, self.host.time(), look=origin(self.host))
        store["cursor"] = max(cursor, self.last or 0)
        return _standing(store) != before

    def _cursor(self, store: LogState) -> Optional[int]:
        """How far a store of findings is, None where it lacks lines of this boot before those that were read here."""
        cursor = store.get("cursor")
        if store.get("boot") != self.boot or not isinstance(cursor, int) or cursor < (self.first or 0) - 1:
            return None
        return cursor

    def standing(self) -> LogState:
        """The store of findings, with the records that could not be filed yet."""
        store = load(self.state, STORE)
        if self._waiting and self._advance(store) is None:
            store = {"boot": self.boot, "cursor": (self.first or 0) - 1}
            self._advance(store)
        return store

    def _file_again(self) -> None:
        self._retry = None
        if self._waiting:
            self.file(())

    def is_current(self) -> bool:
        """Whether the store has all lines of this boot up to those that the follower has read."""
        return self._cursor(load(self.state, STORE)) is not None

    def note(self) -> None:
        """Tell the store how far the log was read: what nobody needs to judge is not lost to a check by hand."""
        last = self.last
        if last is None or last == self._noted or self._waiting:
            return

        def change(store: Dict[str, Any]) -> None:
            cursor = self._cursor(fit(store))
            if cursor is not None and cursor < last:
                store["cursor"] = last

        if self.state.try_update(STORE, change):
            self._noted = last


def _standing(store: LogState) -> List[Tuple[str, int, str]]:
    return [(key, finding["count"], finding["severity"]) for key, finding in store.get("findings", {}).items()]
