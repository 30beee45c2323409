"""Results of deep checks that wait for the server, in their own folder below the spool of the agent's sink.

`nhc deep run --server` puts each report there before it sends it, and sends the waiting reports, the oldest first. The
agent sends the rest, and the report of the last suite before a job. On a node without an agent the next run sends the
rest. Only one process at a time uses the folder; its bounds are the sink's own, `spool-size` and `spool-age`.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import Iterator

from nhc.agent.spool import Spool
from nhc.core.render.json import parse
from nhc.core.state import reports
from nhc.core.state.store import State
from nhc.marks import push

NAME = "deep"
LOOK = 0.1
"""Seconds between two tries while another process uses the folder."""
SOME = 50
"""Reports that are read together."""


class FolderInUse(OSError):
    """Another process uses the folder."""


@contextmanager
def deep_spool(parent: str, size: int, age: float, wait: float = 0.0) -> Iterator[Spool]:
    """The folder below the sink's spool `parent`, with its lock held; `size` in bytes, `age` in seconds.

    Waits `wait` seconds for another process. Raises OSError if the folder cannot be used (FolderInUse is one).
    """
    directory = f"{parent}/{NAME}"
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(fd, time.monotonic() + wait, directory)
        yield Spool(directory, size, age)
    finally:
        os.close(fd)


def _lock(fd: int, until: float, directory: str) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise FolderInUse(error.errno, "another process uses it", directory) from None
            time.sleep(LOOK)
        else:
            return


def take_over(into: Spool) -> None:
    """Move the reports that wait below the agent's own spool into it, each with its own age. Raises OSError.

    If the process ends during a move, that report is sent twice, which changes nothing at the server.
    """
    if not os.path.isdir(f"{into.directory}/{NAME}"):
        return
    with deep_spool(into.directory, into.size, into.age) as waiting:
        while len(waiting):
            for file, text in zip(*waiting.oldest(SOME)):
                into.add(text, file.at)
                waiting.remove([file])
        if waiting.lost:
            into.count_lost(waiting.lost)
            waiting.forget_lost(waiting.lost)


def take_suite(into: Spool, state: State, node: str, last: bytes, now: float) -> bytes:
    """Put what the last suite before a job found into the spool, unless it is `last`; returns it.

    After a restart of the agent it is sent again, which changes nothing at the server. Raises OSError.
    """
    kept = reports.stored_suite(state)
    if kept and kept != last:
        try:
            report = parse(kept.decode())
        except ValueError:
            return kept  # it was cut off: the next suite replaces it
        suite = reports.suite_name(report.labels.get("suite", ""))
        if suite:  # the scheduler may have another name for the node
            into.add(push.to_text(push.Pushed(report._replace(host=node), not report.not_run, now, suite)), now)
    return kept
