"""One node's gate, carried out: look, decide, hold, test, open. Runs on the node itself.

Each step is recorded before it is taken, so that a gate that was killed continues where it was: a run that was cut off
counts as one without a verdict. A step that cannot be done is logged and recorded; the policy says whether work may
come then.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Mapping, NamedTuple, Optional

from nhc.core.host import Host
from nhc.core.model import printable
from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import BadRecord, GateRecord, GateState
from nhc.core.system import written_files
from nhc.core.system.service_log import failure
from nhc.marks.policy.bounds import Bounds, RadiusBounds, full_radius, usage_of
from nhc.marks.policy.door import one_too_many
from nhc.marks.ports.adapter import Effect
from nhc.marks.ports.gates import Gatekeeper, GateNews, GateStanding, LifecycleHook, ShowsNodes
from nhc.marks.ports.marks import out_by_nhc
from nhc.remedy.gates import identity, suite_process
from nhc.remedy.gates.gate_decision import NEW, GateDecision, GateStep, GateView, after, decide, may_wait
from nhc.remedy.gates.settings import GateRules, Trigger

GROUP = "group"
"""The kind of blast radius that a group of gates is."""
TICK = 1.0
"""Seconds after which no other mark can have the same time as this one: Slurm stores a mark's time in whole seconds."""

Tell = Callable[[str, str, Mapping[str, object]], None]
"""Called with each change: `gate.held`, the node, and details. Must not raise."""


class GateWorld(NamedTuple):
    """What a gate works with. `suite_text` is what the suite runs, `adapter` is the one that `nhc deep run` asks
    whether the node is idle.

    `keep` takes the report (JSON) of each run of the suite, for the store.
    """

    node: str
    rules: GateRules
    host: Host
    keeper: Optional[Gatekeeper]
    hook: Optional[LifecycleHook]
    suite_text: str
    record_path: str
    adapter: str
    environ: Mapping[str, str]
    say: Callable[[str], None]
    tell: Tell = lambda what, node, detail: None
    keep: Callable[[str], None] = lambda report: None
    clock: Callable[[], float] = time.time


class GatePass(NamedTuple):
    """The result of a pass: the decision, the record now, and whether work may come in.

    `problem` says what could not be done, "" for nothing.
    """

    decision: GateDecision
    record: Optional[GateRecord]
    lets_in: bool
    problem: str = ""


class Gate:
    """The gate of this node. Any exception from the scheduler's or the cloud's side is logged, and the step is tried
    again in the next pass: it ends no running suite.
    """

    def __init__(self, world: GateWorld) -> None:
        self.world = world
        self._beat = 0.0
        self._beats_failed = ""

    def look(self) -> GateView:
        """Everything that bears on the decision; what cannot be read is logged."""
        world = self.world
        kept: Optional[GateRecord] = None
        try:
            kept = record.read(world.record_path)
        except BadRecord as error:
            world.say(f"{error}: the suite has to run again")
        boot = world.host.boot_id()
        marks = identity.marks(world.host, world.suite_text)
        return GateView(world.clock(), boot, marks, kept, self._standing(), world.keeper is not None)

    def _standing(self) -> Optional[GateStanding]:
        if self.world.keeper is None:
            return None
        try:
            standing = self.world.keeper.standing(self.world.node)
        except Exception as error:
            self.world.say(f"the scheduler does not answer: {failure(error)}")
            return None
        if standing is None:
            self.world.say(f"the scheduler knows no node {self.world.node}")
        return standing

    def once(self, *, apply: bool, hold_only: bool = False) -> GatePass:
        """One pass. Raises OSError where the record cannot be written: then nothing was begun."""
        seen = self.look()
        decision = decide(self.world.rules, seen)
        waits = bool(decision.due) and may_wait(self.world.rules, seen)
        no_room = self._no_room() if waits else ""
        if no_room:
            decision = GateDecision(GateStep.NOTHING, f"{decision.due}; {no_room}")
        if not apply:
            return GatePass(decision, seen.record, _lets_in(seen.record, decision))
        if waits and not no_room:
            no_room = self._met_others(decision.why)
            if no_room:
                decision = GateDecision(GateStep.NOTHING, f"{decision.due}; {no_room}")
        if decision.step is GateStep.ADOPT:
            return self._settle(self._fresh(seen, GateState.OPENED, decision.why), decision)
        if decision.step is GateStep.GIVE_WAY:
            asked = seen.standing.asked if seen.standing is not None else 0.0
            kept = _standing_record(seen)
            kept = kept._replace(
                state=GateState.OPENED, why=decision.why, at=seen.now, asked=max(asked, kept.asked), completed=False
            )
            return self._settle(kept, decision)
        if decision.step is GateStep.RELEASE or (decision.step is GateStep.NOTHING and self._owes_hook(seen.record)):
            return self._open(_standing_record(seen), decision)
        if decision.step is GateStep.KEEP:
            return self._give_up(_standing_record(seen), decision)
        if decision.step in (GateStep.HOLD, GateStep.TEST):
            return self._close(seen, decision, hold_only)
        return GatePass(decision, seen.record, _lets_in(seen.record, decision))

    def adopt(self, why: str, *, apply: bool) -> GatePass:
        """Accept this node as it is if it has no verdict yet; an existing verdict stays. Raises OSError."""
        seen = self.look()
        kept = seen.record
        if kept is not None and not (kept.state is GateState.HELD and kept.due == NEW):
            decision = GateDecision(GateStep.NOTHING, f"it has a verdict already: {kept.state.value}")
            return GatePass(decision, kept, kept.state.lets_in)
        decision = GateDecision(GateStep.ADOPT, f"adopted as it is: {why}")
        if not apply:
            return GatePass(decision, kept, False)
        return self._settle(self._fresh(seen, GateState.OPENED, decision.why), decision)

    # Room in the group, where closing may wait.

    def _no_room(self, itself: bool = False) -> str:
        """Why too many of the group are out for this gate to close now, "" if they are not, or if that cannot be read.
        `itself`: it is closed already, and may be one too many of the gates that closed together.
        """
        world, rules = self.world, self.world.rules
        keeper: object = world.keeper
        if not isinstance(keeper, ShowsNodes):
            return ""
        try:
            states = keeper.nodes()
        except Exception as error:
            return f"the scheduler does not answer: {failure(error)}"
        group = [
            state._replace(groups=(), placed=((GROUP, rules.name),)) for state in states if rules.contains(state.name)
        ]
        bounds = Bounds({GROUP: RadiusBounds(rules.out)})
        out = (state.name for state in group if out_by_nhc(state) and state.name != world.node)
        full = one_too_many(group, world.node, bounds) if itself else full_radius(
            bounds, usage_of(group, out), world.node)  # fmt: skip
        return f"{full.out} of {full.size} nodes of {rules.name} are out, {full.limit.show()} may be" if full else ""

    def _met_others(self, why: str) -> str:
        """Close, and count once more: gates that close at the same time have all found room before. Returns why it is
        open again, "" if it stays closed.
        """
        keeper: object = self.world.keeper
        if not isinstance(keeper, ShowsNodes):
            return ""
        self._hold(why)
        time.sleep(TICK)
        no_room = self._no_room(itself=True)
        if no_room:
            self._release()
        return no_room

    # Closing and testing.

    def _close(self, seen: GateView, decision: GateDecision, hold_only: bool) -> GatePass:
        """Hold the node, and run the suite if that may begin."""
        kept = seen.record
        if decision.due or kept is None:
            kept = self._fresh(seen, GateState.HELD, decision.why, decision.due or decision.why)
            self._write(kept, "gate.closed")
        problem = self._hold(decision.why)
        self._publish(kept)
        if decision.step is GateStep.HOLD or hold_only:
            return GatePass(decision, kept, kept.state.lets_in, problem)
        standing = self._standing()
        if standing is None and self.world.keeper is not None:  # it answered before; is the node held? unknown
            unanswered = GateDecision(GateStep.HOLD, f"{decision.why}; the scheduler does not answer")
            return GatePass(unanswered, kept, False, problem)
        if standing is not None and not standing.held and not standing.other:
            return GatePass(GateDecision(GateStep.HOLD, f"{decision.why}; not held yet"), kept, False, problem)
        if standing is not None and standing.busy:  # work came between the look and the mark
            return GatePass(GateDecision(GateStep.HOLD, f"{decision.why}; work still runs here"), kept, False, problem)
        return self._test(kept, decision, problem)

    def _test(self, kept: GateRecord, decision: GateDecision, problem: str) -> GatePass:
        world = self.world
        tries = kept.tries + (1 if kept.state is GateState.TESTING else 0)
        kept = kept._replace(state=GateState.TESTING, at=world.clock(), tries=tries, why=decision.why)
        self._write(kept, "gate.testing")
        self._publish(kept)
        world.say(f"{world.node}: {world.rules.suite} begins: {decision.why}")
        ran = suite_process.run(
            world.rules.suite, world.node, world.adapter, world.rules.limit, world.environ, self._during
        )
        kept = after(kept, ran.verdict, ran.why, world.clock(), self._keep_report(ran.report))
        self._write(kept, f"gate.{kept.state.value}")
        if ran.report:
            world.keep(ran.report)
        world.say(f"{world.node}: {kept.state.value}: {kept.why}")
        if kept.state.lets_in:
            return self._open(kept, decision)
        self._publish(kept)
        if kept.state is GateState.FAILED:
            return self._give_up(kept, decision)
        last = decide(world.rules, self.look())
        if last.step in (GateStep.GIVE_WAY, GateStep.KEEP):  # that was the last try
            return self.once(apply=True)
        return GatePass(decision, kept, False, problem or kept.why)

    def _keep_report(self, text: str) -> str:
        """Write the suite's report beside the record; its path, "" if it could not be written."""
        if not text:
            return ""
        path = f"{os.path.splitext(self.world.record_path)[0]}-report.json"
        try:
            written_files.write_whole(path, text.encode())
        except OSError as error:
            self.world.say(f"{path}: {error.strerror}: the report is not kept")
            return ""
        return path

    def _during(self) -> None:
        """While the suite runs: ask the cloud to go on waiting."""
        hook = self.world.hook
        settings = self.world.rules.hook
        if hook is None or settings is None or time.monotonic() - self._beat < settings.every:
            return
        self._beat = time.monotonic()
        try:
            hook.heartbeat()
            self._beats_failed = ""
        except Exception as error:
            if failure(error) != self._beats_failed:
                self._beats_failed = failure(error)
                self.world.say(f"the lifecycle hook was not told to wait on: {self._beats_failed}")

    # Ends.

    def _open(self, kept: GateRecord, decision: GateDecision) -> GatePass:
        """Let work in, after the cloud was told."""
        problem = self._release()
        kept, missed = self._complete(kept, True)
        self._publish(kept)
        return GatePass(decision, kept, True, problem or missed)

    def _give_up(self, kept: GateRecord, decision: GateDecision) -> GatePass:
        """The node stays out. A cloud that waits for it may take it back."""
        problem = self._hold(decision.why)
        kept, missed = self._complete(kept, False)
        self._publish(kept)
        return GatePass(decision, kept, False, problem or missed or kept.why)

    def _settle(self, kept: GateRecord, decision: GateDecision) -> GatePass:
        self._write(kept, "gate.opened")
        self.world.say(f"{self.world.node}: opened: {kept.why}")
        return self._open(kept, decision)

    def _owes_hook(self, kept: Optional[GateRecord]) -> bool:
        return self.world.hook is not None and kept is not None and not kept.completed

    def _complete(self, kept: GateRecord, passed: bool) -> tuple[GateRecord, str]:
        """Answer the lifecycle hook, once for a verdict; a failure is tried again in the next pass."""
        hook = self.world.hook
        if hook is None or kept.completed:
            return kept, ""
        try:
            waits = hook.waits()
            answer = hook.complete(passed) if waits else "no lifecycle hook waits for this instance"
        except Exception as error:
            return kept, f"the lifecycle hook was not answered: {failure(error)}"
        self.world.say(answer)
        kept = kept._replace(completed=True)
        self._write(kept, "gate.hook")
        return kept, ""

    # The scheduler.

    def _hold(self, why: str) -> str:
        if self.world.keeper is None:
            return ""
        try:
            done = self.world.keeper.hold(self.world.node, why)
        except Exception as error:
            return self._missed(f"the node is not held: {failure(error)}")
        if done.effect is Effect.FAILED:
            return self._missed(f"the node is not held: {done.message}")
        if done.effect is Effect.CHANGED:
            self.world.say(f"{self.world.node}: held: {why}")
            self.world.tell("gate.held", self.world.node, {"why": why})
        return ""

    def _release(self) -> str:
        if self.world.keeper is None:
            return ""
        try:
            done = self.world.keeper.release(self.world.node)
        except Exception as error:
            return self._missed(f"the node is not released: {failure(error)}")
        if done.effect is Effect.FAILED:
            return self._missed(f"the node is not released: {done.message}")
        if done.effect is not Effect.UNCHANGED:
            self.world.say(f"{self.world.node}: {done.effect.value}: {done.message or 'takes work'}")
            self.world.tell("gate.released", self.world.node, {"effect": done.effect.value, "said": done.message})
        return ""

    def _missed(self, problem: str) -> str:
        self.world.say(printable(problem))
        return printable(problem)

    def _publish(self, kept: GateRecord) -> None:
        if self.world.keeper is None:
            return
        try:
            self.world.keeper.publish(
                self.world.node, GateNews(kept.state.value, kept.suite, kept.why, kept.at, kept.boot)
            )
        except Exception as error:
            self.world.say(f"the state of the gate is not shown: {failure(error)}")

    # The record.

    def _fresh(self, seen: GateView, state: GateState, why: str, due: str = "") -> GateRecord:
        asked = seen.standing.asked if seen.standing is not None else 0.0
        before = seen.record.asked if seen.record is not None else 0.0
        return GateRecord(
            state, self.world.rules.suite, self.world.rules.name, seen.now, seen.boot, seen.marks, why, due,
            asked=max(asked, before), each_boot=Trigger.START in self.world.rules.on,
        )  # fmt: skip

    def _write(self, kept: GateRecord, what: str) -> None:
        record.write(self.world.record_path, kept)
        self.world.tell(what, self.world.node, {
            "why": kept.why, "suite": kept.suite, "group": kept.group, "tries": kept.tries, "due": kept.due,
        })  # fmt: skip


def _standing_record(seen: GateView) -> GateRecord:
    assert seen.record is not None, "only a record leads to this step"
    return seen.record


def _lets_in(kept: Optional[GateRecord], decision: GateDecision) -> bool:
    if decision.step in (GateStep.ADOPT, GateStep.GIVE_WAY, GateStep.RELEASE, GateStep.NOTHING):
        return True
    return kept is not None and kept.state.lets_in and decision.step is GateStep.WAIT
