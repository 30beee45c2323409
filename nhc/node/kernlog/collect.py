"""What the lines of a log mean, collected into findings: each match begins, repeats, changes or ends some.

Messages are judged in order, by the catalogue and by rule files.

"device recovery successful" and "failed" tell what came of the PCIe errors before them: drivers/pci/pcie/err.c
pcie_do_recovery prints both on the port above the device that erred (on the port itself after a downstream-port
containment, dpc.c), so the address in the line is not that of the device. Recoveries of one port run one after another,
right after the error.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, printable
from nhc.node.kernlog.findings import LINE_LIMIT, change
from nhc.node.kernlog.match import DEGRADED, DRILL, FATAL, INFO, RANK, Match
from nhc.node.kernlog.repeats import counts, escalated, repeated

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Sequence, Tuple

    from nhc.node.kernlog.npd_rules import Rule
    from nhc.node.kernlog.state_types import Finding, LogState

KEPT = 256
"""Findings kept apart; further ones are only counted."""
FRESH = 60.0
"""Seconds after its line in which a process of that number is still taken for the one that the line names."""
COMPLAINTS = ("ailed", "imed out", "imeout", "not respond", "unrecoverable", "fatal error")
"""Words with which a driver that the catalogue does not know says that something failed."""
LAST_WORD = 60.0
"""Seconds after them in which a reset that the driver asks for is because of it."""
SPEAKERS = 32
"""Drivers that complained and are remembered."""
COMPANION = 300.0
"""Seconds within which an Xid 45 is the clean-up after another Xid of its GPU."""


def key_of(match: Match) -> str:
    return f"{match.kind}/{match.code}/{match.device}"


def add(state: LogState, match: Match, when: float, now: float, look: Optional[Callable[[int], str]] = None) -> None:
    """Take in one line. `look` gives what a process that a line names belongs to, by its number."""
    for what in match.recovers:
        _recover(state, what, match, when)
    if match.kind in ("aer", "pcie", "driver", "mlx5") and match.code != "Corrected":
        from nhc.node.kernlog.device_role import note_driver

        note_driver(state, match, when)
    if match.kind == "pcie":
        from nhc.node.kernlog.hotplug import slot_event

        match = slot_event(state, match, when)
    match = _last_word(state, _by_hand(state, recovery_outcome(state, match, when)), when)
    if match.kind in ("hung", "nfs", "lustre", "ceph"):
        _hung(state, match, when, now)
        if match.kind == "hung":
            return
    seen = state.setdefault("seen", {})
    if match.kind == "xid" and match.code == "45" and match.device not in state.get("companions", {}):
        from nhc.node.kernlog.xid import named_cause

        match = named_cause(match)
    severity = match.severity
    if match.kind == "xid":
        severity = _beside(state, match, when)
    seen[severity] = seen.get(severity, 0) + 1
    hit = (
        repeated(state, match, when, look if look and now - when <= FRESH else _nothing)
        if counts(match._replace(severity=severity))
        else None
    )
    if hit is not None:
        match = escalated(state, match, when, *hit)
        severity = match.severity
    if RANK[severity] < RANK[DEGRADED]:
        return
    _keep(state, match, severity, when, now, hit is not None)
    if hit is not None and hit[0].others == "clean" and severity == FATAL:
        state["findings"][key_of(match)]["compared"] = True


def complain(state: LogState, line: str, when: float) -> None:
    """Remember that a driver said that something failed, and when."""
    complained = state.setdefault("complained", {})
    speaker = line.split(None, 1)[0].rstrip(":") if line.strip() else ""
    complained.pop(speaker, None)
    complained[speaker] = when
    while len(complained) > SPEAKERS:
        del complained[next(iter(complained))]


def _last_word(state: LogState, match: Match, when: float) -> Match:
    """A reset that a driver asks for: a fault where it has said before that something failed, else only a wish."""
    if match.kind != "driver":
        return match
    if match.code == "ResetWanted":
        said = state.get("complained", {}).get(match.device)
        if said is not None and 0 <= when - said <= LAST_WORD:
            message = f"{match.message} after a failure"
            return match._replace(code="Unusable", severity=FATAL, action=Action.REBOOT, message=message)
    elif match.severity != INFO:
        complain(state, match.line, when)
    return match


def _nothing(_pid: int) -> str:
    return ""


def _by_hand(state: LogState, match: Match) -> Match:
    """After a person shut a file system down, its errors follow from that: its journal aborts, it refuses writes."""
    key = f"{match.kind}/ShutDownByHand/{match.device}"
    if match.severity != FATAL or key not in state.get("findings", {}):
        return match
    message = f"{match.message}, after it was shut down by hand"
    return match._replace(severity=DEGRADED, action=Action.INSPECT, message=message)


def _hung(state: LogState, match: Match, when: float, now: float) -> None:
    """Take in a report of a hung task, a line of its stack, or that a file server is back: one finding for all."""
    from nhc.node.kernlog import hung

    finding = state.get("findings", {}).get(hung.KEY)
    if match.kind == "hung":
        judged = hung.take(state, match, when)
    elif finding is None or not hung.recovered(state, match, when):
        return
    else:
        judged = hung.judged(state, match)
        if judged is None:
            del state["findings"][hung.KEY]
    if judged is None:
        return
    if match.code == "TaskHung":
        seen = state.setdefault("seen", {})
        seen[DEGRADED] = seen.get(DEGRADED, 0) + 1
        _keep(state, judged, judged.severity, when, now, True)
    elif finding is not None:
        change(finding, judged.severity, judged.action, judged.message)


def _beside(state: LogState, match: Match, when: float) -> str:
    """The severity of an Xid in company: 45 is only a clean-up soon after another Xid of its GPU."""
    recent = state.setdefault("companions", {})
    if match.code != "45":
        if match.code != "154":
            recent[match.device] = when
            if len(recent) > 64:
                del recent[min(recent, key=lambda device: recent[device])]
        return match.severity
    return INFO if abs(when - recent.get(match.device, -COMPANION * 2)) <= COMPANION else match.severity


def _keep(state: LogState, match: Match, severity: str, when: float, now: float, anew: bool) -> None:
    findings = state.setdefault("findings", {})
    key = key_of(match)
    line = printable(match.line, LINE_LIMIT)
    finding = findings.get(key)
    if finding is None:
        if len(findings) >= KEPT:
            state["more"] = state.get("more", 0) + 1
            return
        finding = findings[key] = {
            "kind": match.kind, "code": match.code, "device": match.device, "severity": severity,
            "action": match.action.value, "message": printable(match.message, LINE_LIMIT), "line": line, "first": when,
            "noticed": now, "count": 0, "last": when,
        }  # fmt: skip
    elif RANK[severity] > RANK[finding["severity"]] or match.code == "154" or anew:
        change(finding, severity, match.action, match.message)
    finding.pop("before_boot", None)
    finding.pop("unproven", None)
    if anew and match.action is Action.REPLACE:
        finding["recurring"] = True
    finding["count"] += 1
    finding["last"] = when
    if line != finding["line"]:
        finding["last_line"] = line
    if (match.kind, match.code) in REPAIR_IS_TOLD:
        finding["repairing"] = when + KERNEL_REPAIR
    if DRILL not in match.line:
        finding.pop("drill", None)  # a true one has come: the end of a drill must not take it away
    elif finding["count"] == 1:
        finding["drill"] = True


OF_THE_LOAD = 10.0
"""Seconds before a driver's banner in which its probe failures are of that very load: it probes, then prints its banner
(nv.c: nvidia_init_module registers the PCI driver before it says "loading NVIDIA UNIX")."""
_AT_LOAD = (("nvrm", "ProbeFailed"), ("nvrm", "GpuFallenOffBus"), ("nvrm", "GpuIsLost"), ("nvrm", "BarInvalid"))
_NO_RESET_MENDS = ("xid", "sxid", "nvrm", "amdgpu", "neuron")


def _outlasts(finding: Finding, scope: str, when: float) -> bool:
    """Whether a reset or a load leaves a finding standing.

    It does if the finding asks for new hardware, if it recurs although the device comes back each time, and if it is of
    that very load.
    """
    mended = finding["kind"] not in _NO_RESET_MENDS or finding["action"] != Action.REPLACE.value
    if not mended or finding.get("recurring"):
        return True
    at_load = (finding["kind"], finding["code"]) in _AT_LOAD
    return scope == "all" and at_load and abs(when - finding["last"]) <= OF_THE_LOAD


def _drop(state: LogState, key: str, line: str) -> None:
    """End a finding, and note by which line where the caller wants to know (`nhc log classify --findings`)."""
    finding = state["findings"].pop(key)
    if "ended" in state and finding["severity"] == FATAL:
        state["ended"][key] = {**finding, "last_line": printable(line, LINE_LIMIT)}


def _recover(state: LogState, what: str, match: Match, when: float) -> None:
    """Drop the findings that a line shows to be gone."""
    scope, _, target = what.partition(":")
    kind, _, code = target.partition("/")
    for key, finding in list(state.get("findings", {}).items()):
        if scope == "drills":
            gone = finding.get("drill", False)
        else:
            gone = (finding["kind"] == kind and code in ("", finding["code"])
                    and (scope == "all" or finding["device"] == match.device)
                    and not _outlasts(finding, scope, when))  # fmt: skip
        if gone:
            _drop(state, key, match.line)


def _names_device(line: str) -> bool:
    """Whether the second word of a line has the form of a PCI address (`xhci_hcd 0000:3a:00.0: `)."""
    second = line[:60].partition(" ")[2].partition(" ")[0]
    return len(second) == 13 and second[4] == ":" and second[12] == ":"


def take_in(
    state: LogState,
    messages: Sequence[Tuple[str, Optional[float]]],
    now: float,
    rules: Sequence[Rule] = (),
    catalogue: bool = True,
    look: Optional[Callable[[int], str]] = None,
) -> None:
    """Judge messages, each with its time (None: now), and collect what they mean into a state.

    `rules` apply to all messages, the catalogue only where `catalogue` says that they are the kernel's. `look` gives
    what a process that a line names belongs to, by its number (`nhc.node.kernlog.programs.origin`).
    """
    if not messages:
        return
    if rules:
        from nhc.node.kernlog.npd_rules import RuleReader

        reader = RuleReader(rules, state.get("tail", []))
        for text, when in messages:
            for match in reader.read(text):
                add(state, match, now if when is None else when, now)
        state["tail"] = reader.tail()
    if not catalogue:
        return
    from nhc.node.kernlog.catalogue import Matcher, lines_of

    matcher = Matcher(state.get("driver", ""))
    lines = [(line, when) for text, when in messages for line in (lines_of(text) if "\n" in text else (text,))]
    texts = [line for line, _when in lines]
    starts: Dict[int, int] = {}
    at = 0
    for index, text in enumerate(texts):
        starts[at] = index
        at += len(text) + 1
    for start, _end, numbers in matcher.candidates("\n".join(texts)):
        index = starts[start]
        judged = matcher.judge(texts[index], numbers)
        said = lines[index][1]
        when = now if said is None else said
        if judged is None:
            from nhc.node.kernlog.complaints import complaint

            judged = complaint(texts[index])
        if judged is not None:
            add(state, judged, when, now, look)
        else:
            if _names_device(texts[index]):
                from nhc.node.kernlog.device_role import note_peripheral

                note_peripheral(state, texts[index], when)
            if any(word in texts[index] for word in COMPLAINTS):
                complain(state, texts[index], when)
    if matcher.driver:
        state["driver"] = matcher.driver


KERNEL_REPAIR = 120.0
"""Seconds in which a recovery ends: the kernel waits up to 60 s for a device after its reset (drivers/pci/pci.h
PCIE_RESET_READY_POLL_MS), and asks each driver before and after."""
REPAIRED = (("aer", "UncorrectedFatal"), ("aer", "UncorrectedNonFatal"), ("pcie", "Contained"))
"""Errors after each of which the kernel tries a recovery, and says how it went."""
REPAIR_IS_TOLD = (*REPAIRED, ("nvme", "Down"))
"""Errors that are no more than degraded until a line says how the kernel's repair went. For an NVMe controller it is a
reset (drivers/nvme/host/pci.c nvme_reset_work), after which it names its queues or gives the device up."""
_OUTCOMES = (("aer", "Recovered"), ("aer", "RecoveryFailed"), ("aer", "NoCallback"))


def _domain(device: str) -> str:
    return device.partition(":")[0]


def _near(findings: Dict[str, Finding], port: str, when: float) -> List[str]:
    """The errors that a recovery below `port` is about."""
    near = []
    for key, finding in findings.items():
        if (finding["kind"], finding["code"]) not in REPAIRED or _domain(finding["device"]) != _domain(port):
            continue
        if finding["device"] == port or (finding["kind"] == "aer" and abs(when - finding["last"]) <= KERNEL_REPAIR):
            near.append(key)
    return near


def recovery_outcome(state: LogState, match: Match, when: float) -> Match:
    """Take in how a recovery went. The match as it is to be judged."""
    if (match.kind, match.code) not in _OUTCOMES:
        return match
    findings = state.get("findings", {})
    if match.code == "NoCallback":
        state["no_callback"] = when
        return match
    near = _near(findings, match.device, when)
    if match.code == "Recovered":
        for key in near:
            gone = findings.pop(key)
            if "ended" in state:
                state["ended"][key] = {**gone, "last_line": match.line}
        findings.pop(f"aer/RecoveryFailed/{match.device}", None)
        return match
    for key in near:
        findings[key].pop("repairing", None)
    alike = {findings[key]["code"] for key in near}
    if alike == {"UncorrectedNonFatal"} and 0 <= when - state.get("no_callback", -KERNEL_REPAIR * 2) <= KERNEL_REPAIR:
        # Nothing was reset and nothing is cut off: the device goes on as before, its driver was only not asked.
        text = f"{match.message}: its driver cannot be asked; the error was not fatal"
        return match._replace(severity=DEGRADED, action=Action.INSPECT, message=text)
    return match
