"""The last handler: an unexpected error gives one line, a status of ours, and a file that can be attached to a report.

The file lies in the state directory, for its owner alone, one for each command: a newer one replaces it. It holds the
traceback, versions and the names of what was asked, cleaned of what looks like a secret; no variable's value.
"""

from __future__ import annotations

import os
import sys

from nhc.core.light import TYPE_CHECKING
from nhc.core.timestamps import utc

if TYPE_CHECKING:
    from typing import List

LARGEST = 64 << 10
"""Bytes of a crash file. A traceback without end (a recursion) is cut in its middle."""


def report_crash(command: str, error: BaseException) -> None:
    """Say in one line that nhc itself failed, and where the rest of it is. Never raises."""
    line = f"{command}: internal error: {describe(error)}"
    try:
        from nhc.node.hosts.redaction import secrets

        line = secrets(line)
        path = write_crash_file(command, error)
        line += f"; please report it with {path}" if path else ""
    except BaseException as second:  # no memory, no descriptor, a signal: the line is all there is
        line += f" (no file of it could be kept: {type(second).__name__})"
    write_line(line)


def describe(error: BaseException) -> str:
    """The error in one printable line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return "".join(char if char.isprintable() else "?" for char in text)[:400]


def write_crash_file(command: str, error: BaseException) -> str:
    """Write the file; its path, "" if the state directory cannot be used."""
    from nhc.core.state.store import State
    from nhc.core.system import written_files

    state = State()
    if not state.usable():
        return ""
    path = f"{state.directory}/crash-{command.replace(' ', '-')}.txt"
    try:
        written_files.write_whole(path, crash_text(command, error), 0o600)
    except OSError:
        return ""
    return path


def crash_text(command: str, error: BaseException) -> bytes:
    """What a report needs."""
    import platform
    import time
    import traceback

    from nhc import __version__
    from nhc.node.hosts.redaction import secrets

    trace: List[str] = traceback.format_exception(type(error), error, error.__traceback__)
    about = (
        f"nhc {__version__}, {command}, {utc(time.time())}\n"
        f"Python {sys.version.split()[0]}, {platform.system()} {platform.release()} {platform.machine()}, "
        f"user {os.geteuid()}\nwords: {' '.join(_asked(argument) for argument in sys.argv[1:])}\n\n"
    )
    whole = secrets(about + "".join(trace)).encode("utf-8", "backslashreplace")
    half = LARGEST // 2 - 16
    return whole if len(whole) <= LARGEST else whole[:half] + b"\n[...]\n" + whole[-half:]


def _asked(argument: str) -> str:
    """A word of the command line; of a setting only its name."""
    name, equals, _value = argument.partition("=")
    return f"{name}=..." if equals else argument


def write_line(text: str) -> None:
    """A line to standard error; one that cannot be written is lost. Without memory it may stand there already."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError, MemoryError):
        pass
