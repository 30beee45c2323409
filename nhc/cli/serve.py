"""`nhc serve`: the loops, notices, spares and the server of a small site in one process.

Each runs in a thread of its own, until a signal, or until one of them cannot go on. Each leads under its own name and
goes round as it does alone; what they have in common are the signals, /metrics and /healthz. A service that fails ends
the process, as it would alone, and whoever started that starts all of them again: each goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence

import click

from nhc.cli.host_settings import PATH, HostSettings, SparesPart, load
from nhc.console.commands.notices import PATH as NOTICES
from nhc.console.commands.notices import service_of as notices_service
from nhc.core.command_line.common_options import GroupedCommand, check_settings, service_log, under
from nhc.core.system.metrics_server import Pages
from nhc.core.system.service_log import ServiceLog
from nhc.core.system.stop_signals import StopSignals
from nhc.jobs.commands.job_run import service_of as job_service
from nhc.remedy.commands import spares
from nhc.remedy.commands.remedy_run import service_of as remedy_service
from nhc.remedy.spares.settings import PATH as POOLS
from nhc.remedy.spares.spare_rounds import SpareRounds
from nhc.store.commands import server as reports
from nhc.store.rounds.leader import Leader
from nhc.store.rounds.service import RoundService, listening

AS_SERVICE: Dict[str, Any] = {
    "leader": "", "dry_run": False, "once": False, "listen": "", "metrics_file": "", "form": "text",
}  # fmt: skip
"""The options of `nhc serve remedy` and `nhc serve job` for a service whose address another has."""


@click.command("serve", cls=GroupedCommand)
@service_log
@check_settings("serve.toml", heading="Where")
@under("Where")(
    "-s", "--settings", "path", default=PATH, show_default=True, metavar="FILE", help="Which services (TOML)."
)
@under("What is shown")("--listen", default="", metavar="ADDRESS", help="Instead of the settings' listen.")
def command(path: str, listen: str) -> int:
    """Host in one process what the settings name: [remedy], [jobs], [notices], [spares], [server].

    Each does what its own command does (`nhc serve remedy`, `job`, `notices` and `server`, `nhc spares swap`),
    by its own settings file. Exit status: 0 ended by a signal, 1 one of them has failed, 2 wrong usage or settings, 3
    a store, an adapter or an address cannot be had.
    """
    settings = load(path)
    with contextlib.ExitStack() as opened:
        services = services_of(settings, opened)
        front = server_of(settings)
        return host(services, listen or settings.listen if services else "", front)


def services_of(settings: HostSettings, opened: contextlib.ExitStack) -> List[RoundService]:
    """The services that go round; `opened` closes what they use. Raises SettingsError, StoreError, CommandError."""
    services = []
    remedy = settings.remedy.settings or None if settings.remedy is not None else None
    if settings.remedy is not None:
        services.append(opened.enter_context(
            remedy_service({**AS_SERVICE, "settings_path": remedy}))[0])  # fmt: skip
    if settings.jobs is not None:
        jobs = settings.jobs.settings or None
        services.append(opened.enter_context(job_service({**AS_SERVICE, "settings_path": jobs}))[0])
    if settings.notices is not None:
        services.append(opened.enter_context(notices_service(settings.notices.settings or NOTICES)))
    if settings.spares is not None:
        services.append(spares_service(settings.spares, remedy, opened))
    return services


def spares_service(part: SparesPart, remedy: Optional[str], opened: contextlib.ExitStack) -> RoundService:
    """`nhc spares swap` again and again. Raises SettingsError, StoreError, CommandError."""
    site, pools = opened.enter_context(spares.opened(part.settings or POOLS, remedy, look=False))
    leader = Leader(site.store, name="spares")
    return RoundService("spares swap", SpareRounds(site, pools, part.apply, spares.tell), leader, every=part.every)


def server_of(settings: HostSettings) -> Optional[Callable[[StopSignals], None]]:
    """The server, for the main thread; None where it is not hosted."""
    if settings.server is None:
        return None
    of_server, of_store = reports.settings_of(settings.server.settings, settings.server.store)
    return lambda stop: reports.serve(of_server, of_store, stop)


def host(
    services: Sequence[RoundService], listen: str, front: Optional[Callable[[StopSignals], None]] = None
) -> int:  # fmt: skip
    """Go round until a signal; the exit status: 1 where one of them has failed. In the main thread.

    `front` runs in the main thread meanwhile: it ends by the same signals, which it may take for itself, and then
    ends the given StopSignals. Raises RoundRefused, and what `front` raises.
    """
    stop = StopSignals()
    pages = Pages(service.command for service in services)
    failed: List[str] = []

    def rounds(service: RoundService) -> None:
        try:
            service.host(stop, pages)
        except BaseException:
            failed.append(service.command)
            os.kill(os.getpid(), signal.SIGTERM)  # what is in the main thread ends by it as well
            raise

    threads = [
        threading.Thread(target=rounds, args=(service,), name=f"nhc-{service.command}") for service in services
    ]  # fmt: skip
    log = ServiceLog("serve")
    with listening(listen, pages, log):
        try:
            for thread in threads:
                thread.start()
            if front is not None:
                front(stop)
            while not stop.come:
                stop.wait(3600.0)
        finally:
            stop.end()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
    for command in failed:
        log.error(f"{command} has failed: all have ended")
    return 1 if failed else 0
