"""The signals that end a run: the first ends it, those that follow change nothing.

systemd sends them in pairs (SIGTERM and SIGHUP where SendSIGHUP= is set), a terminal that closes sends SIGHUP while
its user presses Ctrl-C. A second signal must not undo what the first has begun.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations of it: 0.3 ms
import os

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, List, Tuple


class SignalToEnd(BaseException):
    """The signal to end that this is made with has come."""


class Signals:
    """SIGTERM, SIGHUP and SIGINT of this process while a run is under way; another's handler stays."""

    def __init__(self) -> None:
        self.number = 0
        """The first that came, 0 for none."""
        self._raises = True
        self._taken: List[Tuple[int, Any]] = []

    def take(self) -> None:
        """From here on the first of them raises SignalToEnd."""
        for number in (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT):
            before = _signal.getsignal(number)
            if before in (_signal.SIG_DFL, _signal.default_int_handler):
                self._taken.append((number, before))
                try:
                    _signal.signal(number, self._come)
                except ValueError:  # not the main thread: signals are not for this one
                    self._taken.pop()
                    return

    def _come(self, number: int, _frame: object) -> None:
        if self.number:
            return
        self.number = number
        if self._raises:
            raise SignalToEnd(number)

    def hold(self) -> None:
        """From here on the first of them is only remembered: what a run started is being ended."""
        self._raises = False

    def leave(self) -> None:
        """Have them do again what they did before. The caller acts on the one that came, if any."""
        for number, before in self._taken:
            _signal.signal(number, before)
        self._taken = []

    def give_back(self) -> None:
        """Have them do again what they did before, and end this process by the one that came.

        Raises KeyboardInterrupt for SIGINT, which no further one then interrupts.
        """
        interrupted = self.number == _signal.SIGINT
        for number, before in self._taken:
            _signal.signal(number, _signal.SIG_IGN if interrupted and number == _signal.SIGINT else before)
        if interrupted:
            raise KeyboardInterrupt
        if self.number:
            os.kill(os.getpid(), self.number)
