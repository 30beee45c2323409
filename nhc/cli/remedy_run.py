"""`nhc remedy run`: the loop in the foreground, once for cron, or as a service."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import click

from nhc import plugins
from nhc.cli.carried_out import tell_stand_in
from nhc.cli.command_error import CommandError
from nhc.cli.common_options import FORMAT
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.remedy_options import SETTINGS, STORE, carried_out, show
from nhc.cli.remedy_site import site_of
from nhc.model import printable
from nhc.plugins import NoAdapter
from nhc.ports.adapter import AdapterError
from nhc.remedy import metrics
from nhc.remedy.cases import Written
from nhc.remedy.controller import RemedyRound
from nhc.remedy.settings import LeaderSettings
from nhc.remedy.site import RemedySite
from nhc.rounds.leader import Candidate, Leader
from nhc.rounds.pruner import Pruner
from nhc.rounds.service import RoundEnd, RoundService
from nhc.store import settings as store_settings
from nhc.store.database import Fence
from nhc.timestamps import utc

EXPIRE_EVERY = 3600.0
AGAIN = 20
"""Rounds that --once adds at most, each after something has ended that the round before has begun."""


@click.command("run", cls=GroupedCommand)
@SETTINGS
@STORE
@under("What is done")("--once", is_flag=True, help="One round, then end: for cron.")
@under("What is done")(
    "--leader", default="", metavar="NAME",
    help="What decides who leads: store (a lock of its database), kubernetes-lease. Default: what the settings say.",
)  # fmt: skip
@under("What is done")("--dry-run", is_flag=True, help="Show what would be done; write and change nothing.")
@under("What is shown")("--listen", default="", metavar="ADDRESS", help="Serve /metrics and /healthz: 127.0.0.1:9469.")
@under("What is shown")("--metrics-file", default="", metavar="FILE", help="Write metrics for a textfile collector.")
@FORMAT
def command(**options: Any) -> None:
    """Bring faulty nodes back: mark, drain, evidence, repair, verify, return; or an escalation.

    Nothing is done to nodes unless the settings enable it, action by action; without that the plan is shown. One
    process leads a store; others wait. Exit status: 0 done or ended by a signal, 1 something could not be read (with
    --once), 2 wrong usage or settings, 3 the store, the adapter or the lead cannot be had.
    """
    carried_out("run", lambda: run(options))


def run(options: Dict[str, Any]) -> int:
    """Carry it out. Raises SettingsError, StoreError, CommandError."""
    with service_of(options) as (service, summary):
        return service.run(options["once"], summary)


@contextlib.contextmanager
def service_of(options: Dict[str, Any]) -> Iterator[Tuple[RoundService, Callable[[], None]]]:
    """The service, and what shows its only round. Raises SettingsError, StoreError, CommandError."""
    with site_of(options["settings_path"], options["store_url"], look=options["dry_run"]) as site:
        leader = None if options["dry_run"] else Leader(site.store, candidate(site.settings.leader, options["leader"]))
        tell_stand_in("remedy run", site.store)
        work = _RemedyRounds(site, leader is not None, options)
        service = RoundService(
            "remedy run", work, leader, every=site.settings.every, listen=options["listen"],
            metrics_file=options["metrics_file"],
        )  # fmt: skip
        if work.streams:
            work.pruner.start()
        try:
            yield service, work.summary
        finally:
            work.pruner.stop()


def candidate(settings: LeaderSettings, named: str) -> Optional[Candidate]:
    """What decides who leads, None for the store's own lock. Raises CommandError."""
    by = named or settings.by
    if by == "store":
        return None
    try:
        made: Candidate = plugins.candidate(by)(settings.settings if by == settings.by else {}, os.environ)
        return made
    except (NoAdapter, AdapterError) as error:
        raise CommandError(str(error), 2) from None


class _RemedyRounds:
    """What `nhc remedy run` does each round."""

    def __init__(self, site: RemedySite, leading: bool, options: Dict[str, Any]) -> None:
        self.site = site
        self.json, self.streams = options["form"] == "json", leading and not options["once"]
        self.dry, self.once = not leading, bool(options["once"])
        self.totals = metrics.Totals()
        self.last: Optional[RemedyRound] = None
        keep = store_settings.load(url=site.settings.store).pruning()
        self.pruner = Pruner(site.store, keep, "nhc remedy", log=_log, forget=site.gatherer.delete)
        self.expired = 0.0

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.controller = self.site.controller(fence, self.tell, not self.dry)

    def round(self) -> RoundEnd:
        """See RoundWork. What cannot be read makes it unhealthy: nothing is repaired on half a view."""
        self.last = self.controller.round(apply=not self.dry)
        for _ in range(AGAIN if self.once and not self.dry else 0):
            if not self._waited():
                break
            self.last = self.last.followed_by(self.controller.round())
        self.totals.add(self.last)
        if self.streams:
            self._expire()
        return RoundEnd(tuple(self.last.problems), unhealthy="; ".join(self.last.problems))

    def _waited(self) -> bool:
        """Wait for what runs in the background of this process, and would end with it; whether there was anything."""
        assert self.last is not None
        whys = [one.why.partition(":")[0] for one in self.last.waiting]
        if "evidence" in whys:
            self.site.gatherer.wait()
        elif "suite" in whys and self.site.prover is not None:
            return self.site.prover.wait()
        return "evidence" in whys

    def page(self) -> str:
        """See RoundWork."""
        assert self.last is not None
        text = metrics.render(self.site.store, self.last, self.totals, not self.dry)
        return text + "".join(family.render() for family in self.pruner.families())

    def standby(self) -> str:
        """See RoundWork."""
        return metrics.STANDS_BY

    def _expire(self) -> None:
        if time.monotonic() - self.expired > EXPIRE_EVERY:
            self.expired = time.monotonic()
            self.site.gatherer.expire()

    def summary(self) -> None:
        """What the only round came to."""
        done = self.last
        assert done is not None
        if self.json:
            show(round_value(done))
            return
        for one in done.would:
            click.echo(f"would {one.action}  {printable(one.node)}  {printable(one.why)}")
        for wait in done.waiting:
            name = f"episode {wait.episode} ({wait.state})" if wait.episode else "no episode"
            click.echo(f"waits  {printable(wait.node)}  {name}: {printable(wait.why)}")
        what = "dry run: nothing changed" if self.dry else f"{done.opened} opened, {len(done.moved)} steps"
        click.echo(f"{what}; {len(done.waiting)} wait; {len(done.would)} would be done if they were enabled")

    def tell(self, one: Written) -> None:
        """A step that is in the store."""
        row = one.case.episode
        if self.json:
            if self.streams:
                click.echo(json.dumps(step_value(one), ensure_ascii=False))
            return
        why = one.move.because or ("has waited for too long" if one.move.event is None else "")
        line = f"{utc(row.updated)}  {printable(row.node)}  episode {row.id}  {row.state}"
        click.echo(f"{line}  {printable(why)}".rstrip())


def _log(text: str) -> None:
    print(f"nhc remedy run: {printable(text)}", file=sys.stderr, flush=True)


def step_value(one: Written) -> Dict[str, Any]:
    """A step as JSON."""
    row = one.case.episode
    return {
        "at": row.updated, "node": row.node, "episode": row.id, "from": one.before.value, "to": row.state,
        "rung": row.rung, "because": one.move.because,
    }  # fmt: skip


def round_value(done: RemedyRound) -> Dict[str, Any]:
    """A round as JSON."""
    return {
        "at": done.at, "opened": done.opened, "seconds": round(done.seconds, 3), "decisions": done.decisions,
        "steps": [step_value(one) for one in done.moved],
        "waiting": [one._asdict() for one in done.waiting],
        "would": [one._asdict() for one in done.would],
        "problems": list(done.problems),
    }  # fmt: skip
