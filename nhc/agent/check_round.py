"""A round of checks in its own process: the engine runs there, and its report comes back over a pipe.

The engine waits for its checks; the agent must not wait. A round also keeps the agent small: memory that a check or a
library leaks is freed when the round ends.
"""

from __future__ import annotations

import gc
import marshal
import os
import signal
import struct
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from nhc.agent.event_loop import Loop
from nhc.core import plan as plans
from nhc.core.host import Host
from nhc.core.light import NamedTuple
from nhc.core.model import CheckResult, Outcome, unknown
from nhc.core.plan import BUILT_IN, Declared, Item, Plan
from nhc.core.render.plain import decode, encode
from nhc.core.state.store import State
from nhc.core.system.children import close_all_but, fork, reap_all
from nhc.node.kernlog.read import Followed, followed
from nhc.node.run.engine import run

GRACE = 5.0
"""Seconds after the engine's own deadline at which the agent ends a round."""
_LENGTH = struct.Struct("=Q")

Results = Dict[str, List[CheckResult]]


def key_of(item: Item) -> str:
    """The name under which the agent stores an item: its file and line, and its text."""
    return f"{item.source} {item.line or ' '.join(item.argv)}"


def allowance(item: Item, plan: Plan) -> float:
    """The seconds that one run of an item may take. Elsewhere TIMEOUT=0 means no limit; an agent has one."""
    declared: Optional[Declared] = None
    if item.kind == BUILT_IN and not item.timeout:
        from nhc.core.declare import declare

        answer = item.declared or declare(item.argv)
        declared = None if isinstance(answer, Outcome) else answer
    return plans.seconds_of_line(item, plans.seconds_of_run(plan) or plans.RUN_SECONDS, declared)


class Finished(NamedTuple):
    """A round's end. `results` are by item; `problem` says why there are none, "" if there are some."""

    keys: Tuple[str, ...]
    results: Results
    elapsed: float
    notes: Tuple[str, ...] = ()
    problem: str = ""


class CheckRound:
    """One running round. `known` are the kernel logs that it need not read, by the stores of their findings."""

    def __init__(self, loop: Loop, plan: Plan, host: Host, state: State, name: str,
                 done: Callable[[Finished], None], known: Mapping[str, Followed] = {}) -> None:  # fmt: skip
        self.loop = loop
        self.plan = plan
        self.done = done
        self.keys = tuple(key_of(item) for item in plan.items)
        self.began = time.monotonic()
        longest = max((allowance(item, plan) for item in plan.items), default=0.0)
        self.limit = max(plans.seconds_of_run(plan), longest + 2.0)
        self._buffer = bytearray()
        self.over = False
        self.pid, self._fd = _fork(plan, host, state, name, self.limit, known)
        loop.watch(self._fd, lambda _events: self._read())
        loop.child(self.pid, lambda _status: None)
        self._timer = loop.after(self.limit + GRACE, self._expire)

    def _read(self) -> None:
        ended = False
        while not ended:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                break
            self._buffer += data
            ended = not data
        size = _LENGTH.size
        if len(self._buffer) >= size and len(self._buffer) - size >= _LENGTH.unpack_from(self._buffer)[0]:
            self._finish("")
        elif ended:
            self._finish("its process ended early")

    def _expire(self) -> None:
        self.kill()
        self._finish(f"it did not end within {self.limit + GRACE:.0f} s")

    def kill(self) -> None:
        """End it now; the engine ends its workers and their commands first."""
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass

    def _finish(self, problem: str) -> None:
        if self.over:
            return
        self.over = True
        self._timer.cancel()
        self.loop.forget(self._fd)
        os.close(self._fd)
        elapsed = time.monotonic() - self.began
        results: Results = {}
        notes: Tuple[str, ...] = ()
        if not problem:
            kind, value = marshal.loads(bytes(self._buffer[_LENGTH.size :]))  # noqa: S302 (from our own fork)
            if kind == "report":
                rows, notes = value
                for key, row in rows:
                    results.setdefault(key, []).append(_unpack(row))
            else:
                problem = value
        self.done(Finished(self.keys, results, elapsed, notes, problem))


def lost(item: Item, problem: str) -> CheckResult:
    """The result of an item whose round gave no results."""
    outcome = unknown("RoundFailed", f"the round of checks came to nothing: {problem}")
    return CheckResult(item.name, outcome, 0.0, item.source, item.line, item.tags)


def _fork(
    plan: Plan, host: Host, state: State, name: str, limit: float, known: Mapping[str, Followed]
) -> Tuple[int, int]:
    """Start the round's process; its pid and the pipe of its report. Raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()

    def child(pipe: Tuple[int, int]) -> None:
        host.know(followed, known)
        _carry_out(plan, host, state, name, limit, pipe[1])

    pid, ((reading, writing),) = fork(child)
    os.close(writing)
    os.set_blocking(reading, False)
    return pid, reading


def become_child(keep: Sequence[int]) -> None:
    """In a fork of the agent: drop its signal handlers and descriptors; collect no garbage (it would copy memory)."""
    gc.disable()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    close_all_but(keep)


def _carry_out(plan: Plan, host: Host, state: State, name: str, limit: float, writing: int) -> NoReturn:
    """In the round's process."""
    try:
        become_child([writing])
        value: Any
        try:
            places = {(item.source, item.line): key_of(item) for item in plan.items}
            state.warnings.clear()
            report = run(plan, host, state=state, deadline=limit, name=name, identify=True)
            rows = [(places.get((r.source, r.line), f"{r.source} {r.line}"), _pack(r)) for r in report.results]
            value = ("report", (rows, tuple(state.warnings)))
        except Exception as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)[-1]
            value = ("error", f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})")
        body = marshal.dumps(value)
        view = memoryview(_LENGTH.pack(len(body)) + body)
        while view:
            view = view[os.write(writing, view) :]
        reap_all()
    finally:
        os._exit(0)


def _pack(result: CheckResult) -> Tuple[Any, ...]:
    return (result.check, encode(result.outcome), *result[2:])


def _unpack(row: Sequence[Any]) -> CheckResult:
    check, outcome, *rest = row
    return CheckResult(check, decode(outcome), *rest)
