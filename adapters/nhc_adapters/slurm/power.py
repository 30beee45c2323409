"""Repairs through Slurm itself: its RebootProgram, its power saving, and HyperPod's words on Slurm.

    [repairers.slurm]
    boot-time = "900"        # seconds from the reboot until slurmd registers; ResumeTimeout must allow it
    replace = "power"        # "no" (default), "power" for nodes of the cloud, "hyperpod"

Only `scontrol reboot` without ASAP is used: ASAP drains by itself and takes every drain away when the node is back,
ours too. A node that has not registered within ResumeTimeout (60 s unless set) is set DOWN: `can` compares that.
"""

from __future__ import annotations

import re
import time
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from nhc.marks import mark_text
from nhc.model import Action, printable
from nhc.ports import KEEPER, AdapterError, Mark
from nhc.repair import (
    Answer,
    Claim,
    EvidenceBudget,
    Exhibit,
    Machine,
    Order,
    Progress,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)
from nhc_adapters._command import Commands, Runner, complaint, plain, run_command
from nhc_adapters.repair.evidence import EvidenceCollector
from nhc_adapters.repair.settings import AdapterSettings
from nhc_adapters.slurm.commands import PLACE, place_of
from nhc_adapters.slurm.states import HELD, parse_show

KNOWN = ("boot-time", "replace", *PLACE)

BOOT_TIME = 600
"""Seconds that a node with eight GPUs may take from reboot to registration; firmware alone takes minutes."""

NOT_BEGUN = (
    "invalid node name",
    "invalid node state",
    "not supported",
    "disabled",
    "requested operation",
    "unspecified error",
)
"""What slurmctld answers when it has refused a request (src/common/slurm_errno.c)."""

NOT_ALLOWED = ("permission denied", "access/permission", "invalid user id")
"""What slurmctld answers to a user who may not (ESLURM_ACCESS_DENIED, ESLURM_USER_ID_MISSING)."""

NOT_REACHED = ("connect failure", "connection refused", "unable to contact slurm controller", "could not establish")
"""What a command says that has found nobody to send to."""

STUCK = ("reboot timed out", "node unexpectedly rebooted", "node not responding", "failed to")
"""Reasons that slurmctld sets itself when a reboot or a resume went wrong."""


class _NotShown(AdapterError):
    """slurmctld shows no such node."""


class SlurmPower:
    """Reboots and replaces nodes through slurmctld."""

    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
        run: Runner = run_command,
    ) -> None:
        table = AdapterSettings(settings, KNOWN)
        self.replace = table.choice("replace", ("no", "power", "hyperpod"))
        self.boot_time = table.text("boot-time", str(BOOT_TIME))
        if not self.boot_time.isdigit():
            raise table.wrong("boot-time", "a number of seconds")
        self.command = Commands(place_of(table), environ, timeout, run)
        self.command.env["SLURM_TIME_FORMAT"] = "%s"

    # What it can do.

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" where it is. Raises AdapterError where slurmctld cannot be asked."""
        if rung is Rung.REPLACE and self.replace == "hyperpod":
            return self._unknown(machine)
        if rung is Rung.REPLACE and self.replace == "power":
            return self._unknown(machine) or self._missing("SuspendProgram", "ResumeProgram")
        if rung is not Rung.REBOOT:
            hint = ' (set replace = "power" or "hyperpod")' if rung is Rung.REPLACE else ""
            return f"Slurm has no {rung.value}{hint}"
        return self._unknown(machine) or self._missing("RebootProgram") or self._too_short() or self._deaf(machine)

    def _deaf(self, machine: Machine) -> str:
        """Why slurmd cannot be asked to reboot: slurmctld waits for ever with the reboot of a node that is DOWN."""
        state = self._show(machine.node)[0].get("State", "")
        return "its slurmd does not answer: it cannot be asked to reboot" if _not_heard(state) else ""

    def _unknown(self, machine: Machine) -> str:
        try:
            self._show(machine.node)
        except _NotShown as error:
            return str(error)
        return ""

    def _config(self) -> Dict[str, str]:
        shown = self.command.ask("scontrol", "show", "config")
        pairs = (line.partition("=") for line in shown.splitlines())
        return {key.strip(): value.strip() for key, equals, value in pairs if equals}

    def _missing(self, *programs: str) -> str:
        config = self._config()
        absent = [name for name in programs if config.get(name, "(null)") in ("", "(null)")]
        return f"slurm.conf sets no {' and no '.join(absent)}" if absent else ""

    def _too_short(self) -> str:
        limit = re.match(r"\d+", self._config().get("ResumeTimeout", ""))
        if limit and int(limit[0]) < int(self.boot_time):
            return (
                f"ResumeTimeout is {limit[0]} s: a node that boots in {self.boot_time} s (boot-time) would be set DOWN"
            )
        return ""

    # Looking.

    def look(self, machine: Machine) -> Sighting:
        """The node as slurmctld has it. Raises AdapterError."""
        fields, held = self._show(machine.node)
        return Sighting(
            time.time(), _instance(fields), fields.get("BootTime", ""), printable(fields.get("State", ""), 60),
            "slurm" if held else "", held,
        )  # fmt: skip

    def _show(self, node: str) -> Tuple[Dict[str, str], str]:
        """The node's fields, and why Slurm itself works on it, "" where it does not."""
        done = self.command("scontrol", "-a", "show", "node", plain(node))
        if "not found" in done.stdout + done.stderr:
            raise _NotShown(f"scontrol show node {node}: {complaint(done)}")
        if done.status or not done.stdout.startswith("NodeName="):
            raise AdapterError(f"scontrol show node {node}: {complaint(done)}")
        fields = dict(re.findall(r"(?:^|\s)([A-Z][A-Za-z]+)=(\S*)", done.stdout))
        reason = re.search(r"^   Reason=(.*?)(?: \[\S+@\S+\])?$", done.stdout, re.MULTILINE)
        fields["Reason"] = reason[1] if reason else ""
        flags = parse_show(done.stdout)[0].flags
        return fields, next((why for flag, why in HELD if flag in flags), "")

    # Sending.

    def send(self, order: Order) -> Sent:
        """One `scontrol` call. Never raises."""
        try:
            fields, held = self._show(order.machine.node)
        except _NotShown as error:
            return Sent(Answer.REFUSED, f"nothing sent: {error}")
        except AdapterError as error:
            return Sent(Answer.REFUSED, f"nothing sent: {error}", retry_after=30.0)
        other = _another(order.machine, fields)
        if other:
            return Sent(Answer.REFUSED, f"nothing sent: {other}")
        if held:
            return Sent(Answer.REFUSED, f"nothing sent: {held}", retry_after=60.0)
        return self._tell(self._argv(order))

    def _argv(self, order: Order) -> List[str]:
        node, action = order.machine.node, Action.REBOOT if order.rung is Rung.REBOOT else Action.REPLACE
        reason = mark_text(Mark(f"{order.because} (episode {printable(order.episode, 20)})", action, owner=KEEPER))
        if order.rung is Rung.REBOOT:
            return ["scontrol", "reboot", f"reason={reason}", node]
        if self.replace == "hyperpod":
            return ["scontrol", "update", f"NodeName={node}", "State=FAIL", "Reason=Action:Replace"]
        return ["scontrol", "update", f"NodeName={node}", "State=POWER_DOWN_FORCE", f"Reason={reason}"]

    def _tell(self, argv: Sequence[str]) -> Sent:
        try:
            done = self.command(*argv)
        except AdapterError as error:
            lost = "did not end" in str(error)
            return Sent(Answer.AMBIGUOUS if lost else Answer.REFUSED, str(error), retry_after=0.0 if lost else 60.0)
        said = complaint(done)
        if not done.status:
            return Sent(Answer.ACCEPTED, "slurmctld has taken it")
        if _nobody(said):
            return Sent(Answer.REFUSED, said, retry_after=30.0)
        if any(words in said.lower() for words in NOT_ALLOWED):
            return Sent(Answer.REFUSED, said, right="AdminLevel=Operator")
        if any(words in said.lower() for words in NOT_BEGUN):
            return Sent(Answer.REFUSED, said)
        return Sent(Answer.AMBIGUOUS, said)

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Power the node up again that Slurm has powered down. Never raises."""
        return self._tell(["scontrol", "update", f"NodeName={plain(order.machine.node)}", "State=POWER_UP"])

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """Another boot time, or another instance, with the node registered. Raises AdapterError."""
        try:
            fields, held = self._show(order.machine.node)
        except _NotShown:
            if order.rung is Rung.REPLACE and self.replace == "power":
                # Nodes of the cloud that are powered down are not shown, unless PrivateData=cloud (slurm.conf(5)).
                return Progress(Stage.HALFWAY, "not shown any more: powered down; it is to be powered up")
            raise
        state, reason = fields.get("State", ""), fields["Reason"]
        up = not held and not re.match(r"(UNKNOWN|FUTURE)\b", state) and not _not_heard(state)
        if order.rung is Rung.REPLACE and self.replace == "power":
            return self._powered(fields, held, state, before, up)
        if order.rung is Rung.REPLACE:
            changed = before.instance and _instance(fields) != before.instance
        else:
            changed = _later(fields.get("BootTime", ""), before.boot)
        if changed and up:
            what = _instance(fields) if order.rung is Rung.REPLACE else ""
            return Progress(Stage.DONE, f"registered again, booted at {fields.get('BootTime')}, {state}", what)
        failed = next((words for words in STUCK if words in reason.lower()), "")
        if failed and not held and not changed:
            return Progress(Stage.FAILED, printable(f"{state}: {reason}", 200))
        return Progress(Stage.WORKING, held or printable(f"{state}, booted at {fields.get('BootTime')}", 200))

    def _powered(self, fields: Dict[str, str], held: str, state: str, before: Sighting, up: bool) -> Progress:
        if "POWERED_DOWN" in state and "POWERING" not in state:
            return Progress(Stage.HALFWAY, "powered down; it is to be powered up")
        if up and _later(fields.get("BootTime", ""), before.boot):
            return Progress(Stage.DONE, f"powered up as {_instance(fields)}", _instance(fields))
        failed = next((words for words in STUCK if words in fields["Reason"].lower()), "")
        if failed and not held:
            return Progress(Stage.FAILED, printable(f"{state}: {fields['Reason']}", 200))
        return Progress(Stage.WORKING, held or printable(state, 60))

    # Rights, others, evidence.

    def rights(self) -> Sequence[Right]:
        """Whether slurmctld answers, has what is needed, and takes updates from this user. Raises AdapterError."""
        config = self._config()
        rights = [Right("scontrol show", True, f"slurmctld of {config.get('ClusterName', '?')} answers")]
        missing = self._missing("RebootProgram") or self._too_short()
        rights.append(Right("reboot", None if not missing else False, missing or "RebootProgram is set"))
        # A reservation that does not exist: slurmctld checks the right to update before it looks for it.
        done = self.command("scontrol", "update", "ReservationName=nhc-may-i", "Duration=1")
        denied = done.status and "permission" in complaint(done).lower()
        rights.append(Right("scontrol update", not denied, complaint(done) if denied else "operator or administrator"))
        return rights

    def claims(self, machine: Machine) -> Sequence[Claim]:
        """What Slurm itself, or a person, does with the node now. Raises AdapterError."""
        fields, held = self._show(machine.node)
        found = [Claim("slurm", held, "scontrol show node: State")] if held else []
        if fields.get("ReservationName"):
            name = printable(fields["ReservationName"], 60)
            found.append(Claim("slurm", f"it is in the reservation {name}", "scontrol show node: ReservationName"))
        return found

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """Slurm's view of the node and of the jobs on it. Raises AdapterError."""
        pieces = EvidenceCollector(budget)
        node = plain(machine.node)
        for name, argv in (
            ("slurm-node.txt", ("scontrol", "-a", "-d", "show", "node", node)),
            ("slurm-jobs.txt", ("squeue", "-a", "-w", node, "-o", "%i %u %T %M %D %N %j")),
        ):
            if not pieces.spent():
                yield from pieces.take(name, "text/plain", self.command.ask(*argv).encode())


def _instance(fields: Mapping[str, str]) -> str:
    """What names the machine: the cloud's instance where Slurm knows it, else the node's address."""
    known = fields.get("InstanceId", "")
    return known if known not in ("", "(null)") else fields.get("NodeAddr", "")


def _another(machine: Machine, fields: Mapping[str, str]) -> str:
    """Why the machine behind the node's name is another than the one that was judged, "" where nothing says so."""
    known = fields.get("InstanceId", "")
    if known not in ("", "(null)") and machine.provider_id and not machine.provider_id.endswith(known):
        return f"the node is instance {known} now, not {printable(machine.provider_id, 80)}"
    address = fields.get("NodeAddr", "")
    if machine.address and re.fullmatch(r"[0-9.]+|[0-9a-f:]+", address) and machine.address != address:
        return f"the node's address is {address} now, not {printable(machine.address, 80)}"
    return ""


def _later(boot: str, before: str) -> bool:
    """Whether a boot time is another one; slurmctld computes it from the uptime, so it wavers by a second."""
    return boot.isdigit() and (not before.isdigit() or int(boot) > int(before) + 2)


def _not_heard(state: str) -> bool:
    """Whether slurmctld has a node as DOWN or not responding, as scontrol shows it (`DOWN*+DRAIN`)."""
    base = state.partition("+")[0]
    return base.endswith("*") or base == "DOWN" or "NOT_RESPONDING" in state


def _nobody(said: str) -> bool:
    """Whether a command found nobody to send to."""
    return any(words in said.lower() for words in NOT_REACHED)
