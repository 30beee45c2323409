"""What services log: a line each on standard error, as text for a person or as JSON for a collector.

The standard library's logging carries it, so that a collector gets what libraries log in the same form. `configure` is
what $NHC_LOG_LEVEL and $NHC_LOG_FORMAT do; without it, all lines from INFO on are text.
"""

from __future__ import annotations

import json
import logging
import os
import sys

from nhc.core.exit_status import ExpectedError
from nhc.core.model import printable
from nhc.core.timestamps import utc, utc_milliseconds

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMS = ("text", "json")
LONGEST = 2000
"""Characters of a line's message."""


class LeveledLine(str):
    """A line with a level of its own, for code that is handed a function of a text as its log."""

    level = logging.INFO


def leveled(text: str, level: int) -> LeveledLine:
    """A line of this level (logging's numbers)."""
    line = LeveledLine(text)
    line.level = level
    return line


def problem(text: str) -> LeveledLine:
    """A line on what is wrong."""
    return leveled(text, logging.WARNING)


def note(text: str) -> LeveledLine:
    """A line on what is as it should be."""
    return leveled(text, logging.INFO)


class ServiceLog:
    """The log of `nhc COMMAND`. Called with a text, it logs a line: of the level `usual`, if the line has none.

    `dated` puts the time before its lines of text, for what is read where nobody else notes it (kubectl logs).
    """

    def __init__(self, command: str, usual: int = logging.INFO, *, dated: bool = False) -> None:
        self._logger = logging.getLogger(f"nhc.{command.replace(' ', '.')}")
        self._usual, self._more = usual, {"dated": dated}

    def __call__(self, text: str) -> None:
        services = logging.getLogger("nhc")
        if not any(isinstance(handler, Lines) for handler in services.handlers):
            configure()
        self._logger.log(getattr(text, "level", self._usual), "%s", text, extra=self._more)

    def debug(self, text: str) -> None:
        """A line for whoever looks for a fault in the service itself."""
        self(leveled(text, logging.DEBUG))

    def error(self, text: str) -> None:
        """A line on what the service cannot do its work for."""
        self(leveled(text, logging.ERROR))


def failure(error: Exception) -> str:
    """What an exception says, in one line; of one that nobody promised its type and its place as well."""
    text = printable(str(error), 300)
    if isinstance(error, (ExpectedError, OSError)):
        return text
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"internal error: {type(error).__name__}: {text}{place}"


class Lines(logging.Handler):
    """Writes each record as one line; one that cannot be written is lost, and nothing else."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        text = printable(text, LONGEST)
        service = record.name.replace(".", " ") if record.name.startswith("nhc.") else record.name
        if self.form == "json":
            line = json.dumps({
                "time": utc_milliseconds(record.created), "level": record.levelname.lower(), "service": service,
                "message": text,
            }, ensure_ascii=False)  # fmt: skip
        else:
            when = f"{utc(record.created)} " if getattr(record, "dated", False) else ""
            line = f"{when}{service}: {text}"
        try:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass


def configure(level: str = "", form: str = "") -> None:
    """Log from this level on, in this form; "" leaves what holds. With JSON, what libraries log is JSON as well."""
    services, others = logging.getLogger("nhc"), logging.getLogger()
    held = next((handler for handler in services.handlers if isinstance(handler, Lines)), None)
    handler = Lines(form or (held.form if held is not None else FORMS[0]))
    for logger in (services, others):
        for one in [one for one in logger.handlers if isinstance(one, Lines)]:
            logger.removeHandler(one)
        if logger is services or handler.form == "json":
            logger.addHandler(handler)
    services.propagate = False
    services.setLevel(LEVELS[level] if level else services.level or logging.INFO)
