"""Grafana's dashboards: fleet, node, remedies, agent. Pure data, and the JSON that Grafana imports."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

Value = Dict[str, object]

STATES = {"ok": "green", "warn": "yellow", "unknown": "purple", "crit": "red", "stale": "gray", "never": "dark-gray"}
VERDICTS = (
    ("0", "skip", "gray"),
    ("1", "ok", "green"),
    ("2", "warn", "yellow"),
    ("3", "unknown", "purple"),
    ("4", "crit", "red"),
)
SOURCE: Value = {"type": "prometheus", "uid": "${datasource}"}
ROW_WIDTH = 24


class Query(NamedTuple):
    """What is drawn, and what its lines are called."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """One picture. `unit` is Grafana's name of it; `kind` is timeseries, stat, table or state-timeline."""

    title: str
    description: str
    unit: str
    queries: Tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 12
    verdict: bool = False


class Dashboard(NamedTuple):
    """One page. `job` is a pattern of the jobs it is about."""

    name: str
    title: str
    job: str
    probe: str
    panels: Tuple[Panel, ...]


HERE = 'job=~"$job", instance=~"$instance"'

FLEET = Dashboard("fleet", "nhc / fleet", "nhc-console.*", "nhc_fleet_source_up", (
    Panel("Nodes by state", "Nodes in each state. Stale and never have not reported: they are not healthy.",
          "short", (Query(f"sum by (state) (nhc_fleet_nodes{{{HERE}}})", "{{state}}"),), width=16),
    Panel("Nodes that can take jobs", "Share of all nodes that are ok or only have warnings.", "percentunit",
          (Query(f'sum(nhc_fleet_nodes{{{HERE}, state=~"ok|warn"}}) / sum(nhc_fleet_nodes{{{HERE}}})', "share"),),
          "stat", 8),
    Panel("Problems by check", "The twenty checks that complain most.", "short",
          (Query(f"topk(20, sum by (check, verdict) (nhc_fleet_problems{{{HERE}}}))", "{{check}} {{verdict}}"),)),
    Panel("Faults on several nodes", "One reason on at least two nodes, as agents report it.", "short",
          (Query('count by (check, reason) (nhc_problem) > 1', "{{check}} {{reason}}"),), "table"),
    Panel("Age of the picture", "Seconds since the console read the fleet.", "s",
          (Query(f"max by (instance) (nhc_fleet_age_seconds{{{HERE}}})", "{{instance}}"),)),
    Panel("Source", "1 while the console can read the fleet.", "short",
          (Query(f"min by (instance) (nhc_fleet_source_up{{{HERE}}})", "{{instance}}"),), "stat", 6),
    Panel("Viewers", "Browsers with a stream.", "short",
          (Query(f"sum by (instance) (nhc_console_viewers{{{HERE}}})", "{{instance}}"),), "stat", 6),
    Panel("Reports taken in", "Reports that servers took in, by what they came to.", "reqps",
          (Query("sum by (receipt) (rate(nhc_server_reports_total[$__rate_interval]))", "{{receipt}}"),)),
    Panel("Pushes refused", "Pushes that servers refused, by why.", "reqps",
          (Query("sum by (why) (rate(nhc_server_refused_total[$__rate_interval]))", "{{why}}"),)),
))  # fmt: skip

NODE = Dashboard("node", "nhc / node", "nhc", "nhc_node_verdict", (
    Panel("Verdict", "The node's verdict over time. A gap is time without an answer.", "short",
          (Query(f"max by (instance) (nhc_node_verdict{{{HERE}}})", "{{instance}}"),), "state-timeline", 24, True),
    Panel("Checks that complain", "Verdict of each check that was not ok.", "short",
          (Query(f"max by (check, target) (nhc_check_verdict{{{HERE}}}) > 1", "{{check}} {{target}}"),),
          "state-timeline", 24, True),
    Panel("Problems", "What stands now: check, target and reason.", "short",
          (Query(f"max by (instance, check, target, reason) (nhc_problem{{{HERE}}})", "{{reason}} {{target}}"),),
          "table"),
    Panel("Problems by check", "Every problem counted, those without a series of their own included.", "short",
          (Query(f"sum by (check) (nhc_check_problems{{{HERE}}}) > 0", "{{check}}"),)),
    Panel("Measured: times", "Times that checks measured.", "s",
          (Query(f"max by (check, target, name) (nhc_check_value_seconds{{{HERE}}})", "{{target}} {{name}}"),)),
    Panel("Measured: temperatures", "Temperatures that checks measured.", "celsius",
          (Query(f"max by (check, target, name) (nhc_check_value_celsius{{{HERE}}})", "{{target}} {{name}}"),)),
    Panel("Measured: shares", "Shares that checks measured.", "percentunit",
          (Query(f"max by (check, target, name) (nhc_check_value_ratio{{{HERE}}})", "{{check}} {{target}} {{name}}"),)),
    Panel("Measured: links", "Speeds of links.", "bps",
          (Query(f"min by (check, target, name) (nhc_check_value_bits_per_second{{{HERE}}})", "{{target}} {{name}}"),)),
    Panel("Time of checks", "The ten checks that take longest.", "s",
          (Query(f"topk(10, max by (check) (nhc_check_elapsed_seconds{{{HERE}}}))", "{{check}}"),)),
    Panel("Age of the report", "Seconds since the oldest result of the report.", "s",
          (Query(f"max by (instance) (nhc_agent_oldest_result_seconds{{{HERE}}})", "{{instance}}"),)),
))  # fmt: skip

REMEDIES = Dashboard("remedies", "nhc / remedies", "nhc-remedy.*", "nhc_remedy_leader", (
    Panel("Open episodes", "Episodes by the state they are in.", "short",
          (Query(f"max by (state) (nhc_remedy_episodes{{{HERE}}})", "{{state}}"),), width=16),
    Panel("Breaker", "1 while no mark is set and no repair begins.", "short",
          (Query(f"max(nhc_remedy_breaker_open{{{HERE}}})", "open"),), "stat", 4),
    Panel("Leader", "1 while a process leads.", "short",
          (Query(f"max(nhc_remedy_leader{{{HERE}}})", "leads"),), "stat", 4),
    Panel("Repairs within a day", "Attempts of the last day, by rung and outcome.", "short",
          (Query(f"max by (rung, outcome) (nhc_remedy_attempts_day{{{HERE}}})", "{{rung}} {{outcome}}"),)),
    Panel("Episodes that ended within a day", "By how they ended.", "short",
          (Query(f"max by (state) (nhc_remedy_episodes_ended_day{{{HERE}}})", "{{state}}"),)),
    Panel("What waits", "Episodes and faults that wait, by the bound they wait for.", "short",
          (Query(f"max by (bound) (nhc_remedy_waiting{{{HERE}}})", "{{bound}}"),)),
    Panel("Longest step", "Longest time since an episode in a state last moved.", "s",
          (Query(f"max by (state) (nhc_remedy_oldest_step_seconds{{{HERE}}})", "{{state}}"),)),
    Panel("Steps", "Steps of episodes, by the state they led to.", "cps",
          (Query(f"sum by (state) (rate(nhc_remedy_steps_total{{{HERE}}}[$__rate_interval]))", "{{state}}"),)),
    Panel("Time of a round", "How long the last round took.", "s",
          (Query(f"max by (instance) (nhc_remedy_round_seconds{{{HERE}}})", "{{instance}}"),)),
    Panel("Stalled and held", "Episodes that wait for too long, and holds in force.", "short",
          (Query(f"max(nhc_remedy_stalled{{{HERE}}})", "stalled"), Query(f"max(nhc_remedy_holds{{{HERE}}})", "holds"))),
))  # fmt: skip

AGENT = Dashboard("agent", "nhc / agent", "nhc", "nhc_agent_healthy", (
    Panel("Agents that check in time", "Share of agents whose checks all run as often as they should.", "percentunit",
          (Query(f"avg(nhc_agent_healthy{{{HERE}}})", "share"),), "stat", 8),
    Panel("Agents that answer", "Share of targets that answer a scrape.", "percentunit",
          (Query(f"avg(up{{{HERE}}})", "share"),), "stat", 8),
    Panel("Paused", "Agents whose checks are paused.", "short",
          (Query(f"sum(nhc_agent_paused{{{HERE}}})", "paused"),), "stat", 8),
    Panel("Overdue checks", "Checks that have not run for too long: the ten worst agents.", "short",
          (Query(f"topk(10, max by (instance) (nhc_agent_overdue{{{HERE}}}))", "{{instance}}"),)),
    Panel("Rounds", "Rounds of checks, by how they came out.", "cps",
          (Query(f"sum by (outcome) (rate(nhc_agent_rounds_total{{{HERE}}}[$__rate_interval]))", "{{outcome}}"),)),
    Panel("Time of a round", "The ten slowest agents.", "s",
          (Query(f"topk(10, max by (instance) (nhc_agent_round_seconds{{{HERE}}}))", "{{instance}}"),)),
    Panel("Events", "Events, by kind.", "cps",
          (Query(f"sum by (event) (rate(nhc_agent_events_total{{{HERE}}}[$__rate_interval]))", "{{event}}"),)),
    Panel("Events that wait", "Events that wait for a sink.", "short",
          (Query(f"sum by (sink) (nhc_agent_sink_waiting{{{HERE}}})", "{{sink}}"),)),
    Panel("Events lost", "Events that a sink did not take in time.", "short",
          (Query(f"sum by (sink) (increase(nhc_agent_sink_lost_total{{{HERE}}}[1h]))", "{{sink}}"),)),
    Panel("Kernel log", "Lines read from kernel logs.", "cps",
          (Query(f"sum(rate(nhc_agent_kernel_log_records_total{{{HERE}}}[$__rate_interval]))", "read"),
           Query(f"sum(rate(nhc_agent_kernel_log_lost_total{{{HERE}}}[$__rate_interval]))", "lost"))),
    Panel("Configuration refused", "Agents that go on with an older configuration.", "short",
          (Query(f"sum(nhc_agent_config_refused{{{HERE}}})", "refused"),), "stat"),
))  # fmt: skip

DASHBOARDS = (FLEET, NODE, REMEDIES, AGENT)


def value(board: Dashboard) -> Value:
    """A dashboard as Grafana imports it."""
    return {
        "uid": f"nhc-{board.name}",
        "title": board.title,
        "tags": ["nhc"],
        "editable": False,
        "graphTooltip": 1,
        "refresh": "1m",
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": _variables(board)},
        "panels": _panels(board.panels),
    }


def _variables(board: Dashboard) -> List[Value]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        _variable("job", "Job", f'label_values({board.probe}{{job=~"{board.job}"}}, job)'),
        _variable("instance", "Instance", f'label_values({board.probe}{{job=~"$job"}}, instance)'),
    ]


def _variable(name: str, label: str, query: str) -> Value:
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, "sort": 1,
        "multi": True, "includeAll": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panels(panels: Sequence[Panel]) -> List[Value]:
    found: List[Value] = []
    left = top = 0
    for number, panel in enumerate(panels, 1):
        if left + panel.width > ROW_WIDTH:
            left, top = 0, top + 8
        found.append(_panel(number, panel, {"x": left, "y": top, "w": panel.width, "h": 8}))
        left += panel.width
    return found


def _panel(number: int, panel: Panel, place: Value) -> Value:
    table = panel.kind == "table"
    targets: List[Value] = []
    for letter, query in zip("ABCDEFGH", panel.queries):
        target: Value = {"refId": letter, "datasource": SOURCE, "expr": query.expression, "legendFormat": query.legend}
        if table:
            target.update(format="table", instant=True)
        targets.append(target)
    defaults: Value = {"unit": panel.unit}
    if panel.verdict:
        options = {number: {"text": word, "color": colour} for number, word, colour in VERDICTS}
        defaults["mappings"] = [{"type": "value", "options": options}]
    fleet = panel.queries[0].expression.startswith("sum by (state) (nhc_fleet_nodes")
    overrides = [
        {"matcher": {"id": "byName", "options": state},
         "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
        for state, colour in STATES.items()
    ] if fleet else []  # fmt: skip
    return {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.description, "gridPos": place,
        "datasource": SOURCE, "targets": targets, "fieldConfig": {"defaults": defaults, "overrides": overrides},
    }  # fmt: skip
