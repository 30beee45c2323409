"""Several services in one process: each in a thread of its own, until a signal, or until one of them cannot go on.

Each leads under its own name and goes round as it does alone; what they have in common are the signals, /metrics and
/healthz. A service that fails ends the process, as it would alone, and whoever started that starts all of them again:
each goes on where it stopped.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Callable, List, Optional, Sequence

from nhc.core.system.metrics_server import Pages
from nhc.core.system.service_log import ServiceLog
from nhc.core.system.stop_signals import StopSignals
from nhc.store.rounds.service import RoundService, listening


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
