"""`nhc simulate remedy`: what another policy would have done with recorded history.

The real controller plays it, with a store of its own and a made-up world. The history says when nodes were unhealthy.
Assumed: a mark takes effect at once, running work ends after `drain`, a repair takes `takes` and cures (or, with
`cures` false, never does), persons agree at once. After a repair that cured, a node counts as healthy until history
shows a new fault. Nothing outside is asked, and nothing is done.

History holds what the policy of its time did. A fault that ended because that policy repaired the node would not have
ended under one that leaves it alone: such an end is marked as borrowed.
"""

from __future__ import annotations

import contextlib
import time
from contextlib import closing
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import show, when
from nhc.core.limits import Mode
from nhc.core.model import CheckResult, Report, Verdict, ok, printable
from nhc.lab.testing.made_up import MadeUpNode, MadeUpWorld
from nhc.marks.policy.bounds import REPAIRS
from nhc.marks.ports.adapter import Mark, NodeState
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import Written
from nhc.remedy.commands.remedy_options import ShownRemedyOptions, settings_of
from nhc.remedy.machine import EpisodeState
from nhc.remedy.recorded_events import BadHistory, FleetHistory, joined, of_files, of_store
from nhc.remedy.remedy_file import load
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RemedySettings, RepairerSettings, Sources
from nhc.store import nodes as store_nodes
from nhc.store import reports as store_reports
from nhc.store.connect import stand_in
from nhc.store.intake import Incoming
from nhc.store.settings import fleet_store

SOURCE = "recorded"


class Assumed(NamedTuple):
    """How the made-up world behaves; times in seconds. `step` is the pause between two rounds."""

    step: float = 300.0
    takes: float = 600.0
    drain: float = 0.0
    cures: bool = True
    enabled: bool = False


class SimulatedAction(NamedTuple):
    """One thing that a policy did: `mark`, a rung, `return`, `escalate`, `withdraw`.

    `borrowed`: the fault ended without a repair of this policy, after one that was really made.
    """

    at: float
    node: str
    action: str
    why: str
    borrowed: bool = False


class PolicyCost(NamedTuple):
    """What a policy costs: hours that nodes were out of service, in all; repairs; episodes left to a person.

    `borrowed` counts the ends that would not have come without the repairs that were really made.
    """

    node_hours_out: float
    repairs: int
    escalations: int
    borrowed: int


class Wait(NamedTuple):
    """A bound that held a node, since when, and for how many seconds in all."""

    node: str
    bound: str
    since: float
    seconds: float


class PolicyReplay(NamedTuple):
    """What one policy made of the history. `ended` is the Unix time at which the simulation ended."""

    done: Tuple[SimulatedAction, ...]
    waits: Tuple[Wait, ...]
    rounds: int
    ended: float = 0.0

    @property
    def cost(self) -> PolicyCost:
        """What it costs. A node that is left to a person stays out to the end."""
        out: Dict[str, float] = {}
        seconds = 0.0
        for action in self.done:
            if action.action == "mark":
                out.setdefault(action.node, action.at)
            elif action.action in ("return", "withdraw") and action.node in out:
                seconds += action.at - out.pop(action.node)
        seconds += sum(self.ended - since for since in out.values())
        return PolicyCost(
            round(seconds / 3600.0, 2),
            sum(action.action in _RUNGS for action in self.done),
            sum(action.action == "escalate" for action in self.done),
            sum(action.borrowed for action in self.done),
        )


_RUNGS = frozenset(rung.value for rung in REPAIRS)
IDLE = 3600.0
"""Seconds that are passed over at once while no episode is open: only history, or a time that has passed, changes
something then. Less than after which waits begin anew (`nhc.core.system.steady_time.GAP`)."""

_ACTIONS: Mapping[EpisodeState, str] = {
    EpisodeState.MARKED: "mark",
    EpisodeState.RETURNED: "return",
    EpisodeState.ESCALATED: "escalate",
    EpisodeState.WITHDRAWN: "withdraw",
}


class _SimulatedNode(MadeUpNode):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.busy_until = 0.0
        self.report: Optional[Report] = None
        self.cured: Set[Tuple[str, str, str]] = set()


class SimulatedWorld(MadeUpWorld[_SimulatedNode]):
    """Marker and repairer of the simulation in one."""

    def __init__(self, names: Sequence[str], assumed: Assumed, now: float) -> None:
        super().__init__(map(_SimulatedNode, sorted(names)), now, lambda _: assumed.takes)
        self.assumed = assumed

    def state(self, node: _SimulatedNode) -> NodeState:
        return super().state(node)._replace(busy=not node.available and self.now < node.busy_until)

    def noted(self, node: _SimulatedNode, mark: Optional[Mark]) -> None:
        node.busy_until = self.now + self.assumed.drain

    def go_to(self, now: float, reports: Sequence[Report]) -> List[Report]:
        """Let time pass and history happen; what the nodes report now."""
        self.now = now
        for report in reports:
            node = self.fleet[report.host]
            still = {_key(result) for result in report.results if result.verdict is Verdict.CRIT}
            node.cured &= still  # what history shows to have ended is a new fault when it comes again
            node.report = report
        for node in self.fleet.values():
            if node.end_repairs(now) and self.assumed.cures and node.report is not None:
                node.cured |= {_key(result) for result in node.report.results if result.verdict is Verdict.CRIT}
        return [self._report(node) for node in self.fleet.values() if node.report is not None and not node.repairs]

    def _report(self, node: _SimulatedNode) -> Report:
        assert node.report is not None
        results = tuple(
            CheckResult(result.check, ok(target=result.outcome.target)) if _key(result) in node.cured else result
            for result in node.report.results
        )
        return node.report._replace(started=self.now, boot_id=f"boot{node.boot}", results=results)


def _key(result: CheckResult) -> Tuple[str, str, str]:
    return result.check, result.outcome.reason, result.outcome.target


def prepared(settings: RemedySettings, assumed: Assumed) -> RemedySettings:
    """The settings as the simulation takes them: fresh reports, persons who agree, no suite; all else as it is."""
    modes = settings.modes
    if assumed.enabled:
        modes = {name: Mode.ON if mode is Mode.DRY_RUN else mode for name, mode in modes.items()}
    return settings._replace(
        modes=modes,
        sources=Sources(max_age=max(settings.sources.max_age, 2 * assumed.step), settle=settings.sources.settle),
        bounds=settings.bounds._replace(approvals={}),
        verify=settings.verify._replace(suite=""),
    )


def play(past: FleetHistory, settings: RemedySettings, assumed: Assumed, extra: float = 7200.0) -> PolicyReplay:
    """Play a history to its end, and `extra` seconds beyond it. Raises StoreError."""
    if not past.reports:
        return PolicyReplay((), (), 0)
    names = {*past.groups, *(report.host for report in past.reports)}
    world = SimulatedWorld(sorted(names), assumed, past.began)
    done: List[SimulatedAction] = []
    repaired: Set[int] = set()
    waits: Dict[Tuple[str, str], Tuple[float, float]] = {}

    def tell(written: Written) -> None:
        row = written.case.episode
        action = _ACTIONS.get(written.case.state, "")
        if written.move.begins:
            action = row.rung
        if written.case.state is EpisodeState.MARKED and written.before is not EpisodeState.MARKING:
            return
        if action in _RUNGS:
            repaired.add(row.id)
        if action and written.move.event is not None:
            alone = action in ("return", "withdraw") and row.id not in repaired
            borrowed = alone and past.repaired(row.node, row.opened, row.updated)
            done.append(SimulatedAction(row.updated, row.node, action, written.move.because, borrowed))

    with contextlib.closing(stand_in("simulation")) as store:
        with store.write() as connection:
            store_nodes.describe(connection, [
                store_nodes.NodeDescription(name, groups=dict(past.groups.get(name, {}))) for name in sorted(names)
            ])  # fmt: skip
        actuators = Actuators(
            world, Repairers([RepairerEntry(RepairerSettings("simulated", "simulated"), world)]), workers=0
        )
        controller = repair_loop(
            store, prepared(settings, assumed), actuators, publish=tell, clock=lambda: world.now,
            monotonic=lambda: world.now,
        )  # fmt: skip
        at, rounds, now, last = 0, 0, past.began, past.reports[-1].started
        while now <= last + extra:
            first = at
            while at < len(past.reports) and past.reports[at].started <= now:
                at += 1
            reports = world.go_to(now, past.reports[first:at])
            with store.write() as connection:
                store_reports.receive(connection, [Incoming(report, SOURCE, now) for report in reports])
            result = controller.round()
            rounds += 1
            for wait in result.waiting:
                bound = wait.why.partition(":")[0]
                since, whole = waits.get((wait.node, bound), (now, 0.0))
                waits[wait.node, bound] = (since, whole + assumed.step)
            idle = not (result.moved or result.opened or any(wait.episode for wait in result.waiting))
            now += assumed.step
            if idle:
                coming = past.reports[at].started if at < len(past.reports) else last + extra
                now += assumed.step * max(0, int(min(IDLE, coming - now) / assumed.step))
    return PolicyReplay(
        tuple(done), tuple(Wait(node, bound, *result) for (node, bound), result in sorted(waits.items())), rounds,
        last + extra,
    )  # fmt: skip


class PolicyDifference(NamedTuple):
    """One node that two policies treat otherwise: what each did, in order, and the bounds that held it in each."""

    node: str
    before: Tuple[str, ...]
    after: Tuple[str, ...]
    held_before: Tuple[str, ...]
    held_after: Tuple[str, ...]


OURS = frozenset({"effect", "evidence", "verify", "proof", "work", "cluster", "not-now"})
"""Waits that are a step of the loop, and no bound."""


def differences(before: PolicyReplay, after: PolicyReplay) -> List[PolicyDifference]:
    """The nodes whose actions differ, by name. The same actions at other times are the same."""
    differing = []
    for node in sorted({action.node for played in (before, after) for action in played.done}):
        pair = [tuple(action.action for action in played.done if action.node == node) for played in (before, after)]
        if pair[0] == pair[1]:
            continue
        held = [
            tuple(sorted(wait.bound for wait in played.waits if wait.node == node and wait.bound not in OURS))
            for played in (before, after)
        ]
        differing.append(PolicyDifference(node, pair[0], pair[1], held[0], held[1]))
    return differing


LINES = 50
"""Bounds shown as text; JSON has all."""


class RemedySimulateOptions(ShownRemedyOptions):
    policy: str = options.text(
        "--policy", "FILE", "The other settings (TOML).", heading="What is compared", needed=True
    )
    reports: Tuple[str, ...] = options.texts(
        "-r --report", "FILE", "Recorded reports as JSON; a directory's *.json. Repeatable.", heading="What is played"
    )
    events: Tuple[str, ...] = options.texts("--events", "FILE", "An event log of the agent. Repeatable.")
    since: float = options.duration("--since", "How much of the store's history, where no file is named.", "7d")
    step: float = options.duration("--step", "The pause between two rounds.", "5m", heading="What is assumed")
    repair_takes: float = options.duration("--repair-takes", "How long a repair takes.", "10m")
    drain: float = options.duration("--drain", "How long work still runs on a marked node.", "0s")
    repairs: str = options.choice("--repairs", ["cure", "fail"], "Whether repairs help.", "cure")
    enable: bool = options.flag("--enable", "Take what is on dry-run as enabled, in both.")


@click_command
def command(args: RemedySimulateOptions) -> int:
    """Play recorded history against --policy and against the settings in force; show what they do differently.

    The loop itself decides, over a store of its own; nothing outside is asked and nothing is done. Persons are taken to
    agree at once. Exit status: 0 no difference, 1 there is one, 2 wrong usage, 3 the history cannot be read.
    """
    before = settings_of(args.settings)
    after = load(args.policy)
    assumed = Assumed(
        max(args.step, 1.0), args.repair_takes, args.drain, args.repairs == "cure",
        bool(args.enable),
    )  # fmt: skip
    past = _past(args, before)
    for line in past.unread:
        click.echo(f"nhc simulate remedy: left out: {printable(line)}", err=True)
    if not past.reports:
        raise CommandError("there is no history to play: no problem was recorded in this time")
    old, new = play(past, before, assumed), play(past, after, assumed)
    otherwise = differences(old, new)
    if args.form == "json":
        show({
            "history": {"nodes": len(past.groups), "reports": len(past.reports), "began": past.began},
            "before": _value(old), "after": _value(new), "differences": [row._asdict() for row in otherwise],
        })  # fmt: skip
    else:
        _text(past, old, new, otherwise)
    return 1 if otherwise else 0


def _past(args: RemedySimulateOptions, settings: RemedySettings) -> FleetHistory:
    if args.reports or args.events:
        try:
            return of_files(args.reports, args.events)
        except BadHistory as error:
            raise CommandError(str(error)) from None
    with closing(fleet_store(settings.store, create=False)) as store:
        now = time.time()
        return joined([of_store(store, now - args.since, now)])


def _value(played: PolicyReplay) -> Dict[str, Any]:
    return {
        "cost": played.cost._asdict(),
        "actions": [entry._asdict() for entry in played.done],
        "held": [entry._asdict() for entry in played.waits if entry.bound not in OURS],
        "rounds": played.rounds,
    }


def _text(past: FleetHistory, old: PolicyReplay, new: PolicyReplay, differences: Sequence[PolicyDifference]) -> None:
    click.echo(f"{len(past.reports)} reports of {len(past.groups)} nodes since {when(past.began)}")
    click.echo(f"in force: {_counts(old)}")
    click.echo(f"--policy: {_counts(new)}")
    _costs(old.cost, new.cost)
    for difference in differences:
        click.echo(f"{printable(difference.node)}")
        click.echo(f"  - {_line(difference.before, difference.held_before)}")
        click.echo(f"  + {_line(difference.after, difference.held_after)}")
    held = [wait for wait in new.waits if wait.bound not in OURS]
    for wait in held[:LINES]:
        click.echo(f"held by --policy  {printable(wait.node)}  {printable(wait.bound)}  {wait.seconds / 60:.0f} min")
    if len(held) > LINES:
        click.echo(f"... and {len(held) - LINES} more: --format json has them all")
    click.echo(f"{len(differences)} nodes are treated otherwise" if differences else "no node is treated otherwise")


def _costs(old: PolicyCost, new: PolicyCost) -> None:
    """What --policy saves and costs beside the settings in force."""
    names = {"node_hours_out": "node-hours out", "repairs": "repairs", "escalations": "escalations"}
    for key, name in names.items():
        before, after = getattr(old, key), getattr(new, key)
        click.echo(f"{name}: {before:g} in force, {after:g} with --policy ({after - before:+g})")
    if new.borrowed:
        click.echo(f"{new.borrowed} faults ended with --policy only because the node was really repaired at that time")


def _counts(played: PolicyReplay) -> str:
    counts: Dict[str, int] = {}
    for entry in played.done:
        counts[entry.action] = counts.get(entry.action, 0) + 1
    return ", ".join(f"{count} {action}" for action, count in counts.items()) or "nothing is done"


def _line(actions: Sequence[str], held: Sequence[str]) -> str:
    parts: List[str] = [", ".join(actions) or "nothing"]
    if held:
        parts.append(f"(held by {', '.join(held)})")
    return " ".join(parts)
