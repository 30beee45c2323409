"""Conditions read back: a node object's health as a Report that nhc's policy understands.

Pure. The rules are a list of Faults (a type, the status that is bad, for how long), from vocabularies or given
as draino's arguments (`GpuXid`, `GpuCount=True,10m`). Silence is not health: a condition that is missing or not renewed
is UNKNOWN, and so is a marked node until the conditions that it was marked for have ended. An UNKNOWN node stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import Action, CheckResult, Report, Scope, crit, named, ok, unknown, warn
from nhc.core.timestamps import is_recent
from nhc.core.units import seconds
from nhc.marks.ports.marks import TAG, read_mark_text
from nhc_adapters.kubernetes.nodes import accelerators
from nhc_adapters.kubernetes.nodes.accelerators import DeviceOffer
from nhc_adapters.kubernetes.nodes.boots import boot_id
from nhc_adapters.kubernetes.nodes.condition_times import ConditionsSeen, HeardNode, wrong_clock
from nhc_adapters.kubernetes.nodes.conditions import (
    ALLOCATABLE,
    CLUSTER_SIDE,
    FALSE,
    KUBELET,
    TRUE,
    UNKNOWN,
    Condition,
)
from nhc_adapters.kubernetes.nodes.device_tags import read_device_tags, without_count
from nhc_adapters.kubernetes.nodes.evidence import (
    ASKED,
    NEVER_STALE,
    SILENT_AFTER,
    SLURM,
    fresh,
    is_ahead,
    read_sources,
    source_of,
    source_types,
    sources_now,
    staleness,
    unsettled,
)
from nhc_adapters.kubernetes.nodes.maintenance import Maintenance, maintained
from nhc_adapters.kubernetes.nodes.manual import read_manual
from nhc_adapters.kubernetes.nodes.overruled import Overruled, read_overruled
from nhc_adapters.kubernetes.nodes.own_marks import PUT_BACK, annotations_of, read_own_mark, released
from nhc_adapters.kubernetes.nodes.slurm_nodes import SlurmDrain
from nhc_adapters.kubernetes.nodes.vocabulary import Fault

NEVER = "NeverReported"
"""The reason of a node that never had any of the watched conditions."""

NOT_TAKEN_BACK = "NotTakenBack"
"""The reason of a marked node whose mark's source has not said that its fault is gone."""

ON_REQUEST = "MaintenanceRequested"
"""The reason of a node that others want out."""

IN_SLURM = "DrainedInSlurm"
"""The reason of a node that nhc has drained in Slurm."""

NOT_PROVED = "NotProved"
"""The reason of a node whose maintenance has ended, and which has had no report since."""

ALL_OFFERED = "kubernetes_allocatable"
"""The check of a node that offers all that is expected of it."""

_CHECK = re.compile(r"(check_\w+): (?=\S)")


@dataclass(frozen=True)
class Judgement:
    """The judgement of a node by its conditions. `again` is when to judge it again without a change (Unix time)."""

    report: Report
    reasons: Tuple[str, ...] = ()
    types: Tuple[str, ...] = ()
    again: Optional[float] = None
    silent: bool = False
    """Whether it is UNKNOWN because the condition that a running agent renews is not renewed."""
    sources: Tuple[str, ...] = ()
    """The sources of a mark that is set now (`evidence.SOURCE`)."""
    offer: Optional[DeviceOffer] = None
    """What the node offers of its accelerators, None if that cannot be judged."""


@dataclass(frozen=True)
class Accelerators:
    """What is expected of a node. `asked` says that the settings name it; `grace` is in seconds."""

    expected: Sequence[Tuple[str, int]] = ()
    asked: bool = False
    grace: float = accelerators.GRACE
    short_since: Optional[float] = None
    """Since when too few are known to be offered, if the node's own condition does not say it yet."""


def parse_fault(text: str) -> Fault:
    """`Type`, `Type=Status` or `Type=Status,duration`: draino's arguments. Raises ValueError."""
    head, comma, lasting = text.partition(",")
    kind, equals, status = head.partition("=")
    if not kind or not kind.isprintable() or " " in kind:
        raise ValueError(f"{text!r} names no condition (expected Type, Type=Status or Type=Status,duration)")
    status = status if equals else TRUE
    if status not in (TRUE, "False", UNKNOWN):
        raise ValueError(f"{text!r}: status {status!r} is not True, False or Unknown")
    return Fault(kind, status, seconds(lasting.strip()) if comma else 0.0)


class _Failure(NamedTuple):
    """A fault that counts: its result, and its entries for labels and the mark's sources."""

    result: CheckResult
    reason: str
    type: str
    source: str


@dataclass
class _Judging:
    """One judgement under way. `others` are the results that are no failures."""

    now: float
    silent_after: float
    overruled: Optional[Overruled]
    maintained: str = ""
    """What others are doing to the node."""
    failures: List[_Failure] = field(default_factory=list)
    others: List[CheckResult] = field(default_factory=list)
    times: List[float] = field(default_factory=list)

    def fault(self, condition: Condition, fault: Fault, since: float) -> None:
        """Judge a condition that is bad since then."""
        message, devices = read_device_tags(condition.message)
        text = message or condition.reason or condition.type
        mark = read_mark_text(f"{TAG} {text}")
        why = mark.why if mark is not None else text
        due = min(since, self.now) + fault.lasting
        if self.overruled is not None and self.overruled.covers(condition):
            self.add(fault.type, warn(condition.reason or fault.type, f"{why} ({self.overruled.line()})"))
        elif self.maintained and fault.type in KUBELET:
            self.add(fault.type, warn(condition.reason or fault.type, f"{why} (under maintenance: {self.maintained})"))
        elif self.now < due:
            self.times.append(due)
            waits = f"{why} (counts after {fault.lasting:.0f} s)"
            self.add(fault.type, warn(condition.reason or fault.type, waits))
        else:
            action = mark.action if mark is not None and mark.action is not Action.NONE else fault.action
            # Our own conditions say which check it was; the mark says so too, as Slurm's does.
            check = _CHECK.match(why)
            name, why = (check[1], why[check.end() :]) if check else (fault.type, why)
            reason = condition.reason or fault.type
            first = crit(reason, without_count(why) if len(devices) > 1 else why, action=action)
            if devices:
                first = first._replace(scope=Scope.DEVICE, device=devices[0].device)
            self.failures.append(_Failure(_result(name, first), reason, fault.type, source_of(fault)))
            for tag in devices[1:]:
                outcome = crit(tag.reason, f"{tag.device}: {tag.reason}", action=tag.action)
                result = _result(fault.type, outcome._replace(scope=Scope.DEVICE, device=tag.device))
                self.failures.append(_Failure(result, tag.reason, fault.type, source_of(fault)))

    def asked(self, maintenance: Maintenance) -> None:
        """Others want the node out, now or later."""
        self.times += [at for at in (maintenance.start, maintenance.until) if at is not None and at > self.now]
        if maintenance.stands(self.now):
            who = f" (by {maintenance.by})" if maintenance.by else ""
            result = _result(ASKED, crit(ON_REQUEST, maintenance.why + who))
            self.failures.append(_Failure(result, ON_REQUEST, ASKED, ASKED))

    def other(self, condition: Condition, fault: Fault) -> None:
        """Judge a condition that is not bad, or that is no longer renewed."""
        if not fresh(condition, self.now, self.silent_after):
            self.add(fault.type, unknown("NotRenewed", staleness(condition, self.now)))
            return
        if condition.type not in CLUSTER_SIDE and condition.renewed:
            self.times.append(condition.seen + self.silent_after)
        if condition.status == UNKNOWN:
            text = condition.message or condition.reason or condition.type
            self.add(fault.type, unknown(condition.reason or "Unknown", text))
        else:
            self.add(fault.type, ok(condition.message))

    def add(self, check: str, outcome: object) -> None:
        self.others.append(_result(check, outcome))


def judge(
    node: Mapping[str, Any],
    faults: Sequence[Fault],
    now: float,
    *,
    verdict: str = "",
    silent_after: float = SILENT_AFTER,
    accelerators_of: Optional[Accelerators] = None,
    heard: Optional[HeardNode] = None,
    maintenance: Optional[Maintenance] = None,
    slurm: Optional[SlurmDrain] = None,
    slurm_silent: bool = False,
) -> Judgement:
    """Judge one node object.

    `verdict` names the condition whose heartbeat says that the agent lives. `accelerators_of` says what must be
    allocatable, None if that is not watched. `heard` are its conditions by our clock; their own stamps count if the
    node has not been followed. `maintenance` is what others request, `slurm` our drain in Slurm; `slurm_silent` says
    that no slurmd pod reports on the node.
    """
    heard = heard or ConditionsSeen().of(node, now)
    conditions = heard.conditions
    run = _Judging(now, silent_after, read_overruled(node, heard.before_boot), maintained(node))
    for fault in faults:
        condition = conditions.get(fault.type)
        if condition is None:
            continue
        # A stamp ahead of our clock proves no health. A fault it tells of all the same: its node's clock is wrong.
        if condition.status == fault.status and (is_ahead(condition, now) or fresh(condition, now, silent_after)):
            run.fault(condition, fault, condition.since)
        else:
            run.other(condition, fault)
    if faults and not run.failures and not run.others:
        wanted = list(dict.fromkeys(fault.type for fault in faults))
        name = verdict if verdict in wanted else wanted[0]
        run.add(name, unknown(NEVER, f"nobody ever said {', '.join(wanted)} of this node"))
    offer = _offer(run, node, conditions, accelerators_of)
    _switched_off(run, conditions, faults, accelerators_of is not None)
    voice = conditions.get(verdict) if verdict else None
    silent = voice is not None and not is_recent(voice.seen, now, silent_after)
    if silent and voice is not None:
        silence = silence_of(voice, heard, now)
        # The controller's own findings stay active, whatever happened to the agent.
        if not is_ahead(voice, now):
            run.failures = [failure for failure in run.failures if failure.type in CLUSTER_SIDE]
        run.others = [_result(verdict, unknown("NoReport", silence))]
    elif voice is not None and verdict in heard.before_boot:
        run.add(verdict, unknown("NoReport", "its agent has said nothing since the node booted"))
    ready = conditions.get("Ready")
    if ready is not None and ready.status == UNKNOWN and not run.failures:
        run.add("Ready", unknown("NodeStatusUnknown", ready.message or "the kubelet stopped reporting"))
    put_back = annotations_of(node).get(PUT_BACK, "").split()
    if maintenance is not None and ASKED not in put_back:
        run.asked(maintenance)
    if slurm is not None and slurm.source not in put_back:
        drained = _result(SLURM, crit(IN_SLURM, slurm.mark.why, action=slurm.mark.action))
        run.failures.append(_Failure(drained, IN_SLURM, SLURM, slurm.source))
    elif slurm_silent and SLURM in read_sources(node):
        run.add(SLURM, unknown(IN_SLURM, "no slurmd pod says that its drain in Slurm has ended"))
    sources = _standing_mark(run, node, conditions)
    results = (*(failure.result for failure in run.failures), *run.others)
    report = Report(str(node.get("metadata", {}).get("name", "")), boot_id(node), now, 0.0, results)
    return Judgement(
        report,
        tuple(failure.reason for failure in run.failures),
        tuple(failure.type for failure in run.failures),
        min((at for at in run.times if at > now), default=None),
        silent,
        sources,
        offer,
    )


def silence_of(voice: Condition, heard: HeardNode, now: float) -> str:
    """Why the condition that a node's agent renews proves nothing, if it does not count."""
    if is_ahead(voice, now):
        return f"{heard.clock_text() or wrong_clock(voice.seen - now)}: nothing that it says counts until it is renewed"
    return f"nothing heard from the node's agent for {now - voice.seen:.0f} s"


def reported_at(judged: Judgement, conditions: Mapping[str, Condition], now: float) -> float:
    """Of which time a judgement is (Unix time).

    A failure is as new as its newest condition, health as old as its oldest: an agent that renews a part proves a part.
    What the kubelet and the API server write of the node is of now; what the controller wrote once is as old as that.
    """

    def at(kind: str) -> float:
        condition = conditions.get(kind)
        is_current = kind == ALLOCATABLE or (kind in NEVER_STALE and kind not in CLUSTER_SIDE)
        return now if condition is None or is_current else condition.seen

    if judged.types:
        return max(at(kind) for kind in judged.types)
    kinds = {result.check for result in judged.report.results} & conditions.keys()
    return min((at(kind) for kind in kinds - set(CLUSTER_SIDE) or kinds), default=now)


def _offer(
    run: _Judging, node: Mapping[str, object], conditions: Mapping[str, Condition], wanted: Optional[Accelerators]
) -> Optional[DeviceOffer]:
    """Judge what the node offers: too little is CRIT once that has lasted for the grace."""
    if wanted is None:
        return None
    offer = accelerators.look(node, wanted.expected, wanted.asked)
    standing = conditions.get(ALLOCATABLE)
    if standing is not None and standing.status != TRUE:
        standing = None
    if offer is None:
        if standing is not None:
            run.add(ALLOCATABLE, unknown("CannotBeJudged", f"{standing.message}; nothing newer can be said"))
        return None
    if not offer.short:
        run.add(ALL_OFFERED, ok(offer.message))
        return offer
    if read_own_mark(node) is not None and not released(node):
        # Within the grace it is no fault yet; a node that is out is not to be put back like that either.
        run.add(ALLOCATABLE, unknown(offer.reason, offer.message))
    known = standing.since if standing is not None else wanted.short_since
    since = max(run.now if known is None else known, min(offer.since, run.now))
    fault = Fault(ALLOCATABLE, TRUE, wanted.grace)
    run.fault(Condition(ALLOCATABLE, TRUE, offer.reason, offer.message, since, run.now), fault, since)
    return offer


def _switched_off(
    run: _Judging, conditions: Mapping[str, Condition], faults: Sequence[Fault], allocatable: bool
) -> None:
    """An active finding of ours whose source is no longer read is neither a fault nor health."""
    on = {fault.type for fault in faults} | ({ALLOCATABLE} if allocatable else set())
    for kind in CLUSTER_SIDE:
        standing = conditions.get(kind)
        if standing is not None and kind not in on and standing.status != FALSE:
            text = f"{standing.message or standing.reason}; its source is switched off here"
            run.add(kind, unknown("SourceSwitchedOff", text))


def _standing_mark(run: _Judging, node: Mapping[str, object], conditions: Mapping[str, Condition]) -> Tuple[str, ...]:
    """Hold a marked node until the sources of its mark have ended. Returns the sources of a mark that is set now."""
    bad = [failure.source for failure in run.failures]
    if read_own_mark(node) is None or released(node):
        return tuple(bad)
    before, manual = read_sources(node), read_manual(node)
    if manual is not None:
        if manual.until is not None:
            run.times.append(manual.until)
        if manual.asked:
            if not manual.stands(run.now) and not run.failures:
                _prove_since(run, manual.until or 0.0, conditions)
        elif not manual.stands(run.now) and not source_types(before) and not run.failures:
            # A person took it out and said until when: nothing else is needed to put it back.
            run.others = [_result("drain", ok(f"{manual.line()}, which is over"))]
    held = False
    for source in before:
        why = unsettled(source, conditions, run.now, run.silent_after)
        held |= why is not None
        if why is not None and source not in bad:
            run.add(source.partition("=")[0], unknown(NOT_TAKEN_BACK, why))
    if source_types(before) and not held:
        # The mark's cause has ended: that no one ever reported anything else of the node does not keep it out.
        run.others = [result for result in run.others if result.outcome.reason != NEVER]
        run.others += [_result(kind, ok(f"{kind} is taken back")) for kind in sorted(source_types(before))]
    return tuple(sources_now(bad, before, conditions, run.now, run.silent_after))


def _prove_since(run: _Judging, ended: float, conditions: Mapping[str, Condition]) -> None:
    """Hold a node whose maintenance has ended until something that it is judged by was said of it since."""
    known = {result.check for result in run.others} & conditions.keys()
    if not any(conditions[kind].seen > ended for kind in known if conditions[kind].renewed):
        run.others.append(
            _result(ASKED, unknown(NOT_PROVED, "its maintenance has ended, and nobody has judged it since"))
        )


def _result(check: str, outcome: Any) -> CheckResult:
    return CheckResult(check, named(outcome))  # the reason in another agent's condition can be anything
