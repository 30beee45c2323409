"""The driver's GPU Operational Events beside its log: a second witness of the same fault, never a second incident.

An event that has an Xid says what a line `NVRM: Xid` says. Where the log has that line the event is noted with its
finding; where the line was lost (overwritten, limited, a log that this node does not read) it is judged as if it had
been there. An event without an Xid has no meaning in any catalogue yet, so a fatal one asks for a person's look.
Source: NVIDIA, GPU Operational Events (preview, R615 and R620): numbers may change, Xid lines stay.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action
from nhc.node.facts.pci import normal_address
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.collect import add, key_of
from nhc.node.kernlog.match import DEGRADED, RANK, Match

if TYPE_CHECKING:
    from typing import Mapping, Optional

    from nhc.node.kernlog.state_types import LogState

RECOVERABLE, FATAL_EVENT = 30, 40
"""NVML_OPERATIONAL_EVENT_SEVERITY_...: what is asked for, and what is never without a look."""
_RECOVERED, _SIMULATED = 1 << 0, 1 << 2
"""Bits of an event's group: the condition is over; it was made for a test."""
TOGETHER = 60.0
"""Seconds within which an Xid of the same GPU in the log and an event are of one incident."""
_CATEGORIES = {1: "timeout", 2: "memory integrity error", 3: "interconnect error", 4: "corruption", 5: "security error"}


class GpuEvent(NamedTuple):
    """One event. `device` is the GPU's PCI address in sysfs' form, `when` Unix time, `xid` None for one without."""

    device: str
    module: str
    code: int
    category: int
    severity: int
    group: int
    xid: Optional[int]
    when: float

    @property
    def name(self) -> str:
        """What it is, in the driver's own numbers."""
        return f"{self.module} {self.code:#x} ({_CATEGORIES.get(self.category, f'category {self.category:#x}')})"


def parse(answers: Mapping[str, object], now: float) -> GpuEvent:
    """An event out of NVML's fields (`nhc.node.facts.nvml.operational_events`). Raises ValueError."""

    def number(name: str) -> int:
        value = answers.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"an event of the driver without {name}: {value!r}")
        return value

    module, place, xid = answers.get("sourceModule"), answers.get("pci"), answers.get("xid")
    if not isinstance(module, str) or not isinstance(place, str) or not place:
        raise ValueError(f"an event of the driver without its module or GPU: {module!r}, {place!r}")
    micros = number("timestampUsec")
    return GpuEvent(
        normal_address(place), module, number("moduleEventCode"), number("categoryId"), number("severity"),
        number("groupAttributes"), xid if isinstance(xid, int) else None, micros / 1e6 if micros else now,
    )  # fmt: skip


def take_in(state: LogState, event: GpuEvent, now: float) -> None:
    """Note an event with the finding that the log has of it, or file it where the log has none."""
    if event.group & _SIMULATED or event.severity < RECOVERABLE:
        return
    match = _match(state, event)
    held = state.get("findings", {}).get(key_of(match)) if match else None
    if held is not None and abs(held["last"] - event.when) <= TOGETHER:
        held["witness"] = event.name
        return
    spoke = state.get("companions", {}).get(event.device)
    if match is None or (spoke is not None and abs(spoke - event.when) <= TOGETHER):
        return  # the log has an Xid of this GPU at that time, and has judged it
    add(state, match, event.when, now)
    filed = state.get("findings", {}).get(key_of(match))
    if filed is not None:
        filed["witness"] = event.name


def _match(state: LogState, event: GpuEvent) -> Optional[Match]:
    """What the event means: its Xid's row of the catalogue, else a look for a fatal one; None for nothing to act on."""
    if event.xid is not None:
        line = f"NVRM: Xid (PCI:{event.device.rpartition('.')[0]}): {event.xid}, GPU event {event.name}"
        match = Matcher(state.get("driver", "")).judge(line)
        return match if match is not None and RANK[match.severity] >= RANK[DEGRADED] else None
    if event.severity < FATAL_EVENT or event.group & _RECOVERED:
        return None
    message = f"the driver reports a fatal GPU event without an Xid: {event.name}"
    return Match("gpu", "EventFatal", DEGRADED, Action.INSPECT, event.device, message, f"GPU event {event.name}")
