"""Elects one leader among several servers; its number fences off earlier leaders.

A candidate says whether this process may lead: an advisory lock of PostgreSQL, a lock on a file beside SQLite's, or
Kubernetes' Lease (`nhc_adapters.kubernetes.api.lease.Lease` is a candidate without a wrapper). The winner raises the
number in the table `leader`; each transaction of a leader is made under its number (`Store.write(fence)`) and fails
once another process has raised it. So a leader that was paused, or whose connection hangs, writes nothing after it has
lost.

A lock alone does not show that its holder is stopped, or that its machine was cut off before the database noticed; and
the file of a lock can be removed. So a leader that uses a lock of the store writes a heartbeat every BEAT seconds. No
other process leads while the heartbeat is younger than LEASE; when it is older, another may lead, with or without the
lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import Callable, NamedTuple, Optional, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.system import written_files
from nhc.store.database import Fence, Store, problem_of
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.schema import insert_into, leader

HELD_FOR = 10.0
"""Seconds for which a check of the lock, or the own heartbeat, counts: fewer than LEASE, so that no two lead."""
BEAT = 3.0
"""Seconds between two heartbeats."""
LEASE = 15.0
"""Seconds without a heartbeat after which another process may lead."""


class Candidate(Protocol):
    """One of those who may lead."""

    def attempt(self) -> bool:
        """Take the lead, or keep it, if that can be done now. Raises StoreError, or
        nhc.marks.ports.adapter.AdapterError.
        """
        ...

    def held(self) -> bool:
        """Whether it was held a moment ago, by this process's own clock."""
        ...

    def release(self) -> None:
        """Give it up, so that the next need not wait."""
        ...


class AdvisoryLock:
    """PostgreSQL's lock, held while one connection is open: the server releases it when the connection breaks."""

    def __init__(self, store: Store, name: str = "remedy", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, monotonic
        self._key = int.from_bytes(name.encode()[:7].ljust(8, b"\0"), "big", signed=True)
        self._connection: Optional[Connection] = None
        self._seen = float("-inf")

    def attempt(self) -> bool:
        """Take or keep the lock."""
        now = self._clock()
        try:
            if self._connection is not None:
                self._connection.execute(sa.select(1))
            else:
                opened = self._store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                self._connection = opened
                if not opened.scalar(sa.select(sa.func.pg_try_advisory_lock(self._key))):
                    self._connection = None
                    opened.close()
                    return False
        except sa.exc.SQLAlchemyError as error:
            self.release()
            raise StoreError(f"{self._store.name}: {problem_of(error)}") from None
        self._seen = now
        return True

    def held(self) -> bool:
        """Whether the connection that holds it answered lately."""
        return self._clock() - self._seen < HELD_FOR

    def release(self) -> None:
        """End the connection that holds it."""
        connection, self._connection = self._connection, None
        self._seen = float("-inf")
        if connection is not None:
            try:
                connection.invalidate()  # not back into the pool: the lock is the session's
                connection.close()
            except sa.exc.SQLAlchemyError:
                pass


class FileLock:
    """A lock on a file, for the processes of one machine."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def attempt(self) -> bool:
        """Take or keep the lock. One whose file was removed or replaced is lost: another may hold the new one."""
        if self._fd >= 0:
            if self._is_the_file():
                return True
            self.release()
        try:
            fd = written_files.open_or_make(self.path, os.O_RDWR | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror or error}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def _is_the_file(self) -> bool:
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(named, os.fstat(self._fd))

    def held(self) -> bool:
        """Whether it is ours: a process keeps the lock until it ends."""
        return self._fd >= 0

    def release(self) -> None:
        """Release it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Standing(NamedTuple):
    """The row of a lead. `seen` is the last heartbeat: None if the holder writes none, 0 if it gave up the lead."""

    number: int
    holder: str
    since: float
    seen: Optional[float]
    now: float

    @property
    def silent(self) -> bool:
        """Whether the last heartbeat is too old; setting the clock back must not stop everything."""
        return self.seen is not None and not -LEASE < self.now - self.seen < LEASE


class Leader:
    """One of the processes that may lead. `fence` is the number of its transactions, None while it does not lead."""

    def __init__(
        self, store: Store, candidate: Optional[Candidate] = None, *, name: str = "remedy", holder: str = "",
        clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store, self._clock, self._monotonic = store, clock, monotonic
        self.name, self.holder = name, holder or f"{os.uname().nodename}:{os.getpid()}"
        self._candidate = candidate if candidate is not None else candidate_of(store, name)
        self._beats = candidate is None  # a Lease of Kubernetes ends by itself
        self._fence: Optional[Fence] = None
        self._seen = float("-inf")
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None

    @property
    def fence(self) -> Optional[Fence]:
        """The number to write under; None if this process does not lead, or cannot be sure of it."""
        held = self._monotonic() - self._seen < HELD_FOR if self._beats else self._candidate.held()
        return self._fence if self._fence is not None and held else None

    def sure(self) -> Fence:
        """`fence`, for a caller that may write only while it leads. Raises LeadershipLost."""
        fence = self.fence
        if fence is None:
            raise LeadershipLost(f"{self._store.name}: this process is not sure any more that it leads ({self.name})")
        return fence

    def attempt(self) -> bool:
        """Take the lead or keep it; whether this process leads. Called every few seconds. Raises StoreError.

        From then on, until `release`, a separate thread writes heartbeats, since a round may last longer than LEASE.
        """
        try:
            locked = self._candidate.attempt()
            standing = self._standing()
            if self._fence is not None and standing is not None and standing.number == self._fence.number:
                # A process that writes heartbeats leads by them, even if a stopped process still has the lock.
                if (locked and not self._beats) or (self._beats and self._beat()):
                    return True
            elif self._may(locked, standing) and self._raise_number(standing):
                return True
        except BaseException:
            self._fence = None
            raise
        self._fence = None
        if locked:
            self._candidate.release()
        return False

    def _may(self, locked: bool, standing: Optional[_Standing]) -> bool:
        """Whether the lead is free."""
        if standing is None or standing.seen is None or not self._beats:
            return locked
        if not standing.seen or standing.holder == self.holder:
            return locked
        return standing.silent or (locked and _has_ended(standing.holder))

    def _begin_beating(self) -> None:
        if self._beats and self._thread is None:
            self._ended.clear()
            thread = threading.Thread(target=self._go_on, name="nhc-leader", daemon=True)
            thread.start()
            self._thread = thread  # only now: an interrupt while it starts must not leave one that cannot be joined

    def _go_on(self) -> None:
        while not self._ended.wait(BEAT):
            with contextlib.suppress(StoreError):
                self._beat()

    def _beat(self) -> bool:
        """Whether this process still leads, which is written down."""
        fence, began = self._fence, self._monotonic()
        if fence is None:
            return False
        mine = sa.and_(leader.c.name == fence.name, leader.c.number == fence.number)
        with self._store.write() as connection:
            done = connection.execute(sa.update(leader).where(mine).values(seen=self._now(connection))).rowcount
        if done:
            self._seen = began
        elif self._fence is fence:
            self._fence = None
        return bool(done)

    def last(self) -> str:
        """Which process took the lead last, "unknown" if none ever did. Raises StoreError."""
        return lead_of(self._store, self.name).holder or "unknown"

    def release(self) -> None:
        """Stop leading, and record it: the next process need not wait."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ended.set()
            thread.join(BEAT)  # a heartbeat after our leave would make the next wait
        fence, self._fence = self._fence, None
        if fence is not None and self._beats:
            mine = sa.and_(leader.c.name == fence.name, leader.c.number == fence.number)
            with contextlib.suppress(StoreError), self._store.write() as connection:
                connection.execute(sa.update(leader).where(mine).values(seen=0.0))
        self._candidate.release()

    def _now(self, connection: Connection) -> float:
        return _now(self._store, connection, self._clock)

    def _standing(self) -> Optional[_Standing]:
        return _standing(self._store, self.name, self._clock)

    def _raise_number(self, standing: Optional[_Standing]) -> bool:
        """Take the next number, if no other process has taken it since `standing` was read."""
        began, number = self._monotonic(), 1 + (standing.number if standing else 0)
        with self._store.write() as connection:
            seen = self._now(connection) if self._beats else None
            values = {"number": number, "holder": self.holder, "since": self._clock(), "seen": seen}
            if standing is None:
                made = insert_into(connection, leader).values(name=self.name, **values).on_conflict_do_nothing()
                done = connection.scalar(made.returning(leader.c.number)) is not None
            else:
                same = sa.and_(leader.c.name == self.name, leader.c.number == standing.number)
                done = connection.execute(sa.update(leader).where(same).values(values)).rowcount == 1
        if not done:
            return False
        self._fence, self._seen = Fence(self.name, number), began
        self._begin_beating()
        return True


def _has_ended(holder: str) -> bool:
    """Whether a process of this machine has ended. `Leader.holder` names it."""
    machine, _, pid = holder.rpartition(":")
    if machine != os.uname().nodename or not (pid.isascii() and pid.isdigit()):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def candidate_of(store: Store, name: str) -> Candidate:
    """The lock that fits the kind of store."""
    if store.sqlite:
        return FileLock(f"{store.engine.url.database}.{name}.lock")
    return AdvisoryLock(store, name)


class Lead(NamedTuple):
    """Which process took a lead last, "" if none ever did, and since when; and whether that process still leads.

    A process that writes no heartbeats here (a Lease of Kubernetes) counts as leading.
    """

    holder: str = ""
    since: float = 0.0
    stands: bool = False


def lead_of(store: Store, name: str = "remedy", clock: Callable[[], float] = time.time) -> Lead:
    """The lead of a store, for a caller that only reads it. Raises StoreError."""
    row = _standing(store, name, clock)
    if row is None:
        return Lead()
    return Lead(row.holder, row.since, row.seen is None or not (row.silent or _has_ended(row.holder)))


def _standing(store: Store, name: str, clock: Callable[[], float]) -> Optional[_Standing]:
    columns = (leader.c.number, leader.c.holder, leader.c.since, leader.c.seen)
    with store.read() as connection:
        row = connection.execute(sa.select(*columns).where(leader.c.name == name)).first()
        if row is None:
            return None
        return _Standing(row.number, row.holder, row.since, row.seen, _now(store, connection, clock))


def _now(store: Store, connection: Connection, clock: Callable[[], float]) -> float:
    """The time on one clock for all processes that may lead: the database's if it is a server."""
    if store.sqlite:
        return clock()
    return float(connection.scalar(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))) or 0.0)
