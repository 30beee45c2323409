"""The alert rules of alerts.toml, as Prometheus reads them and as the page of runbooks shows them."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Tuple

from nhc.settings import settings_file
from nhc.settings.settings_file import Table


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


RUNBOOKS = "docs/alerts.md"
"""The page with the runbooks, for the annotation `runbook`. `runbook_url` is the address of that page at a site."""


def _alert(table: Table) -> Alert:
    name, expression, lasts, severity, summary, means, keep = (
        table.text(key) for key in ("name", "expression", "lasts", "severity", "summary", "means", "keep")
    )
    return Alert(name, expression, lasts, severity, summary, means, table.texts("actions"), keep)


def _groups(path: str) -> Tuple[AlertGroup, ...]:
    file = settings_file.load(path)
    found = tuple(
        AlertGroup(group.text("name"), tuple(map(_alert, group.list_of_tables("alert"))))
        for group in file.list_of_tables("group")
    )
    file.finish()
    return found


GROUPS = _groups(os.path.join(os.path.dirname(__file__), "alerts.toml"))


def rule(one: Alert, runbooks: str = "") -> Dict[str, object]:
    """An alert as Prometheus reads it. `runbooks` is where the site has RUNBOOKS, "" where that is not known."""
    found: Dict[str, object] = {"alert": one.name, "expr": one.expression}
    if one.lasts != "0m":
        found["for"] = one.lasts
    if one.keep:
        found["keep_firing_for"] = one.keep
    found["labels"] = {"severity": one.severity}
    place = f"#{one.name.lower()}"
    notes = {"summary": one.summary, "description": one.means, "runbook": f"{RUNBOOKS}{place}"}
    found["annotations"] = {**notes, "runbook_url": f"{runbooks}{place}"} if runbooks else notes
    return found


def rules(runbooks: str = "") -> Dict[str, List[Dict[str, object]]]:
    """All rules, as the content of a file of rules."""
    groups: List[Dict[str, object]] = []
    for group in GROUPS:
        found = [rule(one, runbooks) for one in group.alerts]
        groups.append({"name": group.name, "rules": found})
    return {"groups": groups}


def document() -> str:
    """docs/alerts.md."""
    lines = [
        "# Alerts and what to do about them",
        "",
        "Made by `python -m nhc_adapters.prometheus_mixin` from `adapters/nhc_adapters/prometheus_mixin/alerts.toml`.",
        "[Monitoring](monitoring.md) says how to install the rules and which metrics they read.",
    ]  # fmt: skip
    for group in GROUPS:
        lines += ["", f"## {group.name}"]
        for one in group.alerts:
            lasts = f" for {one.lasts}" if one.lasts != "0m" else ""
            lines += ["", f"### {one.name}", "", f"{one.means} Severity: {one.severity}.", ""]
            lines += [f"It fires when this holds{lasts}: `{one.expression}`", ""]
            lines += [f"{number}. {action}" for number, action in enumerate(one.actions, 1)]
    return "\n".join(lines) + "\n"
