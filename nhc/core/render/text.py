"""A report for a person: one line a result, what is wrong with its reason and suggested action; then a summary."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import DRASTIC, Action, CheckResult, Report, Verdict, printable, scope_text, subject
from nhc.core.units import show_number, show_seconds

if TYPE_CHECKING:
    from typing import Dict, List

CAUSES = 3
"""Causes that the last line names."""
COLOURS = {Verdict.SKIP: "2", Verdict.OK: "32", Verdict.WARN: "33", Verdict.UNKNOWN: "35", Verdict.CRIT: "1;31"}


def render(
    report: Report,
    *,
    verbose: int = 0,
    quiet: int = 0,
    evidence: bool = False,
    colour: bool = False,
    skipped: bool = False,
) -> str:
    """The report as lines. `quiet` 1 leaves out what is fine, 2 everything; `verbose` adds source and time.

    What is CRIT comes in the order of its repairs, the hardest first; all else stays in the configuration's order.

    Checks that this node has nothing for are counted in the last line and listed with `skipped`, and where there is
    nothing else.
    """
    if quiet >= 2:
        return ""
    skipped = skipped or all(result.verdict is Verdict.SKIP for result in report.results)
    lines: List[str] = []
    for result in _hardest_first(report):
        if (quiet and result.verdict <= Verdict.OK) or (result.verdict is Verdict.SKIP and not skipped):
            continue
        lines.append(_line(result, verbose, colour))
        if evidence:
            lines.extend(f"         | {printable(line)}" for line in result.outcome.evidence)
    lines.extend(f"note: {printable(note)}" for note in report.notes)
    if not quiet or report.verdict > Verdict.OK:
        lines.append(summary(report, colour))
        lines += _causes(report)
    return "".join(f"{line}\n" for line in lines)


def _hardest_first(report: Report) -> List[CheckResult]:
    """The results; in the places of those that are CRIT these, the hardest repair first, alike ones in their order."""
    failures = iter(_worst_first(report))
    return [next(failures) if result.verdict is Verdict.CRIT else result for result in report.results]


def _worst_first(report: Report) -> List[CheckResult]:
    return sorted(report.failures(), key=lambda each: -DRASTIC.index(each.outcome.action))


def _causes(report: Report) -> List[str]:
    """Where several results are CRIT: what they come to, each device or other target once, the hardest repair first.

    `1 cause: gpu3 is lost (Xid 79): reboot; nhc explain GpuLost`.
    """
    groups: Dict[str, List[CheckResult]] = {}
    for result in _worst_first(report):
        outcome = result.outcome
        groups.setdefault(outcome.device.pci or outcome.target or result.check, []).append(result)
    if sum(map(len, groups.values())) < 2:
        return []
    causes = []
    for results in groups.values():
        worst = results[0].outcome
        said = printable(worst.message or worst.reason, 120)
        about = worst.target or worst.device.pci
        name = "" if about in said else f"{about} "
        repair = f": {worst.action.value}" if worst.action is not Action.NONE else ""
        causes.append(f"{printable(name)}{said}{repair}" + (f"; nhc explain {worst.reason}" if worst.reason else ""))
    return [
        f"{show_number(len(causes), 'cause')}: {' | '.join(causes[:CAUSES])}{' | ...' if len(causes) > CAUSES else ''}"
    ]


def summary(report: Report, colour: bool = False) -> str:
    """`node001: CRIT, 1 of 14 checks failed (12 OK, 1 SKIP) in 0.2s`."""
    counts = dict.fromkeys(reversed(Verdict), 0)
    for result in report.results:
        counts[result.verdict] += 1
    total = len(report.results)
    others = ", ".join(f"{count} {verdict.name}" for verdict, count in counts.items() if count)
    left_out = f", {report.not_run} not run after the first failure" if report.not_run else ""
    verdict = paint(report.verdict.name, report.verdict, colour)
    totals = f"{show_number(total, 'result')} ({others or 'none'}){left_out} in {show_seconds(report.elapsed)}"
    return f"{printable(report.host)}: {verdict}: {totals}"


def _line(result: CheckResult, verbose: int, colour: bool) -> str:
    outcome = result.outcome
    message = f": {printable(outcome.message)}" if outcome.message else ""
    text = f"{paint(f'{outcome.verdict.name:7}', outcome.verdict, colour)}  {result.check}{subject(outcome)}{message}"
    wrong = outcome.verdict > Verdict.OK
    details = [outcome.reason] if outcome.reason and (wrong or verbose) else []
    if wrong and outcome.action is not Action.NONE:
        details.append(f"action: {outcome.action.value}")
    about = scope_text(outcome.scope, outcome.device) if wrong else ""
    if about:
        details.append(about)
    if verbose:
        details += [detail for detail in (result.source, show_seconds(result.elapsed)) if detail]
    if details:
        text += f"  [{', '.join(map(printable, details))}]"
    if verbose > 1:
        text += "".join(printable(f" {metric.name}={metric.value:g}{metric.unit}") for metric in outcome.metrics)
    return text


def paint(text: str, verdict: Verdict, colour: bool) -> str:
    """The text in a verdict's colour, where it is to have one."""
    return f"\033[{COLOURS[verdict]}m{text}\033[0m" if colour else text
