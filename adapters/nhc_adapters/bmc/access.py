"""The address and login of a node's management controller, and the check that it is that node's: for Redfish and IPMI.

[repairers.redfish]
bmc = "https://{node}-bmc.cluster"     # {node} is the node's name; a node's own setting `bmc` goes before it
# bmc = "https://{bmc}"                # the address that the node's report names, within bmc-networks
# bmc-networks = "10.9.0.0/16"
user = "nhc"
password-file = "/etc/nhc/bmc.password"
"""

from __future__ import annotations

import ipaddress
import re
from typing import FrozenSet, NamedTuple, Tuple, Union

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.core.system.bounded_read import cause, read_text
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Machine

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

REPORTED = "machine/bmc"
"""The label of a report that names the controller's address (nhc.node.facts.machine_identity)."""


def _shown(networks: Tuple[Network, ...]) -> str:
    return " ".join(map(str, networks))


def _networks(text: str) -> Tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(name) for name in text.replace(",", " ").split())
    except ValueError:
        raise ValueError(f"{printable(text, 60)!r} is not networks such as 10.9.0.0/16") from None


@declared.settings
class BmcAccess(NamedTuple):
    """The controller's address as a pattern, the user, the file that holds the password, and the networks from which a
    report may name a controller: root on a node writes its report, and could otherwise make nhc send the password
    anywhere.
    """

    bmc: str = declared.text(
        "bmc", "", "the controller: {node} is the node's name, {bmc} the address that its report names",
        shown='"https://{node}-bmc.cluster"',
    )  # fmt: skip
    user: str = declared.text("user")
    password_file: str = declared.text("password-file", "", "read anew for each session")
    networks: Tuple[Network, ...] = declared.converted(
        "bmc-networks", _networks, (), "in which networks a report may say that a controller is", show=_shown
    )

    def checked(self, table: Table) -> BmcAccess:
        """The same. Raises SettingsError."""
        if "{bmc}" in self.bmc and not self.networks:
            raise table.error("bmc-networks", "missing: in which networks may a report say that a controller is?")
        return self

    def address(self, machine: Machine) -> str:
        """The controller of this machine, "" if none is known."""
        own, reported = machine.settings.get("bmc", ""), machine.labels.get(REPORTED, "")
        if own or "{bmc}" not in self.bmc:
            return own or (self.bmc.replace("{node}", machine.node) if machine.node else "")
        return self.bmc.replace("{bmc}", reported) if self._allowed(reported) else ""

    def unknown(self, machine: Machine) -> str:
        """Why the controller of this machine is not known."""
        reported = machine.labels.get(REPORTED, "")
        if "{bmc}" in self.bmc and reported:
            return f"its report names the controller {printable(reported, 60)}, which is in none of bmc-networks"
        if "{bmc}" in self.bmc:
            return f"no report of {machine.node} names its controller ({REPORTED}), and it has no setting bmc"
        return f"no management controller of {machine.node} is known (bmc)"

    def _allowed(self, reported: str) -> bool:
        try:
            address = ipaddress.ip_address(reported)
        except ValueError:
            return False
        return any(address in network for network in self.networks)

    def password(self) -> str:
        """Read again each time, so that a changed password needs no restart. Raises AdapterError."""
        if not self.password_file:
            return ""
        try:
            return read_text(self.password_file).strip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{self.password_file}: {cause(error)}") from None


# Whether a controller belongs to the machine that was judged: a wrong reset stops another job.


def forms(uuid: str) -> FrozenSet[str]:
    """A UUID as hexadecimal digits, in each byte order that it is met in; empty for what is no UUID.

    SMBIOS 2.6 and later store the first three fields little-endian; controllers hand them on as they are, swapped, or
    (IPMI 2.0, "Get System GUID") with all sixteen bytes reversed.
    """
    digits = re.sub(r"[^0-9a-f]", "", uuid.lower())
    if len(digits) != 32 or len(set(digits)) == 1:  # all zeros or all ones: never set
        return frozenset()
    raw = bytes.fromhex(digits)
    swapped = raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]
    return frozenset(order.hex() for order in (raw, swapped, raw[::-1], swapped[::-1]))


def differs(machine: Machine, uuid: str, shown_by: str) -> str:
    """Why the machine is not the one with this UUID, "" if it is."""
    if not forms(machine.uuid):
        return (
            f"no UUID of {machine.node} is known (DMI's product_uuid, as its report has it), so it cannot be compared"
        )
    if not forms(uuid):
        return f"{shown_by} shows no UUID of the machine: {printable(uuid, 60) or 'none'}"
    if forms(machine.uuid).isdisjoint(forms(uuid)):
        return f"{shown_by} is another machine's: UUID {printable(uuid, 60)}, not {printable(machine.uuid, 60)}"
    return ""
