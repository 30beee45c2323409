"""Spare nodes in reservations of Slurm: a reserved node takes no work of others until its reservation is deleted.

    [pools.gpu]
    type = "slurm"
    reservation = "nhc-spare"

Each spare has a reservation of its own, `nhc-spare-NODE`: one that holds several cannot give up its last node, and not
every release of Slurm takes one out of a list (`Nodes-=`). The site makes the first ones:
`scontrol create reservation ReservationName=nhc-spare-n9 Nodes=n9 Users=root StartTime=now Duration=UNLIMITED`.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple

from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError, Applied, Effect
from nhc.marks.ports.part_settings import Given, read
from nhc_adapters._command import Commands, Runner, complaint, plain, run_command
from nhc_adapters.slurm.commands import SlurmPlace
from nhc_adapters.slurm.marker import SQUEUE, parse_squeue, with_work
from nhc_adapters.slurm.states import parse_show


def _reservation(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", text):
        raise ValueError("the begin of the names of reservations, of letters, digits, _ . and -")
    return text


@declared.settings
class SlurmSpareSettings(NamedTuple):
    """A pool of spares in Slurm."""

    reservation: str = declared.converted(
        "reservation", _reservation, declared.NEEDED, "the begin of the names of the pool's reservations",
        shown='"nhc-spare"',
    )  # fmt: skip
    place: SlurmPlace = declared.part("", SlurmPlace)


class SlurmSpares:
    """The reservations whose names begin with the pool's."""

    SETTINGS = SlurmSpareSettings

    def __init__(
        self, settings: Given = None, environ: Given = None, timeout: float = 30.0, run: Runner = run_command
    ) -> None:
        own = read(SlurmSpareSettings, settings)
        self.reservation = own.reservation
        self.command = Commands(own.place.variables(), environ, timeout, run)

    def waiting(self) -> List[str]:
        """The nodes that have a reservation of the pool. Raises AdapterError."""
        done = self.command("scontrol", "show", "reservation", "-o")
        if done.status:
            raise AdapterError(f"scontrol show reservation: {complaint(done)}")
        reserved = []
        for line in done.stdout.splitlines():
            fields = dict(re.findall(r"(?:^|\s)([A-Z][A-Za-z]+)=(\S*)", line))
            name, nodes = fields.get("ReservationName", ""), fields.get("Nodes", "")
            if name == f"{self.reservation}-{nodes}":  # a reservation of others, or with other nodes, is left alone
                reserved.append(nodes)
        return sorted(reserved)

    def into_service(self, node: str) -> Applied:
        """Delete the node's reservation."""
        return self._change(node, False, "delete", f"ReservationName={self.reservation}-{plain(node)}")

    def back(self, node: str) -> Applied:
        """Reserve a node first of all, so that no new job comes. FAILED while jobs that were there before still run."""
        done = self._change(
            node, True, "create", "reservation", f"ReservationName={self.reservation}-{plain(node)}", f"Nodes={node}",
            "Users=root", "StartTime=now", "Duration=UNLIMITED", "Flags=IGNORE_JOBS",
        )  # fmt: skip
        if done.effect is Effect.FAILED:
            return done
        try:
            states = parse_show(self.command.ask("scontrol", "-a", "show", "node", plain(node)))
            states = with_work(states, parse_squeue(self.command.ask(*SQUEUE)))
        except (AdapterError, ValueError) as error:
            return Applied(node, Effect.FAILED, f"it takes no new jobs, and its jobs cannot be seen: {error}")
        busy = any(state.busy for state in states)
        return Applied(node, Effect.FAILED, "it takes no new jobs, and work still runs on it") if busy else done

    def _change(self, node: str, reserved: bool, *argv: str) -> Applied:
        name = f"reservation {self.reservation}-{node}"
        try:
            if (node in self.waiting()) is reserved:
                return Applied(node, Effect.UNCHANGED, f"{name} is {'there' if reserved else 'gone'} already")
            done = self.command("scontrol", *argv)
            if (node in self.waiting()) is reserved:  # what slurmctld did counts, not what scontrol said
                return Applied(node, Effect.CHANGED, f"{name} is {'there' if reserved else 'gone'}")
        except AdapterError as error:
            return Applied(node, Effect.FAILED, str(error))
        return Applied(node, Effect.FAILED, complaint(done))
