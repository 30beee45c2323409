"""Reads a job's log into events: what the catalogue and the tracebacks say, of which rank and node, and when. Pure.

A line's own time counts; a line without one has the time of the last line before it that had one. Times without a zone
are this machine's local time, which is the cluster's in the field; the year that some lines lack is given.
"""

from __future__ import annotations

import re
import time
from typing import Dict, List, NamedTuple, Optional

from nhc.core.timestamps import MONTHS, from_iso
from nhc.jobs import log_catalogue
from nhc.jobs.log_catalogue import CASCADE, INITIATING, NODE, PROGRAM, UNKNOWN
from nhc.jobs.watch_log import LONGEST, JobLineKind, LogFact, rank_and_node, rank_in, read_line
from nhc.node.facts.kernel_lines import bsd_time, message, unwrap
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.findings import OF_A_DEVICE
from nhc.node.kernlog.match import FATAL, Match

# Reads Python's tracebacks by their structure: the frames are indented, and the line after them is the exception.
#
# Each rank's traceback has a prefix of its own (`[rank3]: `, `3: `), and ranks write between one another's lines. What
# is kept is bounded: a log may have another prefix on every line.


PREFIX = 200
"""Characters that a prefix may have: torchrun's and NCCL's have some 40."""
OPEN = 4096
"""Tracebacks that may be open at one time: a cascade of so many ranks. Of more, the oldest is forgotten."""
_BEGINS = re.compile(r"^(.*?)(?:Original |(\+) Exception Group )?Traceback \(most recent call last\):\s*$")
_RICH = re.compile(r"^(.*?)╭─+ Traceback \(most recent call last\) ─")
"""The frame that the library rich draws: its last line begins with ╰, and the exception is below."""
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?::\s?(.*))?$")
_PASSED_ON = re.compile(
    r"NCCL|ncclUnhandled|ncclSystem|ncclRemote|gloo|unspecified launch failure|uncorrectable|hardware error|ECC|"
    r"Connection (?:reset|refused|closed)|Broken pipe|[Tt]imed? ?out|Stale file handle|Input/output error|"
    r"Transport endpoint|CUBLAS_STATUS_|CUDNN_STATUS_|CUDA error|HIP error|Remote end"
)
"""Messages of exceptions that pass on what a library, the network, storage or a device reported."""
_CASCADES = ("ChildFailedError", "DistBackendError", "DistNetworkError", "DistStoreError", "ConnectionError",
             "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "BrokenPipeError",
             "TimeoutError", "RendezvousTimeoutError", "RendezvousConnectionError", "SignalException",
             "KeyboardInterrupt", "OSError", "IOError", "ProcessExitedException", "ProcessRaisedException",
             "CalledProcessError", "RemoteError", "BrokenProcessPool", "EOFError", "ActorDiedError", "RayActorError",
             "ActorUnavailableError", "WorkerCrashedError", "NodeDiedError", "OwnerDiedError", "LocalRayletDiedError",
             "KilledWorker", "WorkerLostError", "TerminatedWorkerError")  # fmt: skip
"""Exceptions that a process raises because of what happened elsewhere."""


_ALONE = re.compile(
    r"^(?:\[?(?:rank)?\d+\]?: ?|\[rank ?\d+\] ?|\([\w. :=/-]{1,60}\) ?"
    r"|(?:[^\s:]+[\s:]+){0,6}?\[?(?:ERROR|CRITICAL|FATAL|error|Error)\]?[\s:|-]+(?:[\w./-]+(?::\d+)?[\s:|-]+)?|E +)?"
    r"(?P<raised>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: .*)?)$"
)
"""An exception's class and message on a line of their own, behind a rank's mark or a logger's stamp and level."""
_GOES_ON = re.compile(
    r"\b(?:[Rr]etr(?:y|ies|ying)|[Ii]gnor|[Ww]arn|[Ss]kip|[Hh]andled|[Cc]aught|[Ff]all(?:ing)? ?back)"
)
_LONGEST = 2000
"""Characters of a line that may be such an exception."""


class RaisedException(NamedTuple):
    """The exception that ends a traceback. `own`: the program raised it, and passes nothing on."""

    name: str
    message: str
    own: bool

    @property
    def text(self) -> str:
        """For a person."""
        return f"{self.name}: {self.message}"[:160] if self.message else self.name


class Tracebacks:
    """Takes lines, and tells which belong to a traceback."""

    def __init__(self) -> None:
        self._within: Dict[str, bool] = {}
        self._lengths: Dict[int, int] = {}
        """How many open tracebacks have a prefix of each length: a line is looked up by these, not by every prefix."""
        self._ignored = False
        self.frame = False
        """Whether the last line was within a traceback: source code that it shows is no message."""

    def line(self, line: str) -> Optional[RaisedException]:
        """The exception, where this line ends a traceback with one."""
        self.frame = False
        begins = _BEGINS.match(line) or _RICH.match(line)
        if begins:
            prefix = f"{begins[1]}| " if begins.re is _BEGINS and begins[2] else begins[1]
            if len(prefix) <= PREFIX:
                if prefix not in self._within:
                    self._make_room()
                    self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
                self._within[prefix] = self._ignored
            self._ignored, self.frame = False, True
            return None
        self._ignored = "Exception ignored in" in line  # Python prints the traceback, and goes on
        if not self._within:
            return None
        for length in sorted(self._lengths, reverse=True):
            prefix = line[:length]
            if prefix not in self._within:
                continue
            rest = line[length:].rstrip()
            if rest.startswith((" ", "\t", "│", "╰")):
                self.frame = True
                return None
            raised = _exception(rest)
            return raised._replace(own=False) if self._close(prefix) and raised else raised
        return None

    def _make_room(self) -> None:
        if len(self._within) >= OPEN:
            self._close(next(iter(self._within)))

    def _close(self, prefix: str) -> bool:
        """A traceback has ended; whether Python goes on after it."""
        left = self._lengths[len(prefix)] - 1
        if left:
            self._lengths[len(prefix)] = left
        else:
            del self._lengths[len(prefix)]
        return self._within.pop(prefix)


def raised_alone(line: str) -> Optional[RaisedException]:
    """The exception that a line has by itself, as launchers and loggers print one without its traceback."""
    if ("Error" not in line and "Exception" not in line) or len(line) > _LONGEST or _GOES_ON.search(line):
        return None
    match = _ALONE.match(line)
    return _exception(match["raised"]) if match else None


def _exception(text: str) -> Optional[RaisedException]:
    match = _EXCEPTION.match(text)
    if not match:
        return None
    name, message = match[1].rpartition(".")[2], match[2] or ""
    return RaisedException(name, message, name not in _CASCADES and not _PASSED_ON.search(text))


ALONE = "exception-alone"
"""The kind of an exception that a line names without a traceback: a program may log one and go on."""
AFTER = 2
"""Steps after an event that show that the job survived it: the other ranks only finish the step under way."""
_DAY, _CLOCK = r"(?:0[1-9]|[12]\d|3[01])", r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_ISO = re.compile(rf"(?<!\d)(20\d\d-(?:0[1-9]|1[0-2])-{_DAY})[T_ ]({_CLOCK})([.,]\d{{1,9}})?(Z|[+-]\d\d:?\d\d)?")
_GLOG = re.compile(rf"(?:^|[\[ ])[IWEF](1[0-2]|0?[1-9])({_DAY}) ({_CLOCK}(?:\.\d{{1,9}})?)")
_OTHER = re.compile(
    # Go's logger and nginx; transformers and Megatron, month first; syslog and ctime, with a year or without; Unix time
    rf"(?<!\d)(?:(?P<ymd>20\d\d/(?:0[1-9]|1[0-2])/{_DAY})|(?P<mdy>{_DAY}/{_DAY}/20\d\d)),?"
    rf" (?P<clock>{_CLOCK}(?:[.,]\d{{1,9}})?)"
    rf"|(?<![^\W\d_])(?P<named>(?:{'|'.join(MONTHS)}) {{1,2}}(?:[1-9]|{_DAY})(?: 20\d\d)? {_CLOCK}(?: 20\d\d(?!\d))?)"
    r"|^\[?(?P<unix>1[5-9]\d{8}\.\d{1,9})[\] ]"
)
_STAMP_WITHIN = 240
"""Characters of a line in which its time is looked for."""


class LogEvent(NamedTuple):
    """Something that a line says of the job's end.

    `rank` is -1 and `node` "" where the line does not say; `local` is the rank on its node, -1. `at` is Unix time, None
    where neither the line nor one before it has a time. `step` is the job's step then, -1 for none.
    """

    kind: str
    cause: str
    role: str
    restart: str
    message: str
    log: str
    number: int
    rank: int = -1
    node: str = ""
    local: int = -1
    at: Optional[float] = None
    step: int = -1
    line: str = ""


class JobLogReader:
    """Takes the lines of one log."""

    def __init__(self, log: str = "", year: int = 0, rank: int = -1) -> None:
        self._log, self._rank = log, rank
        self._year = year or time.localtime().tm_year
        self._tracebacks = Tracebacks()
        self._kernel = Matcher()
        self.last: Optional[float] = None
        self.first: Optional[float] = None
        """The first time that the log has, and the last so far."""
        self.number, self.step = 0, -1
        self.facts: List[LogFact] = []
        """What the last line says of progress, and which rank is where."""

    def line(self, line: str) -> Optional[LogEvent]:
        """The event of a line, None for nearly every line."""
        self.number += 1
        line = line[:LONGEST].rstrip("\r\n")
        if not line:
            self.facts = []
            return None
        whole, (line, collected) = line, unwrap(line)
        self.facts = read_line(line) or (read_line(whole) if line != whole else [])  # a logger's own fields: "step": 7
        for fact in self.facts:
            if fact.kind is JobLineKind.STEP:
                self.step = max(self.step, int(fact.value))
        self.last = stamp(line, self._year) or collected or self.last
        self.first = self.first or self.last
        raised = self._tracebacks.line(line)
        if self._tracebacks.frame:
            return None
        judged = log_catalogue.judge(line)
        if judged is not None:
            row, match = judged
            groups = match.groupdict() if match else {}
            event = self._event(line, row.kind, row.cause, row.role, row.restart, row.message)
            return event._replace(
                rank=rank_in(groups["rank"]) if groups.get("rank") else event.rank,
                local=rank_in(groups.get("local")),
                node=groups.get("node") or event.node,
            )
        if raised is None:
            fault = kernel_fault(line, self._kernel)
            if fault is not None:
                return self._event(line, f"kernel-{fault.kind}", NODE, INITIATING, "may", fault.message)
            alone = raised_alone(line)
            if alone is None:
                return None
            if alone.own:
                return self._event(line, ALONE, PROGRAM, INITIATING, "no", alone.text)
            raised = alone
        if raised.own:
            return self._event(line, "python-exception", PROGRAM, INITIATING, "no", raised.text)
        return self._event(line, "python-passed-on", UNKNOWN, CASCADE, "unknown", raised.text)

    def _event(self, line: str, kind: str, cause: str, role: str, restart: str, message: str) -> LogEvent:
        rank, node = rank_and_node(line)
        return LogEvent(kind, cause, role, restart, message, self._log, self.number,
                        rank if rank >= 0 else self._rank, node, -1, self.last, self.step,
                        " ".join(line.split())[:300])  # fmt: skip


_KERNEL = ("NVRM", "kernel", "nvswitch", "0000:", "accel", "habanalabs", "amdgpu", "soft lockup", "Kernel panic")
"""Words one of which stands in nearly every line of the kernel's about a device: a job's log has few of them."""
_OF_VOLUMES = ("block", "md", "nvme")
"""Kinds of devices that may be anybody's: what the node itself mounts a job's log does not say."""


def kernel_fault(line: str, matcher: Matcher) -> Optional[Match]:
    """What the kernel says in a job's log of a device of the node that is broken; None for nearly every line.

    Prologs, wrappers and containers copy the kernel's lines there, and some programs print a driver's.
    """
    if not any(word in line for word in _KERNEL):
        return None
    text = message(line)
    match = matcher.judge(text) if text is not None else None
    if match is None or match.severity != FATAL or match.kind in _OF_VOLUMES:
        return None
    return match if match.kind in (*OF_A_DEVICE, "lockup", "oops", "mce", "infiniband", "cxl") else None


def survived(event: LogEvent, last_step: int) -> bool:
    """Whether the job went on after an event: then it is not what ended it."""
    return event.step >= 0 and last_step >= event.step + AFTER


def stamp(line: str, year: int) -> Optional[float]:
    """The Unix time that a line begins with, or names near its begin; None for none."""
    head = line[:_STAMP_WITHIN]
    match = _ISO.search(head)
    if match:
        return from_iso(f"{match[1]} {match[2]}{match[3] or ''}{match[4] or ''}")
    glog = _GLOG.search(head)
    if glog:
        return from_iso(f"{year:04}-{int(glog[1]):02}-{glog[2]} {glog[3]}")  # torch writes June as 6
    other = _OTHER.search(head) if ":" in head or head[:2].lstrip("[")[:1] == "1" else None
    if other is None:
        return None
    if other["unix"]:
        return float(other["unix"])
    if other["named"]:
        return bsd_time(other["named"], 0.0, year)
    if other["ymd"]:
        return from_iso(f"{other['ymd'].replace('/', '-')} {other['clock']}")
    first, second, ending = other["mdy"].split("/")
    month, day = (second, first) if first > "12" else (first, second)
    if month > "12":
        return None
    return from_iso(f"{ending}-{month}-{day} {other['clock']}")
