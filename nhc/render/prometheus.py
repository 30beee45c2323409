"""A report in Prometheus's text format, for the node exporter's textfile collector or the agent's /metrics."""

from __future__ import annotations

from nhc.light import TYPE_CHECKING
from nhc.model import Report, Verdict, printable

if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from typing_extensions import TypeAlias

_HELP = {
    "nhc_build_info": "The version of nhc that made this report.",
    "nhc_node_verdict": "Verdict of the node: 0 skip, 1 ok, 2 warn, 3 unknown, 4 crit.",
    "nhc_check_verdict": "Verdict of a check's target: 0 skip, 1 ok, 2 warn, 3 unknown, 4 crit.",
    "nhc_check_elapsed_seconds": "How long the check took.",
    "nhc_check_metric": "What a check measured.",
    "nhc_run_started_timestamp_seconds": "When the run began.",
    "nhc_run_elapsed_seconds": "How long the run took.",
    "nhc_run_results": "Results of the run, by verdict.",
}

Labels: TypeAlias = "Tuple[Tuple[str, str], ...]"


def render(report: Report) -> str:
    series: Dict[str, Dict[Labels, float]] = {name: {} for name in _HELP}
    series["nhc_build_info"][(("version", report.version),)] = 1
    series["nhc_node_verdict"][()] = report.verdict
    series["nhc_run_started_timestamp_seconds"][()] = report.started
    series["nhc_run_elapsed_seconds"][()] = round(report.elapsed, 6)
    for verdict in Verdict:
        count = sum(result.verdict is verdict for result in report.results)
        series["nhc_run_results"][(("verdict", verdict.name.lower()),)] = count
    for result in report.results:
        where = (("check", result.check), ("source", result.source), ("target", result.outcome.target))
        told = (*where, ("reason", result.outcome.reason))
        verdicts = series["nhc_check_verdict"]
        verdicts[told] = max(verdicts.get(told, 0), result.verdict)
        series["nhc_check_elapsed_seconds"][where[:2]] = round(result.elapsed, 6)
        for metric in result.outcome.metrics:
            series["nhc_check_metric"][(*where, ("name", metric.name), ("unit", metric.unit))] = metric.value
    lines: List[str] = []
    for name, values in series.items():
        if values:
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels(labels)} {number(value)}" for labels, value in values.items()]
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """A value without the noise of its binary form: 0.3, not 0.29999999999999999 nor 0.30000000000000004."""
    return str(int(value)) if isinstance(value, int) else repr(float(f"{value:.15g}")).removesuffix(".0")


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
