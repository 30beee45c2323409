"""How the node's last boot ended: with or without an orderly shutdown.

init writes a record at each boot and at each orderly shutdown, reboot or kexec (systemd: systemd-update-utmp, with the
user "reboot" or "shutdown"; sysvinit: halt and reboot). If a machine loses power, hangs until it is reset, or is reset
by its watchdog or a panic, there are two boot records without a shutdown record between them. The cause of the restart
that the management controller reports shows a restart by a person or by a repair.
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
"""Bytes of a record file that are read: logrotate starts another every month, or at one megabyte."""
SKEW = 900.0
"""Seconds that the last boot's record may differ from what the kernel's clock gives for this boot."""
CAUSE = 5.0
"""Seconds for a management controller to report why the machine was started."""

_BY_COMMAND = re.compile(r"System restart cause: (chassis power control command|(?:reset|power-up) via pushbutton)")
"""Causes in ipmitool's lib/ipmi_chassis.c of restarts by a person or a repair."""


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
    """How a person or a repair restarted the machine, by its management controller; "" for another cause."""
    from nhc.node.facts import bmc

    if bmc.device(host) is None or not host.which("ipmitool"):
        return ""
    try:
        match = _BY_COMMAND.search(bmc.run(host, "chassis", "restart_cause", timeout=CAUSE))
    except (bmc.BmcError, OSError):
        return ""
    return match[1] if match else ""
