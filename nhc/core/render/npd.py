"""A report as a node-problem-detector custom plugin says it.

Exit status 0 OK, 1 not OK, 2 unknown; one line on standard output, cut by the detector at 80 bytes by
default, so the most important fact stands first (pkg/custompluginmonitor in its source).
"""

from __future__ import annotations

from nhc.core.model import Report, Verdict, printable, subject

LIMIT = 79
"""Bytes of the line: one below the detector's default max_output_length."""

STATUS = {Verdict.OK: 0, Verdict.WARN: 0, Verdict.CRIT: 1, Verdict.UNKNOWN: 2, Verdict.SKIP: 2}


def exit_status(report: Report) -> int:
    return STATUS[report.verdict]


def render(report: Report) -> str:
    """`GpuLost gpu3: fell off the bus (+1)`; `healthy` where nothing is wrong."""
    bad = sorted((r for r in report.results if r.verdict > Verdict.OK), key=lambda r: r.verdict, reverse=True)
    if not bad:
        return "healthy\n" if report.results else "nothing was checked\n"
    outcome = bad[0].outcome
    more = f" (+{len(bad) - 1})" if len(bad) > 1 else ""
    text = printable(f"{outcome.reason or bad[0].check}{subject(outcome)}: {outcome.message}")
    room = LIMIT - len(more)
    cut = text.encode()[:room].decode(errors="ignore")
    return f"{cut}{more}\n"
