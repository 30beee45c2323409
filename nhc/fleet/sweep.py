"""Run a task on many nodes: one process per core, every node's end within its deadline.

The shards (`nhc.fleet.worker`) are forked from a parent that has no threads; they take nodes one by one from a
shared counter, so that a shard with bad hosts does not fall behind. Nodes that a shard hands back, or that a killed
shard had not begun, go to further shards.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import selectors
import signal
import time
from typing import Any, Callable, Dict, Generator, Iterator, List, Sequence, Set, Tuple

from nhc.core.system.children import bound_address_space, fork
from nhc.fleet import worker
from nhc.fleet.transport import Node, Trouble, is_scarce
from nhc.fleet.worker import Arrived, Returned, Scarce, SweepSettings, arrival, failed, unpack

WAIT_FOR_ROOM = 30.0
"""Seconds without any finished node, for want of processes, threads or descriptors, before the rest is given up."""


def sweep(
    nodes: Sequence[Node], settings: SweepSettings, note: Callable[[str], None] = lambda _line: None
) -> Generator[Arrived, None, None]:
    """Every node once, as they finish. Closing the iterator ends the shards. `note` gets what belongs to no node."""
    left: List[int] = list(range(len(nodes)))
    since = time.monotonic()
    shards = settings.shards or _cores()
    noted: Set[str] = set()

    def once(line: str) -> None:  # a limit is met anew with every try
        if line not in noted:
            noted.add(line)
            note(line)

    while left:
        shards_round = _Round(nodes, left, settings, min(shards, len(left)), once)
        try:
            yield from shards_round.run()
        finally:
            shards_round.end()
        if shards_round.finished:
            since = time.monotonic()
        left = shards_round.left()
        if left and not shards_round.finished:
            if time.monotonic() - since > WAIT_FOR_ROOM:
                break
            shards = 1  # several may take all there is and leave none for their own threads
            time.sleep(1.0)
    for place in left:
        trouble = Trouble("OutOfResources", f"{_WANTING} for {WAIT_FOR_ROOM:g} s: {_LIMITS}")
        yield arrival(place, failed(nodes[place], trouble, 0.0, 1))


_WANTING = "this machine gave no process, thread or descriptor to reach it with"
_LIMITS = "see ulimit -u, ulimit -n and pids.max"
MEMORY = 8 << 30
"""Bytes of address space that a shard may take for what nodes answer."""


class _Round:
    """Shards over the nodes that are left."""

    def __init__(
        self,
        nodes: Sequence[Node],
        order: Sequence[int],
        settings: SweepSettings,
        count: int,
        note: Callable[[str], None],
    ) -> None:
        self.nodes, self.order, self.settings, self.count, self.note = nodes, order, settings, count, note
        self.finished = 0
        self._missing: Set[int] = set(order)
        self._returned: List[int] = []
        self._claimed = 0
        self._short = 0
        self._pipes: Dict[int, int] = {}

    def run(self) -> Iterator[Arrived]:
        # What was read and imported stays shared with the shards: the collector would touch, and so copy, it all.
        gc.collect()
        gc.freeze()
        count = self.count
        try:
            counter: Any = multiprocessing.get_context("fork").Value("Q", 0)
            for _number in range(count):
                self._start(counter, count)
        except OSError as error:
            if not is_scarce(error):
                raise
            self.note(f"{len(self._pipes)} of {count} processes could be started: {error.strerror} ({_LIMITS})")
        if not self._pipes:
            return
        yield from self._collect()
        if self._short:
            most = self.settings.fanout
            self.note(
                f"at times only {max(1, most - self._short)} of {most} nodes at once: this machine gives no more "
                f"processes, threads or descriptors ({_LIMITS})"
            )
        self._claimed = min(int(counter.value), len(self.order))
        back = set(self._returned)
        for place in self.order[: self._claimed]:
            if place in self._missing and place not in back:  # a shard was killed
                self._missing.discard(place)
                self.finished += 1
                trouble = Trouble("SweepBroken", "the process that had this node in hand was killed")
                yield arrival(place, failed(self.nodes[place], trouble, 0.0, 1))

    def left(self) -> List[int]:
        """Nodes that no shard has begun, and those that were handed back."""
        return [place for place in self.order if place in self._missing]

    def _start(self, counter: object, count: int) -> None:
        def child(pipe: Tuple[int, int]) -> None:
            os.close(pipe[0])
            for other in self._pipes:
                os.close(other)
            bound_address_space(MEMORY)
            worker.carry_out(self.nodes, self.order, self.settings, counter, pipe[1], count)

        pid, ((read, write),) = fork(child)
        os.close(write)
        self._pipes[read] = pid

    def _collect(self) -> Iterator[Arrived]:
        buffers: Dict[int, bytearray] = {read: bytearray() for read in self._pipes}
        with selectors.DefaultSelector() as selector:
            for read in self._pipes:
                selector.register(read, selectors.EVENT_READ)
            while buffers:
                for key, _event in selector.select():
                    read = key.fd
                    data = os.read(read, 1 << 18)
                    if not data:
                        selector.unregister(read)
                        del buffers[read]
                        continue
                    buffers[read] += data
                    for message in unpack(buffers[read]):
                        if isinstance(message, Scarce):
                            self._short += message.most - message.least
                        elif isinstance(message, Returned):
                            self._returned += message.places
                        else:
                            self._missing.discard(message.place)
                            self.finished += 1
                            yield message

    def end(self) -> None:
        """End every shard, whatever it is at."""
        gc.unfreeze()
        for read, pid in self._pipes.items():
            os.close(read)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.waitpid(pid, 0)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def names_of(nodes: List[Node]) -> frozenset[str]:
    """The names by which nodes may know themselves."""
    return frozenset(node.name for node in nodes) | frozenset(node.name.partition(".")[0] for node in nodes)
