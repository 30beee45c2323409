"""The kernel log, live: one thread judges each record as it comes.

Records are read in batches and searched as one text; only a record that the catalogue may know is parsed, so that
100,000 lines a second cost only a part of a core. Records that the kernel overwrote before they could be read are
counted.

The agent reads the log here and nowhere else: its rounds of checks are handed what was read (`hand_over`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from nhc.agent.event_loop import Loop, Timer
from nhc.core.host import Host
from nhc.core.state.store import State
from nhc.core.system.kernel_ring import KMSG
from nhc.node.facts.kernel_lines import Record, parse_record
from nhc.node.facts.kmsg import boot_time, ring_records
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.match import Match
from nhc.node.kernlog.node_context import leaves_no_finding
from nhc.node.kernlog.programs import origin
from nhc.node.kernlog.read import Followed
from nhc.node.kernlog.shape import fit
from nhc.node.kernlog.source import STORE
from nhc.node.kernlog.store import load

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import LogState


# What the live kernel log's records mean, filed in the store of findings, which is not the agent's alone.
#
# `check_kmsg`, `nhc check local` and `nhc ack` share it, under its lock: the first reader of a record files it, and no
# one files it twice. A finding does not wait for the lock, which a stopped process can hold: `standing` shows it.


WAITING = 4096
"""Most records that may wait for the store's lock."""
LOCKED = 0.02
"""Seconds after which a store that was locked is tried again."""
UNREAD = 0.2
"""The same for a store that the first check of this boot must still bring up to the follower's first record."""


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
        """The follower begins after the record with this number; None if the log is empty."""
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
        """File what the records mean in the store, without those that a check has read already.

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
        """Add waiting records to a store. Returns whether findings changed; None if lines before ours are unread."""
        cursor = self._cursor(store)
        if cursor is None:
            return None
        fresh = [record for record in self._waiting if record.number > cursor]
        if not fresh:
            return bool(self._waiting)  # a check has filed them, and may need a while to report them
        before = _standing(store)
        messages = [(record.text, record.when) for record in fresh]
        take_in(store, messages, self.host.time(), look=origin(self.host))
        store["cursor"] = max(cursor, self.last or 0)
        return _standing(store) != before

    def _cursor(self, store: LogState) -> Optional[int]:
        """How far a store of findings is; None if it lacks lines of this boot before those that were read here."""
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
        """Tell the store how far the log was read: a check by hand then counts no line as lost that means nothing."""
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


BATCH = 4096
"""Records that are read before anything else may run."""
PAUSE = 0.003
"""Seconds between batches while many records come: the kernel's ring holds far more than come in that time."""
AGAIN = 5.0
"""Seconds between two tries to open a log that failed."""
CROWD = 16
ALIKE = 8
"""Records with the same text that are judged in a batch: a repeated message tells nothing new."""
RING = 1 << 20
"""Most records that are skipped when the follower begins: the kernel's largest ring holds fewer."""
_RECORD = 8192

Judge = Callable[[Sequence[Record]], None]


class Follower:
    """Follows /dev/kmsg from now on. `on_finding` is called when the store of findings has changed."""

    def __init__(
        self,
        loop: Loop,
        host: Host,
        state: State,
        on_finding: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self.loop, self.host, self.on_finding, self.log = loop, host, on_finding, log
        self.readers: Sequence[Judge] = ()
        """Readers with their own rules: each is called with every record, parsed."""
        self.records = 0
        self.lost = 0
        self.problem = ""
        self.findings = Filing(loop, host, state, on_finding)
        self._fd = -1
        self._gap = False
        self._handed = (0, 0)
        self._timer: Optional[Timer] = None
        """When reading goes on, after many records came or after the log failed."""
        self._matcher = Matcher("")
        self._apps: Callable[[List[Match]], None] = lambda matches: None

    def call_for_apps(self, call: Callable[[List[Match]], None]) -> None:
        """Call this with faults of applications, which leave no finding: no check has anything to say of them."""
        self._apps = call

    def start(self) -> bool:
        """Begin at the end of the log; a round of check_kmsg judges the lines before. False if it cannot begin."""
        self.close()
        try:
            self._fd = os.open(self.host.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            last = _pass_over(self._fd)
        except OSError as error:
            self.problem = f"{KMSG}: {error.strerror}"
            self.close()
            return False
        self.findings.begin_after(last)
        self.follow(self._fd)
        return True

    def tell_every_record(self, *readers: Judge) -> None:
        """From now on only these functions get every record."""
        self.readers = readers

    def follow(self, fd: int) -> None:
        """Read records from a descriptor that gives one at a time."""
        self._fd = fd
        self.problem = ""
        self.loop.watch(fd, lambda _events: self.read())

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._fd >= 0:
            self.loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1

    @property
    def live(self) -> bool:
        return self._fd >= 0

    def read(self) -> None:
        """Handle one batch."""
        raws: List[bytes] = []
        while len(raws) < BATCH:
            try:
                data = os.read(self._fd, _RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel overwrote the next records; it goes on with the oldest it has
                self._count_gap(raws)
                continue
            except OSError as error:
                if error.errno == 22:  # EINVAL: a record longer than any should be
                    os.lseek(self._fd, 0, os.SEEK_END)
                    break
                self._broken(error)
                break
            if not data:
                self._broken(OSError(5, "it ended"))
                break
            raws.append(data)
            if self._gap:
                self._close_gap(data)
        if raws:
            self.records += len(raws)
            self.findings.read(_number(raws[0]), _number(raws[-1]))
            self._judge(raws)
        if len(raws) >= CROWD and self._fd >= 0:
            self.loop.forget(self._fd)
            self._timer = self.loop.after(PAUSE, self._again)

    def _again(self) -> None:
        self._timer = None
        if self._fd >= 0:
            self.loop.watch(self._fd, lambda _events: self.read())
            self.read()

    def _broken(self, error: OSError) -> None:
        """The log itself has failed: report it, and begin again after a while."""
        self.problem = f"{KMSG}: {error.strerror}"
        self.log(f"{self.problem}: followed again in 5 s")
        self.close()
        self._timer = self.loop.after(AGAIN, self._resume)

    def _resume(self) -> None:
        if self.start():
            self.on_finding()
        else:
            self._timer = self.loop.after(AGAIN, self._resume)

    def _count_gap(self, raws: List[bytes]) -> None:
        if raws:
            self.findings.read_up_to(_number(raws[-1]))
        self._gap = True

    def _close_gap(self, data: bytes) -> None:
        self._gap = False
        number = _number(data)
        if self.findings.last is not None and number > self.findings.last + 1:
            self.lost += number - self.findings.last - 1

    def _judge(self, raws: List[bytes]) -> None:
        text = b"".join(raws).decode(errors="replace")
        if self.readers:
            records = ring_records(self.host, _split(text))
            for reader in self.readers:
                reader(records)
        candidates = self._candidates(text)
        if candidates:
            self.findings.file(candidates)
            apps = self._app_faults(candidates)
            if apps:
                self._apps(apps)

    def _candidates(self, text: str) -> List[Record]:
        """The records that the catalogue may know, few of each wording."""
        began = 0.0
        alike: Dict[str, int] = {}
        records: List[Record] = []
        for start, end, _numbers in self._matcher.candidates(text):
            record = parse_record(text[start:end])
            if record is None:
                continue  # a line of properties
            times = alike.get(record.text, 0)
            if times >= ALIKE:
                continue
            alike[record.text] = times + 1
            began = began or boot_time(self.host)
            records.append(record._replace(when=began + (record.since_boot or 0.0)))
        return records

    def _app_faults(self, records: Sequence[Record]) -> List[Match]:
        judged = (self._matcher.judge(record.text) for record in records)
        return [match for match in judged if match is not None and leaves_no_finding(self.host, match)]

    def hand_over(self) -> Optional[Followed]:
        """The records read since the last call, for a round that need not read the log.

        None if the round must read it itself: before the follower has read anything of this boot, and if the store of
        findings is behind. The store keeps how far we have read, so that a check by hand counts no line as lost that we
        have seen.
        """
        if not self.live or self.findings.first is None or not self.findings.is_current():
            return None
        if not self.problem:
            self.findings.note()
        lines, lost = self.records - self._handed[0], self.lost - self._handed[1]
        self._handed = (self.records, self.lost)
        return Followed(lines, lost)


def _pass_over(fd: int) -> Optional[int]:
    """Go to the end of the log. The number of its last record, None if it has none."""
    last: Optional[int] = None
    for _ in range(RING):
        try:
            data = os.read(fd, _RECORD)
        except BrokenPipeError:
            continue
        except BlockingIOError:
            break
        if not data:
            break
        last = _number(data)
    return last


def _number(data: bytes) -> int:
    """A record's sequence number."""
    field = data.split(b",", 2)[1:2]
    return int(field[0]) if field and field[0].isdigit() else 0


def _split(text: str) -> List[str]:
    """Lines that begin a record: lines of properties begin with a blank."""
    return [line for line in text.split("\n") if line and line[0] != " "]
