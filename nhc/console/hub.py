"""One snapshot for all viewers, and one stream of changes: coalesced, resumable, and not slowed by a slow viewer.

Each event has a number. A browser that reconnects names the last event that it saw; if that is still in the ring, it
gets what it missed, otherwise one `resync`, after which it asks for the whole map once.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple, TypeVar

from nhc.console import screens
from nhc.console.snapshot import Snapshot, changed_nodes, changes, layout_change
from nhc.console.sources import FleetSource, SourceError
from nhc.core.system.service_log import failure
from nhc.store.errors import StoreError

T = TypeVar("T")

RING = 240
"""Events stored for browsers that reconnect: two minutes at two a second."""
QUEUE = 60
"""Events that may wait for one viewer; one that does not read them is disconnected and reconnects by itself."""


NAMED = 100
"""Nodes whose problems, or whose places in the layout, changed that a message names; for more, every screen looks."""

RESTING = 5
"""Without viewers and requests, the source is read this many times less often than `every`."""

ANSWERS = 256
"""Answers of one snapshot that are cached: views that several people use."""

MINUTE = 60.0
"""Seconds for which an answer of `Hub.once_a_minute` is shown."""


class StreamMessage(NamedTuple):
    """One message. `text` is as it goes over the wire."""

    number: int
    text: bytes


class Hub:
    """Reads the source every `every` seconds and sends all viewers what changed."""

    def __init__(self, source: FleetSource, every: float, clock: Callable[[], float]) -> None:
        self.source, self.every, self.clock = source, every, clock
        self.snapshot: Optional[Snapshot] = None
        self.problem = "nothing has been read yet"
        self.read_at = 0.0
        self.number = 0
        self.dropped = 0
        self._looked: Optional[asyncio.Event] = None
        self._answers: Dict[str, asyncio.Future[Any]] = {}
        self._counts: Dict[str, Tuple[float, asyncio.Future[Mapping[str, object]]]] = {}
        self._ring: Deque[StreamMessage] = deque(maxlen=RING)
        self._viewers: Set[asyncio.Queue[Optional[StreamMessage]]] = set()

    async def run(self) -> None:
        """Read every so often after a first `refresh`, RESTING times less often without viewers. Until cancelled."""
        looked = self._looked = asyncio.Event()  # here: Python 3.9 binds it to the loop that runs now
        while True:
            await asyncio.sleep(self.every)
            if not self._viewers:
                # No wait_for: before Python 3.12 it loses a cancellation that comes right after a look; this goes on.
                rested = asyncio.get_running_loop().call_later(self.every * (RESTING - 1), looked.set)
                await looked.wait()
                rested.cancel()
            looked.clear()
            await self.refresh()

    def current(self) -> Optional[Snapshot]:
        """The last snapshot, for somebody who asks; None before there is one."""
        self._wake()
        return self.snapshot

    def _wake(self) -> None:
        if self._looked is not None:
            self._looked.set()

    async def refresh(self) -> None:
        """Read once. If that fails, the last snapshot stays, and all viewers are told."""
        try:
            self._take(await asyncio.to_thread(self.source.snapshot))
        except (SourceError, StoreError) as error:
            self._fail(str(error))
        except Exception as error:  # an unexpected one must not leave an old map that looks like a new one
            self._fail(failure(error))

    def _take(self, new: Snapshot) -> None:
        old, self.snapshot, self.read_at = self.snapshot, new, self.clock()
        self._answers = {}
        if self.problem:
            self.problem = ""
            self._tell("trouble", {"why": ""})
        self._tell("beat", screens.counts(new), keep=False)
        if old is None:
            return
        if old.revision != new.revision:
            self._tell("episodes", {})
        if old.layout != new.layout:
            change = layout_change(old, new, NAMED)
            self._tell("layout", change._asdict() if change is not None else {"layout": new.layout})
            if change is None:
                return  # screens with letters or problems ask again
        changed = changes(old, new)
        if changed:
            self._tell("letters", {"layout": new.layout, "changes": changed})
        named = changed_nodes(old, new)
        if named:
            self._tell("problems", {"nodes": named} if len(named) <= NAMED else {})

    def _fail(self, why: str) -> None:
        if self.problem != why:
            self.problem = why
            self._tell("trouble", {"why": why})

    async def once(self, key: str, make: Callable[[], T]) -> T:
        """What `make` returns, made once for all requests for `key` of this snapshot: five hundred maps cost one
        computation.

        Raises what `make` raises.
        """
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS:
                self._answers = {}
            answer = self._answers[key] = asyncio.ensure_future(asyncio.to_thread(make))
        value: T = await asyncio.shield(answer)  # one who leaves does not take it from the others
        return value

    async def once_a_minute(
        self, key: str, make: Callable[[], Mapping[str, object]], lasts: float = MINUTE
    ) -> Mapping[str, object]:  # fmt: skip
        """What `make` returns, made at most once in `lasts` seconds for all requests for `key`; a failed one is made
        again.

        For counts over weeks, which do not change within a minute. Keys are names of screens: no request can add any.
        Raises what `make` raises.
        """
        now = self.clock()
        at, answer = self._counts.get(key, (0.0, None))
        failed = answer is not None and answer.done() and (answer.cancelled() or answer.exception() is not None)
        if answer is None or failed or not 0 <= now - at < lasts:
            answer = asyncio.ensure_future(asyncio.to_thread(make))
            self._counts[key] = now, answer
        return await asyncio.shield(answer)

    async def count_ahead(self, key: str, make: Callable[[], Mapping[str, object]]) -> None:
        """The background's turn: make it again once half a minute has passed, while viewers get the present one.

        If that fails, the present one stays: once it is too old, a request gets the reason.
        """
        now = self.clock()
        at, _answer = self._counts.get(key, (float("-inf"), None))
        if 0 <= now - at < MINUTE / 2:
            return
        answer = asyncio.ensure_future(asyncio.to_thread(make))
        try:
            await answer
        except Exception:
            return
        self._counts[key] = now, answer

    def notify(self, kind: str) -> None:
        """Tell every viewer that something of a kind (episodes, holds) is new."""
        self._tell(kind, {})

    def _tell(self, kind: str, value: object, keep: bool = True) -> None:
        self.number += 1
        body = json.dumps(value, separators=(",", ":"))
        event = StreamMessage(self.number, f"id: {self.number}\nevent: {kind}\ndata: {body}\n\n".encode())
        if keep:
            self._ring.append(event)
        for queue in list(self._viewers):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self.dropped += 1
                self._let_go(queue)

    def _let_go(self, queue: asyncio.Queue[Optional[StreamMessage]]) -> None:
        self._viewers.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    async def end_streams(self, _app: object) -> None:
        """End all streams when the server ends: it would wait for them, and they do not end by themselves."""
        for queue in list(self._viewers):
            self._let_go(queue)

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def join(self, last: Optional[int]) -> asyncio.Queue[Optional[StreamMessage]]:
        """A queue of events for a viewer; None in it ends the stream. `last` is the number that it saw last."""
        queue: asyncio.Queue[Optional[StreamMessage]] = asyncio.Queue(QUEUE + RING)
        missed = self._missed(last)
        if missed is None:
            queue.put_nowait(StreamMessage(self.number, f"id: {self.number}\nevent: resync\ndata: {{}}\n\n".encode()))
        for event in missed or []:
            queue.put_nowait(event)
        self._viewers.add(queue)
        self._wake()
        return queue

    def leave(self, queue: asyncio.Queue[Optional[StreamMessage]]) -> None:
        self._viewers.discard(queue)

    def _missed(self, last: Optional[int]) -> Optional[List[StreamMessage]]:
        """The events after number `last`, None if that number is no longer known."""
        if last is None or last > self.number:
            return None
        if self._ring and last < self._ring[0].number - 1 and len(self._ring) == RING:
            return None
        return [event for event in self._ring if event.number > last]
