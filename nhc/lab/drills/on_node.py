"""Faults that are put on the node itself, by `nhc inject` there: through the repairer that runs commands (SSH).

A command is sent once under its key; the node is asked for its result. A lost answer proves nothing, so the fault
counts as begun. Removing it may be repeated.
"""

from __future__ import annotations

import time
import uuid
from typing import Callable, List, Sequence, Tuple

from nhc.lab.drills.faults import Injection
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Order, Repairer, Rung, RunsCommands, Sent, Sighting, Stage
from nhc.remedy.site import RemedySite
from nhc.store import nodes as store_nodes
from nhc.store.errors import RequestRefused

LONGEST = 60.0
"""Seconds that a command may take on the node, and that it is asked after for."""
PAUSE = 0.5
TRIES = 300.0
"""Seconds that a node which is busy, or away, is asked again to take the fault off."""
LATER = 10.0


class DrillRefused(RequestRefused):
    """Why a drill on this node cannot begin: one line for a person."""


class InjectedFault:
    """One injection, and how it gets to a node."""

    def __init__(
        self, site: RemedySite, injection: Injection, *, monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.site, self.injection, self.nhc = site, injection, site.settings.drill.nhc
        self.monotonic, self.sleep = monotonic, sleep

    def may(self, node: str) -> None:
        """Raises DrillRefused where no repairer runs commands on the node, StoreError."""
        self._runner(node)

    def begin(self, node: str, now: float) -> str:
        """Put it there, once. Raises DrillRefused where it was not begun, AdapterError where it failed there."""
        sent = self._send(node, self.injection.begin(self.nhc))
        if sent.answer is Answer.REFUSED:
            raise DrillRefused(f"{node}: {sent.message}")
        return sent.message

    def again(self, node: str, now: float) -> None:
        """It stands by itself."""

    def take_back(self, node: str, now: float) -> List[str]:
        """Take it off, and try again for a time. Raises AdapterError, StoreError."""
        until = self.monotonic() + TRIES
        while True:
            try:
                sent = self._send(node, self.injection.end(self.nhc))
            except (AdapterError, DrillRefused) as error:
                raise AdapterError(f"the fault of the drill cannot be taken off {node}: {error}") from None
            if sent.answer is Answer.ACCEPTED:
                return ["the fault was taken off the node"]
            for_good = sent.answer is Answer.REFUSED and not sent.retry_after
            if for_good or self.monotonic() + LATER > until:
                raise AdapterError(f"the fault of the drill cannot be taken off {node}: {sent.message}")
            self.sleep(LATER)

    def _runner(self, node: str) -> Tuple[Repairer, RunsCommands, Machine]:
        repairers = self.site.actuators.repairers
        with self.site.store.read() as connection:
            row = store_nodes.get(connection, node)
        repairers.learn({node: row} if row is not None else {})
        machine, refusals = repairers.machine(node), []
        for entry in repairers.entries:
            runner: object = entry.repairer
            if isinstance(runner, RunsCommands) and entry.serves(node):
                why = runner.can_run(machine)
                if not why:
                    return entry.repairer, runner, machine
                refusals.append(f"{entry.name}: {why}")
        raise DrillRefused("; ".join(refusals) or f"no repairer runs commands on {node}: set up [repairers.node]")

    def _send(self, node: str, argv: Sequence[str]) -> Sent:
        """ACCEPTED: it ended with 0; REFUSED: it was not begun; AMBIGUOUS: nobody knows yet.

        Raises AdapterError where it failed on the node, DrillRefused, StoreError.
        """
        repairer, runner, machine = self._runner(node)
        order = Order(str(uuid.uuid4()), "drill", 1, machine, Rung.ESCALATE, f"a drill: {' '.join(argv[1:3])}")
        sent = runner.run_command(order, argv, LONGEST)
        if sent.answer is Answer.REFUSED:
            return sent
        before = Sighting(0.0, machine.uuid, machine.boot_id)
        until = self.monotonic() + LONGEST
        while True:
            try:
                stage, message = repairer.progress(order, sent, before)[:2]
            except AdapterError as error:
                stage, message = Stage.WORKING, str(error)
            if stage is Stage.DONE:
                return Sent(Answer.ACCEPTED, message)
            if stage in (Stage.FAILED, Stage.HALFWAY):
                raise AdapterError(f"{node}: {message}")
            if self.monotonic() > until:
                return Sent(Answer.AMBIGUOUS, message)
            self.sleep(PAUSE)
