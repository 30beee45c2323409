"""The agent itself: it starts rounds of checks, follows the kernel log, and publishes what both find."""

from __future__ import annotations

import gc
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from nhc import __version__
from nhc.agent import agent_plan, node_view
from nhc.agent.agent_plan import BadConfig, Checks
from nhc.agent.check_round import Finished, lost
from nhc.agent.configuration import ConfigFiles, Configuration
from nhc.agent.event_loop import Timer
from nhc.agent.events import of_change
from nhc.agent.kernel_findings import KernelLog, Listener
from nhc.agent.kernel_sources import KernelSources
from nhc.agent.node_view import NodeView
from nhc.agent.npd_monitors import Monitors
from nhc.agent.pause import LONGEST, Pause, interrupted
from nhc.agent.problems import ENDED, Board, ProblemChange, too_early
from nhc.agent.publisher import Publisher
from nhc.agent.rounds import Rounds
from nhc.agent.runtime import Runtime
from nhc.agent.schedule import Schedule
from nhc.agent.sink_handle import SinkHandle
from nhc.agent.sink_process import Make
from nhc.core.light import NamedTuple
from nhc.core.model import CheckResult, Verdict, printable
from nhc.core.plan import Item, Plan
from nhc.core.render.json import to_dict
from nhc.core.state.reports import report_name
from nhc.core.state.store import State
from nhc.core.system.service_log import note
from nhc.marks.ports.sinks import Standing
from nhc.node.kernlog import lasting
from nhc.node.planning.cached_verdict import lines_digest, store_agent_verdict

# What a round of checks changes on the board of problems, and when its checks run next.


def judge_round(node: NodeView, finished: Finished) -> List[ProblemChange]:
    """Enter the results of a round that has ended. Returns the problems that began, changed or ended.

    After a round without results, a check's last result stays until the check is overdue.
    """
    checks = node.checks
    now, wall = node.runtime.host.monotonic(), node.runtime.host.time()
    changes: List[ProblemChange] = []
    late = set(checks.schedule.overdue(now)) if finished.problem else set()
    for key in finished.keys:
        item = checks.items.get(key)
        if item is None:
            continue  # the configuration dropped it meanwhile
        if finished.problem and key in checks.board.rows and key not in late:
            continue  # tried again in a moment
        results = finished.results.get(key, [])
        if finished.problem or not results:
            results = [lost(item, finished.problem or "no result of it came back")]
        if not finished.problem:
            checks.schedule.end(key, now, max((result.elapsed for result in results), default=0.0))
        changes += _judge(node, key, item, results, wall, now - finished.elapsed)
        if checks.board.recovering(key) and not item.of:  # the runs of N of M are those of its cadence
            checks.schedule.hurry(key, now + node.settings.retry)
    return changes


def _judge(
    node: NodeView, key: str, item: Item, results: Sequence[CheckResult], wall: float, began: float
) -> List[ProblemChange]:
    checks = node.checks
    if key == node.kernel.key:
        results = node.kernel.judged(item, results, began)
    uptime = node.runtime.host.monotonic()
    if agent_plan.waits_for_boot(item, node.settings, uptime):
        results = [too_early(result, uptime) for result in results]
        checks.schedule.hurry(key, node.settings.boot_window)
    return checks.board.judge(key, results, wall, 1 if agent_plan.is_kernel_log(item) else None)


# What the agent leaves to the next one after a restart, and to `nhc check local`.


STATE = "agent"


class Recalled(NamedTuple):
    """What an earlier agent left; all but the pause is from this boot.

    `rows` are the board's, `adopted` the sinks that reported faults from before the agent, `inherited` those faults.
    """

    pause: Optional[Pause] = None
    rows: Mapping[str, Any] = {}
    adopted: Tuple[str, ...] = ()
    inherited: Tuple[Standing, ...] = ()
    monitors: Optional[Mapping[str, Any]] = None


def save(node: NodeView) -> None:
    """Store what the next agent needs."""
    kept: Dict[str, Any] = {
        "boot_id": node.runtime.boot_id,
        "rows": node.checks.board.dump(),
        "inherited": [list(fault) for fault in node.kernel.inherited],
        "adopted": sorted(node.kernel.adopted),
        "paused": list(node.pause.current) if node.pause.current else None,
        "monitors": node.monitors.dump() if node.monitors else None,
    }
    node.runtime.state.save(STATE, kept)


def keep_report(node: NodeView) -> None:
    """Write the report where `nhc check local --max-age` and the prolog find it."""
    checks, state = node.checks, node.runtime.state
    if checks.complete() and not any(entry.judged is None for entry in checks.schedule.entries.values()):
        report = node_view.report(node)
        lines = lines_digest(checks.items.values())
        store_agent_verdict(state, report, lines)
        asked = {
            "config": list(node.settings.config),
            "scripts": list(node.settings.scripts),
            "root": node.runtime.root,
        }
        state.save(report_name("agent"), {**to_dict(report), **asked, "profile": node.settings.profile, "lines": lines})


def recall(state: State, boot_id: str, now: float) -> Recalled:
    """What the last agent of this boot left, if any; what does not fit is left out. `now` is the Unix time."""
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
    """Whether these are the fields of a stored value; a number must be a time."""
    if not isinstance(value, list) or len(value) != len(kinds):
        return False
    return all(
        isinstance(field, str) if kind is str else isinstance(field, (int, float)) and 0 <= field < 1e11
        for field, kind in zip(value, kinds)
    )


SAVE_AFTER = 1.0
HOUSEKEEPING = 2.0
SHARE_A_PROCESS = ("server", "otel")
"""Sinks that use nhc's own HTTP client: they share a process, which loads it once. Every other sink has its own."""


class Agent:
    """One node's agent. Steps of the clock do not affect it: it uses the host's monotonic clock for all times."""

    def __init__(
        self, runtime: Runtime, config: ConfigFiles, monitors: Optional[Monitors] = None, makes: Mapping[str, Make] = {}
    ) -> None:
        settings = config.settings
        checks = Checks(Schedule(runtime.node, settings.jitter), Board(settings.recover))
        publisher = Publisher(runtime.node, runtime.boot_id, runtime.host.time)
        sources = KernelSources(runtime, checks, self.tick)
        listener = Listener(self.publish_changes, self.changed, self.tick)
        kernel = KernelLog(runtime.host, runtime.state, checks, runtime.log, listener, sources.findings)
        rounds = Rounds(runtime, checks, sources, publisher, self._round_done)
        self.node = NodeView(runtime, config, checks, publisher, sources, kernel, rounds, monitors)
        self._makes = makes
        self._begun = False
        self._state: Optional[bytes] = None
        self._timer: Optional[Timer] = None
        self._saving: Optional[Timer] = None

    # Beginning and ending.

    def start(self) -> None:
        """Begin: raises BadConfig if there is nothing to run."""
        node, on = self.node, self.node.runtime
        self._adopt_plan(agent_plan.load(node.settings, on.node, on.host, on.state, strict=False))
        self._begun = True
        lasting.agent_begins(on.state, on.boot_id)
        self._recall()
        wanted, events = node.settings.kernel_log, node.settings.gpu_events
        node.sources.start(wanted, events, node.kernel.findings_changed, node.publisher.log_event)
        self._start_monitors()
        gc.collect()
        gc.freeze()  # rounds are forks: memory that is never collected is never copied
        self._start_sinks()
        node.publisher.emit("agent.started", {"version": __version__, "checks": len(node.checks.items)})
        on.loop.after(HOUSEKEEPING, self._keep_house)
        self.tick()

    def _recall(self) -> None:
        """Restore what the agent before this one left."""
        node = self.node
        now = node.runtime.host.time()
        kept = recall(node.runtime.state, node.runtime.boot_id, now)
        if kept.pause:
            node.pause.go_on(kept.pause, kept.pause.until - now)
        node.checks.board.load({key: row for key, row in kept.rows.items() if key in node.checks.items})
        node.kernel.recall(kept.adopted, kept.inherited)
        if kept.monitors is not None:
            monitors = node.monitors or Monitors([], [], [])
            monitors.load(kept.monitors)
            node.follow_by(monitors)

    def _start_monitors(self) -> None:
        node, on = self.node, self.node.runtime
        if node.monitors and node.sources.follower:
            node.monitors.start(on.host, on.loop, node.publisher, self.changed, node.sources.follower)

    def _start_sinks(self) -> None:
        node, on = self.node, self.node.runtime
        sharing: List[SinkHandle] = []
        for name, make in self._makes.items():
            local = name == "local"
            node.publisher.sinks[name] = SinkHandle(
                name, make, on.loop, self.state_bytes, on.log, None if local else node.kernel.stood, not local,
                sharing if name in SHARE_A_PROCESS else None,
            )  # fmt: skip
        for handle in node.publisher.sinks.values():
            handle.start()

    def stop(self) -> None:
        """End: start no new rounds, end the running ones, store and deliver what is known.

        An agent that did not begin stores nothing: the stored state belongs to an earlier agent, or to one that runs
        beside it.
        """
        node, on = self.node, self.node.runtime
        if node.stopping:
            return
        node.stop()
        node.rounds.end(all_of_them=True)
        node.sources.close()
        if node.monitors:
            node.monitors.close()
        node.publisher.emit("agent.stopped", {})
        if self._begun:
            self.save()
            lasting.agent_ends(on.state, on.boot_id)
        node.publisher.close()
        on.loop.stop()

    # The plan.

    def _adopt_plan(self, plan: Plan) -> None:
        node, host = self.node, self.node.runtime.host
        extra = node.monitors.items() if node.monitors else ()
        plan = plan._replace(items=(*plan.items, *extra))
        ended = node.checks.adopt(plan, host.monotonic(), host.time())
        node.kernel.plan_changed()
        node.config.note(plan)
        for line in plan.notes:
            node.runtime.log(line)
        self.publish_changes(ended)

    def reload(self) -> List[str]:
        """Read settings and configuration again. Returns the problems; if there are any, nothing changes."""
        node, config = self.node, self.node.config
        config.note(node.checks.plan)
        try:
            new = config.read_anew()
        except BadConfig as error:
            if error.problems != config.refused:
                for problem in error.problems:
                    node.runtime.log(f"refused: {problem}")
                node.publisher.emit("config.refused", {"message": printable("; ".join(error.problems), 1000)})
            config.refuse(error.problems)
            return error.problems
        self._adopt(new)
        return []

    def _adopt(self, new: Configuration) -> None:
        node, log = self.node, self.node.runtime.log
        node.checks.board.recover_after(new.settings.recover)
        node.checks.schedule.spread_by(new.settings.jitter)
        monitors = new.monitors
        if node.monitors is not None:
            if node.sources.follower:
                node.sources.follower.tell_every_record()
            monitors = monitors or Monitors([], [], [])  # ends what removed files have set
            monitors.take_over(node.monitors)
        node.follow_by(monitors)
        needs_restart = node.config.adopt(new.settings)
        self._adopt_plan(new.plan)
        self._start_monitors()
        node.sources.change(new.settings.kernel_log)
        for line in needs_restart:
            log(line)
        log(note(f"configuration reloaded: {len(node.checks.items)} checks"))
        node.publisher.emit("config.reloaded", {"checks": len(node.checks.items)})
        self.changed()
        self.tick()

    # Pauses.

    def pause(self, seconds: float, by: str, why: str) -> None:
        """Run no checks for so many seconds, and end those that run. Callers that wait for results get an answer."""
        node = self.node
        node.pause.begin(seconds, by, why)
        node.rounds.end(all_of_them=False)
        node.rounds.answer(Finished((), {}, 0.0))
        node.publisher.emit("agent.paused", {"message": f"by {by}: {why}" if why else f"by {by}"})
        self.save()

    def resume(self, by: str) -> None:
        """End a pause: every check is due."""
        node, checks = self.node, self.node.checks
        if node.pause.current is None:
            return
        node.pause.end()
        now = node.runtime.host.monotonic()
        checks.schedule.set(checks.schedule.entries, now)
        checks.hurry(checks.items, now)
        node.publisher.emit("agent.resumed", {"message": by})
        self.save()

    # Rounds.

    def tick(self) -> None:
        """Start the due checks, and find out when the next is due."""
        node = self.node
        if node.stopping:
            return
        if node.pause.is_over():
            self.resume("its time is over")
        if not node.pause.current:
            node.rounds.start_due(node.settings.retry)
        if self._timer:
            self._timer.cancel()
        self._timer = node.runtime.loop.after(node.rounds.seconds_to_next(), self.tick)

    def _round_done(self, finished: Finished) -> None:
        node = self.node
        node.rounds.forget_ended()
        if node.stopping:
            return
        if node.pause.current:
            finished, rest = interrupted(finished, node.checks.items)
            for key in rest:
                node.checks.schedule.end(key, node.runtime.host.monotonic(), 0.0, judged=False)
        node.rounds.note(finished, node.settings.retry)
        self.publish_changes(judge_round(node, finished))
        node.kernel.settle()
        self.changed()
        keep_report(node)
        if node.monitors:
            node.monitors.judged(finished)
        node.rounds.answer(finished)
        self.tick()

    def state_bytes(self) -> bytes:
        """How the node is, for sinks."""
        if self._state is None:
            self._state = node_view.state_bytes(self.node)
        return self._state

    def run_now(self, names: Sequence[str]) -> Set[str]:
        """Run these checks (all without names) as soon as possible. Returns the keys of those that will run."""
        chosen = agent_plan.named(self.node.checks.items, names)
        self.node.checks.hurry(chosen, self.node.runtime.host.monotonic())
        self.tick()
        return chosen

    # Publishing.

    def publish_changes(self, changes: Sequence[ProblemChange]) -> None:
        """Count problems that began or got worse, and publish every change as an event."""
        node, on = self.node, self.node.runtime
        for change in changes:
            own = not node.monitors or not node.monitors.owns(change.key)  # those are counted by their own rules
            if own and change.result.verdict is Verdict.CRIT and change.what != ENDED:
                node.publisher.count_problem(change.result.check, change.result.outcome.reason)
        if changes:
            node.publisher.publish([of_change(change, on.node, on.boot_id) for change in changes])

    def changed(self) -> None:
        """The state has changed: sinks get it, and it is stored."""
        self._state = None
        self.node.publisher.changed()
        if self._saving is None:
            self._saving = self.node.runtime.loop.after(SAVE_AFTER, self.save)

    def save(self) -> None:
        """Store what the agent needs after a restart."""
        if self._saving:
            self._saving.cancel()
            self._saving = None
        save(self.node)

    def ack(self, keys: Sequence[str], device: str, everything: bool, by: str, note: str) -> List[str]:
        """End findings of the kernel log, and faults from before the agent's start. Returns what ended."""
        node = self.node
        ended = node.kernel.end(keys, device, everything, by, note)
        ended += node.monitors.end(keys, everything) if node.monitors else ()
        if ended:
            node.publisher.emit("finding.acknowledged", {"message": printable(f"{', '.join(ended)} by {by}: {note}")})
            node.kernel.findings_changed()
            self.changed()
            self.save()
        return ended

    # Small periodic tasks.

    def _keep_house(self) -> None:
        """Check whether another process acknowledged a finding, and whether the configuration has changed."""
        node = self.node
        node.runtime.loop.after(HOUSEKEEPING, self._keep_house)
        if node.sources.follower and not node.rounds.running:
            node.kernel.look()
        if node.config.changed(node.checks.plan):
            self.reload()
