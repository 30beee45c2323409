"""`nhc drill`: see how the loop behaves where others' failed, on made-up nodes, or on a real one."""

from __future__ import annotations

import shlex
from typing import Iterator, List, Optional, Sequence

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, person
from nhc.core.command_line.printing import show, show_table, table
from nhc.core.model import Action, printable
from nhc.core.system.ending_signals import Signals, SignalToEnd
from nhc.lab.commands.inject import line_of
from nhc.lab.drills.play import Drilled, DrillTiming, play
from nhc.lab.drills.real import (
    FULL_DISK,
    KERNEL_LINE,
    REAL,
    REPORTED,
    DrillRefused,
    InjectedFault,
    Injection,
    Limits,
    RealDrill,
    RealFault,
    ReportedFault,
    Undoing,
    action_of,
    left_over,
    would_send,
)
from nhc.lab.drills.scenarios import ALL, BY_NAME, Scenario
from nhc.remedy.commands.remedy_options import ShownRemedyOptions, settings_of, site_of
from nhc.remedy.remedy_site import RemedySite
from nhc.store.commands.store_options import note_stand_in

EVERY = "all"


class RemedyDrillOptions(ShownRemedyOptions):
    scenario: str = options.argument("[SCENARIO|all]")
    listed: bool = options.flag("--list", "List the scenarios.", heading="What is drilled")
    node: str = options.text("-n --node", "NODE", "The node. Made up, unless --real is given.")
    real: bool = options.flag("--real", "On a real node: shows how. All is undone.")
    apply: bool = options.flag("--apply", "With --real: do it.")
    count: int = options.whole("--size", "N", "Made-up nodes.", 20, least=1, most=2000, heading="What is assumed")
    repair_takes: float = options.duration("--repair-takes", "How long a made-up repair takes.", "5m")
    longest: float = options.duration("--longest", "With --real: when it is undone at the latest.", "30m")
    by: str = options.BY


@click_command
def command(args: RemedyDrillOptions) -> int:
    """Play what users of other repair loops complained of against this loop and its policy; show what took how long.

    On made-up nodes everything happens in a temporary store and in a time of its own. On a real node (--real --apply)
    the scenario `fault` reports a fault that is not there; `kernel-line` and `full-disk` put one on the node over SSH,
    as [drill] of remedy.toml says, and the node's own check has to find it. The loop marks the node and gives it to a
    person, and the drill undoes it, also on Ctrl-C; after a kill the next drill undoes it. Exit status: 0 the loop kept
    its promises, 1 it did not, 2 wrong usage, 3 the store or the adapter cannot be used.
    """
    if args.listed:
        rows = [[scenario.name, scenario.says, scenario.issue] for scenario in ALL]
        rows += [[name, f"With --real: {says}.", ""] for name, says in REAL.items()]
        show_table(rows)
        return 0
    name = args.scenario
    if name not in (REAL if args.real else (*BY_NAME, EVERY)):
        if name in BY_NAME or name == EVERY:
            raise CommandError(f"{name} is played on made-up nodes: on a real node there are {', '.join(REAL)}", 2)
        if name in REAL:
            raise CommandError(f"{name} is for a real node: --real", 2)
        what = "is no scenario" if name else "name a scenario"
        raise CommandError(f"{f'{name!r} ' if name else ''}{what}: nhc drill --list", 2)
    if not args.node:
        raise CommandError("--node is missing: a name for the drilled node", 2)
    if args.real:
        return _real(name, args)
    if args.apply:
        raise CommandError("--apply is for --real: on made-up nodes a drill is always played", 2)
    settings = settings_of(args.settings)
    chosen: Sequence[Scenario] = ALL if name == EVERY else [BY_NAME[name]]
    drilled = [play(scenario, settings, args.node, nodes=args.count, takes=args.repair_takes) for scenario in chosen]
    return _show_drills(drilled, args.form)


def _real(name: str, args: RemedyDrillOptions) -> int:
    with site_of(args.settings, look=not args.apply) as site:
        note_stand_in("drill", site.store)
        return _on(site, name, args)


def _on(site: RemedySite, name: str, args: RemedyDrillOptions) -> int:
    by, node = person(args.by), args.node
    if args.apply:
        for left in left_over(site.store):
            done = Undoing(site, left, by).undo()
            click.echo(f"an earlier drill on {printable(left.node)} was undone: {printable('; '.join(done))}", err=True)
    fault = _fault(site, name)
    drill = RealDrill(site, node, by, fault=fault, limits=Limits(args.longest),
                      publish=lambda timing: _say(timing, args.form))  # fmt: skip
    drill.may()
    if not args.apply:
        for line in _would(site, fault.injection, node):
            click.echo(line)
        click.echo("dry run: nothing was done; --apply does it", err=True)
        return 0
    signals = Signals()
    try:
        signals.take()
        return _show_drills([drill.run()], args.form)
    except SignalToEnd:
        raise CommandError("the drill was stopped, and is undone", 1) from None
    finally:
        signals.hold()


def _fault(site: RemedySite, name: str) -> RealFault:
    """The fault of a scenario, as the settings have it. Raises DrillRefused."""
    settings = site.settings.drill
    where = f"{site.settings.path}: drill"
    if name == REPORTED:
        return ReportedFault(site.store)
    if name == FULL_DISK:
        if not settings.file_system:
            raise DrillRefused(f"{where}.file-system: missing: which file system may be filled?")
        return InjectedFault(site, Injection(FULL_DISK, FULL_DISK, settings.file_system, settings.fill_to))
    try:
        action = action_of(line_of(settings.kernel, settings.device or None))
    except ValueError as error:
        raise DrillRefused(f"{where}.kernel: {error}") from None
    if action is Action.NONE:
        raise DrillRefused(f"{where}.kernel: {settings.kernel} takes no node out, so the loop would do nothing")
    sent = would_send(site.settings, action)
    if sent:
        raise DrillRefused(
            f"{where}.kernel: {settings.kernel} asks for a repair, and the loop would begin it ({', '.join(sent)} on): "
            "choose a fault that asks for an inspection, as md-failed"
        )
    return InjectedFault(site, Injection(KERNEL_LINE, settings.kernel, settings.device))


def _would(site: RemedySite, injection: Injection, node: str) -> Iterator[str]:
    """What a drill would do, for a person."""
    if injection.scenario == REPORTED:
        yield f"would report a fault of {printable(node)} that is not there (check_drill), and watch the loop mark it"
    else:
        yield f"would run on {printable(node)}: {shlex.join(injection.begin(site.settings.drill.nhc))}"
        yield "would wait until the node's own check reports it, and watch the loop mark the node"
    yield "would then take the fault back, end the episode, and clear the mark of the drill"


def _say(timing: DrillTiming, form: str) -> None:
    if form == "text":
        click.echo(f"{timing.after:8.1f} s  {timing.state}  {printable(timing.why)}".rstrip())


def _show_drills(drilled: Sequence[Drilled], form: str) -> int:
    if form == "json":
        show([{
            "scenario": drill.scenario, "kept": drill.kept, "seconds": drill.seconds,
            "states": [timing._asdict() for timing in drill.timings],
            "promises": [promise._asdict() for promise in drill.promises],
        } for drill in drilled])  # fmt: skip
    else:
        for drill in drilled:
            for line in _lines(drill):
                click.echo(line)
    return 0 if all(drill.kept for drill in drilled) else 1


def _lines(drill: Drilled) -> List[str]:
    lines = [f"{drill.scenario}: {'kept its promises' if drill.kept else 'BROKE A PROMISE'}"]
    before: Optional[float] = None
    rows = []
    for timing in drill.timings:
        took = "" if before is None else f"+{timing.after - before:.0f} s"
        rows.append([f"  {timing.after:.0f} s", took, timing.state, printable(timing.why)])
        before = timing.after
    lines += list(table(rows))
    lines += [f"  broken: {promise.name}: {printable(promise.broken)}" for promise in drill.promises if promise.broken]
    return lines
