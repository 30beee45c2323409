"""Chooses the next repair. Pure: from what was tried and what is possible, the next rung or the end of the ladder.

The ladder runs from the mildest repair to a person. It begins at the rung that the faults suggest, and goes up only:
a repair that did not help is followed by a later one. A rung is skipped, with the reason recorded, if the site has
switched it off, if no repairer can do it, or if the fault itself rules it out. A rung that the site has not enabled yet
(`dry-run`) is not skipped: a harder repair in its place would be worse, so the ladder ends there.
"""

from __future__ import annotations

from typing import Callable, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.limits import Mode
from nhc.core.model import Action, DeviceId
from nhc.marks.ports.repair import LADDER, RUNG_OF, Rung
from nhc.store.attempts import AttemptStatus

REQUEST = "request"
"""The `source` of a person's request on the node itself."""


MARK = "mark"
"""The `source` of a fault that is read off a mark of ours, set by a hook or a sync."""
RECLAIM = "CloudReclaim"
"""The reason of a machine that the cloud takes away (`nhc.remedy.reclaim`)."""
UNREPORTED = frozenset({REQUEST, MARK})
"""Sources of faults that no report shows: a repair for one does not wait for a fresh report."""


class NodeFault(NamedTuple):
    """One fault of a node, from any source.

    `cause` is the result of `marks.cause_of` for a failure: the check, the reason's key, the target. `seen` is when the
    report (or the condition) with the fault was made, `began` when it was first seen, both Unix time. `source` says
    where it was read: `store`, `reports`, or an adapter's name. `begin` is the rung at which the ladder begins for its
    reason by the settings, "" if `action` decides. `boot` is the boot of the machine that showed it, "" if unknown.
    `device` is its accelerator, if it is not a fault of the whole node.
    """

    node: str
    cause: str
    reason: str
    message: str
    action: Action
    seen: float
    began: float = 0.0
    target: str = ""
    source: str = "store"
    begin: str = ""
    boot: str = ""
    device: DeviceId = DeviceId()

    @property
    def place(self) -> str:
        """The name by which a repair of a device is requested: one name for each device, even if its faults use
        different ones.
        """
        return str(self.device) or self.target


class Try(NamedTuple):
    """One attempt of this episode, as far as decisions need it.

    `retry`: it was refused because the machine itself prevents it now. `before_boot` is the kernel's boot id seen
    before the attempt.
    """

    rung: Rung
    device: str
    state: AttemptStatus
    retry: bool = False
    number: int = 0
    written: float = 0.0
    before_boot: str = ""
    message: str = ""


class Ability(NamedTuple):
    """Whether a rung can be done on a node: `why` is "" if it can.

    If that cannot be asked now, `again` is above 0: the seconds after which to ask again. `right` is a missing
    permission. Neither says anything about the machine, so no harder repair follows from it. `by` is the name of the
    repairer that does it.
    """

    why: str = ""
    again: float = 0.0
    right: str = ""
    by: str = ""


class Skipped(NamedTuple):
    """A rung that was left out, and why."""

    rung: Rung
    device: str
    why: str


class RungChoice(NamedTuple):
    """The next rung; ESCALATE at the end of the ladder. `why` says what ended it, "" if it goes on.

    `again` (seconds) is above 0 if the rung waits, for the reason in `why`, because no repairer can be asked for it
    now. `by` is the repairer.
    """

    rung: Rung
    device: str
    skipped: Tuple[Skipped, ...]
    why: str = ""
    again: float = 0.0
    by: str = ""


LOST = frozenset({"Xid79", "GpuLost", "GpuOffBus", "GpuFallenOffBus", "GpuMissing", "GpuCountMismatch", "GpuCountLow"})
"""Reasons of a device that no longer answers on its bus: no reset reaches it (NVML: GPU_IS_LOST, 15), nor does a
driver that is loaded anew find it."""

NO_REPAIR = "no repair is known for this fault"
"""Why the ladder ends before it begins: every fault suggests an inspection."""

BY_DEVICE = frozenset({Rung.RESTART_APP, Rung.RESET_DEVICE})
"""Rungs that are for one device; the others are for the whole machine."""

REFUSALS = 3
"""How often a rung is requested that the machine itself prevents, before the next rung is taken."""


def first_rung(faults: Iterable[NodeFault]) -> Rung:
    """Where the ladder begins: at the hardest rung that any of the faults suggests, because it covers the milder ones.

    A fault that suggests nothing is left to a person.
    """
    rungs = [
        Rung(fault.begin) if fault.begin else RUNG_OF[fault.action]
        for fault in faults if fault.begin or fault.action in RUNG_OF
    ]  # fmt: skip
    repairs = [rung for rung in rungs if rung is not Rung.ESCALATE]
    return max(repairs, key=LADDER.index) if repairs else Rung.ESCALATE


def impossible(faults: Sequence[NodeFault], rung: Rung, device: str) -> str:
    """Why the faults themselves rule a rung out, "" if they do not."""
    if rung not in (Rung.RESET_DEVICE, Rung.RELOAD_DRIVER):
        return ""
    for fault in faults:
        if fault.reason in LOST and (rung is Rung.RELOAD_DRIVER or not fault.place or fault.place == device):
            return f"{fault.target or 'a device'} is off its bus ({fault.reason}): nothing but a new boot reaches it"
    return ""


def devices(faults: Sequence[NodeFault], rung: Rung) -> List[str]:
    """The targets of a rung: each device that a fault names, or the machine ("")."""
    if rung not in BY_DEVICE:
        return [""]
    named = {fault.place for fault in faults if RUNG_OF.get(fault.action) in BY_DEVICE}
    return sorted(named) or [""]


def next_rung(
    faults: Sequence[NodeFault],
    tried: Sequence[Try],
    modes: Mapping[Rung, Mode],
    can: Callable[[Rung, str], Ability],
) -> RungChoice:
    """What to try next. `can` says whether a repairer of the site can do a rung on this node."""
    start = first_rung(faults)
    if start is Rung.ESCALATE:
        return RungChoice(Rung.ESCALATE, "", (), NO_REPAIR)
    lowest = max([start, *(attempt.rung for attempt in tried if not _ask_again(attempt))], key=LADDER.index)
    skipped: List[Skipped] = []
    asked = all(fault.source == REQUEST for fault in faults)
    highest = start if asked else Rung.REPLACE  # what nobody asked for does not follow what was asked for
    for rung in LADDER[LADDER.index(lowest) : LADDER.index(highest) + 1]:
        for device in devices(faults, rung):
            before = [attempt for attempt in tried if (attempt.rung, attempt.device) == (rung, device)]
            if any(not _ask_again(attempt) for attempt in before) or len(before) >= REFUSALS:
                continue
            mode = modes.get(rung, Mode.DRY_RUN)
            why = "switched off in the settings" if mode is Mode.OFF else impossible(faults, rung, device)
            ability = Ability(why) if why else can(rung, device)
            if ability.right:
                return RungChoice(Rung.ESCALATE, "", tuple(skipped), missing(ability.right, ability.why))
            if ability.again > 0:
                return RungChoice(rung, device, tuple(skipped), ability.why, ability.again)
            if ability.why:
                skipped.append(Skipped(rung, device, ability.why))
            elif mode is Mode.DRY_RUN:
                what = named(rung, device)
                return RungChoice(Rung.ESCALATE, "", tuple(skipped), f"would {what}, which is not enabled (dry run)")
            else:
                return RungChoice(rung, device, tuple(skipped), by=ability.by)
    return RungChoice(Rung.ESCALATE, "", tuple(skipped), "no repair is left on the ladder")


def named(rung: Rung, device: str) -> str:
    """A repair, for a person."""
    return f"{rung.value} of {device}" if device else rung.value


def missing(right: str, why: str) -> str:
    """What a person is told about a permission that is not granted."""
    return f"the right {right} is missing: {why}"


def _ask_again(attempt: Try) -> bool:
    return attempt.state is AttemptStatus.REFUSED and attempt.retry
