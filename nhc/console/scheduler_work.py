"""What works on a node now, by its scheduler, for the node's page: asked when somebody looks, and kept for a moment.

The questions are put one at a time in a thread of their own: a scheduler that does not answer holds up nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, Mapping, NamedTuple, Tuple

from nhc.ports.adapter import AdapterError, NodeSource
from nhc.ports.node_work import ListsWork, WorkItem

KEEP = 30.0
"""Seconds for which an answer about a node is shown again."""
ROWS = 100
"""Jobs or pods of a node that the page lists."""
NODES = 64
"""Nodes of which the answers are kept."""
WAITING = 8
"""Questions that may wait for their turn."""
WAIT = 5.0
"""Seconds that a page waits for an answer."""

Value = Dict[str, object]


class _Answer(NamedTuple):
    items: Tuple[WorkItem, ...] = ()
    note: str = ""
    problem: str = ""


class SchedulerWork:
    """`adapter` is asked by this object alone. `name` is the adapter's."""

    def __init__(
        self, name: str, adapter: NodeSource, wait: float = WAIT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.adapter, self.wait, self.clock = name, adapter, wait, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nhc-scheduler-work")
        self._asked: OrderedDict[str, Tuple[float, asyncio.Future[_Answer]]] = OrderedDict()

    async def of(self, node: str, watched: Mapping[str, int]) -> Value:
        """What works on the node, the oldest first, or why that is not known. `watched`: numbers of jobs by name."""
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._ask(node)), self.wait)
        except asyncio.TimeoutError:
            answer = _Answer(problem=f"{self.name} has not answered yet")
        rows = sorted(answer.items, key=lambda one: (one.started is None, one.started or 0.0, one.id))
        return {
            "scheduler": self.name, "note": answer.note, "problem": answer.problem,
            "left_out": max(0, len(rows) - ROWS),
            "rows": [{"id": one.id, "name": one.name, "user": one.user, "state": one.state, "started": one.started,
                      "watched": next((watched[job] for job in one.jobs if job in watched), None)}
                     for one in rows[:ROWS]],
        }  # fmt: skip

    def _ask(self, node: str) -> asyncio.Future[_Answer]:
        """The newest question about the node. Raises asyncio.TimeoutError where too many wait for theirs."""
        now = self.clock()
        at, asked = self._asked.get(node, (now, None))
        if asked is None or (asked.done() and now - at >= KEEP):
            if sum(not one.done() for _at, one in self._asked.values()) >= WAITING:
                raise asyncio.TimeoutError
            asked = asyncio.get_running_loop().run_in_executor(self._thread, self._answer, node)
            self._asked[node] = now, asked
            self._asked.move_to_end(node)
            if len(self._asked) > NODES:
                self._asked.popitem(last=False)
        return asked

    def _answer(self, node: str) -> _Answer:
        if not isinstance(self.adapter, ListsWork):
            return _Answer(problem=f"the adapter {self.name} cannot tell what works on a node")
        try:
            return _Answer(*self.adapter.work_on(node))
        except AdapterError as error:
            return _Answer(problem=f"{self.name} cannot be asked: {error}")
