"""Power control by IPMI, with ipmitool: one packet sends a reset; the password is in the environment, never in argv.

    [repairers.ipmi]
    bmc = "{node}-bmc.cluster"
    user = "nhc"
    password-file = "/etc/nhc/bmc.password"
    interface = "lanplus"     # or "lan"
    identity = "guid"         # "trust" if the controllers show no system GUID: then nhc trusts the address alone

IPMI does not show a boot. So only the node's new boot id proves that a reset is DONE. A
power cycle is sent as off and on, because the controller does show that the power was off in between.
"""

from __future__ import annotations

import re
import time
from typing import Iterator, NamedTuple, Optional, Sequence

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import (
    Answer,
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
from nhc_adapters._command import Commands, Runner, complaint, run_command
from nhc_adapters.bmc.access import BmcAccess, differs, forms
from nhc_adapters.repair import EvidenceCollector


@declared.settings
class IpmiSettings(NamedTuple):
    """The table of a repairer of this kind."""

    access: BmcAccess = declared.part("", BmcAccess)
    interface: str = declared.word("interface", ("lanplus", "lan"))
    identity: str = declared.word(
        "identity", ("guid", "trust"), "", "trust: the controllers show no GUID, the address alone is believed"
    )
    port: Optional[int] = declared.count("port", None, "default: ipmitool's", least=1, most=65535)
    cipher: Optional[int] = declared.count("cipher", None, "the cipher suite; default: ipmitool's")
    doctor: str = declared.text("doctor", "", "a controller at which `nhc doctor remedy` tries the rights")

    def checked(self, table: Table) -> IpmiSettings:
        """The same. Raises SettingsError."""
        if self.identity == "trust" and "{bmc}" in self.access.bmc:
            raise table.error("identity", "trust: the address is a report's word ({bmc}): the GUID must prove it")
        return self


TRIES = 4
"""Packets for one question, as ipmitool sends by default. A controller that does not know Get Channel Cipher Suites
(IPMI 2.0, 22.15) answers none of those, and ipmitool goes on with a suite that every one must have."""

COMMAND = {Rung.REBOOT: "reset", Rung.POWER_CYCLE: "off"}

NO_SESSION = ("unable to establish", "connection refused", "address lookup", "no route", "could not open socket")
"""What ipmitool says when there was no session to send a command in (lanplus opens one before)."""

REFUSED = (
    "invalid data field", "insufficient privilege", "privilege level", "invalid command", "parameter out of range",
    "not supported in present state", "illegal parameter",
)  # fmt: skip
"""Completion codes of a command that was not carried out (IPMI 2.0, table 5-2)."""

LATER = ("node busy", "out of space", "insufficient resources")
"""Completion codes of what may be sent again. "Command response could not be provided" (CEh) is none of them: it tells
of the response, and the power may have been switched."""


class Ipmi:
    """Resets and power cycles by ipmitool."""

    SETTINGS = IpmiSettings

    def __init__(
        self, settings: Given = None, environ: Given = None, timeout: float = 30.0, run: Runner = run_command
    ) -> None:
        own = read(IpmiSettings, settings)
        self.access, self.interface, self.doctor = own.access, own.interface, own.doctor
        self.trusted = own.identity == "trust"
        self.port, self.cipher = own.port, own.cipher
        self.timeout = timeout
        self.command = Commands({}, environ, timeout, run)

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" if it is. Sends no request."""
        if rung not in COMMAND:
            return f"IPMI has no {rung.value}"
        if not self.access.address(machine):
            return self.access.unknown(machine)
        if not self.trusted and not forms(machine.uuid):
            return differs(machine, "", "the controller")
        return ""

    # Asking.

    def _ipmi(self, machine: Machine, *arguments: str) -> str:
        """What ipmitool printed. Raises AdapterError, with what it said where it could be run."""
        return self._at(self.access.address(machine), *arguments)

    def _at(self, address: str, *arguments: str) -> str:
        # A reset that is sent again because its answer was lost is a second reset. Off and on change nothing twice.
        tries = 1 if "reset" in arguments else TRIES
        # ipmitool asks twice what is left unanswered, and then the rest must have time: a quarter of the whole for one.
        seconds = max(1, int(self.timeout / 4 / tries))
        argv = ["ipmitool", "-I", self.interface, "-H", address, "-N", str(seconds), "-R", str(tries)]
        argv += ["-p", str(self.port)] if self.port is not None else []
        argv += ["-C", str(self.cipher)] if self.cipher is not None else []
        argv += ["-U", self.access.user] if self.access.user else []
        self.command.env["IPMI_PASSWORD"] = self.access.password()
        done = self.command(*argv, "-E", *arguments)
        if done.status:
            raise AdapterError(f"ipmitool {' '.join(arguments)} at {printable(address, 80)}: {complaint(done)}")
        return done.stdout

    def look(self, machine: Machine) -> Sighting:
        """The system's GUID and its power. Raises AdapterError."""
        power = self._ipmi(machine, "chassis", "power", "status").strip().rpartition(" ")[2].lower()
        return Sighting(time.time(), self._guid(machine), "", power)

    def _guid(self, machine: Machine) -> str:
        if self.trusted:
            return self.access.address(machine)
        output = self._ipmi(machine, "mc", "guid")
        match = re.search(r"System GUID\s*:\s*(\S+)", output)
        return match[1].lower() if match else ""

    # Sending.

    def send(self, order: Order) -> Sent:
        """One `chassis power` command, once. Never raises."""
        operation = COMMAND.get(order.rung)
        why = self.can(order.machine, order.rung)
        if why or operation is None:
            return Sent(Answer.REFUSED, f"not sent: {why}")
        try:
            other = "" if self.trusted else differs(order.machine, self._guid(order.machine), "the controller")
        except AdapterError as error:
            return Sent(Answer.REFUSED, f"not sent: {error}", retry_after=30.0)
        if other:
            return Sent(Answer.REFUSED, f"not sent: {other}")
        return self._power(order.machine, operation)

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Switch the power on again. Never raises."""
        return self._power(order.machine, "on")

    def _power(self, machine: Machine, operation: str) -> Sent:
        try:
            self._ipmi(machine, "chassis", "power", operation)
        except AdapterError as error:
            return _answer(str(error))
        return Sent(Answer.ACCEPTED, f"the controller has taken chassis power {operation}", operation)

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """What the power shows. Raises AdapterError."""
        power = self.look(order.machine).power
        if order.rung is not Rung.POWER_CYCLE:
            return Progress(Stage.WORKING, f"power is {power}; IPMI shows no boot, the node's boot id will")
        if power == "off":
            return Progress(Stage.HALFWAY, "power is off; it is to be switched on")
        if sent.request_id == "on" and power == "on":
            return Progress(Stage.DONE, "power was off and is on again")
        return Progress(Stage.WORKING, f"power is {power}")

    # Rights, evidence.

    def rights(self) -> Sequence[Right]:
        """Whether the user may control power, tried on the controller that `doctor` names. Raises AdapterError."""
        if not self.doctor:
            return [Right("chassis power", None, "no controller to try it on: set doctor to the address of one")]
        accounts = self._at(self.doctor, "channel", "getaccess", "1") if self.access.user else ""
        user = re.escape(self.access.user)
        entry = re.search(rf"User Name\s*:\s*{user}\s*$(.*?)(?=^User ID|\Z)", accounts, re.M | re.S)
        level = re.search(r"Privilege Level\s*:\s*(\w+)", entry[1]) if entry else None
        if level is None:
            self._at(self.doctor, "chassis", "power", "status")
            return [
                Right(
                    "chassis power", None, f"{printable(self.doctor, 80)} answers; it does not show the user's rights"
                )
            ]
        granted = level[1].upper() in ("OPERATOR", "ADMINISTRATOR")
        return [Right("chassis power", granted, f"{self.access.user} is {level[1]} (OPERATOR is needed)")]

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """The controller's event log and its sensors. Raises AdapterError."""
        pieces = EvidenceCollector(budget)
        for name, arguments in (("bmc-sel.txt", ("sel", "elist")), ("bmc-sensors.txt", ("sdr", "elist"))):
            if not pieces.spent():
                yield from pieces.take(name, "text/plain", self._ipmi(machine, *arguments).encode())


def _answer(message: str) -> Sent:
    """What a failed command proves."""
    lower = message.lower()
    if any(part in lower for part in NO_SESSION) or "not installed" in lower:
        return Sent(Answer.REFUSED, message, retry_after=30.0)
    if any(part in lower for part in LATER):
        return Sent(Answer.REFUSED, message, retry_after=30.0)
    if "privilege" in lower:
        return Sent(Answer.REFUSED, message, right="the privilege level OPERATOR")
    if any(part in lower for part in REFUSED):
        return Sent(Answer.REFUSED, message)
    return Sent(Answer.AMBIGUOUS, message)
