"""Elects one leader among several servers; its number fences off earlier leaders.

A candidate says whether this process may lead: an advisory lock of PostgreSQL, a lock on a file beside SQLite's, or
Kubernetes' Lease (`nhc_adapters.kubernetes.api.lease.Lease` is one as it is). Whoever wins raises the number in the
table `leader`; each transaction of a leader is made under its number (`Store.write(fence)`) and fails once another
has raised it. So a leader that was paused, or whose connection hangs, writes nothing after it has lost.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Callable, Optional, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from nhc.store.database import Fence, Store, problem_of
from nhc.store.errors import StoreError
from nhc.store.schema import leader

HELD_FOR = 10.0
"""Seconds that a look at the lock is believed."""


class Candidate(Protocol):
    """One of those who may lead."""

    def attempt(self) -> bool:
        """Take the lead, or keep it, if that can be done now. Raises StoreError, or nhc.ports.AdapterError."""
        ...

    def held(self) -> bool:
        """Whether it was held a moment ago, by this process's own clock."""
        ...

    def release(self) -> None:
        """Give it up, so that the next need not wait."""
        ...


class AdvisoryLock:
    """PostgreSQL's lock, held as long as one connection lives: the server lets go of it when that breaks."""

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
            self._drop()
            raise StoreError(f"{self._store.name}: {problem_of(error)}") from None
        self._seen = now
        return True

    def held(self) -> bool:
        """Whether the connection that holds it answered lately."""
        return self._clock() - self._seen < HELD_FOR

    def release(self) -> None:
        """End the connection that holds it."""
        self._drop()

    def _drop(self) -> None:
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
        """Take or keep the lock."""
        if self._fd >= 0:
            return True
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror or error}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def held(self) -> bool:
        """Whether it is ours: the kernel takes it from nobody who lives."""
        return self._fd >= 0

    def release(self) -> None:
        """Let go of it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Leader:
    """One process among those who may lead. `fence` is what its transactions are made under, None while it may not."""

    def __init__(
        self, store: Store, candidate: Optional[Candidate] = None, *, name: str = "remedy", holder: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._store, self._clock = store, clock
        self.name, self.holder = name, holder or f"{os.uname().nodename}:{os.getpid()}"
        self._candidate = candidate if candidate is not None else candidate_of(store, name)
        self._fence: Optional[Fence] = None

    @property
    def fence(self) -> Optional[Fence]:
        """The number to write under; None where this process does not lead, or cannot be sure of it."""
        return self._fence if self._fence is not None and self._candidate.held() else None

    def attempt(self) -> bool:
        """Take the lead or keep it; whether this process leads. Called every few seconds. Raises StoreError."""
        if not self._candidate.attempt():
            self._fence = None
            return False
        if self._fence is None or self._number() != self._fence.number:
            self._fence = self._raise_number()
        return True

    def last(self) -> str:
        """Who took the lead last, "unknown" where nobody ever did. Raises StoreError."""
        return leads(self._store, self.name) or "unknown"

    def release(self) -> None:
        """Stop leading."""
        self._fence = None
        self._candidate.release()

    def _number(self) -> int:
        with self._store.read() as connection:
            return int(connection.scalar(sa.select(leader.c.number).where(leader.c.name == self.name)) or 0)

    def _raise_number(self) -> Fence:
        insert = sqlite.insert if self._store.sqlite else postgresql.insert
        now = self._clock()
        made = insert(leader).values(name=self.name, number=1, holder=self.holder, since=now)
        raised = {"number": leader.c.number + 1, "holder": self.holder, "since": now}
        with self._store.write() as connection:
            number = connection.scalar(
                made.on_conflict_do_update(index_elements=["name"], set_=raised).returning(leader.c.number)
            )
        return Fence(self.name, int(number or 0))


def candidate_of(store: Store, name: str) -> Candidate:
    """The lock that a store brings along."""
    if store.sqlite:
        return FileLock(f"{store.engine.url.database}.{name}.lock")
    return AdvisoryLock(store, name)


def leads(store: Store, name: str = "remedy") -> Optional[str]:
    """Who took the lead last, None where nobody ever did."""
    with store.read() as connection:
        found = connection.scalar(sa.select(leader.c.holder).where(leader.c.name == name))
        return None if found is None else str(found)
