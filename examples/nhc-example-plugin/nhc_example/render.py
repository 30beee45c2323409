"""A format: one line a result, fields separated by tabs."""

from __future__ import annotations

from nhc.api import Report, printable


def tsv(report: Report) -> str:
    rows = [(report.host, one.check, one.outcome.verdict.name, one.outcome.reason, one.outcome.message)
            for one in report.results]  # fmt: skip
    return "".join("\t".join(printable(field) for field in row) + "\n" for row in rows)
