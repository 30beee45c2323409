"""Run a task on many nodes: one process per core, every node's end within its deadline.

The shards (`nhc.fleet.shard`) are forked from a parent that has no threads; they take nodes one by one from a
shared counter, so that a shard with bad hosts does not fall behind.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import selectors
import signal
from typing import Dict, Generator, Iterator, List, Sequence

from nhc.fleet import shard
from nhc.fleet.arrival import Arrived, arrival, failed, unpack
from nhc.fleet.shard import Settings
from nhc.fleet.transport import Node, Trouble


def sweep(nodes: Sequence[Node], settings: Settings) -> Generator[Arrived, None, None]:
    """Every node once, as they finish. Closing the iterator ends the shards."""
    context = multiprocessing.get_context("fork")
    counter = context.Value("Q", 0)
    count = min(settings.shards or _cores(), max(1, len(nodes)))
    # What was read and imported so far stays shared with the shards: the collector would touch, and so copy, it all.
    gc.collect()
    gc.freeze()
    pipes: Dict[int, int] = {}
    try:
        for _ in range(count):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                for other in pipes:
                    os.close(other)
                shard.be(nodes, settings, counter, write, count)
            os.close(write)
            pipes[read] = pid
        yield from _collect(nodes, pipes)
    finally:
        gc.unfreeze()
        for read, pid in pipes.items():
            os.close(read)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.waitpid(pid, 0)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _collect(nodes: Sequence[Node], pipes: Dict[int, int]) -> Iterator[Arrived]:
    missing = set(range(len(nodes)))
    buffers: Dict[int, bytearray] = {read: bytearray() for read in pipes}
    with selectors.DefaultSelector() as selector:
        for read in pipes:
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
                for arrived in unpack(buffers[read]):
                    missing.discard(arrived.place)
                    yield arrived
    for index in sorted(missing):  # a shard was killed
        trouble = Trouble("SweepBroken", "the process that had this node in hand was killed")
        yield arrival(index, failed(nodes[index], trouble, 0.0, 1))


def names_of(nodes: List[Node]) -> frozenset[str]:
    """The names by which nodes may know themselves."""
    return frozenset(node.name for node in nodes) | frozenset(node.name.partition(".")[0] for node in nodes)
