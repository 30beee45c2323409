"""`nhc train plan` and `nhc train run`: what a maintenance train would do, and the train itself.

`nhc status|approve|hold|release|abort train`: show maintenance trains to persons, and take their decisions.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Sequence

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, person, service_command
from nhc.core.command_line.printing import show, show_table, when
from nhc.core.matching.node_ranges import fold
from nhc.core.model import printable
from nhc.core.system.service_log import ServiceLog
from nhc.core.system.service_log import problem as as_problem
from nhc.core.system.stop_signals import StopSignals
from nhc.core.timestamps import utc
from nhc.core.units import show_number
from nhc.marks.ports.adapter import AdapterError
from nhc.remedy import counting
from nhc.remedy.cases import Written
from nhc.remedy.commands.remedy_options import RemedyOptions, ShownRemedyOptions, detail_of, opened, site_of
from nhc.remedy.episode_flow import EpisodeRound
from nhc.remedy.machine import EpisodeState
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.trains import train_operators
from nhc.remedy.trains.machine import TRAIN_ENDS, TrainState, by_state
from nhc.remedy.trains.maintenance import TrainWork, needed
from nhc.remedy.trains.settings import TrainPlan, load, parse
from nhc.remedy.trains.waves import BadTrain, Taken, take
from nhc.store import trains
from nhc.store.attempts import Attempt, AttemptStatus
from nhc.store.commands.store_options import ONCE, note_stand_in
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.rounds.leader import Leader
from nhc.store.trains import Train


class PlanOptions(ShownRemedyOptions):
    file: str = options.argument("FILE", needed=True)


@click_command
def plan_command(args: PlanOptions) -> None:
    """Show the waves of the train in FILE over the fleet as it is now. Nothing is written and nothing is done.

    Exit status: 0, 2 wrong usage, settings or plan, 3 the store or the adapter cannot be used.
    """
    plan = load(args.file)
    with site_of(args.settings, look=True) as site:
        note_stand_in("train plan", site.store)
        _show(site, plan, _taken(site, plan), args.form)


def _taken(site: RemedySite, plan: TrainPlan) -> Taken:
    try:
        states = site.actuators.states()
    except AdapterError as error:
        raise CommandError(f"nodes cannot be read: {error}") from None
    with site.store.read() as connection:
        fleet = counting.fleet(connection, states)
        rows = site.known(connection, fleet)
    site.actuators.repairers.learn(rows)
    try:
        return take(plan, fleet.groups, site.settings.bounds)
    except BadTrain as error:
        raise CommandError(str(error), 2) from None


def _show(site: RemedySite, plan: TrainPlan, taken: Taken, form: str) -> None:
    asked = needed(plan, site.settings)
    nodes = [node for wave in taken.waves for node in wave]
    cannot: Dict[str, List[str]] = {}
    for node in nodes:
        for number, work in enumerate(plan.work, 1):
            why = site.actuators.repairers.can(node, work.rung, "", work.argv).why
            if why:
                cannot.setdefault(f"step {number} ({work.what}): {why}", []).append(node)
    if form == "json":
        show({
            "train": plan.name, "why": plan.why, "steps": [work.what for work in plan.work],
            "waves": [list(wave) for wave in taken.waves], "left_out": dict(taken.left_out), "persons": asked,
            "cannot": cannot,
        })  # fmt: skip
        return
    click.echo(f"train {plan.name}: {printable(plan.why)}")
    for number, work in enumerate(plan.work, 1):
        click.echo(f"step {number}  {printable(work.what)}{'  (must end with 0)' if work.verifies else ''}")
    for number, wave in enumerate(taken.waves, 1):
        click.echo(f"wave {number}  {show_number(len(wave), 'node')}  {fold(wave)}")
    for node, why in taken.left_out.items():
        click.echo(f"left out  {printable(node)}  {printable(why)}")
    for why, nodes_without in cannot.items():
        click.echo(f"cannot  {fold(nodes_without)}  {printable(why)}")
    click.echo(f"stops after more than {plan.failures.show()} failures; {show_number(asked, 'person')} must agree")


class TrainRunOptions(ShownRemedyOptions):
    file: str = options.argument("FILE", needed=True, file="train.toml", checked=True, heading="What is done")
    apply: bool = options.flag("--apply", "Do it. Without this the plan is shown, and nothing is done.")
    once: bool = ONCE
    by: str = options.BY


@service_command
def run_command(args: TrainRunOptions) -> int:
    """Carry out the train in FILE: drain, work, verify, return, wave by wave, within the bounds of remedy.toml.

    A train that was killed goes on when it is run again; nothing is begun twice. Exit status: 0 every node is done (or
    the plan was shown), 1 a node was escalated, skipped or withdrawn, or the train waits for a person, 2 wrong usage or
    plan, 3 the store, the adapter or the lead cannot be had.
    """
    plan = load(args.file)
    with site_of(args.settings) as site:
        if not args.apply:
            _show(site, plan, _taken(site, plan), args.form)
            click.echo("dry run: nothing was done; --apply does it", err=True)
            return 0
        return TrainService(site, plan, args).run()


class TrainService:
    """One process: rounds until the train has ended, or waits for a person, or a signal."""

    def __init__(self, site: RemedySite, plan: TrainPlan, args: TrainRunOptions) -> None:
        self.site, self.plan, self.args = site, plan, args
        self.stop = StopSignals()
        self.leader = Leader(site.store, name="train")
        self.last_line, self._log = "", ServiceLog("train run")
        self.noted: List[str] = []

    def run(self) -> int:
        """Its exit status. Raises StoreError, CommandError."""
        try:
            if not self.leader.attempt() or self.leader.fence is None:
                raise CommandError(f"another process runs a train in this store: {self.leader.last()}")
            train = self._begun()
            if train.ended is not None:
                self.say(f"train {train.name} has ended: it is {train.state}; another pass needs another name")
                return self._status()
            return self._rounds()
        finally:
            self.leader.release()

    def _begun(self) -> Train:
        with self.site.store.read() as connection:
            train = trains.get(connection, self.plan.name)
        if train is None:
            taken = _taken(self.site, self.plan)
            assert self.leader.fence is not None
            return train_operators.begin(
                self.site.store, self.plan, taken, by=person(self.args.by), now=time.time(),
                fence=self.leader.fence,
            )  # fmt: skip
        if train.digest != self.plan.digest:
            if train.ended is None:
                raise CommandError(
                    f"train {train.name} is under way by another plan: resume it with that, or abort it", 2
                )
            raise CommandError(f"there was a train {train.name} with another plan: give this one another name", 2)
        return train

    def _rounds(self) -> int:
        train = TrainWork(
            self.site.store, self.site.settings, parse(self.plan.text, self.plan.path), self.site.actuators,
            fence=self.leader.fence, reports=lambda: list(self.site.reports(True)),
        )  # fmt: skip
        loop = train.loop(publish=self.tell)
        while not self.stop.come:
            try:
                if not self.leader.attempt():
                    raise CommandError("another process runs trains in this store now")
                done = loop.round()
                for line in self.site.unread:
                    self.say(as_problem(line))
                for line in self.site.notes if self.site.notes != self.noted else ():
                    self.say(line)
                self.noted = self.site.notes
            except LeadershipLost as error:
                raise CommandError(str(error)) from None
            except StoreError as error:
                self.say(as_problem(str(error)))  # a store that is away is waited for
            else:
                if self._after(done, train.state) or self.args.once:
                    return self._status()
            self.stop.wait(self.plan.every)
        return self._status()

    def _after(self, done: EpisodeRound, state: TrainState) -> bool:
        """Whether nothing more is to be done by this process."""
        for problem in done.problems:
            self.say(as_problem(problem))
        if state in TRAIN_ENDS:
            return True
        if state in (TrainState.HELD, TrainState.STOPPED, TrainState.PLANNED):
            open_ones = [node for node in done.waiting if node.state != EpisodeState.PLANNED.value]
            if not open_ones and not done.moved:
                order = "approve" if state is TrainState.PLANNED else "release"
                self.say(f"train {self.plan.name} is {state.value}: nhc {order} train {self.plan.name}")
                return True
        return False

    def _status(self) -> int:
        with self.site.store.read() as connection:
            train = trains.get(connection, self.plan.name)
            rows = trains.nodes_of(connection, train.id) if train is not None else []
        counts = by_state([row.state for row in rows])
        if self.args.form == "json":
            show({"train": self.plan.name, "state": train.state if train else "", "nodes": counts})
        else:
            click.echo(f"train {self.plan.name} is {train.state if train else 'gone'}: {counted(counts)}")
        return 0 if set(counts) <= {EpisodeState.RETURNED.value} else 1

    def tell(self, step: Written) -> None:
        """A step that is in the store."""
        if self.args.form == "json":
            return
        row = step.case.episode
        line = f"{utc(row.updated)}  {printable(row.node)}  wave {row.wave}  {row.state}"
        click.echo(f"{line}  {printable(step.move.because)}".rstrip())

    def say(self, text: str) -> None:
        """A line for the log, once until another line is logged."""
        if text != self.last_line:
            self.last_line = text
            self._log(text)


def counted(counts: Dict[str, int]) -> str:
    """`3 done, 1 failed`."""
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no node"


class TrainStatusOptions(ShownRemedyOptions):
    name: str = options.argument("[NAME]")


@click_command
def status(args: TrainStatusOptions) -> int:
    """List the trains, or show the train NAME node by node, and what holds each.

    Exit status: 0, 1 a train is stopped, held or waits for persons, 2 there is no such train, 3 the store cannot be
    read.
    """
    with opened(args.settings) as store, store.read() as connection:
        chosen = trains.list_trains(connection)
        if args.name:
            chosen = [train for train in chosen if train.name == args.name]
        rows = {train.id: trains.nodes_of(connection, train.id) for train in chosen}
        agreed = {train.id: [by.by for by in trains.approvals_of(connection, train.id)] for train in chosen}
        work = trains.attempts_of(connection, chosen[0].id) if args.name and chosen else {}
    if args.name and not chosen:
        raise CommandError(f"there is no train {args.name}", 2)
    waits = {TrainState.PLANNED.value, TrainState.HELD.value, TrainState.STOPPED.value}
    values: List[Dict[str, Any]] = [{
        "train": train.name, "state": train.state, "why": train.why, "by": train.by, "made": train.made,
        "ended": train.ended, "agreed": agreed[train.id], "nodes": by_state([row.state for row in rows[train.id]]),
    } for train in chosen]  # fmt: skip
    if args.name:
        values[0]["each"] = [
            {"node": row.node, "wave": row.wave, "state": row.state, "step": _step(work, row.id),
             "outcome": row.outcome, "waiting": detail_of(row).waiting} for row in rows[chosen[0].id]
        ]  # fmt: skip
        values[0]["work"] = [
            {"node": attempt.node, "what": attempt.device or attempt.rung, "by": attempt.repairer,
             "state": attempt.status.value, "message": attempt.message}
            for attempts in work.values() for attempt in attempts
        ]  # fmt: skip
    if args.form == "json":
        show(values[0] if args.name else values)
    else:
        lines = [
            [printable(str(train["train"])), str(train["state"]), when(train["made"]), counted(train["nodes"]),
             printable(str(train["why"]))] for train in values
        ]  # fmt: skip
        if args.name:
            lines += [
                [f"  {printable(row.node)}", row.state, f"wave {row.wave}", f"step {_step(work, row.id)}",
                 printable(row.outcome or detail_of(row).waiting)] for row in rows[chosen[0].id]
            ]  # fmt: skip
        show_table(lines)
        if not lines:
            click.echo("there is no train")
    return 1 if any(train.state in waits for train in chosen) else 0


def _step(work: Mapping[int, Sequence[Attempt]], episode: int) -> int:
    """The step that a node is at, or was at last, counted from 1."""
    some = work.get(episode, ())
    done = sum(attempt.status is AttemptStatus.SUCCEEDED for attempt in some)
    return done if some and done and some[-1].status is AttemptStatus.SUCCEEDED else done + 1


class DecisionOptions(RemedyOptions):
    name: str = options.argument("NAME", needed=True)
    why: str = options.text(
        "--why", "TEXT", "For everybody who reads the audit log.", needed=True, heading="What is decided"
    )
    by: str = options.BY


def _decision(verb: str, to: TrainState, text: str) -> click.Command:
    """The command by which a person brings a train into another state."""

    def command(args: DecisionOptions) -> None:
        if not args.why.strip():
            raise CommandError("--why is empty", 2)
        with opened(args.settings) as store:
            train_operators.change(store, args.name, to, by=person(args.by), why=args.why, now=time.time())
            with store.read() as connection:
                train = trains.get(connection, args.name)
                rows = trains.nodes_of(connection, train.id) if train is not None else []
        at_work = [row for row in rows if row.ended is None and row.state != EpisodeState.PLANNED.value]
        more = f"; still at work: {show_number(len(at_work), 'node')}, which nhc train run finishes" if at_work else ""
        click.echo(f"train {args.name} is {to.value if to is not TrainState.PLANNED else 'resumed'}{more}")

    text = f"{text}\n\nExit status: 0, 2 there is nothing to {verb}, 3 the store cannot be used."
    return click_command(command, text)


hold = _decision(
    "hold", TrainState.HELD,
    "Hold the train NAME: no node and no work begins. Work that was begun is finished, verified and put back.",
)  # fmt: skip
resume = _decision(
    "resume", TrainState.PLANNED,
    "Let a train go on that is held, or that was stopped by failures; `nhc train run` carries it out.",
)  # fmt: skip
abort = _decision(
    "abort", TrainState.ABORTING,
    "End the train NAME: no work begins. `nhc train run` finishes nodes that are at work, and puts others back.",
)  # fmt: skip


class TrainApproveOptions(RemedyOptions):
    name: str = options.argument("NAME", needed=True)
    why: str = options.text("--why", "TEXT", "For everybody who reads the audit log.", heading="What is decided")


@click_command
def approve(args: TrainApproveOptions) -> None:
    """Agree to the train NAME. As many persons must agree as the policy asks for its repairs; who began it is one.

    Exit status: 0, 2 there is no such train, or this person has agreed already, 3 the store cannot be used.
    """
    with opened(args.settings) as store:
        click.echo(train_operators.agree(store, args.name, by=person(), why=args.why, now=time.time()))
