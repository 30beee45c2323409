"""The address and the login of a node's management controller: shared by Redfish and IPMI.

[repairers.redfish]
bmc = "https://{node}-bmc.cluster"     # {node} is the node's name; a node's own setting `bmc` goes before it
user = "nhc"
password-file = "/etc/nhc/bmc.password"
"""

from __future__ import annotations

from typing import NamedTuple

from nhc.ports.adapter import AdapterError
from nhc.ports.repair import Machine
from nhc.system.bounded_read import cause, read_text
from nhc_adapters.repair.settings import AdapterSettings


class BmcAccess(NamedTuple):
    """The controller's address as a pattern, the user, and the file that holds the password."""

    bmc: str
    user: str
    password_file: str

    def address(self, machine: Machine) -> str:
        """The controller of this machine, "" where none is known."""
        own = machine.settings.get("bmc", "")
        return own or (self.bmc.replace("{node}", machine.node) if machine.node else "")

    def password(self) -> str:
        """Read anew each time, so that a changed password needs no restart. Raises AdapterError."""
        if not self.password_file:
            return ""
        try:
            return read_text(self.password_file).strip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{self.password_file}: {cause(error)}") from None


ACCESS = ("bmc", "user", "password-file")


def read_access(table: AdapterSettings) -> BmcAccess:
    """The settings of `ACCESS`."""
    return BmcAccess(table.text("bmc"), table.text("user"), table.text("password-file"))
