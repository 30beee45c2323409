"""The agent itself: it starts rounds of checks, follows the kernel log, and publishes what both find."""

from __future__ import annotations

import gc
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set

from nhc import __version__
from nhc.agent import agent_plan, latest_report, persistence
from nhc.agent.agent_plan import BadConfig
from nhc.agent.check_round import Finished, key_of
from nhc.agent.event_loop import Loop, Timer
from nhc.agent.events import of_change
from nhc.agent.judging import judge_round
from nhc.agent.kernel_findings import KernelLog, Listener
from nhc.agent.kernel_sources import KernelSources
from nhc.agent.node_view import NodeView
from nhc.agent.npd_monitors import Monitors
from nhc.agent.pause import Pause, PauseTimer, interrupted
from nhc.agent.problems import ENDED, Board, ProblemChange
from nhc.agent.publisher import Publisher
from nhc.agent.reload import ConfigFiles, Configuration, read_anew, unheeded
from nhc.agent.rounds import Rounds
from nhc.agent.schedule import Schedule
from nhc.agent.settings import AgentSettings
from nhc.agent.sink_handle import SinkHandle
from nhc.agent.sink_process import Make
from nhc.core.host import Host, root_of
from nhc.core.language.site_settings import site_settings
from nhc.core.model import Verdict, printable
from nhc.core.plan import Item, Plan
from nhc.core.state.store import State
from nhc.core.system.service_log import note
from nhc.node.kernlog import lasting

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
        self.sources.start(self.items, self.settings.kernel_log, self.kernel.findings_changed, self.publisher.log_event)
        self._start_monitors()
        gc.collect()
        gc.freeze()  # rounds are forks: what is never collected is never copied
        self._start_sinks()
        self.publisher.emit("agent.started", {"version": __version__, "checks": len(self.items)})
        self.loop.after(HOUSEKEEPING, self._keep_house)
        self.tick()

    def _recall(self) -> None:
        """Take over what the agent before this one left."""
        kept = persistence.recall(self.state, self.boot_id, self.host.time())
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
        persistence.keep_report(self.view(), self.state)
        if self.monitors:
            self.monitors.judged(finished)
        for waiter in list(self._waiting):
            waiter(finished)
        self.tick()

    def state_bytes(self) -> bytes:
        """How the node is, for sinks."""
        if self._state is None:
            self._state = latest_report.state_bytes(self.view())
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
        persistence.save(self.view(), self.state)

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
