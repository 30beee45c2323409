"""A report in Prometheus's text format, for the node exporter's textfile collector or the agent's /metrics."""

from __future__ import annotations

from nhc.light import TYPE_CHECKING
from nhc.model import Report, Verdict
from nhc.prometheus_family import Family

if TYPE_CHECKING:
    from typing import Dict

    from nhc.prometheus_family import Labels

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
        reasons = (*where, ("reason", result.outcome.reason))
        verdicts = series["nhc_check_verdict"]
        verdicts[reasons] = max(verdicts.get(reasons, 0), result.verdict)
        series["nhc_check_elapsed_seconds"][where[:2]] = round(result.elapsed, 6)
        for metric in result.outcome.metrics:
            series["nhc_check_metric"][(*where, ("name", metric.name), ("unit", metric.unit))] = metric.value
    families = []
    for name, samples in series.items():
        family = Family(name, "gauge", _HELP[name])
        family.samples.update(samples)
        families.append(family)
    return "".join(family.render() for family in families)
