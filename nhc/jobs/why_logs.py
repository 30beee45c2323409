"""A job's logs as clues, and what they say of where each rank ran: torchrun's table, NCCL's lines, Megatron-LM's.

A scheduler's record of the job's end gives clues too, and tells where its ranks ran.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from typing import Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from nhc.core.model import printable
from nhc.core.system.bounded_read import cause, open_file
from nhc.core.system.foreign_text import read_apart
from nhc.jobs.log_catalogue import (
    ADVICE,
    CASCADE,
    DISK,
    INITIATING,
    MEMORY,
    NODE,
    PROGRAM,
    SCHEDULER,
    TEARDOWN,
    TIME,
    UNKNOWN,
)
from nhc.jobs.log_events import JobLogReader, LogEvent, survived
from nhc.jobs.watch_log import LONGEST, JobLineKind, named_host, rank_in
from nhc.jobs.why import LOG, RECORD, Clue
from nhc.marks.ports.job_control import JobEndRecord, JobLoss, LossCause

MOST = 200
"""Events of one log that are kept, the first of each kind and rank: a job of a thousand ranks prints a cascade each."""
_TABLE = re.compile(r"^\s*rank\s*:\s*(\d+) \(local_rank: (\d+)\)")
_NCCL_DEVICE = re.compile(r"\brank (\d+) nranks? \d+ cudaDev (\d+)")
_MEGATRON = re.compile(r"\bRank (\d+), node ([A-Za-z][\w.-]*), device (\d+)")
_LOCAL = ("localhost", "127.0.0.1", "localhost.localdomain")


class RankPlace(NamedTuple):
    """Where a rank runs; "" and -1 where that is not known."""

    node: str = ""
    gpu: int = -1


class JobLogs:
    """Takes logs one after another."""

    def __init__(self, nodes: Iterable[str] = (), places: Optional[Dict[int, RankPlace]] = None) -> None:
        self._nodes = tuple(nodes)
        self.places: Dict[int, RankPlace] = dict(places or {})
        self._events: List[LogEvent] = []
        self._steps: Dict[str, int] = {}
        self._nan = ""
        self.lines = 0
        self.last: Optional[float] = None
        """The last time that any log has."""

    def read(self, name: str, lines: Iterable[str], year: int = 0, rank: int = -1) -> None:
        """Take one log; `rank` is whose it is, where that is known from elsewhere."""
        reader = JobLogReader(name, year, rank)
        seen: Dict[tuple[str, int], LogEvent] = {}
        host = ""
        for line in lines:
            event = reader.line(line)
            if not line:
                continue
            host = named_host(line[:LONGEST]) or host
            if " rank" in line or "Rank " in line:
                self._place(line[:LONGEST], host)
            for fact in reader.facts:
                if fact.kind is JobLineKind.MAP and fact.node:
                    self._put(fact.rank, fact.node, -1)
                if fact.kind is JobLineKind.NAN and not self._nan:
                    self._nan = f"{name}:{reader.number}"
            if event is not None and event.role != ADVICE and len(seen) < MOST:
                seen.setdefault((event.kind, event.rank), event)
        self._events += (event if event.at else event._replace(at=reader.first) for event in seen.values())
        self.last = max(filter(None, (self.last, reader.last)), default=None)
        self._steps[name] = reader.step
        self.lines += reader.number

    def _place(self, line: str, host: str) -> None:
        table = _TABLE.match(line)
        if table:
            self._put(rank_in(table[1]), host, rank_in(table[2]))
            return
        device = _NCCL_DEVICE.search(line)
        if device:
            self._put(rank_in(device[1]), "", rank_in(device[2]))
            return
        megatron = _MEGATRON.search(line)
        if megatron:
            self._put(rank_in(megatron[1]), megatron[2], rank_in(megatron[3]))

    def _put(self, rank: int, node: str, gpu: int) -> None:
        if rank < 0:
            return
        before = self.places.get(rank, RankPlace())
        self.places[rank] = RankPlace(self.node(node) or before.node, gpu if gpu >= 0 else before.gpu)

    def node(self, name: str) -> str:
        """A node by what a log calls it: `localhost` is the job's only node, a short name one of the job's."""
        if name in _LOCAL or not name:
            return self._nodes[0] if name and len(self._nodes) == 1 else ""
        if name in self._nodes:
            return name
        short = [node for node in self._nodes if node.partition(".")[0] == name.partition(".")[0]]
        return short[0] if len(short) == 1 else name

    def clues(self) -> List[Clue]:
        """What the logs say. What the job survived is a cascade at most: it did not end it."""
        clues = []
        for event in self._events:
            role = event.role
            if role == INITIATING and survived(event, self._steps[event.log]):
                role = TEARDOWN
            rank = event.rank if event.rank >= 0 else self._rank(event)
            place = self.places.get(rank, RankPlace())
            node = self.node(event.node) or place.node or (self._nodes[0] if len(self._nodes) == 1 else "")
            clues.append(Clue(LOG, event.cause, role, event.kind, event.message, event.at, event.number,
                              f"{event.log}:{event.number}", node, rank,
                              place.gpu if place.gpu >= 0 else event.local, event.restart))  # fmt: skip
        if self._nan and not any(clue.role == INITIATING for clue in clues):
            clues.append(Clue(LOG, UNKNOWN, INITIATING, "not-a-number",
                              "the loss is not a number: the program, its data, or a GPU that computes wrongly",
                              where=self._nan, restart="may"))  # fmt: skip
        return clues

    def _rank(self, event: LogEvent) -> int:
        """The rank on its node is all that torchrun names there: the same rank where one rank has that place."""
        ranks = [rank for rank, place in self.places.items() if place.gpu == event.local >= 0]
        return ranks[0] if len(ranks) == 1 else -1

    @property
    def understood(self) -> bool:
        """Whether any line said anything of the job's end or progress."""
        return bool(self._events or self._nan or any(step >= 0 for step in self._steps.values()))


def cascades(clues: Iterable[Clue]) -> int:
    """How many of them only follow from the cause."""
    return sum(clue.role in (CASCADE, TEARDOWN) for clue in clues)


_SIGNAL = re.compile(r"signal (\d+)")
_STATUS = re.compile(r"exit status (\d+)")
CRASHES = {4: "SIGILL", 8: "SIGFPE", 11: "SIGSEGV"}
"""Signals that a program gets for what it did itself. SIGABRT follows from NCCL's watchdog as well, SIGBUS from a full
/dev/shm or bad memory, SIGKILL and SIGTERM from outside."""
_CAUSES = {LossCause.NODE: NODE, LossCause.EVICTED: SCHEDULER, LossCause.PREEMPTED: SCHEDULER,
           LossCause.CANCELLED: SCHEDULER}  # fmt: skip


def record_clues(record: JobEndRecord) -> List[Clue]:
    """What the record says, the first loss first."""
    return [_clue(loss, record) for loss in sorted(record.losses, key=lambda loss: loss.at)]


def _clue(loss: JobLoss, record: JobEndRecord) -> Clue:
    cause, text = _CAUSES.get(loss.cause, UNKNOWN), loss.detail or loss.cause.value
    if loss.cause is LossCause.LIMIT:
        cause = TIME if re.search(r"time limit|deadline", text) else DISK if "ephemeral" in text else MEMORY
    if loss.cause is LossCause.EXIT:
        number = _signal(text)
        if number in CRASHES:
            cause, text = PROGRAM, f"the program crashed ({CRASHES[number]}): {text}"
    return Clue(RECORD, cause, INITIATING, record.state, text, loss.at or record.ended, 0, record.job.text(), loss.node)


def _signal(text: str) -> int:
    """The signal that ended a process: a shell says 128 and the number where the signal ended its child."""
    named, status = _SIGNAL.search(text), _STATUS.search(text)
    if named:
        return int(named[1])
    return int(status[1]) - 128 if status and 128 < int(status[1]) < 192 else 0


def places(record: JobEndRecord) -> Dict[int, RankPlace]:
    """The node and GPU of each rank, where every node has as many tasks: blocks, as srun distributes them."""
    count = len(record.nodes)
    if not count or record.tasks < count or record.tasks % count or record.tasks == 1:
        return {}
    each = record.tasks // count
    return {rank: RankPlace(record.nodes[rank // each], rank % each) for rank in range(record.tasks)}


# A run's logs, read in a child process: a user wrote them, and may have written anything.


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
