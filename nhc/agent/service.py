"""The agent itself: rounds of checks, the live kernel log, what follows from both, and who is told."""

from __future__ import annotations

import gc
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from nhc import __version__
from nhc.agent import agent_plan, latest_report, pause
from nhc.agent.app_faults import AppFaults
from nhc.agent.check_round import Finished, Round, lost
from nhc.agent.event_loop import Loop, Timer
from nhc.agent.events import Event, event, of_change
from nhc.agent.journal_follower import KernelJournal
from nhc.agent.kernel_findings import KernelLog
from nhc.agent.kmsg_follower import Follower
from nhc.agent.pause import Pause
from nhc.agent.persistence import keep_report, recall, save
from nhc.agent.problems import ENDED, Board, Change, too_early
from nhc.agent.reload import reload
from nhc.agent.schedule import Entry, Schedule
from nhc.agent.settings import Settings
from nhc.agent.sink_handle import PATIENCE, Outlet
from nhc.agent.sink_process import Make
from nhc.host import Host
from nhc.hosts.live import root_of
from nhc.model import CheckResult, Verdict
from nhc.plan import Item, Plan
from nhc.state.store import State

ROUNDS = 4
"""Rounds at a time: one that waits for a hung check holds up nobody else."""
SLOW = 2.0
"""A check that took longer the last time runs in a round of its own kind."""
SAVE_AFTER = 1.0
HOUSEKEEPING = 2.0
SERIES = 512
"""Reasons that are counted apart: a check that makes one up each time must not fill the memory."""


class Agent:
    """One node's agent. Steps of the clock do not matter to it: all its times are the monotonic ones of the host."""

    def __init__(
        self,
        settings: Settings,
        host: Host,
        state: State,
        loop: Loop,
        log: Callable[[str], None],
        read_settings: Callable[[], Settings],
    ) -> None:
        self.settings, self.host, self.state, self.loop, self.log = settings, host, state, loop, log
        self.read_settings = read_settings
        self.node = settings.node or host.system.hostname()
        self.root = root_of(settings.root)
        self.boot_id = host.read_or("/proc/sys/kernel/random/boot_id")
        self.began = host.monotonic()
        self.plan = Plan(())
        self.items: Dict[str, Item] = {}
        self.schedule = Schedule(self.node, settings.jitter)
        self.board = Board(settings.recover)
        self.rounds: List[Round] = []
        self.outlets: Dict[str, Outlet] = {}
        self.makes: Dict[str, Make] = {}
        self.kernel = KernelLog(self)
        self.adopted: Set[str] = set()
        self.paused: Optional[Pause] = None
        self.pause_ends = 0.0
        self.stopping = False
        self.counts: Dict[str, int] = {}
        self.problem_counts: Dict[str, int] = {}
        self.problem_seen: Dict[Tuple[str, str], None] = {}
        self.round_seconds = 0.0
        self.last_problem = ""
        self.reloaded = host.time()
        self.refused: List[str] = []
        self.waiting: List[Any] = []
        self.watchers: List[Callable[[], None]] = []
        self.monitors: Any = None
        self.follower: Optional[Follower] = None
        self.journal = KernelJournal(loop, host, self._journal_spoke, log)
        self._state: Optional[bytes] = None
        self._timer: Optional[Timer] = None
        self.saving: Optional[Timer] = None
        self.stamps: Any = ()
        self._checked_config = 0.0

    # Beginning and ending.

    def start(self) -> None:
        """Begin: raises BadConfig where there is nothing to run."""
        self.adopt_plan(agent_plan.load(self.settings, self.node, self.host, self.state, strict=False))
        recall(self)
        self.follower = Follower(self.loop, self.host, self.state, self.kernel.heard, self.log)
        self.follower.apps = AppFaults(
            lambda words: self.emit([self.event("log.event", **words)]), self.host.monotonic
        ).tell
        if self.settings.kernel_log and not self.follower.start():
            self.log(self.follower.problem)
        self.follow_journal()
        if self.follower.problem and not self.journal.pid:
            self.log("the kernel log is read with each round, not live")
        if self.monitors:
            self.monitors.start(self)
        gc.collect()
        gc.freeze()  # rounds are forks: what is never collected is never copied
        for name, make in self.makes.items():
            self.add_outlet(name, make)
        self.emit([self.event("agent.started", version=__version__, checks=len(self.items))])
        self.loop.after(HOUSEKEEPING, self._keep_house)
        self.tick()

    def add_outlet(self, name: str, make: Make) -> None:
        """Start a sink."""
        local = name == "local"
        outlet = Outlet(
            name, make, self.loop, self.state_bytes, self.log, None if local else self.kernel.stood, not local
        )
        self.outlets[name] = outlet
        outlet.start()

    def stop(self) -> None:
        """End: no new rounds, those under way are ended, what is known is kept and delivered."""
        if self.stopping:
            return
        self.stopping = True
        for one in self.rounds:
            one.kill()
        if self.follower:
            self.follower.close()
        self.journal.close()
        if self.monitors:
            self.monitors.close()
        self.emit([self.event("agent.stopped")])
        self.save()
        for outlet in self.outlets.values():
            outlet.close()
        until = time.monotonic() + PATIENCE
        for outlet in self.outlets.values():
            outlet.wait(until)
        self.loop.stop()

    # The plan.

    def adopt_plan(self, plan: Plan) -> None:
        now = self.host.monotonic()
        from nhc.agent.check_round import key_of

        extra = self.monitors.items() if self.monitors else ()
        plan = plan._replace(items=(*plan.items, *extra))
        self.plan = plan
        self.items = {key_of(item): item for item in plan.items}
        self.kernel.key = next((key for key, item in self.items.items() if agent_plan.follows(item)), "")
        gone = self.schedule.set(agent_plan.entries(plan), now)
        self.stamps = agent_plan.stamps(plan, self.settings)
        for note in plan.notes:
            self.log(note)
        self.news(self.board.remove([key for key in self.board.rows if key in gone], self.host.time()))

    def follow_journal(self) -> None:
        """Follow journald while a check reads the kernel's messages there."""
        keys = self._journal_keys()
        if keys:
            self.journal.follow(agent_plan.needles([self.items[key] for key in keys]))
        else:
            self.journal.close()

    def _journal_keys(self) -> List[str]:
        if not self.settings.kernel_log:
            return []
        live = self.follower is not None and self.follower.live
        return [key for key, item in self.items.items() if agent_plan.reads_journal(item, self.host, live)]

    def _journal_spoke(self) -> None:
        now = self.host.monotonic()
        for key in self._journal_keys():
            self.schedule.hurry(key, now)
        self.tick()

    # Rounds.

    def tick(self) -> None:
        """Start what is due, and see when something is next."""
        if self.stopping:
            return
        now = self.host.monotonic()
        if self.paused and self.pause_ends <= now:
            pause.resume(self, "its time is over")
        if not self.paused and len(self.rounds) < ROUNDS:
            due = self.schedule.due(now)
            slow = [entry for entry in due if entry.elapsed >= SLOW]
            quick = [entry for entry in due if entry.elapsed < SLOW]
            for batch in (quick, slow):
                if batch:
                    self._start_round(batch, now)
        if self._timer:
            self._timer.cancel()
        wait = max(0.05, min(self.schedule.next(now) - now, 60.0))
        if len(self.rounds) >= ROUNDS:
            wait = 1.0
        self._timer = self.loop.after(wait, self.tick)

    def _start_round(self, batch: Sequence[Entry], now: float) -> None:
        wanted = {entry.key for entry in batch}
        items = tuple(item for key, item in self.items.items() if key in wanted)
        if self.follower and any(agent_plan.is_kernel_log(item) for item in items):
            self.follower.note()
        self.schedule.begin(batch, now)
        try:
            plan = self.plan._replace(items=items, notes=())
            self.rounds.append(Round(self.loop, plan, self.host, self.state, self.node, self._round_done))
        except OSError as error:
            self._count("rounds")
            self._no_round([entry.key for entry in batch], now, f"cannot be started: {error.strerror}")

    def _no_round(self, keys: Sequence[str], now: float, problem: str) -> None:
        if problem != self.last_problem:
            self.log(f"a round of checks {problem}")
        self.last_problem = problem
        self._count("rounds_failed")
        for key in keys:
            self.schedule.end(key, now, 0.0, judged=False)
            self.schedule.hurry(key, now + self.settings.retry)

    def _round_done(self, finished: Finished) -> None:
        self.rounds = [one for one in self.rounds if not one.over]
        if self.stopping:
            return
        if self.paused:
            finished = pause.interrupted(self, finished)
        now, wall = self.host.monotonic(), self.host.time()
        self._count("rounds")
        self.round_seconds = finished.elapsed
        if finished.problem:
            self._no_round(finished.keys, now, f"came to nothing: {finished.problem}")
        else:
            self.last_problem = ""
        for note in finished.notes:
            self._log_once(note)
        news: List[Change] = []
        late = set(self.schedule.overdue(now)) if finished.problem else set()
        for key in finished.keys:
            item = self.items.get(key)
            if item is None:
                continue  # the configuration dropped it meanwhile
            if finished.problem and key in self.board.rows and key not in late:
                continue  # tried again in a moment; its last word stands until it is late
            results = finished.results.get(key, [])
            if finished.problem or not results:
                results = [lost(item, finished.problem or "no result of it came back")]
            if not finished.problem:
                self.schedule.end(key, now, max((result.elapsed for result in results), default=0.0))
            news += self._judge(key, item, results, wall)
            if self.board.recovering(key):
                self.schedule.hurry(key, now + self.settings.retry)
        self.news(news)
        self.kernel.settle()
        self.changed()
        keep_report(self)
        if self.monitors:
            self.monitors.judged(finished)
        for waiter in list(self.waiting):
            waiter(finished)
        self.tick()

    def state_bytes(self) -> bytes:
        """How the node is, for sinks."""
        if self._state is None:
            self._state = latest_report.state_bytes(self)
        return self._state

    def _judge(self, key: str, item: Item, results: Sequence[CheckResult], wall: float) -> List[Change]:
        uptime = self.host.monotonic()
        kernel = agent_plan.is_kernel_log(item)
        if uptime < self.settings.boot_window and not kernel and not self._counts_early(item):
            results = [too_early(result, uptime) for result in results]
            self.schedule.hurry(key, self.settings.boot_window)
        return self.board.judge(key, results, wall, 1 if kernel else None)

    def _counts_early(self, item: Item) -> bool:
        from fnmatch import fnmatchcase

        return any(fnmatchcase(item.name, pattern) for pattern in self.settings.boot_window_except)

    def run_now(self, names: Sequence[str]) -> Set[str]:
        """Run these checks (all without names) as soon as may be. The keys of those that will."""
        from fnmatch import fnmatchcase

        now = self.host.monotonic()
        chosen = {
            key for key, item in self.items.items() if not names or any(fnmatchcase(item.name, name) for name in names)
        }
        for key in chosen:
            self.schedule.hurry(key, now)
        self.tick()
        return chosen

    # Telling.

    def event(self, what: str, **more: Any) -> Event:
        return event(what, self.host.time(), self.node, self.boot_id, **more)

    def news(self, changes: Sequence[Change]) -> None:
        for change in changes:
            own = not self.monitors or not self.monitors.owns(change.key)  # those are counted by their own rules
            if own and change.result.verdict is Verdict.CRIT and change.what != ENDED:
                self.count_problem(change.result.check, change.result.outcome.reason)
        if changes:
            self.emit([of_change(change, self.node, self.boot_id) for change in changes])

    def emit(self, events: List[Event]) -> None:
        for piece in events:
            self._count(f"event {piece['event']}")
        for outlet in self.outlets.values():
            outlet.tell(events)

    def count_problem(self, kind: str, reason: str, times: int = 1) -> None:
        """A problem has occurred: node-problem-detector's problem_counter, and a series of its problem_gauge."""
        if reason in self.problem_counts or len(self.problem_counts) < SERIES:
            self.problem_counts[reason] = self.problem_counts.get(reason, 0) + times
        if kind and len(self.problem_seen) < SERIES:
            self.problem_seen[kind, reason] = None

    def changed(self) -> None:
        """The state is another: sinks get it, and it is kept."""
        self._state = None
        for outlet in self.outlets.values():
            outlet.changed()
        if self.saving is None:
            self.saving = self.loop.after(SAVE_AFTER, self.save)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _log_once(self, note: str) -> None:
        key = f"note {note}"
        if key not in self.counts and len(self.counts) < 4096:
            self.log(note)
        self._count(key)

    def save(self) -> None:
        """Keep what the next life needs."""
        save(self)

    def reload(self) -> List[str]:
        """Read settings and configuration anew. Returns the problems; with any, everything stays as it was."""
        return reload(self)

    def ack(self, keys: Sequence[str], device: str, everything: bool, by: str, note: str) -> List[str]:
        """End findings of the kernel log, and faults that stood before the agent. Returns what ended."""
        return self.kernel.ack(keys, device, everything, by, note)

    # Small things, now and then.

    def _keep_house(self) -> None:
        """See whether another process acknowledged a finding, and whether the configuration has changed."""
        self.loop.after(HOUSEKEEPING, self._keep_house)
        if self.follower and not self.rounds:
            self.kernel.look()
        now = self.host.monotonic()
        if self.settings.watch_config and now - self._checked_config >= 10.0:
            self._checked_config = now
            if agent_plan.stamps(self.plan, self.settings) != self.stamps:
                self.reload()
