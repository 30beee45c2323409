"""The boundary that everything we print passes: no control sequence of somebody else's reaches a terminal or a log.

What a kernel, a command, a node or a file said is in nearly every line that we print. Renderers make it printable where
they know it (`nhc.core.model.printable`); this holds for every other place as well, and for those still to be written.
"""

from __future__ import annotations

import io
import os
import sys

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, TextIO

_BLANKS = "\t\u00a0\u202f\u3000"
"""What `str.isprintable` refuses although it does no harm."""
_UNKNOWN = "\ufffd"


class CleanStream(io.TextIOWrapper):
    """A text stream that writes lines of printable characters, whatever it is given.

    `colours` (`allow_colours`) lets our own sequences pass: colours, and the return to an emptied line for progress.
    """

    colours = False
    forgiving = False
    """Whether what cannot be written is lost, and nothing else: the other end is gone, or its disk is full."""
    failure: Optional[BaseException] = None
    """Why something was lost."""

    def write(self, text: str) -> int:
        try:
            return super().write(text if text.isprintable() else clean(text, self.colours))
        except (OSError, ValueError) as error:
            self.failure = error
            if not self.forgiving:
                raise
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except (OSError, ValueError) as error:
            self.failure = error
            if not self.forgiving:
                raise


def clean(text: str, colours: bool = False) -> str:
    """`text` with what is neither printable nor a line's end replaced."""
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else _line(line, colours) for line in lines)


def _line(line: str, colours: bool) -> str:
    if not colours or "\033[" not in line:
        return _plain(line)
    out = []
    if line.startswith("\r\033[K"):
        out.append("\r\033[K")
        line = line[4:]
    first, *rest = line.split("\033[")
    out.append(_plain(first))
    for piece in rest:
        end = next((at for at, char in enumerate(piece) if char not in "0123456789;"), len(piece))
        if piece[end : end + 1] == "m":
            out.append(f"\033[{piece[: end + 1]}{_plain(piece[end + 1 :])}")
        else:
            out.append(f"{_UNKNOWN}[{_plain(piece)}")
    return "".join(out)


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _BLANKS else _UNKNOWN for char in text)


def allow_colours(stream: object) -> None:
    """Let our own sequences pass to this stream: for a command that is about to write some."""
    if isinstance(stream, CleanStream):
        stream.colours = True


def wants_colour(when: str, file: TextIO) -> bool:
    """Whether --color, which is auto, always or never, asks for colours there. They pass to it from now on."""
    wanted = when == "always"
    if when == "auto":
        wanted = file is sys.stdout and file.isatty() and "NO_COLOR" not in os.environ
    if wanted:
        allow_colours(file)
    return wanted


def clean_streams() -> None:
    """Put both output streams of this process behind the boundary. What their character set lacks is escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper:
            continue
        buffered, encoding = stream.line_buffering, stream.encoding
        stream.flush()
        through = name == "stderr"
        made = CleanStream(
            stream.detach(), encoding, "backslashreplace", line_buffering=buffered, write_through=through
        )
        setattr(sys, name, made)


def bare_streams() -> None:
    """Let a library draw on the terminal itself through `sys.__stdout__`, where what it draws is printable already.

    `clean_streams` has taken the interpreter's own streams apart, and would not let its cursor movements through.
    """
    for name in ("stdout", "stderr"):
        raw = io.FileIO(getattr(sys, name).fileno(), "wb", closefd=False)
        stream = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", write_through=True)
        setattr(sys, f"__{name}__", stream)


def forgive_streams() -> None:
    """Keep a stream that cannot be written to from ending the run, which does more than print. `failure` says why."""
    for stream in (sys.stderr, sys.stdout):
        if isinstance(stream, CleanStream):
            stream.forgiving = True
