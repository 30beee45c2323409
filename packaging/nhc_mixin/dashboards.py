"""The dashboards of dashboards.toml, as the JSON that Grafana imports."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Sequence, Tuple

from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import Table

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


def _panel_of(table: Table) -> Panel:
    queries, legends = (table.texts(key) for key in ("queries", "legends"))
    return Panel(
        table.text("title"), table.text("description"), table.text("unit"),
        tuple(Query(query.replace("{HERE", f"{{{HERE}"), legend) for query, legend in zip(queries, legends)),
        table.text("kind", "timeseries"), table.count("width", 12), table.flag("verdict"),
    )  # fmt: skip


def _dashboards(path: str) -> Tuple[Dashboard, ...]:
    file = settings_file.load(path)
    boards = []
    for board in file.list_of_tables("dashboard"):
        name, title, job, probe = (board.text(key) for key in ("name", "title", "job", "probe"))
        boards.append(Dashboard(name, title, job, probe, tuple(map(_panel_of, board.list_of_tables("panel")))))
    file.finish()
    return tuple(boards)


DASHBOARDS = _dashboards(os.path.join(os.path.dirname(__file__), "dashboards.toml"))


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
    panels_: List[Value] = []
    left = top = 0
    for number, panel in enumerate(panels, 1):
        if left + panel.width > ROW_WIDTH:
            left, top = 0, top + 8
        panels_.append(_panel(number, panel, {"x": left, "y": top, "w": panel.width, "h": 8}))
        left += panel.width
    return panels_


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
        options = {number: {"text": text, "color": colour} for number, text, colour in VERDICTS}
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
