"""A run's logs, read in a child process: a user wrote them, and may have written anything."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence

from nhc.core.model import printable
from nhc.core.system.bounded_read import cause, open_file
from nhc.core.system.foreign_text import read_apart
from nhc.jobs.why_logs import JobLogs, RankPlace

HEAD, TAIL = 1 << 20, 8 << 20
"""Bytes of a larger log that are read: its begin says where each rank runs, its end why the job ended."""
LINES = 1 << 16
"""Lines of standard input's end that are kept."""


class JobLogSource(NamedTuple):
    """One log: the file at `path`, else its `text`. `owner`: the uid that a file must be of, None for anybody's.

    `year` is for times that lack one, 0 for this year; `rank` is whose it is, -1 where that is not known.
    """

    name: str
    path: str = ""
    text: str = ""
    rank: int = -1
    year: int = 0
    owner: Optional[int] = None


class LogsRead(NamedTuple):
    """What logs say, and by its number why a source could not be read."""

    logs: JobLogs
    unread: Dict[int, str]


def read_logs(sources: Sequence[JobLogSource], nodes: Sequence[str], places: Dict[int, RankPlace]) -> LogsRead:
    """The logs of a job that ran on `nodes`. One that cannot be read does not stop the others.

    Raises Unreadable: all of them together take too long, or too much memory. Raises OSError where no process can be
    started.
    """
    return read_apart(lambda: _read_all(sources, nodes, places)) if sources else LogsRead(JobLogs(nodes, places), {})


def _read_all(sources: Sequence[JobLogSource], nodes: Sequence[str], places: Dict[int, RankPlace]) -> LogsRead:
    logs, unread = JobLogs(nodes, places), {}
    for number, source in enumerate(sources):
        try:
            lines = _file_lines(source) if source.path else iter(source.text.split("\n"))
            logs.read(source.name, lines, source.year, source.rank)
        except OSError as error:
            unread[number] = cause(error)
        except MemoryError:
            raise
        except Exception as error:
            unread[number] = printable(f"cannot be read: {type(error).__name__}: {error}", 300)
    return LogsRead(logs, unread)


def _file_lines(source: JobLogSource) -> Iterator[str]:
    """The lines of a file, of a large one those of its begin and end. Raises OSError.

    A job's user says where its log is: it may be a FIFO, or a file that the user may not read.
    """
    with os.fdopen(open_file(source.path), "rb") as file:
        status = os.fstat(file.fileno())
        if source.owner is not None and status.st_uid != source.owner:
            raise PermissionError(1, "it is not the job's user's own")
        whole = status.st_size <= HEAD + TAIL
        data = file.read(HEAD + TAIL) if whole else file.read(HEAD)
        if not whole:
            file.seek(status.st_size - TAIL)
            data += b"\n" + file.read(TAIL)
    return iter(data.decode("utf-8", "replace").split("\n"))


def input_text() -> str:
    """Standard input: its begin and its end, as of a file."""
    head: List[str] = []
    tail: Deque[str] = deque()
    size = kept = 0
    for line in iter(lambda: sys.stdin.readline(HEAD), ""):
        size += len(line)
        if size <= HEAD:
            head.append(line)
            continue
        tail.append(line)
        kept += len(line)
        while kept > TAIL or len(tail) > LINES:
            kept -= len(tail.popleft())
    return "".join((*head, *tail))
