"""What a scheduler says about a node, for the node's page: queried on request, and cached for a moment.

Queries run one at a time in a separate thread: a scheduler that does not answer delays nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple, TypeVar

from nhc.marks.ports.adapter import AdapterError, NodeSource, NodeState
from nhc.marks.ports.job_control import ListsWork, WorkItem

KEEP = 30.0
"""Seconds for which an answer is shown again."""
ROWS = 100
"""Jobs or pods of a node that the page lists."""
ANSWERS = 64
"""Answers that are cached: one with all nodes' states, each other one with the work on a node."""
WAITING = 8
"""Queries that may wait for their turn."""
WAIT = 5.0
"""Seconds that a page waits for an answer."""

T = TypeVar("T")
Value = Dict[str, object]


class _Work(NamedTuple):
    items: Tuple[WorkItem, ...] = ()
    note: str = ""
    problem: str = ""


class Scheduler:
    """`adapter` is asked by this object alone. `name` is the adapter's."""

    def __init__(
        self, name: str, adapter: NodeSource, wait: float = WAIT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.adapter, self.wait, self.clock = name, adapter, wait, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nhc-scheduler")
        self._asked: OrderedDict[str, Tuple[float, asyncio.Future[Any]]] = OrderedDict()

    async def state(self, node: str) -> str:
        """The node's state, whether work runs there, the reason and who set it; or why it is not known."""
        try:
            states = await self._answer("", self._states)
        except asyncio.TimeoutError:
            return f"{self.name} has not answered yet"
        except AdapterError as error:
            return f"{self.name} cannot be asked: {error}"
        if node not in states:
            return f"{self.name} has no such node"
        state = states[node]
        parts = [f"{self.name}: {state.shown}", "takes work" if state.available else "takes no work"]
        if state.busy:
            parts.append("work runs there")
        if state.groups:
            parts.append(f"in {', '.join(state.groups)}")
        if state.mark is not None:
            parts.append(f"reason: {state.mark.why}{f' ({state.mark.owner})' if state.mark.owner else ''}")
        return "; ".join(parts)

    async def work(self, node: str, watched: Mapping[str, int]) -> Value:
        """What works on the node, the oldest first, or why that is not known. `watched`: numbers of jobs by name."""
        try:
            answer = await self._answer(node, partial(self._work_on, node))
        except asyncio.TimeoutError:
            answer = _Work(problem=f"{self.name} has not answered yet")
        except AdapterError as error:
            answer = _Work(problem=f"{self.name} cannot be asked: {error}")
        rows = sorted(answer.items, key=lambda item: (item.started is None, item.started or 0.0, item.id))
        return {
            "scheduler": self.name, "note": answer.note, "problem": answer.problem,
            "left_out": max(0, len(rows) - ROWS),
            "rows": [{"id": item.id, "name": item.name, "user": item.user, "state": item.state,
                      "started": item.started,
                      "watched": next((watched[job] for job in item.jobs if job in watched), None)}
                     for item in rows[:ROWS]],
        }  # fmt: skip

    async def _answer(self, key: str, ask: Callable[[], T]) -> T:
        """The newest answer under a key. Raises AdapterError, asyncio.TimeoutError if it does not come in time."""
        now = self.clock()
        at, answer = self._asked.get(key, (now, None))
        if answer is None or (answer.done() and now - at >= KEEP):
            if sum(not other.done() for _at, other in self._asked.values()) >= WAITING:
                raise asyncio.TimeoutError
            answer = asyncio.get_running_loop().run_in_executor(self._thread, ask)
            self._asked[key] = now, answer
            self._asked.move_to_end(key)
            if len(self._asked) > ANSWERS:
                self._asked.popitem(last=False)
        kept: T = await asyncio.wait_for(asyncio.shield(answer), self.wait)
        return kept

    def _states(self) -> Dict[str, NodeState]:
        return {state.name: state for state in self.adapter.nodes()}

    def _work_on(self, node: str) -> _Work:
        if not isinstance(self.adapter, ListsWork):
            return _Work(problem=f"the adapter {self.name} cannot tell what works on a node")
        return _Work(*self.adapter.work_on(node))
