"""`nhc serve remedy`: the loop in the foreground, once for cron, or as a service."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable, Dict, Iterator, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import service_command
from nhc.core.command_line.printing import show
from nhc.core.model import printable
from nhc.core.system.service_log import ServiceLog
from nhc.core.timestamps import utc
from nhc.remedy.cases import Written
from nhc.remedy.commands.remedy_options import candidate, site_of
from nhc.remedy.episode_flow import EpisodeRound
from nhc.remedy.remedy_rounds import RemedyRounds
from nhc.store.commands.store_options import DRY_RUN, METRICS_FILE, ONCE, metrics_address, note_stand_in
from nhc.store.rounds.leader import Leader
from nhc.store.rounds.service import RoundService


class RemedyRunOptions(options.Formatted):
    settings: str = options.settings_file("remedy.toml", checked=True)
    once: bool = ONCE
    leader: str = options.text(
        "--leader", "NAME", "What decides who leads: store (a lock of its database), kubernetes-lease. Default: what "
        "the settings say.",
    )  # fmt: skip
    dry_run: bool = DRY_RUN
    listen: str = metrics_address(9469)
    metrics_file: str = METRICS_FILE


@service_command
def command(args: RemedyRunOptions) -> int:
    """Bring faulty nodes back: mark, drain, evidence, repair, verify, return; or an escalation.

    Nothing is done to nodes unless the settings enable it, action by action; without that the plan is shown. One
    process leads a store; others wait. Exit status: 0 done or ended by a signal, 1 something could not be read (with
    --once), 2 wrong usage or settings, 3 the store, the adapter or the lead cannot be had.
    """
    with service_of(args) as (service, summary):
        return service.run(args.once, summary)


@contextlib.contextmanager
def service_of(args: RemedyRunOptions) -> Iterator[Tuple[RoundService, Callable[[], None]]]:
    """The service, and what shows its only round. Raises SettingsError, StoreError, CommandError."""
    with site_of(args.settings, look=args.dry_run) as site:
        dry, once, as_json = args.dry_run, args.once, args.form == "json"
        streams = not (once or dry)
        leader = None if dry else Leader(site.store, candidate(site.settings.leader, args.leader))
        note_stand_in("serve remedy", site.store)
        publish = show_step if not as_json else show_step_as_json if streams else lambda _step: None
        work = RemedyRounds(site, publish, ServiceLog("serve remedy"), apply=not dry, once=once)
        service = RoundService(
            "serve remedy", work, leader, every=site.settings.every, listen=args.listen,
            metrics_file=args.metrics_file,
        )  # fmt: skip
        if streams:
            work.start()
        try:
            yield service, lambda: summary(work, as_json)
        finally:
            work.stop()


def summary(work: RemedyRounds, as_json: bool) -> None:
    """Print the result of the only round."""
    done = work.last
    assert done is not None
    if as_json:
        show(round_value(done))
        return
    for entry in done.would:
        click.echo(f"would {entry.action}  {printable(entry.node)}  {printable(entry.why)}")
    for wait in done.waiting:
        name = f"episode {wait.episode} ({wait.state})" if wait.episode else "no episode"
        click.echo(f"waits  {printable(wait.node)}  {name}: {printable(wait.why)}")
    what = f"{done.opened} opened, {len(done.moved)} steps" if work.apply else "dry run: nothing changed"
    click.echo(f"{what}; {len(done.waiting)} wait; {len(done.would)} would be done if they were enabled")


def show_step(step: Written) -> None:
    """Print a step that is in the store, as a line."""
    row = step.case.episode
    why = step.move.because or ("has waited for too long" if step.move.event is None else "")
    line = f"{utc(row.updated)}  {printable(row.node)}  episode {row.id}  {row.state}"
    click.echo(f"{line}  {printable(why)}".rstrip())


def show_step_as_json(step: Written) -> None:
    """Print it as JSON."""
    click.echo(json.dumps(step_value(step), ensure_ascii=False))


def step_value(step: Written) -> Dict[str, Any]:
    """A step as JSON."""
    row = step.case.episode
    return {
        "at": row.updated, "node": row.node, "episode": row.id, "from": step.before.value, "to": row.state,
        "rung": row.rung, "because": step.move.because,
    }  # fmt: skip


def round_value(done: EpisodeRound) -> Dict[str, Any]:
    """A round as JSON."""
    return {
        "at": done.at, "opened": done.opened, "seconds": round(done.seconds, 3), "decisions": done.decisions,
        "steps": [step_value(entry) for entry in done.moved],
        "waiting": [entry._asdict() for entry in done.waiting],
        "would": [entry._asdict() for entry in done.would],
        "problems": list(done.problems),
    }  # fmt: skip
