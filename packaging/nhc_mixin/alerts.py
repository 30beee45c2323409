"""The alert rules of alerts.toml, as Prometheus reads them and as the page of runbooks shows them."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Tuple

from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import Table


class Alert(NamedTuple):
    """One rule. `lasts` is how long the expression must hold, `keep` how long the alert outlasts it; durations as in
    Prometheus. `means` and `actions` are its runbook.
    """

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    means: str
    actions: Tuple[str, ...]
    keep: str = ""


class AlertGroup(NamedTuple):
    """Rules that are evaluated together."""

    name: str
    alerts: Tuple[Alert, ...]


RUNBOOKS = "adapters/prometheus/alerts.md"
"""The page with the runbooks, for the annotation `runbook`. `runbook_url` is the address of that page at a site."""


def _alert(table: Table) -> Alert:
    name, expression, lasts, severity, summary, means, keep = (
        table.text(key) for key in ("name", "expression", "lasts", "severity", "summary", "means", "keep")
    )
    return Alert(name, expression, lasts, severity, summary, means, table.texts("actions"), keep)


def _groups(path: str) -> Tuple[AlertGroup, ...]:
    file = settings_file.load(path)
    groups = tuple(
        AlertGroup(group.text("name"), tuple(map(_alert, group.list_of_tables("alert"))))
        for group in file.list_of_tables("group")
    )
    file.finish()
    return groups


GROUPS = _groups(os.path.join(os.path.dirname(__file__), "alerts.toml"))


def rule(alert: Alert, runbooks: str = "") -> Dict[str, object]:
    """An alert as Prometheus reads it. `runbooks` is where the site has RUNBOOKS, "" where that is not known."""
    value: Dict[str, object] = {"alert": alert.name, "expr": alert.expression}
    if alert.lasts != "0m":
        value["for"] = alert.lasts
    if alert.keep:
        value["keep_firing_for"] = alert.keep
    value["labels"] = {"severity": alert.severity}
    place = f"#{alert.name.lower()}"
    notes = {"summary": alert.summary, "description": alert.means, "runbook": f"{RUNBOOKS}{place}"}
    value["annotations"] = {**notes, "runbook_url": f"{runbooks}{place}"} if runbooks else notes
    return value


def rules(runbooks: str = "") -> Dict[str, List[Dict[str, object]]]:
    """All rules, as the content of a file of rules."""
    return {
        "groups": [{"name": group.name, "rules": [rule(alert, runbooks) for alert in group.alerts]} for group in GROUPS]
    }


def document() -> str:
    """RUNBOOKS: what each alert means and what to do."""
    lines = [
        "# Alerts",
        "",
        "What each alert of `alerts.json` means, and what to do. `python -m nhc_mixin` writes this page.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group.name}"]
        for alert in group.alerts:
            lines += ["", f"### {alert.name}", "", alert.means, ""]
            lines += [f"{number}. {action}" for number, action in enumerate(alert.actions, 1)]
    return "\n".join(lines) + "\n"
