"""Lists of nodes that only ClusterShell can read (`{@gpu&@rack4}`), asked in one process of their own.

ClusterShell runs commands of its configuration for groups, and expands what it is given: a command may hang, a list may
need gigabytes. So a process that is forked at the first such list answers for all of them, with a bound of memory; one
that does not answer in time is killed with all that it has started, and the next list gets another. Loaded only where a
configuration has such a list.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import Unresolved, mcheck, problem, resolve, unknown_group
from nhc.core.system.children import fork, leave_to_end, reap

if TYPE_CHECKING:
    from typing import Any, NoReturn, Tuple

TIMEOUT = 4.0
"""Seconds for one list. The first one loads the library, which takes a tenth of a second."""
ALL_TOGETHER = 10.0
"""Seconds for all lists of a plan; after these each has only `AT_LEAST`."""
AT_LEAST = 0.2
MEMORY = 256 << 20
"""Bytes beyond what the process has when it begins. A million names take 120 MB."""
_LENGTH = 4


class ListUnresolved(Exception):
    """The list could not be resolved, or not in time. One line."""


class Library:
    """The process, started when it is first needed."""

    def __init__(self) -> None:
        self._pid = 0
        self._to = self._from = -1
        self._left = ALL_TOGETHER

    def ask(self, what: str, pattern: str, name: str = "") -> Any:
        """The problem of a target, or whether it applies to `name`. Raises ListUnresolved."""
        timeout = max(min(TIMEOUT, self._left), AT_LEAST)
        begun = time.monotonic()
        try:
            if not self._pid:
                self._start()
            _send(self._to, (what, pattern, name))
            answer = self._receive(begun + timeout)
        except (OSError, EOFError) as error:
            self.close()
            raise ListUnresolved(
                f"ClusterShell could not be asked: {getattr(error, 'strerror', '') or 'it ended'}"
            ) from None
        finally:
            self._left -= time.monotonic() - begun
        if answer is None:
            self.close()
            raise ListUnresolved(f"ClusterShell did not answer within {timeout:g} s")
        good, value = answer
        if not good:
            raise ListUnresolved(value)
        return value

    def close(self) -> None:
        """End it, and every command that it has started."""
        if not self._pid:
            return
        for fd in (self._to, self._from):
            os.close(fd)
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except OSError:
            pass  # it has ended
        if reap(self._pid, 0.05) is None:
            leave_to_end(self._pid)
        self._pid, self._to, self._from = 0, -1, -1

    def _start(self) -> None:
        def child(questions: Tuple[int, int], answers: Tuple[int, int]) -> None:
            os.close(questions[1])
            os.close(answers[0])
            _serve(questions[0], answers[1])

        pid, ((asked, self._to), (self._from, answers)) = fork(child, pipes=2)
        os.close(asked)
        os.close(answers)
        self._pid = pid
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass  # it has done so itself

    def _receive(self, until: float) -> Any:
        """An answer; None where the time is over before it is whole."""
        data = b""
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        while len(data) < _LENGTH or len(data) < _LENGTH + int.from_bytes(data[:_LENGTH], "big"):
            if not poll.poll(max(0, int((until - time.monotonic()) * 1000))):
                return None
            more = os.read(self._from, 65536)
            if not more:
                raise EOFError
            data += more
        return marshal.loads(data[_LENGTH:])  # noqa: S302 (from a fork of this very process)


def _send(fd: int, value: Any) -> None:
    data = marshal.dumps(value)
    data = len(data).to_bytes(_LENGTH, "big") + data
    while data:
        data = data[os.write(fd, data) :]


# In the process itself.


def _serve(asked: int, answers: int) -> NoReturn:
    """Answer until nobody asks any more."""
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)  # what a group's command says or asks is nobody's
    # Whoever asks may be killed itself: then nobody is left to end this, nor the command that it waits for.
    signal.signal(signal.SIGALRM, lambda _number, _frame: os.killpg(0, signal.SIGKILL))
    _bound_memory()
    while True:
        head = os.read(asked, _LENGTH)
        if len(head) < _LENGTH:
            os._exit(0)
        data = b""
        while len(data) < int.from_bytes(head, "big"):
            piece = os.read(asked, 65536)
            if not piece:  # whoever asked was killed in the middle of its question
                os._exit(0)
            data += piece
        signal.alarm(int(2 * TIMEOUT) + 1)
        answer = _answer(*marshal.loads(data))  # noqa: S302
        signal.alarm(0)
        _send(answers, answer)


def _bound_memory() -> None:
    try:
        from nhc.core.system.children import bound_address_space

        bound_address_space(MEMORY)
    except (ImportError, OSError, ValueError):
        pass


def _answer(what: str, pattern: str, name: str) -> Tuple[bool, Any]:
    try:
        resolve(pattern)
    except Unresolved as why:
        return False, str(why)
    except MemoryError:
        return False, f"it needs more than {MEMORY >> 20} MB: is it a range by mistake?"
    except ValueError:
        pass  # it cannot be read: that is its problem, and it holds nobody
    try:
        wrong = problem(pattern)
        if what == "problem":
            return True, wrong or unknown_group(pattern)
        return (False, wrong[0]) if wrong else (True, mcheck(name, pattern))
    except MemoryError:
        return False, f"it needs more than {MEMORY >> 20} MB: is it a range by mistake?"
