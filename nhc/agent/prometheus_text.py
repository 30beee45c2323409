"""/metrics: the report's own series (nhc.render.prometheus), the agent's, and node-problem-detector's names."""

from __future__ import annotations

from typing import Dict, List, Tuple

from nhc.agent import latest_report
from nhc.agent.service import Agent
from nhc.model import Verdict, printable
from nhc.render import prometheus

Labels = Tuple[Tuple[str, str], ...]


class Family:
    """One metric's samples in Prometheus' text format."""

    def __init__(self, name: str, kind: str, help: str) -> None:
        self.name, self.kind, self.help = name, kind, help
        self.samples: Dict[Labels, float] = {}

    def add(self, value: float, /, **labels: str) -> None:
        self.samples[tuple(labels.items())] = value

    def render(self) -> str:
        if not self.samples:
            return ""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [f"{self.name}{_labels(labels)} {prometheus.number(value)}" for labels, value in self.samples.items()]
        return "\n".join(lines) + "\n"


def render(agent: Agent) -> str:
    """The whole page."""
    return prometheus.render(latest_report.report(agent)) + "".join(family.render() for family in families(agent))


def families(agent: Agent) -> List[Family]:
    now = agent.host.monotonic()
    found = [
        _gauge("nhc_agent_healthy", "1 while every check runs as often as it should.",
               float(not latest_report.health(agent))),
        _gauge("nhc_agent_paused", "1 while checks are paused.", float(agent.paused is not None)),
        _gauge("nhc_agent_checks", "Checks configured for this node.", len(agent.items)),
        _gauge("nhc_agent_overdue", "Checks that have not run for too long.", len(agent.schedule.overdue(now))),
        _gauge("nhc_agent_oldest_result_seconds", "Age of the oldest word of a check that is to be fresh.",
               max(0.0, agent.host.time() - latest_report.report(agent).started)),
        _gauge("nhc_agent_uptime_seconds", "Since when the agent runs.", now - agent.began),
        _gauge("nhc_agent_round_seconds", "How long the last round of checks took.", agent.round_seconds),
        _gauge("nhc_agent_config_refused", "1 while changed files are refused.", float(bool(agent.refused))),
    ]  # fmt: skip
    rounds = Family("nhc_agent_rounds_total", "counter", "Rounds of checks, by how they came out.")
    rounds.add(agent.counts.get("rounds", 0) - agent.counts.get("rounds_failed", 0), outcome="done")
    rounds.add(agent.counts.get("rounds_failed", 0), outcome="failed")
    events = Family("nhc_agent_events_total", "counter", "Events, by kind.")
    for what, number in sorted(agent.counts.items()):
        if what.startswith("event "):
            events.add(number, event=what[6:])
    sinks = Family("nhc_agent_sink_up", "gauge", "1 while a sink delivers.")
    waiting = Family("nhc_agent_sink_waiting", "gauge", "Pieces of news that wait for a sink.")
    lost = Family("nhc_agent_sink_lost_total", "counter", "Pieces of news that a sink did not take in time.")
    for name, outlet in agent.outlets.items():
        sinks.add(float(not outlet.problem), sink=name)
        waiting.add(outlet.waiting, sink=name)
        lost.add(outlet.lost, sink=name)
    found += [rounds, events, sinks, waiting, lost]
    if agent.follower:
        found += [
            _gauge("nhc_agent_kernel_log_live", "1 while the kernel log is followed live.", float(agent.follower.live)),
            _counter("nhc_agent_kernel_log_records_total", "Records read.", agent.follower.records),
            _counter("nhc_agent_kernel_log_lost_total", "Records overwritten before they were read.",
                     agent.follower.lost),
        ]  # fmt: skip
    return [*found, *problems(agent), *(agent.monitors.families() if agent.monitors else ())]


def problems(agent: Agent) -> List[Family]:
    """problem_counter and problem_gauge, as node-problem-detector's dashboards and alarms know them.

    Beside the conditions and events of its configuration files, each of nhc's own faults is a problem: its type is
    the check, its reason the finding's.
    """
    counter = Family("problem_counter", "counter", "Number of times a specific type of problem have occurred.")
    gauge = Family("problem_gauge", "gauge", "Whether a specific type of problem is affecting the node or not.")
    for reason, number in sorted(agent.problem_counts.items()):
        counter.add(number, reason=reason)
    shown: Dict[Tuple[str, str], float] = dict.fromkeys(agent.problem_seen, 0.0)
    for key, problem in agent.board.problems():
        if agent.monitors and agent.monitors.owns(key):
            continue
        if problem.result.verdict is Verdict.CRIT:
            shown[problem.result.check, problem.result.outcome.reason] = 1.0
    if agent.monitors:
        shown.update(agent.monitors.gauges())
    for (kind, reason), value in sorted(shown.items()):
        gauge.add(value, type=kind, reason=reason)
    return [counter, gauge]


def _gauge(name: str, help: str, value: float) -> Family:
    family = Family(name, "gauge", help)
    family.add(value)
    return family


def _counter(name: str, help: str, value: float) -> Family:
    family = Family(name, "counter", help)
    family.add(value)
    return family


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escape(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')
