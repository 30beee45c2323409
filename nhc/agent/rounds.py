"""The running rounds of checks: due checks are started, and rounds without results are tried again."""

from __future__ import annotations

from typing import Callable, List, Sequence

from nhc.agent import agent_plan
from nhc.agent.agent_plan import Checks
from nhc.agent.check_round import CheckRound, Finished
from nhc.agent.kernel_sources import KernelSources
from nhc.agent.publisher import Publisher
from nhc.agent.runtime import Runtime
from nhc.agent.schedule import CheckTimes

AT_A_TIME = 4
"""Rounds at a time: a round that waits for a hung check does not delay the others."""
SLOW = 2.0
"""A check that took longer (seconds) the last time runs in a round of its own kind."""


class Rounds:
    """The rounds of one agent. `done` is called with each that ends; `running` are those that have not."""

    def __init__(
        self,
        runtime: Runtime,
        checks: Checks,
        sources: KernelSources,
        publisher: Publisher,
        done: Callable[[Finished], None],
    ) -> None:
        self._runtime, self._checks, self._sources, self._publisher = runtime, checks, sources, publisher
        self._done = done
        self._waiting: List[Callable[[Finished], None]] = []
        self._last_problem = ""
        self.running: List[CheckRound] = []
        self.seconds = 0.0
        """What the last round took."""

    def start_due(self, retry: float) -> None:
        """Start rounds of the due checks; a round that cannot be started is due again in `retry` seconds."""
        if len(self.running) >= AT_A_TIME:
            return
        now = self._runtime.host.monotonic()
        due = self._checks.schedule.due(now)
        slow = [entry for entry in due if entry.elapsed >= SLOW]
        quick = [entry for entry in due if entry.elapsed < SLOW]
        for batch in (quick, slow):
            if batch:
                self._start(batch, retry, now)

    def _start(self, batch: Sequence[CheckTimes], retry: float, now: float) -> None:
        wanted = {entry.key for entry in batch}
        chosen = tuple(item for key, item in self._checks.items.items() if key in wanted)
        followed = self._sources.hand_over() if any(agent_plan.is_kernel_log(item) for item in chosen) else {}
        self._checks.schedule.begin(batch, now)
        try:
            part = self._checks.plan._replace(items=chosen, notes=())
            on = self._runtime
            self.running.append(CheckRound(on.loop, part, on.host, on.state, on.node, self._done, followed))
        except OSError as error:
            self._publisher.count("rounds")
            self._failed([entry.key for entry in batch], retry, f"cannot be started: {error.strerror}")

    def seconds_to_next(self) -> float:
        """How long to wait until the next start."""
        now = self._runtime.host.monotonic()
        return 1.0 if len(self.running) >= AT_A_TIME else max(0.05, min(self._checks.schedule.next(now) - now, 60.0))

    def forget_ended(self) -> None:
        self.running = [round_ for round_ in self.running if not round_.over]

    def note(self, finished: Finished, retry: float) -> None:
        """Count a round that has ended. If it gave no results, its checks are due again in `retry` seconds."""
        self._publisher.count("rounds")
        self.seconds = finished.elapsed
        if finished.problem:
            self._failed(finished.keys, retry, f"came to nothing: {finished.problem}")
        else:
            self._last_problem = ""
        for line in filter(self._publisher.is_new, finished.notes):
            self._runtime.log(line)

    def _failed(self, keys: Sequence[str], retry: float, problem: str) -> None:
        if problem != self._last_problem:
            self._runtime.log(f"a round of checks {problem}")
        self._last_problem = problem
        self._publisher.count("rounds_failed")
        now = self._runtime.host.monotonic()
        for key in keys:
            self._checks.schedule.end(key, now, 0.0, judged=False)
            self._checks.schedule.hurry(key, now + retry)

    def end(self, *, all_of_them: bool) -> None:
        """End the running rounds; for a pause, all but those that read the kernel log: it is not read again."""
        for round_ in self.running:
            if all_of_them or not any(agent_plan.is_kernel_log(item) for item in round_.plan.items):
                round_.kill()

    def call_each(self, waiter: Callable[[Finished], None]) -> None:
        """Call `waiter` with each round that ends from now on, and, with an empty one, when a pause begins."""
        self._waiting.append(waiter)

    def call_no_more(self, waiter: Callable[[Finished], None]) -> None:
        """The opposite of `call_each`."""
        self._waiting.remove(waiter)

    def answer(self, finished: Finished) -> None:
        """Call those who wait for rounds."""
        for waiter in list(self._waiting):
            waiter(finished)
