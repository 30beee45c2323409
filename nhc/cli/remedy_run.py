"""`nhc remedy run`: the loop in the foreground, once for cron, or as a service."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List, Optional

import click

from nhc import plugins
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.remedy_options import FORMAT, SETTINGS, STORE, Cannot, carried_out, settings_of, show
from nhc.model import printable
from nhc.plugins import NoAdapter
from nhc.ports import AdapterError
from nhc.remedy import metrics
from nhc.remedy.book import Written
from nhc.remedy.controller import RemedyRound
from nhc.remedy.settings import LeaderSettings
from nhc.remedy.site import RemedySite, open_site
from nhc.store import settings as store_settings
from nhc.store.database import Fence
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.leader import Candidate, Leader, leads
from nhc.store.pruning import Pruner
from nhc.system import output_file
from nhc.system.metrics_server import Pages, serve
from nhc.timestamps import utc

EXPIRE_EVERY = 3600.0


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
    """Carry it out. Raises SettingsError, StoreError, Cannot."""
    settings = settings_of(options["settings_path"], options["store_url"])
    try:
        site = open_site(settings)
    except (NoAdapter, AdapterError) as error:
        raise Cannot(str(error), 2) from None
    try:
        return _Service(site, options).run()
    finally:
        site.close()


def candidate(settings: LeaderSettings, named: str) -> Optional[Candidate]:
    """What decides who leads, None for the store's own lock. Raises Cannot."""
    by = named or settings.by
    if by == "store":
        return None
    try:
        made: Candidate = plugins.candidate(by)(settings.settings if by == settings.by else {}, os.environ)
        return made
    except (NoAdapter, AdapterError) as error:
        raise Cannot(str(error), 2) from None


class _Service:
    """One process: rounds until a signal, leading where it may."""

    def __init__(self, site: RemedySite, options: Dict[str, Any]) -> None:
        self.site, self.options = site, options
        self.json = options["form"] == "json"
        self.dry = bool(options["dry_run"])
        self.stop = threading.Event()
        self.leader = None if self.dry else Leader(site.store, candidate(site.settings.leader, options["leader"]))
        self.pages, self.totals = Pages(), metrics.Totals()
        self.said: List[str] = []
        keep = store_settings.load(url=site.settings.store).pruning()
        self.pruner = Pruner(site.store, keep, "nhc remedy", log=self.say, forget=site.gatherer.delete)
        self.expired = 0.0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop.set())
        server = None
        if self.options["listen"]:
            try:
                server = serve(self.options["listen"], self.pages)
            except ValueError as error:
                raise Cannot(f"--listen: {error}", 2) from None
            except OSError as error:
                raise Cannot(f"--listen {self.options['listen']}: {error.strerror or error}") from None
        try:
            if self.options["once"] or self.dry:
                return self._once()
            self.pruner.start()
            return self._rounds()
        finally:
            self.pruner.stop()
            if server is not None:
                server.shutdown()
            if self.leader is not None:
                self.leader.release()

    def _once(self) -> int:
        fence: Optional[Fence] = None
        if self.leader is not None:
            try:
                leads_now = self.leader.attempt()
            except AdapterError as error:
                raise Cannot(str(error)) from None
            if not leads_now:
                raise Cannot(f"another leads this store: {leads(self.site.store) or 'unknown'}")
            fence = self.leader.fence
        done = self.site.controller(fence, self.tell, not self.dry).round(apply=not self.dry)
        self._after(done)
        self._summary(done)
        return 1 if done.problems else 0

    def _rounds(self) -> int:
        """Rounds while it leads. A store that is away is waited for: the loop goes on where it stopped."""
        assert self.leader is not None
        every, controller, number = self.site.settings.every, None, -1
        while not self.stop.is_set():
            try:
                if not self.leader.attempt() or self.leader.fence is None:
                    controller = None
                    self.say(f"waits: another leads this store: {leads(self.site.store) or 'unknown'}")
                else:
                    if controller is None or number != self.leader.fence.number:
                        number = self.leader.fence.number
                        controller = self.site.controller(self.leader.fence, self.tell)
                        self.say(f"leads as {self.leader.holder} (number {number})")
                    self._after(controller.round())
                    self._expire()
            except LeadershipLost as error:
                controller = None
                self.say(str(error))
            except (StoreError, AdapterError) as error:
                self.pages.update("", printable(str(error)))
                self.say(str(error))
            self.stop.wait(every)
        return 0

    def _after(self, done: RemedyRound) -> None:
        self.totals.add(done)
        for problem in done.problems:
            self.say(problem)
        if not done.problems:
            self.said.clear()
        if not self.options["listen"] and not self.options["metrics_file"]:
            return
        text = metrics.render(self.site.store, done, self.totals, self.leader is not None)
        text += "".join(family.render() for family in self.pruner.families())
        self.pages.update(text, "; ".join(done.problems))
        path = self.options["metrics_file"]
        if path:
            try:
                output_file.replace(path, lambda file: file.write(text))
            except OSError as error:
                self.say(f"--metrics-file {path}: {error.strerror or error}")

    def _expire(self) -> None:
        if time.monotonic() - self.expired > EXPIRE_EVERY:
            self.expired = time.monotonic()
            self.site.gatherer.expire()

    def _summary(self, done: RemedyRound) -> None:
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
            if not self.options["once"] and not self.dry:
                click.echo(json.dumps(step_value(one), ensure_ascii=False))
            return
        why = one.move.because or ("has waited for too long" if one.move.event is None else "")
        line = f"{utc(row.updated)}  {printable(row.node)}  episode {row.id}  {row.state}"
        click.echo(f"{line}  {printable(why)}".rstrip())

    def say(self, text: str) -> None:
        """A line for the log, once as long as nothing else happens."""
        if text not in self.said:
            self.said.append(text)
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
