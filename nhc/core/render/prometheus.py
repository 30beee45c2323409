"""A report in Prometheus's text format, for the node exporter's textfile collector or the agent's /metrics.

The number of series of a node is bounded whatever it reports, and a fault neither ends nor begins the series of a
verdict: what names a fault is `nhc_problem`, there only while the fault stands. docs/monitoring.md has the list.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict
from nhc.core.prometheus_family import Family

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Set, Tuple

    from nhc.core.model import CheckResult, Metric

TARGETS = 16
"""Targets of one check that have series, the worst first: as many as the largest nodes have GPUs. `nhc_check_targets`
counts them all. A kernel log that names a thousand devices stays this small."""
PROBLEMS = 16
"""Problems of one check that have a series; `nhc_check_problems` counts them all."""
NAMES = 32
"""Measured values of one check's target that have series."""

_BAD = (Verdict.WARN, Verdict.UNKNOWN, Verdict.CRIT)
_HELP = {
    "nhc_build_info": "The version of nhc that made this report.",
    "nhc_node_info": "Which node this is, to join with.",
    "nhc_node_verdict": "Verdict of the node: 0 skip, 1 ok, 2 warn, 3 unknown, 4 crit.",
    "nhc_check_verdict": "Worst verdict of a check's target: 0 skip, 1 ok, 2 warn, 3 unknown, 4 crit.",
    "nhc_check_targets": "Targets that a check judged, those without a series of their own included.",
    "nhc_check_problems": "Targets and reasons that a check complains of, those without a series included.",
    "nhc_problem": "1 while a check complains of a target for a reason.",
    "nhc_check_elapsed_seconds": "How long the check took.",
    "nhc_run_started_timestamp_seconds": "When the run began.",
    "nhc_run_elapsed_seconds": "How long the run took.",
    "nhc_run_results": "Results of the run, by verdict.",
}
UNITS = {
    "": ("", 1.0),
    "%": ("_ratio", 0.01),
    "/min": ("_per_second", 1 / 60),
    "/s": ("_per_second", 1.0),
    "B": ("_bytes", 1.0),
    "B/s": ("_bytes_per_second", 1.0),
    "Cel": ("_celsius", 1.0),
    "GB/s": ("_bytes_per_second", 1e9),
    "GT/s": ("_transfers_per_second", 1e9),
    "Gb/s": ("_bits_per_second", 1e9),
    "Hz": ("_hertz", 1.0),
    "MB/s": ("_bytes_per_second", 1e6),
    "MHz": ("_hertz", 1e6),
    "TFLOPS": ("_flops", 1e12),
    "W": ("_watts", 1.0),
    "ms": ("_seconds", 1e-3),
    "s": ("_seconds", 1.0),
    "us": ("_seconds", 1e-6),
}
"""How a unit is written in a metric's name, and what one of it is in that base unit: a metric has a single unit
(https://prometheus.io/docs/practices/naming/)."""


def render(report: Report, checks: Iterable[str] = ()) -> str:
    """All series of a report. `checks` are those that will be judged: their count of problems is 0 until then."""
    families = {name: Family(name, "gauge", text) for name, text in _HELP.items()}
    families["nhc_build_info"].add(1, version=report.version)
    families["nhc_node_info"].add(1, node=report.host)
    families["nhc_node_verdict"].add(report.verdict)
    families["nhc_run_started_timestamp_seconds"].add(report.started)
    families["nhc_run_elapsed_seconds"].add(round(report.elapsed, 6))
    for verdict in Verdict:
        count = sum(result.verdict is verdict for result in report.results)
        families["nhc_run_results"].add(count, verdict=verdict.name.lower())
    by_check: Dict[str, List[CheckResult]] = {}
    for result in report.results:
        by_check.setdefault(result.check, []).append(result)
    values: Dict[str, Family] = {}
    for check in dict.fromkeys(checks):
        if check not in by_check:
            families["nhc_check_problems"].add(0, check=check)
    for check, results in by_check.items():
        targets = _verdicts(check, results, families)
        _problems(check, results, families)
        once = {result.source: result.elapsed for result in results}  # the results of one line share its time
        families["nhc_check_elapsed_seconds"].add(round(sum(once.values()), 6), check=check)
        _values(check, results, targets, values)
    return "".join(family.render() for family in (*families.values(), *(values[name] for name in sorted(values))))


def _verdicts(check: str, results: List[CheckResult], families: Dict[str, Family]) -> Set[str]:
    """Add the verdicts of a check's worst targets; those targets."""
    worst: Dict[str, Verdict] = {}
    for result in results:
        target = result.outcome.target
        worst[target] = max(worst.get(target, Verdict.SKIP), result.verdict)
    targets = sorted(worst, key=lambda target: (-worst[target], target))[:TARGETS]
    for target in targets:
        families["nhc_check_verdict"].add(worst[target], check=check, target=target)
    families["nhc_check_targets"].add(len(worst), check=check)
    return set(targets)


def _problems(check: str, results: List[CheckResult], families: Dict[str, Family]) -> None:
    worst: Dict[Tuple[str, str], Verdict] = {}
    for result in results:
        if result.verdict in _BAD:
            key = (result.outcome.target, result.outcome.reason)
            worst[key] = max(worst.get(key, Verdict.SKIP), result.verdict)
    for target, reason in sorted(worst, key=lambda key: (-worst[key], key))[:PROBLEMS]:
        families["nhc_problem"].add(1, check=check, target=target, reason=reason)
    families["nhc_check_problems"].add(len(worst), check=check)


def _values(check: str, results: List[CheckResult], targets: Set[str], values: Dict[str, Family]) -> None:
    taken: Dict[str, Set[Tuple[str, str]]] = {}
    for result in results:
        target = result.outcome.target
        if target not in targets:
            continue
        names = taken.setdefault(target, set())
        for metric in result.outcome.metrics:
            if len(names) >= NAMES and (metric.name, metric.unit) not in names:
                continue
            names.add((metric.name, metric.unit))
            family, value = _value(metric)
            here = values.setdefault(family, Family(family, "gauge", "What a check measured, in the metric's unit."))
            here.add(value, check=check, target=target, name=metric.name)


def _value(metric: Metric) -> Tuple[str, float]:
    """The metric that a measured value belongs to, and the value in its unit."""
    known = UNITS.get(metric.unit)
    if known is not None:
        return f"nhc_check_value{known[0]}", metric.value if known[1] == 1.0 else metric.value * known[1]
    suffix = "".join(each if each.isascii() and each.isalnum() else "_" for each in metric.unit)
    return f"nhc_check_value_unit_{suffix}", metric.value
