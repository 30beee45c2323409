"""The agent itself: it starts rounds of checks, follows the kernel log, and publishes what both find."""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from nhc import __version__
from nhc.agent import agent_plan, node_view, npd_monitors
from nhc.agent.agent_plan import BadConfig, FileStamp, stamps
from nhc.agent.check_round import CheckRound, Finished, key_of, lost
from nhc.agent.event_loop import Loop, Timer
from nhc.agent.events import of_change
from nhc.agent.kernel_findings import KernelLog, Listener
from nhc.agent.kernel_sources import KernelSources
from nhc.agent.node_view import NodeView
from nhc.agent.npd_monitors import Monitors
from nhc.agent.pause import LONGEST, Pause, PauseTimer, interrupted
from nhc.agent.problems import ENDED, Board, ProblemChange, too_early
from nhc.agent.publisher import Publisher
from nhc.agent.schedule import CheckTimes, Schedule
from nhc.agent.settings import AgentSettings
from nhc.agent.sink_handle import SinkHandle
from nhc.agent.sink_process import Make
from nhc.core.host import Host, root_of
from nhc.core.language.site_settings import site_settings
from nhc.core.light import NamedTuple
from nhc.core.model import CheckResult, Verdict, printable
from nhc.core.plan import Item, Plan
from nhc.core.render.json import to_dict
from nhc.core.settings.settings_file import SettingsError
from nhc.core.state.reports import kept_as
from nhc.core.state.store import State
from nhc.core.system.service_log import note
from nhc.marks.ports.sinks import Standing
from nhc.node.kernlog import lasting
from nhc.node.planning.cached_verdict import lines_of, vouch

# The configuration read anew while the agent runs: all of it or, with a mistake in it, nothing.


CHECK_FILES = 10.0
"""Seconds between two looks at the files' stamps."""


class ConfigFiles:
    """Whether a file or directory has changed that the plan or the settings were made of."""

    def __init__(self) -> None:
        self._stamps: Tuple[FileStamp, ...] = ()
        self._checked = 0.0

    def note(self, plan: Plan, settings: AgentSettings) -> None:
        """Take the files as they are now for known."""
        self._stamps = stamps(plan, settings)

    def changed(self, plan: Plan, settings: AgentSettings, now: float) -> bool:
        """Whether they are not as they were noted. Looks at most every ten seconds; `now` is monotonic."""
        if now - self._checked < CHECK_FILES:
            return False
        self._checked = now
        return stamps(plan, settings) != self._stamps


class Configuration(NamedTuple):
    """What the files say."""

    settings: AgentSettings
    plan: Plan
    monitors: Optional[Monitors]


def read_anew(read_settings: Callable[[], AgentSettings], node: str, host: Host, state: State) -> Configuration:
    """Read settings, checks and monitors. Raises BadConfig."""
    try:
        settings = read_settings()
        plan = agent_plan.load(settings, node, host, state, strict=True)
        return Configuration(settings, plan, npd_monitors.load(settings))
    except SettingsError as error:
        raise BadConfig([str(error)]) from None


def unheeded(old: AgentSettings, new: AgentSettings) -> List[str]:
    """What has changed that only a restart of the agent brings in, one line each."""
    lines: List[str] = []
    if (old.sinks, old.nvhcd, old.events, old.events_format, old.history) != (
        new.sinks, new.nvhcd, new.events, new.events_format, new.history,
    ):  # fmt: skip
        lines.append("sinks, services, events and history are as they were: they change when the agent is started anew")
    if old.root != new.root:
        lines.append("root is as it was: it changes when the agent is started anew")
    return lines


# What a round of checks changes on the board of problems, and when its checks run again.


def judge_round(node: NodeView, finished: Finished) -> List[ProblemChange]:
    """Enter the results of a round that has ended. Returns the problems that began, changed or ended.

    After a round that came to nothing, a check's last result stands until the check is overdue.
    """
    now, wall = node.host.monotonic(), node.host.time()
    changes: List[ProblemChange] = []
    late = set(node.schedule.overdue(now)) if finished.problem else set()
    for key in finished.keys:
        item = node.items.get(key)
        if item is None:
            continue  # the configuration dropped it meanwhile
        if finished.problem and key in node.board.rows and key not in late:
            continue  # tried again in a moment
        results = finished.results.get(key, [])
        if finished.problem or not results:
            results = [lost(item, finished.problem or "no result of it came back")]
        if not finished.problem:
            node.schedule.end(key, now, max((result.elapsed for result in results), default=0.0))
        changes += _judge(node, key, item, results, wall, now - finished.elapsed)
        if node.board.recovering(key) and not item.of:  # the runs of N of M are those of its cadence
            node.schedule.hurry(key, now + node.settings.retry)
    return changes


def _judge(
    node: NodeView, key: str, item: Item, results: Sequence[CheckResult], wall: float, began: float
) -> List[ProblemChange]:
    if key == node.kernel.key:
        results = node.kernel.judged(item, results, began)
    uptime = node.host.monotonic()
    if agent_plan.waits_for_boot(item, node.settings, uptime):
        results = [too_early(result, uptime) for result in results]
        node.schedule.hurry(key, node.settings.boot_window)
    return node.board.judge(key, results, wall, 1 if agent_plan.is_kernel_log(item) else None)


# The rounds of checks that run: what is due is started, and what came to nothing is tried again.


AT_A_TIME = 4
"""Rounds at a time: one that waits for a hung check holds up nobody else."""
SLOW = 2.0
"""A check that took longer (seconds) the last time runs in a round of its own kind."""


class Rounds:
    """The rounds of one agent. `done` is called with each that ends; `running` are those that have not."""

    def __init__(
        self,
        loop: Loop,
        host: Host,
        state: State,
        node: str,
        schedule: Schedule,
        sources: KernelSources,
        publisher: Publisher,
        log: Callable[[str], None],
        done: Callable[[Finished], None],
    ) -> None:
        self._loop, self._host, self._state, self._node = loop, host, state, node
        self._schedule, self._sources, self._publisher = schedule, sources, publisher
        self._log, self._done = log, done
        self._last_problem = ""
        self.running: List[CheckRound] = []
        self.seconds = 0.0
        """What the last round took."""

    def start_due(self, plan: Plan, items: Mapping[str, Item], retry: float) -> None:
        """Start rounds of what is due; one that cannot be started is due again in `retry` seconds."""
        if len(self.running) >= AT_A_TIME:
            return
        now = self._host.monotonic()
        due = self._schedule.due(now)
        slow = [entry for entry in due if entry.elapsed >= SLOW]
        quick = [entry for entry in due if entry.elapsed < SLOW]
        for batch in (quick, slow):
            if batch:
                self._start(batch, plan, items, retry, now)

    def _start(
        self, batch: Sequence[CheckTimes], plan: Plan, items: Mapping[str, Item], retry: float, now: float
    ) -> None:
        wanted = {entry.key for entry in batch}
        chosen = tuple(item for key, item in items.items() if key in wanted)
        followed = self._sources.hand_over() if any(agent_plan.is_kernel_log(item) for item in chosen) else {}
        self._schedule.begin(batch, now)
        try:
            part = plan._replace(items=chosen, notes=())
            self.running.append(CheckRound(self._loop, part, self._host, self._state, self._node, self._done, followed))
        except OSError as error:
            self._publisher.count("rounds")
            self._failed([entry.key for entry in batch], retry, f"cannot be started: {error.strerror}")

    def seconds_to_next(self) -> float:
        """How long to wait until something is to be started."""
        now = self._host.monotonic()
        return 1.0 if len(self.running) >= AT_A_TIME else max(0.05, min(self._schedule.next(now) - now, 60.0))

    def forget_ended(self) -> None:
        self.running = [round_ for round_ in self.running if not round_.over]

    def note(self, finished: Finished, retry: float) -> None:
        """Count a round that has ended. Where it came to nothing its checks are due again in `retry` seconds."""
        self._publisher.count("rounds")
        self.seconds = finished.elapsed
        if finished.problem:
            self._failed(finished.keys, retry, f"came to nothing: {finished.problem}")
        else:
            self._last_problem = ""
        for line in filter(self._publisher.is_new, finished.notes):
            self._log(line)

    def _failed(self, keys: Sequence[str], retry: float, problem: str) -> None:
        if problem != self._last_problem:
            self._log(f"a round of checks {problem}")
        self._last_problem = problem
        self._publisher.count("rounds_failed")
        now = self._host.monotonic()
        for key in keys:
            self._schedule.end(key, now, 0.0, judged=False)
            self._schedule.hurry(key, now + retry)

    def end(self, *, all_of_them: bool) -> None:
        """End what runs; or, for a pause, all but the rounds that read the kernel log: it is not read again."""
        for round_ in self.running:
            if all_of_them or not any(agent_plan.is_kernel_log(item) for item in round_.plan.items):
                round_.kill()


# What the agent leaves to the next one after a restart, and to `nhc check local`.


STATE = "agent"


class Recalled(NamedTuple):
    """What an earlier agent left; all but the pause is of this boot.

    `rows` are the board's, `adopted` the sinks that reported faults from before the agent, `inherited` those faults.
    """

    pause: Optional[Pause] = None
    rows: Mapping[str, Any] = {}
    adopted: Tuple[str, ...] = ()
    inherited: Tuple[Standing, ...] = ()
    monitors: Optional[Mapping[str, Any]] = None


def save(node: NodeView, state: State) -> None:
    """Keep what the next agent needs."""
    kept: Dict[str, Any] = {
        "boot_id": node.boot_id,
        "rows": node.board.dump(),
        "inherited": [list(fault) for fault in node.kernel.inherited],
        "adopted": sorted(node.kernel.adopted),
        "paused": list(node.paused) if node.paused else None,
        "monitors": node.monitors.dump() if node.monitors else None,
    }
    state.save(STATE, kept)


def keep_report(node: NodeView, state: State) -> None:
    """Leave the report where `nhc check local --max-age` and the prolog find it."""
    if node_view.complete(node) and not any(entry.judged is None for entry in node.schedule.entries.values()):
        report = node_view.report(node)
        lines = lines_of(node.items.values())
        vouch(state, report, lines)
        asked = {"config": list(node.settings.config), "scripts": list(node.settings.scripts), "root": node.root}
        state.save(kept_as("agent"), {**to_dict(report), **asked, "profile": node.settings.profile, "lines": lines})


def recall(state: State, boot_id: str, now: float) -> Recalled:
    """What the last agent left, if it was this boot's; what does not fit is left out. `now` is the Unix time."""
    kept = state.load(STATE)
    recalled = Recalled()
    pause: Any = kept.get("paused")
    if _fits(pause, (float, str, str)) and now < pause[0] < now + LONGEST:
        recalled = recalled._replace(pause=Pause(*pause))
    if not boot_id or kept.get("boot_id") != boot_id:
        return recalled
    rows, adopted, inherited, monitors = (kept.get(name) for name in ("rows", "adopted", "inherited", "monitors"))
    return recalled._replace(
        rows=rows if isinstance(rows, dict) else {},
        adopted=tuple(str(sink) for sink in (adopted if isinstance(adopted, list) else ())),
        inherited=tuple(
            Standing(*fault)
            for fault in (inherited if isinstance(inherited, list) else ())
            if _fits(fault, (str, str, str, float))
        ),
        monitors=monitors if isinstance(monitors, dict) else None,
    )


def _fits(value: object, kinds: Sequence[type]) -> bool:
    """Whether these are the fields of a value that was kept; a number has to be a time."""
    if not isinstance(value, list) or len(value) != len(kinds):
        return False
    return all(
        isinstance(field, str) if kind is str else isinstance(field, (int, float)) and 0 <= field < 1e11
        for field, kind in zip(value, kinds)
    )


SAVE_AFTER = 1.0
HOUSEKEEPING = 2.0
SHARE_A_PROCESS = ("server", "otel")
"""Sinks that speak HTTP by nhc's own client, which one process loads once. Every other sink has its own process."""


def node_name(settings: AgentSettings, host: Host) -> str:
    """As the agent's settings have it, else as every door of nhc on this node calls it."""
    return settings.node or site_settings().node_here(host)


class Agent:
    """One node's agent. Steps of the clock do not matter to it: all its times are the monotonic ones of the host."""

    def __init__(
        self,
        settings: AgentSettings,
        host: Host,
        state: State,
        loop: Loop,
        log: Callable[[str], None],
        read_settings: Callable[[], AgentSettings],
        monitors: Optional[Monitors] = None,
        makes: Mapping[str, Make] = {},
    ) -> None:
        self.settings, self.host, self.state, self.loop, self.log = settings, host, state, loop, log
        self.node = node_name(settings, host)
        self.boot_id = host.boot_id()
        self.plan = Plan(())
        self.items: Dict[str, Item] = {}
        self.schedule = Schedule(self.node, settings.jitter)
        self.board = Board(settings.recover)
        self.publisher = Publisher(self.node, self.boot_id, host.time)
        self.sources = KernelSources(loop, host, state, self.schedule, log, self.tick)
        listener = Listener(self.publish_changes, self.changed, self.tick)
        self.kernel = KernelLog(host, state, self.board, self.schedule, log, listener, self.sources.findings)
        self.monitors = monitors
        self.rounds = Rounds(
            loop, host, state, self.node, self.schedule, self.sources, self.publisher, log, self._round_done
        )
        self._waiting: List[Callable[[Finished], None]] = []
        self._after_reload: List[Callable[[], None]] = []
        self._read_settings, self._makes = read_settings, makes
        self._root = root_of(settings.root)
        self._began = host.monotonic()
        self._reloaded = host.time()
        self._pause = PauseTimer(host)
        self._begun = self._stopping = False
        self._refused: List[str] = []
        self._state: Optional[bytes] = None
        self._timer: Optional[Timer] = None
        self._saving: Optional[Timer] = None
        self._files = ConfigFiles()

    def view(self) -> NodeView:
        """What is known now."""
        return NodeView(
            settings=self.settings, host=self.host, node=self.node, root=self._root, boot_id=self.boot_id,
            began=self._began, reloaded=self._reloaded, plan=self.plan, items=self.items, schedule=self.schedule,
            board=self.board, kernel=self.kernel, sources=self.sources, publisher=self.publisher,
            monitors=self.monitors, paused=self.paused, stopping=self._stopping, round_seconds=self.rounds.seconds,
            refused=self._refused,
        )  # fmt: skip

    @property
    def paused(self) -> Optional[Pause]:
        return self._pause.current

    # Beginning and ending.

    def start(self) -> None:
        """Begin: raises BadConfig where there is nothing to run."""
        self.adopt_plan(agent_plan.load(self.settings, self.node, self.host, self.state, strict=False))
        self._begun = True
        lasting.agent_begins(self.state, self.boot_id)
        self._recall()
        wanted, events = self.settings.kernel_log, self.settings.gpu_events
        self.sources.start(self.items, wanted, events, self.kernel.findings_changed, self.publisher.log_event)
        self._start_monitors()
        gc.collect()
        gc.freeze()  # rounds are forks: what is never collected is never copied
        self._start_sinks()
        self.publisher.emit("agent.started", {"version": __version__, "checks": len(self.items)})
        self.loop.after(HOUSEKEEPING, self._keep_house)
        self.tick()

    def _recall(self) -> None:
        """Take over what the agent before this one left."""
        kept = recall(self.state, self.boot_id, self.host.time())
        if kept.pause:
            self._pause.go_on(kept.pause, kept.pause.until - self.host.time())
        self.board.load({key: row for key, row in kept.rows.items() if key in self.items})
        self.kernel.recall(kept.adopted, kept.inherited)
        if kept.monitors is not None:
            self.monitors = self.monitors or Monitors([], [], [])
            self.monitors.load(kept.monitors)

    def _start_monitors(self) -> None:
        if self.monitors and self.sources.follower:
            self.monitors.start(self.host, self.loop, self.publisher, self.changed, self.sources.follower)

    def _start_sinks(self) -> None:
        sharing: List[SinkHandle] = []
        for name, make in self._makes.items():
            local = name == "local"
            self.publisher.sinks[name] = SinkHandle(
                name, make, self.loop, self.state_bytes, self.log, None if local else self.kernel.stood, not local,
                sharing if name in SHARE_A_PROCESS else None,
            )  # fmt: skip
        for handle in self.publisher.sinks.values():
            handle.start()

    def stop(self) -> None:
        """End: no new rounds, those under way are ended, what is known is kept and delivered.

        One that did not begin keeps nothing: what is there is of an agent before it, or of one that runs beside it.
        """
        if self._stopping:
            return
        self._stopping = True
        self.rounds.end(all_of_them=True)
        self.sources.close()
        if self.monitors:
            self.monitors.close()
        self.publisher.emit("agent.stopped", {})
        if self._begun:
            self.save()
            lasting.agent_ends(self.state, self.boot_id)
        self.publisher.close()
        self.loop.stop()

    # The plan.

    def adopt_plan(self, plan: Plan) -> None:
        now = self.host.monotonic()
        extra = self.monitors.items() if self.monitors else ()
        plan = plan._replace(items=(*plan.items, *extra))
        self.plan = plan
        self.items = {key_of(item): item for item in plan.items}
        self.kernel.judge_by(self.items)
        gone = self.schedule.set(agent_plan.entries(plan), now)
        self._files.note(plan, self.settings)
        for line in plan.notes:
            self.log(line)
        self.publish_changes(self.board.remove([key for key in self.board.rows if key in gone], self.host.time()))

    def reload(self) -> List[str]:
        """Read settings and configuration anew. Returns the problems; with any, everything stays as it was."""
        self._files.note(self.plan, self.settings)
        try:
            new = read_anew(self._read_settings, self.node, self.host, self.state)
        except BadConfig as error:
            if error.problems != self._refused:
                for problem in error.problems:
                    self.log(f"refused: {problem}")
                self.publisher.emit("config.refused", {"message": printable("; ".join(error.problems), 1000)})
            self._refused = error.problems
            return error.problems
        self._adopt(new)
        return []

    def _adopt(self, new: Configuration) -> None:
        old, self.settings, self._refused = self.settings, new.settings, []
        self.board.recover_after(new.settings.recover)
        self.schedule.spread_by(new.settings.jitter)
        monitors = new.monitors
        if self.monitors is not None:
            if self.sources.follower:
                self.sources.follower.tell_every_record()
            monitors = monitors or Monitors([], [], [])  # what files that are gone have said is to be ended
            monitors.take_over(self.monitors)
        self.monitors = monitors
        self.adopt_plan(new.plan)
        self._start_monitors()
        self.sources.change(self.items, self.settings.kernel_log)
        self._reloaded = self.host.time()
        for call in self._after_reload:
            call()
        for line in unheeded(old, self.settings):
            self.log(line)
        self.log(note(f"configuration reloaded: {len(self.items)} checks"))
        self.publisher.emit("config.reloaded", {"checks": len(self.items)})
        self.changed()
        self.tick()

    # Pauses.

    def pause(self, seconds: float, by: str, why: str) -> None:
        """Run no checks for so many seconds, and end those that run. Who waits for results gets an answer."""
        self._pause.begin(seconds, by, why)
        self.rounds.end(all_of_them=False)
        for waiter in list(self._waiting):
            waiter(Finished((), {}, 0.0))
        self.publisher.emit("agent.paused", {"message": f"by {by}: {why}" if why else f"by {by}"})
        self.save()

    def resume(self, by: str) -> None:
        """End a pause: every check is due."""
        if self.paused is None:
            return
        self._pause.end()
        now = self.host.monotonic()
        self.schedule.set(self.schedule.entries, now)
        for key in self.items:
            self.schedule.hurry(key, now)
        self.publisher.emit("agent.resumed", {"message": by})
        self.save()

    # Rounds.

    def tick(self) -> None:
        """Start what is due, and see when something is next."""
        if self._stopping:
            return
        if self._pause.is_over():
            self.resume("its time is over")
        if not self.paused:
            self.rounds.start_due(self.plan, self.items, self.settings.retry)
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.after(self.rounds.seconds_to_next(), self.tick)

    def call_with_rounds(self, waiter: Callable[[Finished], None]) -> None:
        """Call `waiter` with each round that ends from now on, and, with an empty one, when a pause begins."""
        self._waiting.append(waiter)

    def call_no_more(self, waiter: Callable[[Finished], None]) -> None:
        """The opposite of `call_with_rounds`."""
        self._waiting.remove(waiter)

    def call_after_reload(self, call: Callable[[], None]) -> None:
        """Call this after each reload."""
        self._after_reload.append(call)

    def _round_done(self, finished: Finished) -> None:
        self.rounds.forget_ended()
        if self._stopping:
            return
        if self.paused:
            finished, rest = interrupted(finished, self.items)
            for key in rest:
                self.schedule.end(key, self.host.monotonic(), 0.0, judged=False)
        self.rounds.note(finished, self.settings.retry)
        self.publish_changes(judge_round(self.view(), finished))
        self.kernel.settle()
        self.changed()
        keep_report(self.view(), self.state)
        if self.monitors:
            self.monitors.judged(finished)
        for waiter in list(self._waiting):
            waiter(finished)
        self.tick()

    def state_bytes(self) -> bytes:
        """How the node is, for sinks."""
        if self._state is None:
            self._state = node_view.state_bytes(self.view())
        return self._state

    def run_now(self, names: Sequence[str]) -> Set[str]:
        """Run these checks (all without names) as soon as may be. The keys of those that will."""
        now = self.host.monotonic()
        chosen = agent_plan.named(self.items, names)
        for key in chosen:
            self.schedule.hurry(key, now)
        self.tick()
        return chosen

    # Publishing.

    def publish_changes(self, changes: Sequence[ProblemChange]) -> None:
        """Count problems that began or got worse, and publish every change as an event."""
        for change in changes:
            own = not self.monitors or not self.monitors.owns(change.key)  # those are counted by their own rules
            if own and change.result.verdict is Verdict.CRIT and change.what != ENDED:
                self.publisher.count_problem(change.result.check, change.result.outcome.reason)
        if changes:
            self.publisher.publish([of_change(change, self.node, self.boot_id) for change in changes])

    def changed(self) -> None:
        """The state is another: sinks get it, and it is kept."""
        self._state = None
        self.publisher.changed()
        if self._saving is None:
            self._saving = self.loop.after(SAVE_AFTER, self.save)

    def save(self) -> None:
        """Keep what the agent after a restart needs."""
        if self._saving:
            self._saving.cancel()
            self._saving = None
        save(self.view(), self.state)

    def ack(self, keys: Sequence[str], device: str, everything: bool, by: str, note: str) -> List[str]:
        """End findings of the kernel log, and faults that stood before the agent. Returns what ended."""
        ended = self.kernel.end(keys, device, everything, by, note)
        ended += self.monitors.end(keys, everything) if self.monitors else ()
        if ended:
            self.publisher.emit("finding.acknowledged", {"message": printable(f"{', '.join(ended)} by {by}: {note}")})
            self.kernel.findings_changed()
            self.changed()
            self.save()
        return ended

    # Small things, now and then.

    def _keep_house(self) -> None:
        """See whether another process acknowledged a finding, and whether the configuration has changed."""
        self.loop.after(HOUSEKEEPING, self._keep_house)
        if self.sources.follower and not self.rounds.running:
            self.kernel.look()
        watched = self.settings.watch_config
        if watched and self._files.changed(self.plan, self.settings, self.host.monotonic()):
            self.reload()
