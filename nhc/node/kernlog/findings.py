"""Faults that the kernel log reported, remembered until they are shown to be gone.

Pure: a state (JSON's own types, as `host.memory` keeps it), lines as matches with their times, and out comes the
state changed. A finding ends when the log shows its cause gone (a reset, a link that came up, a driver that was loaded
again), when the node has restarted and its device is found clean, when the device's own state says so, or when a person
acknowledges it: never because time has passed.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, printable
from nhc.node.kernlog.match import DEGRADED, FATAL, RANK

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Sequence, Tuple

    from nhc.node.kernlog.state_types import Finding, LogState

OF_A_DEVICE = (
    "xid", "sxid", "nvrm", "amdgpu", "neuron", "habanalabs", "mlx5", "efa", "ena", "aer", "pcie", "nvme", "block", "md",
    "edac", "driver",
)  # fmt: skip
"""Kinds whose cause can outlive a restart, so that the device must be found clean after it."""

LINE_LIMIT = 400
"""Characters of a line or a message that are kept."""

NVIDIA = ("xid", "sxid", "nvrm")
TOGETHER = 60.0
"""Seconds within which two devices die of one cause."""
_DEATHS = {
    "xid": ("79",), "nvrm": ("GpuFallenOffBus", "GpuIsLost"), "amdgpu": ("DeviceLost", "SmuGone"),
    "habanalabs": ("NotUsable",), "mlx5": ("HealthCompromised", "InitFailed"), "nvme": ("Down", "Disabled"),
    "driver": ("Unusable",),
}  # fmt: skip
"""What is said of a device that is gone. AER and DPC say it of the port above it, and so of no other device."""
REPAIRS = ("restart-app", "reset-device", "reload-driver", "reboot", "replace")
"""What repairs a device, from the mildest to the hardest, as nhc.remedy.ladder has them; `inspect` is for a person."""


def identity(finding: Finding) -> Tuple[str, str, str]:
    """What a finding is about: the error and its device."""
    return finding["kind"], finding["code"], finding["device"]


def restarted(state: LogState, boot: str) -> bool:
    """Whether the node has restarted since this state was kept."""
    before = state.get("boot", "")
    return bool(before and boot) and before != boot


def enter_boot(state: LogState, boot: str, clean: Callable[[Finding], Optional[bool]]) -> None:
    """Note which boot the next lines are of. After a restart findings end, those of a device if it is found clean.

    `clean` says whether a finding's device is well, None for "cannot tell": such a finding stays until it can. One that
    came back so often that the device is to be replaced stays, too: a device that fails time and again is clean in
    between.
    """
    anew = restarted(state, boot)
    state["boot"] = boot
    if not anew:
        return
    state["cursor"] = None
    state["seen"] = {}
    state.pop("hung", None)
    state.pop("foreign", None)
    findings = state.get("findings", {})
    for key, finding in list(findings.items()):
        proved = finding["kind"] not in OF_A_DEVICE or clean(finding)
        if proved and not finding.get("recurring"):
            del findings[key]
            continue
        finding["before_boot"] = True
        if proved is None:
            finding["unproven"] = True


def change(finding: Finding, severity: str, action: Action, message: str) -> None:
    """What a finding means now."""
    finding["severity"], finding["action"] = severity, action.value
    finding["message"] = printable(message, LINE_LIMIT)


def end(state: LogState, key: str, finding: Finding) -> bool:
    """End a finding, unless it came again since it was read as `finding`. Whether it ended.

    Its count tells, not its time: the clock that stamps kernel messages drifts from the one on the wall.
    """
    held = state.get("findings", {}).get(key)
    if held is None or (held["first"], held["count"]) != (finding["first"], finding["count"]):
        return False
    del state["findings"][key]
    return True


def parted(
    pairs: Sequence[Tuple[str, Finding]], judge: Callable[[Finding], Optional[Finding]]
) -> Tuple[List[Tuple[str, Finding]], List[Tuple[str, Finding]]]:
    """Findings as `judge` has them now, and those of which it gives None: they are gone."""
    judged = [(key, finding, judge(finding)) for key, finding in pairs]
    standing = [(key, now) for key, _finding, now in judged if now is not None]
    return standing, [(key, finding) for key, finding, now in judged if now is None]


def eased(finding: Finding) -> Finding:
    """A finding that asks for a repair, as it stands since its device named none.

    Only what the catalogue asks for ends it: a reset that the log shows, a restart, or a person's word.
    """
    if finding["severity"] != FATAL or finding.get("eased") != finding["count"]:
        return finding
    message = f"{finding['message']} (the GPU names no repair now; no reset was seen)"
    return {**finding, "severity": DEGRADED, "message": message}


def _repairing(finding: Finding, now: float) -> bool:
    """Whether the kernel may still repair this: no line says yet how its recovery went, and its time is not over."""
    until = finding.get("repairing")
    return isinstance(until, (int, float)) and now < until and not finding.get("drill")


def _hardest(pairs: List[Tuple[str, Finding]]) -> List[Tuple[str, Finding]]:
    """Findings with the repair of their device, which is the hardest that any of its fatal ones asks for."""
    wanted: Dict[str, int] = {}
    for _key, finding in pairs:
        device = finding["device"]
        if not device or finding["severity"] != FATAL or finding["action"] not in REPAIRS:
            continue
        wanted[device] = max(wanted.get(device, 0), REPAIRS.index(finding["action"]))
    return [(key, _with_repair(finding, wanted)) for key, finding in pairs]


def _with_repair(finding: Finding, wanted: Dict[str, int]) -> Finding:
    device, action = finding["device"], finding["action"]
    if finding["severity"] != FATAL or action not in REPAIRS or device not in wanted:
        return finding
    repair = REPAIRS[wanted[device]]
    return finding if repair == action else {**finding, "action": repair}


def _of_the_node(pairs: List[Tuple[str, Finding]]) -> List[Tuple[str, Finding]]:
    """Findings of devices of different drivers that died together: what they share failed, and no reset helps."""
    dead = [
        finding for _key, finding in pairs
        if finding["severity"] == FATAL and finding["device"]
        and finding["code"] in _DEATHS.get(finding["kind"], ())
    ]  # fmt: skip
    if len(dead) < 2:
        return pairs

    def beside(finding: Finding) -> str:
        for other in dead:
            near = abs(other["first"] - finding["first"]) <= TOGETHER
            apart = other["device"].rpartition(".")[0] != finding["device"].rpartition(".")[0]
            if near and apart and _driver_of(other) != _driver_of(finding):
                return other["device"]
        return ""

    def judged(finding: Finding) -> Finding:
        other = beside(finding) if finding in dead else ""
        if not other:
            return finding
        message = f"{finding['message']}; {other} died within a minute of it: the node's power, or a riser"
        return {**finding, "action": Action.INSPECT.value, "message": message}

    return [(key, judged(finding)) for key, finding in pairs]


def _driver_of(finding: Finding) -> str:
    if finding["kind"] in NVIDIA:
        return "nvidia"
    return finding["line"].partition(" ")[0] if finding["kind"] == "driver" else finding["kind"]


def current(state: LogState, kinds: Tuple[str, ...] = (), now: Optional[float] = None) -> List[Tuple[str, Finding]]:
    """The findings, most serious first. Where Xid 154 names a GPU's repair, its other Xids follow it.

    One that asks for less than a repair (peer-to-peer traffic drained) takes nothing back of what they ask for. All
    fatal findings of one device ask for the hardest of their repairs, since the milder ones leave it broken. With
    `now`, an error that the kernel is still repairing at that time is no more than degraded.
    """
    findings = state.get("findings", {})
    repair = {f["device"]: f["action"] for f in findings.values() if f["kind"] == "xid" and f["code"] == "154"
              and f["severity"] == FATAL}  # fmt: skip
    pairs: List[Tuple[str, Finding]] = []
    for key, held in findings.items():
        if kinds and held["kind"] not in kinds:
            continue
        finding = held
        if "repairing" in held and now is not None and held["severity"] == FATAL and _repairing(held, now):
            message = f"{held['message']} (the kernel is repairing it)"
            finding = {**held, "severity": DEGRADED, "message": message}
        elif held["kind"] == "xid" and held["device"] in repair and held["action"] != Action.REPLACE.value:
            finding = {**held, "action": repair[held["device"]]}
        pairs.append((key, finding))
    pairs = _of_the_node(_hardest(pairs))
    return sorted(pairs, key=lambda pair: (-RANK[pair[1]["severity"]], pair[1]["first"]))
