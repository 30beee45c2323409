"""Reads Python's tracebacks by their structure: the frames are indented, and the line after them is the exception.

Each rank's traceback has a prefix of its own (`[rank3]: `, `3: `), and ranks write between one another's lines.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional

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
             "CalledProcessError", "RemoteError", "BrokenProcessPool", "EOFError")  # fmt: skip
"""Exceptions that a process raises because of what happened elsewhere."""


_ALONE = re.compile(
    r"^(?:\[?(?:rank)?\d+\]?: ?|\([\w. :=/-]{1,60}\) ?"
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
        self._ignored = False
        self.frame = False
        """Whether the last line was within a traceback: source code that it shows is no message."""

    def line(self, line: str) -> Optional[RaisedException]:
        """The exception, where this line ends a traceback with one."""
        self.frame = False
        begins = _BEGINS.match(line) or _RICH.match(line)
        if begins:
            prefix = f"{begins[1]}| " if begins.re is _BEGINS and begins[2] else begins[1]
            self._within[prefix], self._ignored, self.frame = self._ignored, False, True
            return None
        self._ignored = "Exception ignored in" in line  # Python prints the traceback, and goes on
        if not self._within:
            return None
        for prefix in sorted(self._within, key=len, reverse=True):
            if not line.startswith(prefix):
                continue
            rest = line[len(prefix) :].rstrip()
            if rest.startswith((" ", "\t", "│", "╰")):
                self.frame = True
                return None
            raised = _exception(rest)
            return raised._replace(own=False) if self._within.pop(prefix) and raised else raised
        return None


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
