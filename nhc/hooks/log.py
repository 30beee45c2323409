"""Where hooks log: syslog and standard error.

Slurm throws away a prolog's output, so an administrator finds messages only in syslog.
"""

from __future__ import annotations

import sys

from nhc.core.model import printable


def info(text: str) -> None:
    _log(6, text)


def warn(text: str) -> None:
    _log(4, text)


def error(text: str) -> None:
    _log(3, text)


def _log(level: int, text: str) -> None:
    import syslog

    text = printable(text, 1000)
    syslog.openlog("nhc", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(level, text)
    print(f"nhc: {text}", file=sys.stderr)
