"""Where the kernel's log comes from while the agent runs: /dev/kmsg live, and journald if a check reads it there."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple

from nhc.agent import agent_plan
from nhc.agent.agent_plan import Checks
from nhc.agent.gpu_events import GpuEvents
from nhc.agent.journal_follower import KernelJournal
from nhc.agent.kmsg_follower import Follower
from nhc.agent.runtime import Runtime
from nhc.core.model import printable
from nhc.marks.ports.sinks import EventDetails
from nhc.node.kernlog.match import Match
from nhc.node.kernlog.read import Followed
from nhc.node.kernlog.source import STORE
from nhc.node.kernlog.store import load

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import LogState


FAULT_AGAIN = 60.0
"""Seconds within which one fault of one device is one event: a kill is logged in several lines."""
FAULTS = 256


class AppFaults:
    """Faults in the kernel log that leave no finding, as events: a job that ran out of memory, or caused an Xid.

    They take no node out of service, so an event is their only trace: node-problem-detector reports an OOM kill in the
    same way.

    Each fault is published once in a while. `emit` takes the fields of a log.event.
    """

    def __init__(self, emit: Callable[[EventDetails], None], clock: Callable[[], float]) -> None:
        self._emit, self._clock = emit, clock
        self._published: OrderedDict[Tuple[str, str, str], float] = OrderedDict()

    def publish(self, matches: List[Match]) -> None:
        from nhc.node.checks.kmsg import reason_of

        now = self._clock()
        for match in matches:
            # The lines of one OOM kill name different things; they are one kill.
            key = (match.kind, match.code, match.device if match.kind != "oom" else "")
            last = self._published.get(key)
            if last is not None and now - last < FAULT_AGAIN:
                continue
            self._published[key] = now
            self._published.move_to_end(key)
            while len(self._published) > FAULTS:
                self._published.popitem(last=False)
            reason = reason_of(match.kind, match.code)
            message = printable(f"{match.message}: {match.line}", 1000)
            self._emit({"type": "check_kmsg", "reason": reason, "severity": "warn", "message": message})


class KernelSources:
    """Both followers. A message in journald makes the checks that read it due; `wake` starts what is due."""

    def __init__(self, runtime: Runtime, checks: Checks, wake: Callable[[], None]) -> None:
        self._runtime, self._checks, self._wake = runtime, checks, wake
        self._wanted = False
        self.follower: Optional[Follower] = None
        self.journal = KernelJournal(runtime.loop, runtime.host, self._journal_spoke, runtime.log)
        self.gpu_events = GpuEvents(runtime.loop, runtime.host, runtime.state, runtime.log)

    def start(
        self,
        wanted: bool,
        gpu_events: bool,
        on_finding: Callable[[], None],
        app_fault: Callable[[EventDetails], None],
    ) -> None:
        """Follow what is `wanted`, and `gpu_events` of the driver beside a live log.

        `on_finding` is called for new findings, `app_fault` for an application's.
        """
        on = self._runtime
        self.follower = Follower(on.loop, on.host, on.state, on_finding, on.log)
        faults = AppFaults(app_fault, on.host.monotonic)
        self.follower.call_for_apps(faults.publish)
        self.journal.call_for_apps(faults.publish)
        if wanted and not self.follower.start():
            on.log(self.follower.problem)
        if gpu_events and self.follower.live:
            self.gpu_events.start()
        self._follow_journal(wanted)
        if self.follower.problem and not self.journal.pid:
            on.log("the kernel log is read with each round, not live")

    def change(self, wanted: bool) -> None:
        """Another configuration."""
        if self.follower:
            if wanted and not self.follower.live:
                self.follower.start()
            elif not wanted:
                self.follower.close()
        self._follow_journal(wanted)

    def _follow_journal(self, wanted: bool) -> None:
        """Follow journald while a check reads the kernel's messages there."""
        self._wanted = wanted
        keys = self._journal_keys()
        if keys:
            self.journal.follow(agent_plan.needles([self._checks.items[key] for key in keys]))
        else:
            self.journal.close()

    def findings(self) -> LogState:
        """The current store of findings, with what could not be filed yet."""
        return self.follower.findings.standing() if self.follower else load(self._runtime.state, STORE)

    def hand_over(self) -> Dict[str, Followed]:
        """What a round need not read itself: the records of each store's log that were read since the last round."""
        read = self.follower.hand_over() if self.follower else None
        return {} if read is None else {STORE: read}

    def close(self) -> None:
        if self.follower:
            self.follower.close()
        self.gpu_events.close()
        self.journal.close()

    def _journal_keys(self) -> List[str]:
        if not self._wanted:
            return []
        live = self.follower is not None and self.follower.live
        return [
            key for key, item in self._checks.items.items() if agent_plan.reads_journal(item, self._runtime.host, live)
        ]

    def _journal_spoke(self) -> None:
        self._checks.hurry(self._journal_keys(), self._runtime.host.monotonic())
        self._wake()
