"""How the node's last boot ended: orderly, or without a word.

init writes a record at each boot and at each orderly shutdown, reboot or kexec (systemd: systemd-update-utmp, with the
user "reboot" or "shutdown"; sysvinit: halt and reboot). A machine that loses power, hangs until somebody resets it, or
is reset by its watchdog or a panic has two records of a boot with none of a shutdown between them. What a management
controller says of the restart's cause tells what a person, or whoever repairs the node, has done through it.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.system.wtmp import DATABASE, FILES, parse_database, parse_records

if TYPE_CHECKING:
    from typing import List, Optional

    from nhc.core.system.wtmp import BootRecord

LARGEST = 16 << 20
"""Bytes of a file of records that are read: logrotate starts another every month, or at one megabyte."""
SKEW = 900.0
"""Seconds that the last boot's record may differ from what the kernel's clock gives for this boot."""
CAUSE = 5.0
"""Seconds that a management controller has to say why the machine was started."""

_BY_COMMAND = re.compile(r"System restart cause: (chassis power control command|(?:reset|power-up) via pushbutton)")
"""Causes of ipmitool's lib/ipmi_chassis.c that are a person's, or a repair's."""


def ended_orderly(host: Host) -> Optional[bool]:
    """Whether the boot before this one ended with a shutdown; None if no record tells."""
    records: List[BootRecord] = []
    for path in FILES:
        try:
            if host.stat(path).size <= LARGEST:
                records += parse_records(host.read_bytes(path, LARGEST))
        except OSError:
            continue
    if not records:
        records = _of_database(host)
    booted = host.time() - host.monotonic()
    if len(records) < 2 or not records[-1].boot or abs(records[-1].at - booted) > SKEW:
        return None
    return not records[-2].boot


def _of_database(host: Host) -> List[BootRecord]:
    try:
        if host.stat(DATABASE).size <= LARGEST:
            return parse_database(host.read_bytes(DATABASE, LARGEST))
    except OSError:
        pass
    return []


def by_command(host: Host) -> str:
    """What a person or a repair did to restart the machine, as its management controller has it; "" for no such."""
    from nhc.node.facts import bmc

    if bmc.device(host) is None or not host.which("ipmitool"):
        return ""
    try:
        match = _BY_COMMAND.search(bmc.run(host, "chassis", "restart_cause", timeout=CAUSE))
    except (bmc.BmcError, OSError):
        return ""
    return match[1] if match else ""
