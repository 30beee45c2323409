"""/metrics: the report's own series (nhc.core.render.prometheus), the agent's, and node-problem-detector's names."""

from __future__ import annotations

from typing import Dict, List, Tuple

from nhc.agent import latest_report
from nhc.agent.events import EVENTS
from nhc.agent.node_view import NodeView
from nhc.core.model import Verdict
from nhc.core.plan import BUILT_IN, DEEP
from nhc.core.prometheus_family import Family, counter, gauge
from nhc.core.render import prometheus


def render(node: NodeView) -> str:
    """The whole page."""
    checks = [item.name for item in node.items.values() if item.kind in (BUILT_IN, DEEP)]
    return prometheus.render(latest_report.report(node), checks) + "".join(family.render() for family in families(node))


def families(node: NodeView) -> List[Family]:
    now = node.host.monotonic()
    made = [
        gauge("nhc_agent_healthy", "1 while every check runs as often as it should.",
              float(not latest_report.health(node))),
        gauge("nhc_agent_paused", "1 while checks are paused.", float(node.paused is not None)),
        gauge("nhc_agent_checks", "Checks configured for this node.", len(node.items)),
        gauge("nhc_agent_overdue", "Checks that have not run for too long.", len(node.schedule.overdue(now))),
        gauge("nhc_agent_oldest_result_seconds", "Age of the oldest word of a check that is to be fresh.",
              max(0.0, node.host.time() - latest_report.report(node).started)),
        gauge("nhc_agent_uptime_seconds", "Since when the agent runs.", now - node.began),
        gauge("nhc_agent_round_seconds", "How long the last round of checks took.", node.round_seconds),
        gauge("nhc_agent_config_refused", "1 while changed files are refused.", float(bool(node.refused))),
    ]  # fmt: skip
    rounds = Family("nhc_agent_rounds_total", "counter", "Rounds of checks, by how they came out.")
    rounds.add(node.publisher.counts.get("rounds", 0) - node.publisher.counts.get("rounds_failed", 0), outcome="done")
    rounds.add(node.publisher.counts.get("rounds_failed", 0), outcome="failed")
    events = Family("nhc_agent_events_total", "counter", "Events, by kind.")
    told = {what[6:]: number for what, number in node.publisher.counts.items() if what.startswith("event ")}
    for kind in sorted({*EVENTS, *told}):
        events.add(told.get(kind, 0), event=kind)
    sinks = Family("nhc_agent_sink_up", "gauge", "1 while a sink delivers.")
    waiting = Family("nhc_agent_sink_waiting", "gauge", "Events that wait for a sink.")
    lost = Family("nhc_agent_sink_lost_total", "counter", "Events that a sink did not take in time.")
    for name, handle in node.publisher.sinks.items():
        sinks.add(float(not handle.problem), sink=name)
        waiting.add(handle.waiting, sink=name)
        lost.add(handle.lost, sink=name)
    made += [rounds, events, sinks, waiting, lost]
    follower = node.sources.follower
    if follower:
        made += [
            gauge("nhc_agent_kernel_log_live", "1 while the kernel log is followed live.", float(follower.live)),
            counter("nhc_agent_kernel_log_records_total", "Records read.", follower.records),
            counter("nhc_agent_kernel_log_lost_total", "Records overwritten before they were read.",
                    follower.lost),
        ]  # fmt: skip
    return [*made, *problems(node), *(node.monitors.families() if node.monitors else ())]


def problems(node: NodeView) -> List[Family]:
    """problem_counter and problem_gauge, as node-problem-detector's dashboards and alarms know them.

    Beside the conditions and events of its configuration files, each of nhc's own faults is a problem: its type is
    the check, its reason the finding's.
    """
    counters = Family("problem_counter", "counter", "Number of times a specific type of problem have occurred.")
    gauges = Family("problem_gauge", "gauge", "Whether a specific type of problem is affecting the node or not.")
    for reason, number in sorted(node.publisher.problem_counts.items()):
        counters.add(number, reason=reason)
    values: Dict[Tuple[str, str], float] = dict.fromkeys(node.publisher.problem_seen, 0.0)
    for key, problem in node.board.problems():
        if node.monitors and node.monitors.owns(key):
            continue
        if problem.result.verdict is Verdict.CRIT:
            values[problem.result.check, problem.result.outcome.reason] = 1.0
    if node.monitors:
        values.update(node.monitors.gauges())
    for (kind, reason), value in sorted(values.items()):
        gauges.add(value, type=kind, reason=reason)
    return [counters, gauges]
