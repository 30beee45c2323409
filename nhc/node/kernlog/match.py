"""What a line of the kernel log means, as a value: family, code, severity, action, device."""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action

if TYPE_CHECKING:
    from typing import Tuple

FATAL = "fatal"
"""Takes the node out."""
DEGRADED = "degraded"
"""A person should look; the node can go on working."""
APP = "app"
"""An application's own fault. It never takes a node out by itself; repeats on one device do (repeats.tsv)."""
INFO = "info"
"""Nothing to act on."""
RANK = {INFO: 0, APP: 1, DEGRADED: 2, FATAL: 3}

DRILL = "nhc-drill"
"""The mark of a line that `nhc inject` wrote."""
NO_ROW = (("driver", "Complaint"), ("boot", "Unclean"), ("gpu", "EventFatal"))
"""Kinds and codes of findings that no row of the catalogue gives: complaints, collect and gpu_events."""

_PCI = r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?"


class Match(NamedTuple):
    """What one line means.

    `kind` is the family (xid, sxid, aer, oom ...), `code` the error within it: a number for NVIDIA's, else a
    stable CamelCase word. `device` is what it is about, a PCI address in sysfs' form where it is one. `unit` is the
    part of the device where the line names it. `recovers` lists findings that the line shows to be gone, as
    `device:KIND[/CODE]` or `all:KIND[/CODE]`. `driver` is a driver version that the line tells.
    """

    kind: str
    code: str
    severity: str
    action: Action
    device: str = ""
    message: str = ""
    line: str = ""
    unit: str = ""
    recovers: Tuple[str, ...] = ()
    driver: str = ""


def address(text: str) -> str:
    """A PCI address in sysfs' form (`0000:3b:00.0`), whatever a driver left out; other text unchanged."""
    match = re.fullmatch(_PCI, text)
    if not match:
        return text
    return f"{int(match[1] or '0', 16):04x}:{match[2].lower()}:{match[3].lower()}.{match[4] or '0'}"
