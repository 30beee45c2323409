"""How the node's last boot ended: orderly, or without a word.

init writes a record at each boot and at each orderly shutdown, reboot or kexec (systemd: systemd-update-utmp, with the
user "reboot" or "shutdown"; sysvinit: halt and reboot). A machine that loses power, hangs until somebody resets it, or
is reset by its watchdog or a panic has two records of a boot with none of a shutdown between them. What a management
controller says of the restart's cause tells what a person, or whoever repairs the node, has done through it.
"""

from __future__ import annotations

import re
import struct

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Optional

WTMP = "/var/log/wtmp"
LARGEST = 16 << 20
"""Bytes of a file of records that are read: logrotate starts another every month, or at one megabyte."""
SKEW = 900.0
"""Seconds that the last boot's record may differ from what the kernel's clock gives for this boot."""
CAUSE = 5.0
"""Seconds that a management controller has to say why the machine was started."""

_RUN_LEVEL, _BOOT = 1, 2
_TYPES = range(10)
_TYPE, _USER = 0, 44
_SIZES = ((384, "=i", 340), (400, "=q", 344))
"""Bytes of a record, and form and place of its seconds: glibc's struct utmp where 32-bit programs share the file, and
where none do (arm64)."""
_BY_COMMAND = re.compile(r"System restart cause: (chassis power control command|(?:reset|power-up) via pushbutton)")
"""Causes of ipmitool's lib/ipmi_chassis.c that are a person's, or a repair's."""


class BootRecord(NamedTuple):
    """One record: `at` is Unix time in seconds; of a boot, else of a shutdown."""

    at: float
    boot: bool


def parse_records(data: bytes) -> List[BootRecord]:
    """The boots and shutdowns of a file in wtmp's form, in its order; [] for another form."""
    for size, form, place in _SIZES:
        if len(data) % size:
            continue
        starts = range(0, len(data), size)
        kinds = [struct.unpack_from("=h", data, start + _TYPE)[0] for start in starts]
        if not all(kind in _TYPES for kind in kinds):
            continue
        found: List[BootRecord] = []
        for start, kind in zip(starts, kinds):
            user = data[start + _USER : start + _USER + 32].rstrip(b"\0")
            if kind == _BOOT or (kind == _RUN_LEVEL and user == b"shutdown"):
                at = struct.unpack_from(form, data, start + place)[0]
                found.append(BootRecord(float(at & 0xFFFFFFFF if size == 384 else at), kind == _BOOT))
        return found
    return []


def ended_orderly(host: Host) -> Optional[bool]:
    """Whether the boot before this one ended with a shutdown; None where no record tells."""
    records: List[BootRecord] = []
    for path in (f"{WTMP}.1", WTMP):
        try:
            if host.stat(path).size <= LARGEST:
                records += parse_records(host.read_bytes(path, LARGEST))
        except OSError:
            continue
    booted = host.time() - host.monotonic()
    if len(records) < 2 or not records[-1].boot or abs(records[-1].at - booted) > SKEW:
        return None
    return not records[-2].boot


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
