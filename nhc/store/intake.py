"""What one report changes in the store's knowledge of its node. Pure: no clock, no database.

A report is its node's newest, late, or already stored. Only the newest changes the present state. A late one (from a
spool or an old sweep) goes into the history and closes gaps.
"""

from __future__ import annotations

import hashlib
import json
from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

from nhc.core.model import NAMELESS, CheckResult, Report, Scope, Verdict, printable
from nhc.core.render.json import names_of
from nhc.core.settings import declared

NAME_LIMIT = 253
"""Characters of a node's name: what DNS takes."""
NEXT = 0.001
"""Seconds that a newest report is dated after the one before, if its own time is not later."""
PROBLEMS = 500
"""Problems stored of one report, the worst first."""
SKEW = 30.0
"""Seconds that a node's clock may be off before the receiver's clock dates its reports.

Two clocks that NTP sets differ by less than a second; a push may take up to `slow` (20 s) to arrive.
"""
PACE = 10.0
"""Seconds by which the numbers of a running machine may differ from our clock between two pushes."""
CONTESTED = 600.0
"""Seconds after the last report of a second machine under a node's name in which neither is trusted."""
NEITHER = "neither is acted upon until one of them is silent"
_NO_FIGURES = str.maketrans("", "", "0123456789")


@declared.settings
class IntakeSettings(NamedTuple):
    """How reports are stored. Seconds, above 0.

    `future`: a report stamped so far ahead of its arrival is refused (two clocks that NTP sets differ by less than a
    second). `gap`: a longer time between two reports is a gap. `refresh`: how old the stored report of a node may be
    that is OK or WARN and reports nothing new, and how often the problems of an unchanged report are processed. `note`:
    the longest time without a row of history while nothing changes.
    """

    future: float = declared.seconds("future", 300.0, "a report stamped further ahead than this is refused", least=1.0)
    gap: float = declared.seconds("gap", 600.0, "reports further apart than this leave a gap", least=1.0)
    refresh: float = declared.seconds(
        "refresh", 300.0, "how old the kept text of a report may be whose node says nothing new", least=1.0
    )
    note: float = declared.seconds("note", 86400.0, "history gets a row at least this often", least=1.0)


class Incoming(NamedTuple):
    """One report as it came in. `source` is where it came from (agent, sweep, slurm, ...); `received` is Unix time.

    `complete` is false while some of the node's checks have not been judged yet: it then ends no problem. `at` is the
    time of the state in the report, if that is not when it began: an agent's report begins with its oldest result. With
    a `suite` it is of deep checks, and does not change the node's state.

    `seq` orders the reports of one boot independently of the node's clock, 0 for none. `made` is when it was made by
    the receiver's clock, 0 if that is not known; it is older if its push was held back. `stamped` is when it was made
    by the node's own clock, 0 if that is its `at`.

    `unchanged`: except for figures, the report says the same as the node's newest, which has this digest; its results
    are the problems alone.

    `text` is the report's JSON if `report` has only the checks' names of results that are OK.
    """

    report: Report
    source: str
    received: float
    complete: bool = True
    at: float = 0.0
    suite: str = ""
    seq: int = 0
    made: float = 0.0
    unchanged: str = ""
    stamped: float = 0.0
    text: bytes = b""

    @property
    def when(self) -> float:
        """The time by which the reports of a node are ordered."""
        return self.at or self.report.started


class Receipt(str, Enum):
    """The result for a report."""

    CHANGED = "changed"
    SAME = "same"
    LATE = "late"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    WHOLE = "whole"
    """It is sent as unchanged, but the store has different content for its node: the whole report is requested."""


class KnownNode(NamedTuple):
    """The stored state of a node: the columns of `nodes` with which a report is compared. None for a time: never.

    `rival_boot` is the boot before this one, or another boot that reported after it; its number `rival_seq` came in at
    `rival_at`. `contested` is when two machines last reported under this name.
    """

    node: str
    boot_id: str = ""
    verdict: str = ""
    since: Optional[float] = None
    reported_at: Optional[float] = None
    judged_at: Optional[float] = None
    received_at: Optional[float] = None
    covered_since: Optional[float] = None
    source: str = ""
    digest: str = ""
    noted: Optional[float] = None
    stored: Optional[float] = None
    seq: int = 0
    rival_boot: str = ""
    rival_seq: int = 0
    rival_at: Optional[float] = None
    contested: Optional[float] = None


class IntakeDecision(NamedTuple):
    """What to do with a report. `after` is the node from now on.

    `store`: its text becomes the node's report. `note`: the history gets a row; for a late report, only if the row
    before it differs. `problems`: they are processed. `closed` is a span of reports that a gap has ended. `when` is the
    time under which the report is stored: a newest report is never stored under an earlier time than the one that it
    follows.
    """

    receipt: Receipt
    after: KnownNode
    message: str = ""
    store: bool = False
    note: bool = False
    problems: bool = False
    closed: Optional[Tuple[float, float]] = None
    when: float = 0.0


class ReportedProblem(NamedTuple):
    """One problem as a report has it."""

    check: str
    reason: str
    target: str
    verdict: str
    action: str
    message: str
    scope: str = ""
    device: str = ""

    @property
    def key(self) -> Tuple[str, str, str]:
        """The key by which it is the same problem in the next report."""
        return self.check, self.reason, self.target


class Findings(NamedTuple):
    """The problems of a report, and which checks it judged: for which targets it was UNKNOWN ("" is all)."""

    problems: Tuple[ReportedProblem, ...]
    judged: frozenset[str]
    unsure: frozenset[Tuple[str, str]]
    whole: bool
    verdict: Verdict


def findings(report: Report, complete: bool = True) -> Findings:
    """What is wrong with a node, one finding a check, reason and target: the worst of those that share them."""
    worst_of: Dict[Tuple[str, str, str], Tuple[Verdict, ReportedProblem]] = {}
    unsure = set()
    for result in report.results:
        verdict = result.outcome.verdict
        if verdict is Verdict.OK:  # nearly all of them
            continue
        check = printable(result.check, 200)
        if verdict in (Verdict.UNKNOWN, Verdict.SKIP):
            unsure.add((check, printable(result.outcome.target, 500)))
        if result.is_problem:
            finding = _finding(check, result)
            before = worst_of.get(finding.key)
            if before is None or before[0] < verdict:
                worst_of[finding.key] = (verdict, finding)
    worst = sorted(worst_of.values(), key=lambda pair: -pair[0])[:PROBLEMS]
    return Findings(
        tuple(finding for _, finding in worst),
        frozenset([printable(name, 200) for name in {result.check for result in report.results}]),
        frozenset(unsure),
        complete and not report.not_run,
        report.verdict,
    )


def _finding(check: str, result: CheckResult) -> ReportedProblem:
    outcome = result.outcome
    if check == NAMELESS:  # lines of the configuration that name no check are distinguished by their place in the file
        check = printable(f"{check} {result.source}".strip(), 200)
    return ReportedProblem(
        check,
        printable(outcome.reason, 200),
        printable(outcome.target, 500),
        outcome.verdict.name,
        outcome.action.value,
        printable(outcome.message, 2000),
        "" if outcome.scope is Scope.NODE else outcome.scope.value,
        json.dumps(names_of(outcome.device)) if outcome.device.known else "",
    )


def ends(problem: ReportedProblem, source: str, findings: Findings, by: str) -> bool:
    """Whether an open problem that is not in a report has ended by that report.

    It has if its check was judged and was not UNKNOWN, or if a whole report of the same source no longer has such a
    check. A different source may check other things.
    """
    if problem.check not in findings.judged:
        return findings.whole and source == by
    return not any(
        check == problem.check and (not target or not problem.target or target == problem.target)
        for check, target in findings.unsure
    )


def digest(report: Report, source: str, judged: Findings) -> str:
    """The content by which two reports say the same about a node, without figures in messages and metrics."""
    content: List[object] = [judged.verdict.name, report.boot_id, source, judged.whole, sorted(report.labels.items())]
    content += [report.version, [note.translate(_NO_FIGURES) for note in report.notes]]
    # What ran and what was UNKNOWN: a problem ends by the first report whose check was not.
    content += [sorted(judged.judged), sorted(judged.unsure)]
    content += sorted([*finding[:5], finding.scope, finding.device] for finding in judged.problems)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def refusal(incoming: Incoming, pace: IntakeSettings) -> str:
    """Why a report is not accepted, "" if it is."""
    report = incoming.report
    if not report.host or len(report.host) > NAME_LIMIT or report.host != printable(report.host).strip():
        return f"{printable(report.host, 40)!r} is no node's name"
    if min(incoming.when, report.started) < 0:
        return f"stamped {min(incoming.when, report.started):.0f}, before 1970"
    ahead = max(incoming.when, report.started) - incoming.received
    if ahead > pace.future:
        return f"stamped {ahead:.0f} s ahead of this clock: one of the two is wrong"
    return ""


def judge(
    known: Optional[KnownNode], incoming: Incoming, judged: Findings, pace: IntakeSettings, known_boot: bool = False
) -> IntakeDecision:
    """What a report changes in a node whose stored state is `known` (None: nothing). `known_boot`: its boot is not the
    node's newest, and the history has reports of it.
    """
    report = incoming.report
    known = known or KnownNode(report.host)
    why = refusal(incoming, pace)
    if why:
        return IntakeDecision(Receipt.REFUSED, known, why)
    known = _by_this_clock(known, incoming.received, pace)
    started, before = incoming.when, known.reported_at
    key = digest(report, incoming.source, judged)
    boot = printable(report.boot_id, 100)
    if before is not None:
        behind, known = _behind(known, incoming, boot, known_boot)
        if behind == 0:
            return IntakeDecision(Receipt.DUPLICATE, known)
        if behind > 0:
            return _late(known, _made_at(known, incoming, boot), pace)
        started = started if started > before else before + NEXT
    verdict = judged.verdict.name
    gap = before is not None and started - before > pace.gap
    changed = key != known.digest
    stale = known.stored is None or started - known.stored >= pace.refresh
    keep = changed or stale or judged.verdict in (Verdict.CRIT, Verdict.UNKNOWN)
    again = before is None or started // pace.refresh != before // pace.refresh
    note = changed or known.noted is None or started - known.noted >= pace.note
    after = known._replace(
        boot_id=boot, verdict=verdict, reported_at=started, judged_at=report.started, received_at=incoming.received,
        since=started if verdict != known.verdict or known.since is None else known.since,
        covered_since=started if gap or known.covered_since is None else known.covered_since,
        source=printable(incoming.source, 100), digest=key, noted=started if note else known.noted,
        stored=started if keep else known.stored, seq=incoming.seq or (known.seq if boot == known.boot_id else 0),
    )  # fmt: skip
    closed = (known.covered_since or 0.0, before) if gap and before is not None else None
    return IntakeDecision(
        Receipt.CHANGED if changed else Receipt.SAME, after, store=keep, note=note, problems=changed or again,
        closed=closed, when=started,
    )  # fmt: skip


def judge_unchanged(known: Optional[KnownNode], incoming: Incoming, pace: IntakeSettings) -> IntakeDecision:
    """What an unchanged report changes: the time at which the node was last in this state.

    It is compared with the row of the store, no matter which server answered the report before it. The order is that of
    whole reports.
    """
    report = incoming.report
    known = known or KnownNode(report.host)
    why = refusal(incoming, pace)
    if why:
        return IntakeDecision(Receipt.REFUSED, known, why)
    known = _by_this_clock(known, incoming.received, pace)
    started, before, boot = incoming.when, known.reported_at, printable(report.boot_id, 100)
    if before is None or known.digest != incoming.unchanged or known.boot_id != boot:
        return IntakeDecision(Receipt.WHOLE, known)
    behind, known = _behind(known, incoming, boot, False)
    if behind >= 0:  # an older one belongs into the history, which has whole reports
        return IntakeDecision(Receipt.WHOLE if behind else Receipt.DUPLICATE, known)
    started = started if started > before else before + NEXT
    gap = started - before > pace.gap
    after = known._replace(
        reported_at=started, judged_at=report.started, received_at=incoming.received, seq=incoming.seq,
        covered_since=started if gap or known.covered_since is None else known.covered_since,
    )  # fmt: skip
    closed = (known.covered_since or 0.0, before) if gap else None
    return IntakeDecision(Receipt.SAME, after, closed=closed, when=started)


def _by_this_clock(known: KnownNode, received: float, pace: IntakeSettings) -> KnownNode:
    """The node with no time ahead of our clock: a server whose clock was wrong has stored it under future times. A
    report that comes in now must not count as late because of that, nor be stored under a future time.
    """
    if known.reported_at is None or known.reported_at <= received + pace.future:
        return known
    latest = received - pace.future

    def bounded(at: Optional[float]) -> Optional[float]:
        return None if at is None else min(at, latest)

    return known._replace(
        since=bounded(known.since), reported_at=latest, judged_at=bounded(known.judged_at),
        received_at=bounded(known.received_at), covered_since=bounded(known.covered_since),
        noted=bounded(known.noted), stored=bounded(known.stored), rival_at=bounded(known.rival_at),
        contested=bounded(known.contested),
    )  # fmt: skip


def _behind(known: KnownNode, incoming: Incoming, boot: str, known_boot: bool) -> Tuple[float, KnownNode]:
    """How far a report is behind the newest of its node: 0 for the same, below 0 for a newer one; and the node with
    what this shows about a second machine.

    Within a boot the agent's own numbers decide: setting the clock back must not make the newest report late. A lower
    number, or an earlier boot, comes from a push that was held back or sent twice, unless its machine runs now. If the
    boot of the newest report has been silent since, the machine was restored from a snapshot. If not, there are two
    machines.
    """
    same = bool(boot) and boot == known.boot_id
    if not incoming.seq or (same and not known.seq):
        return _by_time(known, incoming, boot)
    if same and incoming.seq >= known.seq:
        return float(known.seq - incoming.seq), known
    if not same and not known_boot and boot != known.rival_boot:
        return _by_time(known, incoming, boot)
    if not incoming.made:  # it was spooled in an earlier boot than the one that sent it
        return (float(known.seq - incoming.seq) if same else (known.reported_at or 0.0) - incoming.when), known
    behind = float(known.seq - incoming.seq) if same else 1.0
    is_rival = boot == known.rival_boot and known.rival_at is not None
    if not _runs_now(known, incoming, boot):
        repeated = is_rival and incoming.seq <= known.rival_seq
        return behind, known if repeated else _rivalled(known, boot, incoming.seq, incoming.received)
    both = is_rival and (known.received_at or 0.0) > (known.rival_at or 0.0)
    if both:
        rivalled = _rivalled(known, boot, incoming.seq, incoming.received)
        return behind, rivalled._replace(contested=incoming.received)
    return -1.0, _rivalled(known, known.boot_id, known.seq, known.received_at)


def _by_time(known: KnownNode, incoming: Incoming, boot: str) -> Tuple[float, KnownNode]:
    """The order of reports without comparable numbers. A boot that is replaced by a newer one is stored."""
    behind = (known.reported_at or 0.0) - incoming.when
    if behind < 0 and known.boot_id and boot != known.boot_id and known.seq:
        return behind, _rivalled(known, known.boot_id, known.seq, known.received_at)
    return behind, known


def _rivalled(known: KnownNode, boot: str, seq: int, at: Optional[float]) -> KnownNode:
    return known._replace(rival_boot=boot, rival_seq=seq, rival_at=at)


def _runs_now(known: KnownNode, incoming: Incoming, boot: str) -> bool:
    """Whether the machine of a report runs now: by a clock that agrees with ours, and by its number, it was made after
    the newest came in; or its numbers advance as our clock does.
    """
    stamped, received = incoming.stamped or incoming.when, incoming.received
    if min(stamped, incoming.made) > (known.received_at or 0.0) and abs(stamped - incoming.made) <= SKEW:
        return True
    if boot != known.rival_boot or known.rival_at is None or not incoming.seq > known.rival_seq:
        return False
    passed = received - known.rival_at
    return passed > 0 and abs(passed - (incoming.seq - known.rival_seq) / 1000) <= PACE


def _made_at(known: KnownNode, incoming: Incoming, boot: str) -> float:
    """When a late report was made, by its number if it is of the newest report's boot; its arrival does not show how
    long its push was held back.
    """
    if boot and boot == known.boot_id and incoming.seq and known.seq and incoming.made:
        return (known.reported_at or 0.0) - (known.seq - incoming.seq) / 1000
    return min(incoming.stamped or incoming.when, incoming.when)


def is_contested(contested: Optional[float], received_at: Optional[float]) -> bool:
    """Whether two machines push under a node's name, so that neither is trusted."""
    return contested is not None and (received_at or 0.0) - contested <= CONTESTED


def _late(known: KnownNode, started: float, pace: IntakeSettings) -> IntakeDecision:
    """An older report joins the span that lasts until now if it is next to it; otherwise it gets its own span."""
    message = f"it is older than the newest report of {known.node}: only the history has it"
    if is_contested(known.contested, known.received_at):
        message = f"two machines push as {known.node}, of boots {known.boot_id} and {known.rival_boot}: {NEITHER}"
    if known.covered_since is not None and started >= known.covered_since - pace.gap:
        after = known._replace(covered_since=min(known.covered_since, started))
        return IntakeDecision(Receipt.LATE, after, message, note=True, when=started)
    return IntakeDecision(Receipt.LATE, known, message, note=True, closed=(started, started), when=started)
