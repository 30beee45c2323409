"""`nhc drill`: see how the loop behaves where others' failed, on made-up nodes, or on a real one."""

from __future__ import annotations

import shlex
from typing import Any, Dict, Iterator, List, Optional, Sequence

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import BY, DURATION, FORMAT, GroupedCommand, person, under
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
from nhc.remedy.commands.remedy_options import SETTINGS, settings_of, site_of
from nhc.remedy.remedy_site import RemedySite
from nhc.store.commands.store_options import tell_stand_in

EVERY = "all"


@click.command("drill", cls=GroupedCommand)
@click.argument("scenario", metavar="[SCENARIO|all]", required=False, default="")
@under("What is drilled")("--list", "listed", is_flag=True, help="List the scenarios.")
@under("What is drilled")("-n", "--node", default="", metavar="NODE", help="The node. Made up, unless --real is given.")
@under("What is drilled")("--real", is_flag=True, help="On a real node: shows how. All is undone.")
@under("What is drilled")("--apply", is_flag=True, help="With --real: do it.")
@under("What is assumed")("--size", "count", type=click.IntRange(1, 2000), default=20, show_default=True,
                          help="Made-up nodes.")  # fmt: skip
@under("What is assumed")("--repair-takes", type=DURATION, default="5m", show_default=True, metavar="TIME",
                          help="How long a made-up repair takes.")  # fmt: skip
@under("What is assumed")("--longest", type=DURATION, default="30m", show_default=True, metavar="TIME",
                          help="With --real: when it is undone at the latest.")  # fmt: skip
@BY
@SETTINGS
@FORMAT
def command(**options: Any) -> int:
    """Play what users of other repair loops complained of against this loop and its policy; show what took how long.

    On made-up nodes everything happens in a temporary store and in a time of its own. On a real node (--real --apply)
    the scenario `fault` reports a fault that is not there; `kernel-line` and `full-disk` put one on the node over SSH,
    as [drill] of remedy.toml says, and the node's own check has to find it. The loop marks the node and gives it to a
    person, and the drill undoes it, also on Ctrl-C; after a kill the next drill undoes it. Exit status: 0 the loop kept
    its promises, 1 it did not, 2 wrong usage, 3 the store or the adapter cannot be used.
    """
    if options["listed"]:
        rows = [[scenario.name, scenario.says, scenario.issue] for scenario in ALL]
        rows += [[name, f"With --real: {says}.", ""] for name, says in REAL.items()]
        show_table(rows)
        return 0
    name = options["scenario"]
    if name not in (REAL if options["real"] else (*BY_NAME, EVERY)):
        if name in BY_NAME or name == EVERY:
            raise CommandError(f"{name} is played on made-up nodes: on a real node there are {', '.join(REAL)}", 2)
        if name in REAL:
            raise CommandError(f"{name} is for a real node: --real", 2)
        what = "is no scenario" if name else "name a scenario"
        raise CommandError(f"{f'{name!r} ' if name else ''}{what}: nhc drill --list", 2)
    if not options["node"]:
        raise CommandError("--node is missing: a name for the drilled node", 2)
    if options["real"]:
        return _real(name, options)
    if options["apply"]:
        raise CommandError("--apply is for --real: on made-up nodes a drill is always played", 2)
    settings = settings_of(options["settings_path"])
    chosen: Sequence[Scenario] = ALL if name == EVERY else [BY_NAME[name]]
    drilled = [
        play(scenario, settings, options["node"], nodes=options["count"], takes=options["repair_takes"])
        for scenario in chosen
    ]
    return _show_drills(drilled, options["form"])


def _real(name: str, options: Dict[str, Any]) -> int:
    with site_of(options["settings_path"], look=not options["apply"]) as site:
        tell_stand_in("drill", site.store)
        return _on(site, name, options)


def _on(site: RemedySite, name: str, options: Dict[str, Any]) -> int:
    by, node = person(options["by"]), options["node"]
    if options["apply"]:
        for left in left_over(site.store):
            done = Undoing(site, left, by).undo()
            click.echo(f"an earlier drill on {printable(left.node)} was undone: {printable('; '.join(done))}", err=True)
    fault = _fault(site, name)
    drill = RealDrill(site, node, by, fault=fault, limits=Limits(options["longest"]),
                      publish=lambda timing: _say(timing, options["form"]))  # fmt: skip
    drill.may()
    if not options["apply"]:
        for line in _would(site, fault.injection, node):
            click.echo(line)
        click.echo("dry run: nothing was done; --apply does it", err=True)
        return 0
    signals = Signals()
    try:
        signals.take()
        return _show_drills([drill.run()], options["form"])
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
