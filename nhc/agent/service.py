"""The agent itself: rounds of checks, the live kernel log, what follows from both, and who is told."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from nhc import __version__
from nhc.agent import plans
from nhc.agent.events import Event, event, of_change
from nhc.agent.follow import Follower
from nhc.agent.loop import Loop, Timer
from nhc.agent.outlet import PATIENCE, Make, Outlet
from nhc.agent.rounds import Finished, Round, lost
from nhc.agent.schedule import Entry, Schedule
from nhc.agent.settings import Settings
from nhc.agent.transitions import ENDED, Board, Change, too_early
from nhc.host import Host
from nhc.kernlog import STORE
from nhc.model import CheckResult, Outcome, Report, Verdict, ok, printable
from nhc.plan import Item, Plan
from nhc.ports import Standing
from nhc.state import State
from nhc.values import NamedTuple

ROUNDS = 4
"""Rounds at a time: one that waits for a hung check holds up nobody else."""
SLOW = 2.0
"""A check that took longer the last time runs in a round of its own kind."""
SAVE_AFTER = 1.0
HOUSEKEEPING = 2.0
INHERITED = "check_kmsg"
SERIES = 512
"""Reasons that are counted apart: a check that makes one up each time must not fill the memory."""
STATE = "agent"
REPORT = "report-agent"


class Pause(NamedTuple):
    """Checks do not run until this Unix time."""

    until: float
    by: str = ""
    why: str = ""


class Agent:
    """One node's agent. `clock` steps do not matter to it: all its times are the host's monotonic ones."""

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
        self.boot_id = host.read_or("/proc/sys/kernel/random/boot_id")
        self.began = host.monotonic()
        self.plan = Plan(())
        self.items: Dict[str, Item] = {}
        self.schedule = Schedule(self.node, settings.jitter)
        self.board = Board(settings.recover)
        self.rounds: List[Round] = []
        self.outlets: Dict[str, Outlet] = {}
        self.makes: Dict[str, Make] = {}
        self.inherited: List[Standing] = []
        self.adopted: Set[str] = set()
        self.remembers = False
        self.paused: Optional[Pause] = None
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
        self._live_key = ""
        self._state: Optional[bytes] = None
        self._timer: Optional[Timer] = None
        self._saving: Optional[Timer] = None
        self._stamps: Any = ()
        self._store_stamp: Any = None
        self._checked_config = 0.0

    # Beginning and ending.

    def start(self) -> None:
        """Begin: raises BadConfig where there is nothing to run."""
        self._adopt_plan(plans.load(self.settings, self.node, self.host, self.state, strict=False))
        self._recall()
        self.follower = Follower(self.loop, self.host, self.state, self._heard, self.log)
        if self.settings.kernel_log and not self.follower.start():
            self.log(f"{self.follower.problem}: the kernel log is read with each round, not live")
        if self.monitors:
            self.monitors.start(self)
        gc.collect()
        gc.freeze()  # rounds are forks: what is never collected is never copied
        for name, make in self.makes.items():
            self.add_outlet(name, make)
        self._emit([self.event("agent.started", version=__version__, checks=len(self.items))])
        self.loop.after(HOUSEKEEPING, self._keep_house)
        self.tick()

    def add_outlet(self, name: str, make: Make) -> None:
        """Start a sink."""
        local = name == "local"
        outlet = Outlet(name, make, self.loop, self.state_bytes, self.log, None if local else self._stood, not local)
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
        if self.monitors:
            self.monitors.close()
        self._emit([self.event("agent.stopped")])
        self.save()
        for outlet in self.outlets.values():
            outlet.close()
        until = time.monotonic() + PATIENCE
        for outlet in self.outlets.values():
            outlet.wait(until)
        self.loop.stop()

    # The plan.

    def _adopt_plan(self, plan: Plan) -> None:
        now = self.host.monotonic()
        from nhc.agent.rounds import key_of

        extra = self.monitors.items() if self.monitors else ()
        plan = plan._replace(items=(*plan.items, *extra))
        self.plan = plan
        self.items = {key_of(item): item for item in plan.items}
        self._live_key = next((key for key, item in self.items.items() if plans.follows(item)), "")
        gone = self.schedule.set(plans.entries(plan), now)
        self._stamps = plans.stamps(plan, self.settings)
        for note in plan.notes:
            self.log(note)
        self._news(self.board.remove([key for key in self.board.rows if key in gone], self.host.time()))

    def reload(self) -> List[str]:
        """Read settings and configuration anew. Returns the problems; with any, everything stays as it was."""
        from nhc.agent.npd.monitors import load as load_monitors
        from nhc.agent.plans import BadConfig
        from nhc.agent.settings import BadSettings

        self._stamps = plans.stamps(self.plan, self.settings)
        try:
            settings = self.read_settings()
            plan = plans.load(settings, self.node, self.host, self.state, strict=True)
            monitors = load_monitors(settings)
        except (BadSettings, BadConfig) as error:
            problems = getattr(error, "problems", None) or [str(error)]
            if problems != self.refused:
                for problem in problems:
                    self.log(f"refused: {problem}")
                self._emit([self.event("config.refused", message=printable("; ".join(problems), 1000))])
            self.refused = problems
            return problems
        old, self.settings, self.refused = self.settings, settings, []
        self.board.recover, self.schedule.jitter = settings.recover, settings.jitter
        if self.monitors is not None:
            if monitors is not None:
                monitors.take_over(self.monitors)
            else:
                self.monitors.close()
                if self.follower:
                    self.follower.readers = ()
        self.monitors = monitors
        self._adopt_plan(plan)
        if self.monitors and self.follower:
            self.monitors.start(self)
        if self.follower:
            if settings.kernel_log and not self.follower.live:
                self.follower.start()
            elif not settings.kernel_log:
                self.follower.close()
        self.reloaded = self.host.time()
        for watcher in self.watchers:
            watcher()
        if (old.sinks, old.events, old.events_format, old.history) != (
            settings.sinks, settings.events, settings.events_format, settings.history,
        ):  # fmt: skip
            self.log("sinks, events and history are as they were: they change when the agent is started anew")
        self.log(f"configuration reloaded: {len(self.items)} checks")
        self._emit([self.event("config.reloaded", checks=len(self.items))])
        self._changed()
        self.tick()
        return []

    # Rounds.

    def tick(self) -> None:
        """Start what is due, and see when something is next."""
        if self.stopping:
            return
        now = self.host.monotonic()
        if self.paused and self.paused.until <= self.host.time():
            self.resume("its time is over")
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
        if self.follower and any(plans.is_kernel_log(item) for item in items):
            self.follower.note()
        self.schedule.begin(batch, now)
        try:
            plan = self.plan._replace(items=items, notes=())
            self.rounds.append(Round(self.loop, plan, self.host, self.state, self.node, self._round_done))
        except OSError as error:
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
        self._store_stamp = self._stamp_of_store()
        self._news(news)
        if self.inherited:  # what we have found ourselves ends as our own findings do
            reasons = self._reasons()
            self.inherited = [one for one in self.inherited if one.reason not in reasons]
        self._changed()
        self._keep_report()
        if self.monitors:
            self.monitors.judged(finished)
        for waiter in list(self.waiting):
            waiter(finished)
        self.tick()

    def _judge(self, key: str, item: Item, results: Sequence[CheckResult], wall: float) -> List[Change]:
        uptime = self.host.monotonic()
        kernel = plans.is_kernel_log(item)
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

    def pause(self, seconds: float, by: str, why: str) -> None:
        self.paused = Pause(self.host.time() + seconds, printable(by, 80), printable(why, 200))
        self._emit([self.event("agent.paused", message=f"by {by}: {why}" if why else f"by {by}")])
        self.save()

    def resume(self, by: str) -> None:
        if self.paused is None:
            return
        self.paused = None
        now = self.host.monotonic()
        self.schedule.set(self.schedule.entries, now)
        for key in self.items:
            self.schedule.hurry(key, now)
        self._emit([self.event("agent.resumed", message=by)])
        self.save()

    # The kernel log.

    def _heard(self) -> None:
        """The store of findings has changed: say what is new at once, and have it judged in full."""
        from nhc.checks.kmsg import ignored, outcome
        from nhc.kernlog.findings import current

        key = self._live_key
        if not key:
            return
        item = self.items[key]
        ignore = plans.arguments(item).get("ignore", ())
        store = self.state.load(STORE)
        self._store_stamp = self._stamp_of_store()
        found = {(o.target, o.reason): o for _key, f in current(store) if not ignored(f, ignore)
                 for o in [outcome(f)] if not _needs_context(f)}  # fmt: skip
        everything = {(f["device"], outcome(f).reason) for _key, f in current(store)}
        row = self.board.rows.get(key)
        results: List[CheckResult] = []
        for result in row.results if row else ():
            place = (result.outcome.target, result.outcome.reason)
            if place in everything or result.outcome.reason.startswith("KernelLog"):
                results.append(result)
                found.pop(place, None)
        results += [self._result(item, told) for told in found.values()]
        if not results:
            results = [self._result(item, ok("the kernel log tells of no fault that stands"))]
        news = self.board.judge(key, results, self.host.time(), 1)
        self._news(news)
        if news:
            self._changed()
        now = self.host.monotonic()
        for other, one in self.items.items():
            if plans.is_kernel_log(one):
                self.schedule.hurry(other, now + 0.2)
        self.tick()

    def _result(self, item: Item, told: Outcome) -> CheckResult:
        return CheckResult(item.name, told, 0.0, item.source, item.line, tuple(dict.fromkeys(("kmsg", *item.tags))))

    def ack(self, keys: Sequence[str], device: str, everything: bool, by: str, note: str) -> List[str]:
        """End findings of the kernel log, and faults that stood before the agent. Returns what ended."""
        from nhc.agent.acks import end_findings

        ended = end_findings(self.state, keys, device, everything, by, note, self.host.time())
        for one in list(self.inherited):
            if everything or f"condition/{one.reason}" in keys:
                self.inherited.remove(one)
                ended.append(f"condition/{one.reason}")
        if self.monitors:
            for entry in self.monitors.conditions():
                name = entry["type"]
                if (everything or f"condition/{name}" in keys) and self.monitors.ack(name):
                    ended.append(f"condition/{name}")
        if ended:
            self._emit([self.event("finding.acknowledged", message=printable(f"{', '.join(ended)} by {by}: {note}"))])
            self._heard()
            self._changed()
            self.save()
        return ended

    def _stood(self, sink: str, standing: List[Standing]) -> None:
        """A sink tells what stood where it writes before we came.

        An agent that remembers this boot knows better. One that remembers nothing keeps what only the kernel log
        could tell, of this boot; what a check looks at itself is judged before anything is cleared.
        """
        if sink in self.adopted:
            return  # it was started anew: what stands there is what we said ourselves
        self.adopted.add(sink)
        if self.remembers:
            return
        booted = self.host.time() - self.host.monotonic()
        known = {one.reason for one in self.inherited} | self._reasons()
        for one in standing:
            if one.reason not in known and one.since >= booted - 60.0 and plans.is_kernel_reason(one.reason):
                known.add(one.reason)
                self.inherited.append(one)
                self.log(f"{one.type}={one.reason} stood on this node before: it stands until it is acknowledged")
        if standing:
            self._changed()

    def _reasons(self) -> Set[str]:
        return {problem.result.outcome.reason for _key, problem in self.board.problems()}

    # What is so.

    def complete(self) -> bool:
        """Whether every check has been judged, in this life or the last of this boot."""
        return all(key in self.board.rows for key in self.items)

    def report(self) -> Report:
        """How the node is."""
        now = self.host.monotonic()
        results = self.board.results(self.items)
        results += [_inherited(one) for one in self.inherited]
        return Report(
            host=self.node,
            boot_id=self.boot_id,
            started=self.host.time() - min(self.schedule.oldest(now), now - self.began + 1.0),
            elapsed=self.round_seconds,
            results=tuple(results),
            notes=tuple(self.plan.notes),
            version=__version__,
            labels=dict(self.settings.labels),
        )

    def state_bytes(self) -> bytes:
        """How the node is, for sinks."""
        import json

        from nhc.render.json import to_dict

        if self._state is None:
            value = {
                "report": to_dict(self.report()),
                "complete": self.complete(),
                "conditions": self.monitors.conditions() if self.monitors else [],
            }
            self._state = json.dumps(value, ensure_ascii=False).encode()
        return self._state

    def health(self) -> str:
        """What keeps the checks from running, "" while they do."""
        if self.stopping:
            return "stopping"
        if self.paused:
            return f"paused by {self.paused.by}{f': {self.paused.why}' if self.paused.why else ''}"
        now = self.host.monotonic()
        never = [key for key, entry in self.schedule.entries.items() if entry.judged is None]
        if never:
            return f"{len(never)} of {len(self.schedule.entries)} checks have not run yet"
        late = self.schedule.overdue(now)
        if late:
            return f"{len(late)} checks are overdue, as {self.items[late[0]].name}"
        return ""

    # Telling.

    def event(self, what: str, **more: Any) -> Event:
        return event(what, self.host.time(), self.node, self.boot_id, **more)

    def _news(self, changes: Sequence[Change]) -> None:
        for change in changes:
            own = not self.monitors or not self.monitors.owns(change.key)  # those are counted by their own rules
            if own and change.result.verdict is Verdict.CRIT and change.what != ENDED:
                self.count_problem(change.result.check, change.result.outcome.reason)
        if changes:
            self._emit([of_change(change, self.node, self.boot_id) for change in changes])

    def _emit(self, events: List[Event]) -> None:
        for piece in events:
            self._count(f"event {piece['event']}")
        for outlet in self.outlets.values():
            outlet.tell(events)

    emit = _emit

    def count_problem(self, kind: str, reason: str, times: int = 1) -> None:
        """A problem has occurred: node-problem-detector's problem_counter, and a series of its problem_gauge."""
        if reason in self.problem_counts or len(self.problem_counts) < SERIES:
            self.problem_counts[reason] = self.problem_counts.get(reason, 0) + times
        if kind and len(self.problem_seen) < SERIES:
            self.problem_seen[kind, reason] = None

    def _changed(self) -> None:
        """The state is another: sinks get it, and it is kept."""
        self._state = None
        for outlet in self.outlets.values():
            outlet.changed()
        if self._saving is None:
            self._saving = self.loop.after(SAVE_AFTER, self.save)

    changed = _changed

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _log_once(self, note: str) -> None:
        key = f"note {note}"
        if key not in self.counts and len(self.counts) < 4096:
            self.log(note)
        self._count(key)

    # Keeping.

    def save(self) -> None:
        """Keep what the next life needs."""
        if self._saving:
            self._saving.cancel()
            self._saving = None
        self.state.save(
            STATE,
            {
                "boot_id": self.boot_id,
                "rows": self.board.dump(),
                "inherited": [list(one) for one in self.inherited],
                "paused": list(self.paused) if self.paused else None,
                "monitors": self.monitors.dump() if self.monitors else None,
            },
        )

    def _keep_report(self) -> None:
        """Leave the report where `nhc check local --max-age` and the prolog find it."""
        from nhc.render.json import to_dict

        if self.complete() and not any(entry.judged is None for entry in self.schedule.entries.values()):
            asked = {"config": list(self.settings.config), "scripts": list(self.settings.scripts)}
            self.state.save(REPORT, {**to_dict(self.report()), **asked, "profile": self.settings.profile})

    def _recall(self) -> None:
        """Take over what the last life left, if it was this boot's."""
        kept = self.state.load(STATE)
        pause = kept.get("paused")
        if isinstance(pause, list) and len(pause) == 3 and pause[0] > self.host.time():
            self.paused = Pause(*pause)
        if not self.boot_id or kept.get("boot_id") != self.boot_id:
            return
        rows = kept.get("rows")
        if isinstance(rows, dict):
            self.board.load({key: row for key, row in rows.items() if key in self.items})
            self.remembers = True
        for one in kept.get("inherited") or ():
            try:
                self.inherited.append(Standing(*one))
            except TypeError:
                continue
        if self.monitors and isinstance(kept.get("monitors"), dict):
            self.monitors.load(kept["monitors"])

    # Small things, now and then.

    def _keep_house(self) -> None:
        """See whether another process acknowledged a finding, and whether the configuration has changed."""
        self.loop.after(HOUSEKEEPING, self._keep_house)
        stamp = self._stamp_of_store()
        if stamp != self._store_stamp and self.follower and not self.rounds:
            self._store_stamp = stamp
            self._heard()
        now = self.host.monotonic()
        if self.settings.watch_config and now - self._checked_config >= 10.0:
            self._checked_config = now
            if plans.stamps(self.plan, self.settings) != self._stamps:
                self.reload()

    def _stamp_of_store(self) -> Any:
        try:
            found = os.stat(f"{self.state.directory}/{STORE}.json")
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def _needs_context(finding: Dict[str, Any]) -> bool:
    """Whether only the device can tell what this means: a round asks it."""
    from nhc.kernlog import xid

    return finding["kind"] == "xid" and xid.depends(finding["code"], "")


def _inherited(one: Standing) -> CheckResult:
    message = f"{one.message} (stood before this agent; nothing has shown it to be gone)"
    outcome = Outcome(Verdict.CRIT, one.reason, printable(message, 1000))
    return CheckResult(INHERITED, outcome, 0.0, "the agent", f"condition/{one.reason}")


def complain(line: str) -> None:
    """A line for the log; one that cannot be written is lost, and nothing else."""
    try:
        sys.stderr.write(f"nhc agent: {printable(line, 2000)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
