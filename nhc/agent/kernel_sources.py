"""Where the kernel's log comes from while the agent runs: /dev/kmsg live, and journald where a check reads it there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional

from nhc.agent import agent_plan
from nhc.agent.app_faults import AppFaults
from nhc.agent.event_loop import Loop
from nhc.agent.gpu_events import GpuEvents
from nhc.agent.journal_follower import KernelJournal
from nhc.agent.kmsg_follower import Follower
from nhc.agent.schedule import Schedule
from nhc.core.host import Host
from nhc.core.plan import Item
from nhc.core.state.store import State
from nhc.marks.ports.sinks import EventDetails
from nhc.node.kernlog.read import Followed
from nhc.node.kernlog.source import STORE
from nhc.node.kernlog.store import load

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import LogState


class KernelSources:
    """Both followers. A message in journald makes the checks that read it due; `wake` starts what is due."""

    def __init__(
        self,
        loop: Loop,
        host: Host,
        state: State,
        schedule: Schedule,
        log: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._loop, self._host, self._state = loop, host, state
        self._schedule, self._log, self._wake = schedule, log, wake
        self._items: Mapping[str, Item] = {}
        self._wanted = False
        self.follower: Optional[Follower] = None
        self.journal = KernelJournal(loop, host, self._journal_spoke, log)
        self.gpu_events = GpuEvents(loop, host, state, log)

    def start(
        self,
        items: Mapping[str, Item],
        wanted: bool,
        gpu_events: bool,
        on_finding: Callable[[], None],
        app_fault: Callable[[EventDetails], None],
    ) -> None:
        """Follow what is `wanted`, and `gpu_events` of the driver beside a live log.

        `on_finding` is called for new findings, `app_fault` for an application's.
        """
        self.follower = Follower(self._loop, self._host, self._state, on_finding, self._log)
        faults = AppFaults(app_fault, self._host.monotonic)
        self.follower.call_for_apps(faults.publish)
        self.journal.call_for_apps(faults.publish)
        if wanted and not self.follower.start():
            self._log(self.follower.problem)
        if gpu_events and self.follower.live:
            self.gpu_events.start()
        self.follow_journal(items, wanted)
        if self.follower.problem and not self.journal.pid:
            self._log("the kernel log is read with each round, not live")

    def change(self, items: Mapping[str, Item], wanted: bool) -> None:
        """Another configuration."""
        if self.follower:
            if wanted and not self.follower.live:
                self.follower.start()
            elif not wanted:
                self.follower.close()
        self.follow_journal(items, wanted)

    def follow_journal(self, items: Mapping[str, Item], wanted: bool) -> None:
        """Follow journald while a check reads the kernel's messages there."""
        self._items, self._wanted = items, wanted
        keys = self._journal_keys()
        if keys:
            self.journal.follow(agent_plan.needles([items[key] for key in keys]))
        else:
            self.journal.close()

    def findings(self) -> LogState:
        """The store of findings as it stands, with what could not be filed yet."""
        return self.follower.findings.standing() if self.follower else load(self._state, STORE)

    def hand_over(self) -> Dict[str, Followed]:
        """What a round need not read itself: what was read of each store's log since the round before."""
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
        return [key for key, item in self._items.items() if agent_plan.reads_journal(item, self._host, live)]

    def _journal_spoke(self) -> None:
        now = self._host.monotonic()
        for key in self._journal_keys():
            self._schedule.hurry(key, now)
        self._wake()
