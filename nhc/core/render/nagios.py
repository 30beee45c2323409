"""A report as a Nagios plugin says it (monitoring-plugins.org, development guidelines).

First line: status, what is wrong, performance data behind a bar; further lines: one a result that is
not OK. Exit status 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict, printable, subject

if TYPE_CHECKING:
    from typing import Dict

STATUS = {Verdict.OK: 0, Verdict.WARN: 1, Verdict.CRIT: 2, Verdict.UNKNOWN: 3, Verdict.SKIP: 3}
_WORD = {0: "OK", 1: "WARNING", 2: "CRITICAL", 3: "UNKNOWN"}
_UNITS = {"B": "B", "s": "s", "%": "%"}  # the plugin guidelines know these; others are left out
_RANGE = "0123456789.:~@-+e;"


def exit_status(report: Report) -> int:
    return STATUS[report.verdict]


def render(report: Report) -> str:
    status = exit_status(report)
    bad = sorted((r for r in report.results if r.verdict > Verdict.OK), key=lambda r: r.verdict, reverse=True)
    texts = [_clean(f"{r.check}{subject(r.outcome)}: {r.outcome.message}") for r in bad]
    passed = sum(result.verdict is Verdict.OK for result in report.results)
    first = texts[0] if texts else f"{passed} checks passed"
    more = f" (+{len(texts) - 1} more)" if len(texts) > 1 else ""
    data: Dict[str, str] = {}
    for result in report.results:
        for metric in result.outcome.metrics:
            label = "_".join(part for part in (result.check, result.outcome.target, metric.name) if part)
            label = _clean(label).replace("'", "").replace("=", "")
            levels = "".join(each for each in f";{metric.warn};{metric.crit}" if each in _RANGE).rstrip(";")
            data[label] = f"'{label}'={metric.value:.12g}{_UNITS.get(metric.unit, '')}{levels}"
    lines = [f"NHC {_WORD[status]} - {first}{more}{' | ' + ' '.join(data.values()) if data else ''}"]
    lines.extend(f"{r.verdict.name}: {text}" for r, text in zip(bad, texts))
    return "".join(f"{line}\n" for line in lines)


def _clean(text: str) -> str:
    return printable(text).replace("|", "/")  # a bar would start the performance data
