"""Reports on their way into the store: many pushes become one transaction, and each is answered after its commit."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import List, NamedTuple, Optional, Sequence

import sqlalchemy as sa

from nhc.core.system.service_log import failure, problem
from nhc.store.database import Store
from nhc.store.errors import StoreError
from nhc.store.intake import Incoming, IntakeSettings
from nhc.store.reports import Received, receive
from nhc.store.server.counters import ServerCounters

BATCH = 500
"""Reports in one transaction, unless one push has more."""
ANSWER = 20.0
"""Seconds that a push waits until it is written: a database may be frozen, or a disk may hang."""
HELD = 1.0
"""Seconds that a batch waits for a row that another transaction holds."""
IN_A_ROW = 3
"""Pushes of a batch that fail alone, one after another, until the store itself counts as failing."""
GATHER = 0.02
"""Seconds that the first report of a batch waits for others."""


class Busy(Exception):
    """More reports wait than may."""


class _Waiting(NamedTuple):
    reports: Sequence[Incoming]
    done: asyncio.Future[List[Received]]


class Writer:
    """One thread that writes; `put` from the loop's thread."""

    def __init__(self, store: Store, pace: IntakeSettings, counters: ServerCounters, most: int) -> None:
        self._store, self._pace, self._counters, self._most = store, pace, counters, most
        self._queue: List[_Waiting] = []
        self._wake = asyncio.Event()
        self._ending = False
        self.problem = ""
        """Why the last transaction could not be written, "" if it was."""
        self._unwritten: Sequence[Incoming] = ()
        self._thread = ThreadPoolExecutor(1, "nhc-writer")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def put(self, reports: Sequence[Incoming]) -> List[Received]:
        """The result for each report, once it is on the disk. Raises Busy, StoreError.

        If the store does not answer within ANSWER seconds, they may have been written all the same: they are sent
        again, which changes nothing.
        """
        if self._counters.waiting + len(reports) > max(self._most, len(reports)) or self._ending:
            raise Busy
        done: asyncio.Future[List[Received]] = asyncio.get_running_loop().create_future()
        self._counters.count_waiting(len(reports))
        self._queue.append(_Waiting(reports, done))
        self._wake.set()
        try:
            return await asyncio.wait_for(done, ANSWER)
        except asyncio.TimeoutError:
            raise StoreError(f"nothing was written for {ANSWER:g} s") from None
        finally:
            self._counters.count_waiting(-len(reports))

    async def probe(self) -> None:
        """Check whether writing works again after it failed: without pushes, nothing else would show it.

        It writes what could not be written, since anything smaller may fit on a full disk. Its node sends it again,
        which changes nothing.
        """
        if self.problem:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._try_again, self._unwritten)

    def _try_again(self, reports: Sequence[Incoming]) -> None:
        try:
            self._save(reports)
        except StoreError as error:
            if not error.refused and not error.held:
                self.problem = str(error)
                return
        except Exception as error:  # of these reports, not of the store
            self._counters.note(problem(f"reports cannot be written: {failure(error)}"))
        self.problem, self._unwritten = "", ()

    async def close(self, within: float) -> None:
        """Write what waits, for at most so many seconds, and end."""
        self._ending = True
        self._wake.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._task, within)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            if not self._queue:
                if self._ending:
                    return
                self._wake.clear()
                continue
            if not self._ending and sum(len(push.reports) for push in self._queue) < BATCH:
                await asyncio.sleep(GATHER)
            await self._write(self._next())

    def _next(self) -> List[_Waiting]:
        count = 0
        batch: List[_Waiting] = []
        while self._queue and (not batch or count + len(self._queue[0].reports) <= BATCH):
            push = self._queue.pop(0)
            count += len(push.reports)
            if not push.done.cancelled():  # its client has gone: it will push again
                batch.append(push)
        return batch

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        """Write a batch; if that fails, write each of its pushes alone: one must not block the others."""
        if not batch:
            return
        error = await self._try(batch)
        if error is None:
            return
        if len(batch) == 1:
            self._failed(batch, error)
            return
        failed = 0
        for number, push in enumerate(batch):
            error = await self._try([push])
            failed = failed + 1 if error is not None and not error.refused and not error.held else 0
            if error is not None and failed >= min(IN_A_ROW, len(batch)):
                self._failed(batch[number:], error)
                return
            if error is not None:
                self._fail([push], error)

    def _failed(self, batch: Sequence[_Waiting], error: StoreError) -> None:
        """The rest of a batch cannot be written: the cause is one push, or the store."""
        if not error.refused and not error.held:
            self.problem, self._unwritten = str(error), batch[0].reports
        self._fail(batch, error)

    async def _try(self, batch: Sequence[_Waiting]) -> Optional[StoreError]:
        """Write pushes in one transaction, and answer them; else why they cannot be written."""
        loop = asyncio.get_running_loop()
        try:
            received = await loop.run_in_executor(self._thread, self._save, [r for push in batch for r in push.reports])
        except StoreError as error:
            return error
        except Exception as error:  # an unexpected error must not end the writing of all later pushes
            what = "a push" if len(batch) == 1 else "a batch"
            self._counters.note(problem(f"{what} cannot be written: {failure(error)}"))
            return StoreError(failure(error), refused=len(batch) == 1)
        self.problem, self._unwritten = "", ()
        at = 0
        for push in batch:
            if not push.done.done():
                push.done.set_result(received[at : at + len(push.reports)])
            at += len(push.reports)
        return None

    @staticmethod
    def _fail(batch: Sequence[_Waiting], error: StoreError) -> None:
        for push in batch:
            if not push.done.done():
                push.done.set_exception(error)

    def _save(self, incoming: Sequence[Incoming]) -> List[Received]:
        with self._store.write() as connection:
            if not self._store.sqlite:
                connection.execute(sa.text(f"SET LOCAL lock_timeout = {int(HELD * 1000)}"))
            return receive(connection, incoming, self._pace)
