"""A service of rounds: one process that runs rounds over a store while it leads, until a signal; or one round, for
cron.

`nhc serve remedy`, `nhc serve job` and `nhc serve notices` use it. This module has what they share: who leads, the time
between rounds, the signals that end them, the log lines, /metrics and /healthz. Each service defines what its round
does.

If one item of a round fails, for any reason, the others continue, and the log says where it failed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Callable, Iterable, Iterator, List, NamedTuple, Optional, Protocol, Set, Tuple

from nhc.core.model import printable
from nhc.core.prometheus_family import Family, counter, gauge
from nhc.core.system import written_files
from nhc.core.system.metrics_server import Pages, serve
from nhc.core.system.service_log import ServiceLog, failure, leveled, problem
from nhc.core.system.stop_signals import StopSignals, collect_garbage_seldom
from nhc.marks.ports.adapter import AdapterError
from nhc.store.database import Fence
from nhc.store.errors import Conflict, LeadershipLost, RoundRefused, StoreError
from nhc.store.rounds.leader import Leader


class RoundEnd(NamedTuple):
    """How a round ended. `problems` are what it could not do, `notes` further lines for the log.

    `unhealthy` is why /healthz is 503, "" if it is not.
    """

    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    unhealthy: str = ""


class RoundWork(Protocol):
    """What a service does in its rounds. `prefix` begins the names of its metrics."""

    prefix: str

    def lead(self, fence: Optional[Fence]) -> None:
        """The rounds that follow write under this number; None: they write nothing."""
        ...

    def round(self) -> RoundEnd:
        """One round. Raises StoreError, AdapterError."""
        ...

    def page(self) -> str:
        """Its own metrics after a round, in Prometheus' text. Raises StoreError."""
        ...


STAND_BY = 3.0
"""Seconds between two attempts to take the lead, at most."""


class RoundService:
    """One process. `leader` None: rounds that write nothing, and need no lead. `every` seconds from one to the next.

    `listen` is the address of /metrics and /healthz, `metrics_file` a file for a textfile collector; "" for none.
    `finish` ends what rounds left under way, before the lead is given up. For several services in one process,
    nhc.cli.serve has the listener and the signals, and calls `host` of each in a thread.
    """

    def __init__(
        self, command: str, work: RoundWork, leader: Optional[Leader], *, every: float, listen: str = "",
        metrics_file: str = "", finish: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.command, self.work, self.leader, self.every = command, work, leader, every
        self.listen, self.metrics_file, self.finish = listen, metrics_file, finish
        self.pages, self._page_name = Pages(), ""
        self._logged: Set[str] = set()
        self._ended = self._failed = 0
        self.log = ServiceLog(command)

    def run(self, once: bool, summary: Callable[[], None] = lambda: None) -> int:
        """Rounds until a signal. With `once`, or if there is no lead to wait for: one round, and then its `summary`.

        The exit status: 1 if the one round had problems. Raises StoreError, RoundRefused: another leads (in one round),
        or the address cannot be had.
        """
        if self.leader is None or once:
            end = self._once()
            summary()
            return 1 if end.problems else 0
        self._rounds(self.leader, StopSignals())
        return 0

    def host(self, stop: StopSignals, pages: Pages) -> None:
        """Rounds in a thread of a process that hosts several, until `stop`; `pages` gets an entry under this service's
        command.
        """
        assert self.leader is not None
        self.pages, self._page_name = pages, self.command
        self._rounds(self.leader, stop)

    def _once(self) -> RoundEnd:
        StopSignals()  # what is under way is finished
        with self._open():
            try:
                if self.leader is not None and not self.leader.attempt():
                    raise RoundRefused(f"another leads this store: {self.leader.last()}")
                self.work.lead(self.leader.fence if self.leader is not None else None)
                return self._round()
            except AdapterError as error:
                raise RoundRefused(str(error)) from None

    def _rounds(self, leader: Leader, stop: StopSignals) -> None:
        """Runs rounds while it leads. It waits for a store that is not reachable."""
        with self._open():
            number: Optional[int] = None
            while not stop.come:
                number = self._attempt(leader, number)
                stop.wait(self.every if number is not None else min(self.every, STAND_BY))

    def _attempt(self, leader: Leader, number: Optional[int]) -> Optional[int]:
        """A round, if this process leads; returns the number under which it ran, None for no round."""
        try:
            if not leader.attempt() or leader.fence is None:
                self._stand_by(f"waits: another leads this store: {leader.last()}")
                return None
            if number != leader.fence.number:
                number = leader.fence.number
                self.work.lead(leader.fence)
                self.log(f"leads as {leader.holder} (number {number})")
            self._round()
            return number
        except LeadershipLost as error:
            self._stand_by(str(error))
            return None
        except (StoreError, AdapterError) as error:
            return self._failed_round(str(error), number)
        except Exception as error:  # an unexpected one is tried again as well: its cause may be data
            return self._failed_round(failure(error), number)

    def _failed_round(self, why: str, number: Optional[int]) -> Optional[int]:
        self.pages.update("", printable(why), self._page_name)
        self._tell([leveled(why, logging.ERROR)])
        return number

    def _stand_by(self, why: str) -> None:
        """/healthz is 200: this process must not be restarted because another one leads."""
        self._tell([why, *map(problem, self._publish(self._leads(False).render(), ""))])

    def _round(self) -> RoundEnd:
        """One round, with its metrics and its lines for the log."""
        began = time.time()
        end = self.work.round()
        self._ended += 1
        self._failed += 1 if end.problems else 0
        followed = self.listen or self.metrics_file or self._page_name
        unwritten = self._publish(self._of_rounds(end, began) + self.work.page(), end.unhealthy) if followed else []
        self._tell([*map(problem, (*end.problems, *unwritten)), *end.notes])
        self.log.debug(f"round {self._ended} took {time.time() - began:.3f} s")
        return end

    def _leads(self, leads: bool) -> Family:
        return gauge(f"{self.work.prefix}_leader", "1 while this process leads and does this work.", float(leads))

    def _of_rounds(self, end: RoundEnd, began: float) -> str:
        """The metrics that every service has of its rounds."""
        name = self.work.prefix
        families = (
            self._leads(self.leader is not None),
            gauge(f"{name}_last_round_timestamp_seconds", "When the last round began.", began),
            gauge(f"{name}_problems", "What the last round could not read or do.", float(len(end.problems))),
            counter(f"{name}_rounds_total", "Rounds since the start.", self._ended),
            counter(f"{name}_rounds_failed_total", "Rounds that could not read or do everything.", self._failed),
        )
        return "".join(family.render() for family in families)

    def _publish(self, page: str, unhealthy: str) -> List[str]:
        """Why the file of the metrics could not be written, if so."""
        self.pages.update(page, unhealthy, self._page_name)
        if self.metrics_file:
            try:
                written_files.replace_output(self.metrics_file, lambda file: file.write(page))
            except OSError as error:
                return [f"--metrics-file {self.metrics_file}: {error.strerror or error}"]
        return []

    def _tell(self, lines: Iterable[str]) -> None:
        """Log the lines of a round. A line that the round before logged is not logged again while it lasts."""
        now = list(dict.fromkeys(lines))
        for line in now:
            if line not in self._logged:
                self.log(line)
        self._logged = set(now)

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Runs the listener while rounds run, and gives up the lead at the end."""
        collect_garbage_seldom()
        try:
            with listening(self.listen, self.pages, self.log):
                try:
                    yield
                finally:
                    self.finish()
        finally:
            if self.leader is not None:
                self.leader.release()


@contextlib.contextmanager
def listening(address: str, pages: Pages, log: Callable[[str], None]) -> Iterator[None]:
    """Serves /metrics and /healthz at an address while the block runs; "" for none. Raises RoundRefused."""
    if not address:
        yield
        return
    try:
        server = serve(address, pages)
    except ValueError as error:
        raise RoundRefused(f"--listen: {error}", wrong_use=True) from None
    except OSError as error:
        raise RoundRefused(f"--listen {address}: {error.strerror or error}") from None
    log(f"/metrics and /healthz are on {address.rpartition(':')[0] or '127.0.0.1'}:{server.server_port}")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def one_item(name: str, problems: List[str]) -> Iterator[None]:
    """Guards the work for one item of a round. What it raises becomes a line of `problems`.

    Raises StoreError if the store or the lead is lost: then the next item would fail as well. A row that another
    process has changed, and data that the database never accepts, concern this item only.
    """
    try:
        yield
    except StoreError as error:
        if not isinstance(error, Conflict) and not error.refused:
            raise
        problems.append(f"{name}: {failure(error)}")
    except Exception as error:
        problems.append(f"{name}: {failure(error)}")
