"""`nhc serve`: the loops, notices, spares and the server of a small site in one process.

Each runs in a thread of its own, until a signal, or until one of them cannot go on. Each leads under its own name and
runs its rounds as it does alone; they share only the signals, /metrics and /healthz. A service that fails ends the
process, as it would alone. The process's supervisor then starts all of them again, and each goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Callable, List, Optional, Sequence

from nhc.cli.host_settings import HostSettings, SparesPart, load
from nhc.console.commands.notices import service_of as notices_service
from nhc.core.command_line import options
from nhc.core.command_line.common_options import service_command
from nhc.core.system.metrics_server import Pages
from nhc.core.system.service_log import ServiceLog
from nhc.core.system.stop_signals import StopSignals
from nhc.jobs.commands.job_run import JobRunOptions
from nhc.jobs.commands.job_run import service_of as job_service
from nhc.remedy.commands import spares
from nhc.remedy.commands.remedy_run import RemedyRunOptions
from nhc.remedy.commands.remedy_run import service_of as remedy_service
from nhc.remedy.spares.spare_rounds import SpareRounds
from nhc.store import settings as store_settings
from nhc.store.commands import server as reports
from nhc.store.rounds.leader import Leader
from nhc.store.rounds.service import RoundService, listening


class ServeOptions(options.CommandOptions):
    settings: str = options.settings_file("serve.toml", checked=True, heading="Where")
    listen: str = options.text("--listen", "ADDRESS", "Instead of the settings' listen.", heading="What is shown")


@service_command
def command(args: ServeOptions) -> int:
    """Host in one process what the settings name: [remedy], [jobs], [notices], [spares], [server].

    Each does what its own command does (`nhc serve remedy`, `job`, `notices` and `server`, `nhc spares swap`),
    by its own settings file. Exit status: 0 ended by a signal, 1 one of them has failed, 2 wrong usage or settings, 3
    a store, an adapter or an address cannot be had.
    """
    settings = load(args.settings)
    with contextlib.ExitStack() as opened:
        services = services_of(settings, opened)
        front = server_of(settings)
        return host(services, args.listen or settings.listen if services else "", front)


def services_of(settings: HostSettings, opened: contextlib.ExitStack) -> List[RoundService]:
    """The services with rounds; `opened` closes what they use. Raises SettingsError, StoreError, CommandError."""
    services = []
    remedy = settings.remedy.settings if settings.remedy is not None else ""
    if settings.remedy is not None:
        services.append(opened.enter_context(remedy_service(RemedyRunOptions(settings=remedy)))[0])
    if settings.jobs is not None:
        services.append(opened.enter_context(job_service(JobRunOptions(settings=settings.jobs.settings)))[0])
    if settings.notices is not None:
        services.append(opened.enter_context(notices_service(settings.notices.settings)))
    if settings.spares is not None:
        services.append(spares_service(settings.spares, remedy, opened))
    return services


def spares_service(part: SparesPart, remedy: str, opened: contextlib.ExitStack) -> RoundService:
    """`nhc spares swap` again and again. Raises SettingsError, StoreError, CommandError."""
    site, pools = opened.enter_context(spares.opened(part.settings, remedy, look=False))
    leader = Leader(site.store, name="spares")
    return RoundService("spares swap", SpareRounds(site, pools, part.apply, spares.tell), leader, every=part.every)


def server_of(settings: HostSettings) -> Optional[Callable[[StopSignals], None]]:
    """The server, for the main thread; None if it is not hosted."""
    if settings.server is None:
        return None
    of_server, of_store = reports.load(settings.server.settings), store_settings.load(settings.server.store)
    return lambda stop: reports.serve(of_server, of_store, stop)


def host(
    services: Sequence[RoundService], listen: str, front: Optional[Callable[[StopSignals], None]] = None
) -> int:  # fmt: skip
    """Run until a signal; returns the exit status: 1 if one of them has failed. In the main thread.

    `front` runs in the main thread meanwhile. The same signals end it; it may handle them itself, and then ends the
    given StopSignals. Raises RoundRefused, and what `front` raises.
    """
    stop = StopSignals()
    pages = Pages(service.command for service in services)
    failed: List[str] = []

    def rounds(service: RoundService) -> None:
        try:
            service.host(stop, pages)
        except BaseException:
            failed.append(service.command)
            os.kill(os.getpid(), signal.SIGTERM)  # this also ends what runs in the main thread
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
