"""Reads Python's tracebacks by their structure: the frames are indented, and the line after them is the exception.

Each rank's traceback has a prefix of its own (`[rank3]: `, `3: `), and ranks write between one another's lines. What is
kept is bounded: a log may have another prefix on every line.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional

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
