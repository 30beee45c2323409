"""Repairs through Slurm itself: its RebootProgram, its power saving, and HyperPod's reasons in Slurm.

    [repairers.slurm]
    boot-time = "900"        # seconds from the reboot until slurmd registers; ResumeTimeout must allow it
    replace = "power"        # "no" (default), "power" for nodes of the cloud, "hyperpod"
    spares = "nhc-spare"     # `reservation` of the pools of spares: a spare's own reservation is no other actor

Only `scontrol reboot` without ASAP is used: ASAP drains by itself and removes every drain when the node is back, ours
too. A node that has not registered within ResumeTimeout (60 s unless set) is set DOWN: `can` compares that.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.model import Action, printable
from nhc.core.settings import declared
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import REMEDY_OWNER, AdapterError, Mark
from nhc.marks.ports.marks import TAGS, mark_text
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import (
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
from nhc_adapters.repair import EvidenceCollector
from nhc_adapters.slurm.commands import SlurmPlace, not_allowed, sent_by
from nhc_adapters.slurm.states import HELD, names_unknown_node, parse_config, parse_show, show_fields

BOOT_TIME = 600.0
"""Seconds that a node with eight GPUs may take from reboot to registration; firmware alone takes minutes."""

BEGINS = 15.0
"""Seconds to wait at most for slurmctld to begin to power a node down or up; it looks for such work every second."""

LAST_COMMAND = 30.0
"""Seconds beyond its timeout that a command may still run after nhc stopped waiting."""

SOON = 10.0
"""Seconds after which an order is not sent any more: a process that was stopped for longer may lead no more
(`nhc.store.rounds.leader.LEASE`), and another has repaired the node.
"""

STUCK = ("reboot timed out", "node unexpectedly rebooted", "node not responding", "failed to")
"""Reasons that slurmctld sets itself when a reboot or a resume went wrong."""


class _NotShown(AdapterError):
    """slurmctld shows no such node."""


@declared.settings
class SlurmPowerSettings(NamedTuple):
    """The table of a repairer of this kind."""

    replace: str = declared.word(
        "replace", ("no", "power", "hyperpod"), "", "power: power down and up; hyperpod: Action:Replace"
    )
    boot_time: float = declared.seconds("boot-time", BOOT_TIME, "from reboot to registration", least=1.0)
    spares: str = declared.text("spares", "nhc-spare", "nodes in reservations of such names are left alone")
    place: SlurmPlace = declared.part("", SlurmPlace)


class SlurmPower:
    """Reboots and replaces nodes through slurmctld."""

    SETTINGS = SlurmPowerSettings

    def __init__(
        self, settings: Given = None, environ: Given = None, timeout: float = 30.0, run: Runner = run_command
    ) -> None:
        own = read(SlurmPowerSettings, settings)
        self.replace, self.spares = own.replace, own.spares
        self.boot_time = own.boot_time
        self.command = Commands(own.place.variables(), environ, timeout, run)
        self.command.env["SLURM_TIME_FORMAT"] = "%s"

    # What it can do.

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" if it is. Raises AdapterError if slurmctld does not answer."""
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
        return (
            "its slurmd does not answer: it cannot be asked to reboot" if _not_heard(self._state(machine.node)) else ""
        )

    def _unknown(self, machine: Machine) -> str:
        try:
            self._show(machine.node)
        except _NotShown as error:
            return str(error)
        return ""

    def _config(self) -> Dict[str, str]:
        return parse_config(self.command.ask("scontrol", "show", "config"))

    def _missing(self, *programs: str) -> str:
        config = self._config()
        absent = [name for name in programs if config.get(name, "(null)") in ("", "(null)")]
        return f"slurm.conf sets no {' and no '.join(absent)}" if absent else ""

    def _too_short(self) -> str:
        limit = re.match(r"\d+", self._config().get("ResumeTimeout", ""))
        if limit and int(limit[0]) < self.boot_time:
            return (
                f"ResumeTimeout is {limit[0]} s: "
                f"a node that boots in {self.boot_time:.0f} s (boot-time) would be set DOWN"
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
        """The node's fields, and why Slurm itself works on it, "" if it does not."""
        done = self.command("scontrol", "-a", "show", "node", plain(node))
        if names_unknown_node(done):
            raise _NotShown(f"scontrol show node {node}: {complaint(done)}")
        if done.status or not done.stdout.startswith("NodeName="):
            raise AdapterError(f"scontrol show node {node}: {complaint(done)}")
        fields = show_fields(done.stdout)
        reason = re.search(r"^   Reason=(.*?)(?: \[\S+@\S+\])?$", done.stdout, re.MULTILINE)
        fields["Reason"] = reason[1] if reason else ""
        flags = parse_show(done.stdout)[0].flags
        return fields, next((why for flag, why in HELD if flag in flags), "")

    # Sending.

    def send(self, order: Order) -> Sent:
        """One `scontrol` call. Never raises."""
        began = time.monotonic()
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
        argv, late = self._argv(order), time.monotonic() - began
        if late > SOON:
            return Sent(Answer.REFUSED, f"nothing sent: slurmctld was asked {late:.0f} s ago", retry_after=30.0)
        sent = sent_by(self.command, argv)
        if sent.answer is not Answer.REFUSED and self._powers(order):
            self._wait(order.machine.node, lambda state: "DRAIN" not in state)
            out = self._drain(order)
            if out.answer is not Answer.ACCEPTED:
                return sent._replace(message=f"{sent.message}; not drained again yet: {out.message}")
        return sent

    def _powers(self, order: Order) -> bool:
        return order.rung is Rung.REPLACE and self.replace == "power"

    def _wait(self, node: str, begun: Callable[[str], bool]) -> None:
        """Wait until slurmctld has begun with what it was asked for. It does so a while after the request
        (`_do_power_work`, src/slurmctld/power_save.c), and takes the drain away as it begins to power a node down, the
        reason as it begins to power it up. While it does either, no job starts on the node.
        """
        until = time.monotonic() + BEGINS
        while time.monotonic() < until:
            state = "UNKNOWN+DRAIN"
            with suppress(AdapterError):
                state = self._state(node)
            if begun(state):
                return
            time.sleep(0.5)

    def _state(self, node: str) -> str:
        """The node's state, "" if slurmctld does not show it: a node of the cloud that is powered down."""
        try:
            return self._show(node)[0].get("State", "")
        except _NotShown:
            return ""

    def _drain(self, order: Order) -> Sent:
        """Keep the node out, with the reason of this order."""
        node = plain(order.machine.node)
        return sent_by(
            self.command, ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={_reason(order)}"]
        )

    def _argv(self, order: Order) -> List[str]:
        node, reason = order.machine.node, _reason(order)
        if order.rung is Rung.REBOOT:
            return ["scontrol", "reboot", f"reason={reason}", node]
        if self.replace == "hyperpod":
            return ["scontrol", "update", f"NodeName={node}", "State=FAIL", "Reason=Action:Replace"]
        return ["scontrol", "update", f"NodeName={node}", "State=POWER_DOWN_FORCE", f"Reason={reason}"]

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Power the node up again that Slurm has powered down, drained: it is not proved yet. Never raises.

        The reason of a node that was powered down is lost when it powers up, its drain is not: so both are set again.
        """
        out = self._drain(order)
        if out.answer is not Answer.ACCEPTED:
            return out
        up = sent_by(self.command, ["scontrol", "update", f"NodeName={plain(order.machine.node)}", "State=POWER_UP"])
        if up.answer is Answer.REFUSED:
            return up
        self._wait(order.machine.node, lambda state: "POWERING_UP" in state)
        return self._drain(order)

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """Another boot time, or another instance, with the node registered. Raises AdapterError."""
        try:
            fields, held = self._show(order.machine.node)
        except _NotShown:
            if self._powers(order):
                # Nodes of the cloud that are powered down are not shown, unless PrivateData=cloud (slurm.conf(5)).
                return Progress(Stage.HALFWAY, "not shown any more: powered down; it is to be powered up")
            raise
        state, powers = fields.get("State", ""), self._powers(order)
        if powers and "POWERED_DOWN" in state and "POWERING" not in state:
            return Progress(Stage.HALFWAY, "powered down; it is to be powered up")
        changed = _later(fields.get("BootTime", ""), before.boot)
        if order.rung is Rung.REPLACE and not powers:  # one that is powered up again may be called as before
            changed = bool(before.instance) and _instance(fields) != before.instance
        up = not held and not re.match(r"(UNKNOWN|FUTURE)\b", state) and not _not_heard(state)
        if changed and up:
            if powers:
                return Progress(Stage.DONE, f"powered up as {_instance(fields)}")
            return Progress(Stage.DONE, f"registered again, booted {_when(fields)}, {state}")
        if not changed and not held and self._never_came(order, fields, sent, before):
            return Progress(
                Stage.NOT_BEGUN, f"slurmctld has never seen it: {state}, booted at {utc(float(before.boot))}"
            )
        failed = any(text in fields["Reason"].lower() for text in STUCK)
        if failed and not held and (powers or not changed):
            return Progress(Stage.FAILED, printable(f"{state}: {fields['Reason']}", 200))
        if not changed and up and self._taken_back(order, fields, sent):
            return Progress(
                Stage.CANCELLED, "somebody has taken the reboot back (scontrol cancel_reboot, or state=resume)"
            )
        return Progress(Stage.WORKING, held or printable(f"{state}, booted {_when(fields)}", 200))

    def _taken_back(self, order: Order, fields: Mapping[str, str], sent: Sent) -> bool:
        """Whether a reboot that slurmctld accepted is cancelled: that removes its reason, and the earlier drain
        (NODE_STATE_REBOOT_CANCEL in src/slurmctld/node_mgr.c). NODE_RESUME leaves the node in the same state.
        """
        reason = fields["Reason"].lower()
        return sent.answer is Answer.ACCEPTED and order.rung is Rung.REBOOT and reason in ("", "none", "(null)")

    def _never_came(self, order: Order, fields: Mapping[str, str], sent: Sent, before: Sighting) -> bool:
        """Whether slurmctld proves that it has not accepted an order without a known answer: the node is drained with
        an earlier mark, because an order leaves its reason on the node, and a cancelled one no reason. A command that
        was under way when nhc ended has ended by now.
        """
        ended = time.time() - before.at > self.command.timeout + LAST_COMMAND
        mark = "DRAIN" in fields.get("State", "") and fields["Reason"].startswith(TAGS[REMEDY_OWNER])
        untouched = mark and _attempt(order) not in fields["Reason"]
        known = order.rung is Rung.REBOOT or self._powers(order)  # HyperPod's words name no order
        return sent.answer is Answer.AMBIGUOUS and known and ended and untouched and before.boot.isdigit()

    # Rights, others, evidence.

    def rights(self) -> Sequence[Right]:
        """Whether slurmctld answers, has what is needed, and takes updates from this user. Raises AdapterError."""
        config = self._config()
        rights = [Right("scontrol show", True, f"slurmctld of {config.get('ClusterName', '?')} answers")]
        missing = self._missing("RebootProgram") or self._too_short()
        rights.append(Right("reboot", None if not missing else False, missing or "RebootProgram is set"))
        # A node that does not exist: slurmctld checks the right to update nodes before it looks for the node.
        done = self.command("scontrol", "update", "NodeName=nhc-may-i", "Comment=x")
        denied = not_allowed(complaint(done))
        why = f"{complaint(done)}: {_who(config)}" if denied else "administrator"
        rights.append(Right("scontrol update NodeName", not denied, why))
        if "jobs" in config.get("PrivateData", "") and denied:
            rights.append(Right("squeue of all users", False, "PrivateData=jobs hides others' work on a node"))
        return rights

    def claims(self, machine: Machine) -> Sequence[Claim]:
        """What Slurm itself, or a person, does with the node now. Raises AdapterError."""
        fields, held = self._show(machine.node)
        others = [Claim("slurm", held, "scontrol show node: State")] if held else []
        name = fields.get("ReservationName", "")
        if name and name != f"{self.spares}-{machine.node}":
            doing = f"it is in the reservation {printable(name, 60)}"
            others.append(Claim("slurm", doing, "scontrol show node: ReservationName"))
        return others

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


def _who(config: Mapping[str, str]) -> str:
    """Who may change nodes: without slurmdbd no user can be made an administrator."""
    user = config.get("SlurmUser", "slurm").partition("(")[0]
    if config.get("AccountingStorageType", "").endswith("/slurmdbd"):
        return f"sacctmgr add user NAME account=root adminlevel=Administrator, or run as {user}"
    return f"without slurmdbd root and SlurmUser alone may: run the loop as {user}"


def _attempt(order: Order) -> str:
    return f"(episode {printable(order.episode, 20)}, attempt {order.attempt})"


def _reason(order: Order) -> str:
    """The reason that goes with an order: the loop's mark, with what tells this order from every other."""
    action = Action.REBOOT if order.rung is Rung.REBOOT else Action.REPLACE
    return mark_text(Mark(f"{printable(order.because, 200)} {_attempt(order)}", action, owner=REMEDY_OWNER))


def _instance(fields: Mapping[str, str]) -> str:
    """What names the machine: the cloud's instance where Slurm knows it, else the node's address."""
    known = fields.get("InstanceId", "")
    return known if known not in ("", "(null)") else fields.get("NodeAddr", "")


def _another(machine: Machine, fields: Mapping[str, str]) -> str:
    """Why the node's name now means another machine than the judged one, "" without a sign of that."""
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


def _when(fields: Mapping[str, str]) -> str:
    """The node's boot time for a person."""
    boot = fields.get("BootTime", "")
    return f"at {utc(float(boot))}" if boot.isdigit() else "at a time that slurmctld does not know"


def _not_heard(state: str) -> bool:
    """Whether slurmctld has a node as DOWN or not responding, as scontrol shows it (`DOWN*+DRAIN`)."""
    base = state.partition("+")[0]
    return base.endswith("*") or base == "DOWN" or "NOT_RESPONDING" in state
