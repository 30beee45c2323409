"""Outages, logged once: one line for a new cause, and one line when all works again.

Several threads meet the same outage at the same time, and each tries again for as long as it lasts. The log names the
cause once, and says when it ended.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, Set

from nhc.core.system.service_log import problem
from nhc.core.units import show_seconds

Log = Callable[[str], None]


class Outages:
    """The activities that fail now, each with its cause. Safe to use from several threads."""

    def __init__(self, log: Log, what: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, monotonic
        self._what = what
        self._lock = threading.Lock()
        self._standing: Dict[str, str] = {}
        self._reported: Set[str] = set()
        self._since = 0.0

    def failed(self, what: str, cause: object) -> None:
        """`what` fails because of `cause`: logged unless this outage has named the cause already."""
        text = str(cause)
        with self._lock:
            if not self._standing:
                self._since = self._clock()
            self._standing[what] = text
            new = text not in self._reported
            self._reported.add(text)
        if new:
            self._log(problem(f"{what} fails: {text}"))

    def works(self, what: str) -> None:
        """`what` works. The end of an outage is logged when nothing fails any more."""
        with self._lock:
            if self._standing.pop(what, None) is None or self._standing:
                return
            lasted = self._clock() - self._since
            self._reported.clear()
        self._log(f"{self._what or what} works again after {show_seconds(lasted)}")

    def report(self, what: str, cause: str) -> None:
        """`what` fails because of `cause`, or works where that is ""."""
        if cause:
            self.failed(what, cause)
        else:
            self.works(what)

    def standing(self) -> Dict[str, str]:
        """What fails now, and why."""
        with self._lock:
            return dict(self._standing)
