"""`nhc status kubernetes`: each node's verdict and why, since when, who marked it, and what keeps nhc from acting."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import CheckResult, Verdict
from nhc.core.timestamps import from_utc, utc
from nhc.core.units import show_seconds
from nhc.marks.policy.mark_decision import Decision
from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc_adapters.kubernetes.controller.controller_rounds import ControllerRounds
from nhc_adapters.kubernetes.controller.device_rounds import DeviceRounds, Unit
from nhc_adapters.kubernetes.controller.device_view import NodeDevices
from nhc_adapters.kubernetes.controller.fleet import JudgedNode
from nhc_adapters.kubernetes.controller.node_report import Judgement
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.nodes.condition_times import HeardNode
from nhc_adapters.kubernetes.nodes.conditions import UNKNOWN
from nhc_adapters.kubernetes.nodes.drains import read_drain
from nhc_adapters.kubernetes.nodes.maintenance import planned
from nhc_adapters.kubernetes.nodes.manual import read_manual
from nhc_adapters.kubernetes.nodes.overruled import read_overruled
from nhc_adapters.kubernetes.nodes.own_marks import read_own_mark

# A node's devices in `nhc status kubernetes`: what is out and why, what keeps nhc from acting, what a driver says.


Row = Dict[str, Any]


def withheld_devices(rounds: DeviceRounds, states: Mapping[str, NodeState], now: float) -> Dict[str, str]:
    """What keeps nhc from acting on devices of all nodes, by `NODE/PCI`."""
    units = {unit.name: unit for node in rounds.view.nodes if node in states for unit in rounds.units(node)}
    if not units:
        return {}
    try:
        decision = rounds.decide(units, states, now)
    except AdapterError as error:
        return dict.fromkeys(units, f"not known: {error}")
    return {unit: f"{operation.value}: {why}" for unit, operation, why in decision.withheld}


def device_rows(rounds: DeviceRounds, node: str, withheld: Mapping[str, str]) -> List[Row]:
    """A row for each device of a node that is out or at fault, or of which its driver says something."""
    known = rounds.view.nodes.get(node, NodeDevices())
    units = {unit.name: unit for unit in rounds.units(node)}
    rows = [_device_row(unit, withheld.get(unit.name, "")) for unit in units.values()]
    for physical, fault, against in known.contradicted:
        unit = units.get(f"{node}/{physical.device}") or Unit(node, physical.device, (), fault, physical)
        rows = [row for row in rows if row["device"] != str(physical.device)]
        rows.append(_device_row(unit._replace(fault=fault), f"mark: {against}"))
    for testimony in known.testimonies:
        row = next((row for row in rows if row["device"] == str(testimony.device)), None)
        if row is None:
            row = _device_row(Unit(node, testimony.device, ()), "")
            rows.append(row)
        row["driver"] = testimony.text
    for row in rows:
        row["whole_node"] = known.why_node
    return rows


def _device_row(unit: Unit, withheld: str) -> Row:
    rule = next((entry for entry in unit.rules if not entry.dry), None)
    fault = unit.fault.results[0].outcome if unit.fault is not None else None
    return {
        "device": str(unit.device),
        "uuid": unit.device.uuid,
        "names": [entry.name for entry in unit.physical.names] if unit.physical is not None else [],
        "reason": fault.reason if fault is not None else rule.reason if rule is not None else "",
        "fault": fault.message if fault is not None else "",
        "effect": rule.effect if rule is not None else "",
        "mark": rule.mark.why if rule is not None else "",
        "marked_by": rule.mark.owner if rule is not None else "",
        "marked_since": utc(rule.mark.since) if rule is not None and rule.mark.since else "",
        "released": rule.released if rule is not None else "",
        "hold": rule.hold if rule is not None else "",
        "would_evict": rule.would_evict if rule is not None else "",
        "withheld": withheld,
        "driver": "",
    }


def device_cells(row: Row, now: float) -> List[str]:
    """The row below its node's, in the columns of the text."""
    since = from_utc(row["marked_since"]) if row["marked_since"] else 0.0
    keys = ("released", "would_evict", "withheld", "hold", "driver", "whole_node")
    details = [row["mark"] or row["fault"], *(f"{key.replace('_', ' ')}: {row[key]}" for key in keys if row[key])]
    return [
        f"  {row['device']}",
        "CRIT" if row["fault"] else "-",
        ",".join(row["names"]) or "-",
        f"{show_seconds(max(now - since, 0.0))} ago" if since else "-",
        row["marked_by"] or "-",
        row["reason"] or "-",
        "; ".join(detail for detail in details if detail) or "-",
    ]


HEADER = ("NODE", "VERDICT", "STATE", "SINCE", "MARKED BY", "REASONS", "DETAILS")


def look(rounds: ControllerRounds, now: float) -> Tuple[List[Row], str]:
    """A row a node, and what could not be considered. Raises AdapterError where the nodes cannot be read."""
    fleet = rounds.fleet
    names = fleet.look(now)
    decision, unknown = _decision(rounds, now, names)
    withheld = {node: f"{operation.value}: {why}" for node, operation, why in decision.withheld}
    due = {planned.node: planned.operation.value for planned in decision.operations}
    rows = [
        _row(rounds.context.settings, known, known.judgement, withheld.get(name, ""), due.get(name, ""))
        for name, known in sorted(fleet.nodes.items())
        if known.judgement is not None
    ]
    if rounds.devices is not None:
        devices = withheld_devices(rounds.devices, {state.name: state for state in fleet.states()}, now)
        for row in rows:
            row["devices"] = device_rows(rounds.devices, row["node"], devices)
    return rows, unknown


def _decision(rounds: ControllerRounds, now: float, names: Sequence[str]) -> Tuple[Decision, str]:
    try:
        if rounds.context.settings.policy.rates or rounds.context.settings.policy.repairs:
            rounds.context.ledger.load()
        return rounds.decide(now, names), ""
    except AdapterError as error:
        return Decision((), ()), f"what is withheld is not known: {error}"


def _row(settings: ControllerSettings, known: JudgedNode, judged: Judgement, withheld: str, due: str) -> Row:
    state, node = known.state, known.node
    mark, overruled = state.mark, read_overruled(node)
    since = _since(settings, known.heard, judged)
    if since is None and mark is not None:
        since = mark.since
    return {
        "node": state.name,
        "verdict": judged.report.verdict.name,
        "state": state.shown,
        "since": utc(since) if since else "",
        "reasons": [result.outcome.reason for result in _worst_results(judged)],
        "details": [f"{result.check}: {result.outcome.message}".rstrip(": ") for result in _worst_results(judged)],
        "marked_by": "" if mark is None else _owner(node) or mark.owner or "somebody",
        "mark": "" if mark is None else mark.why,
        "marked_since": "" if mark is None or not mark.since else utc(mark.since),
        "overruled": overruled.line() if overruled is not None else "",
        "hold": state.hold,
        "clock": known.heard.clock_text(),
        "withheld": withheld,
        "due": due,
        "drain": read_drain(node),
        "lifecycle": planned(node),
        "groups": list(state.groups),
    }


def _owner(node: Mapping[str, object]) -> str:
    """Whose drain by hand keeps a node out, "" if none does."""
    manual = read_manual(node)
    return manual.by or "an operator" if manual is not None and read_own_mark(node) is not None else ""


def _worst_results(judged: Judgement) -> List[CheckResult]:
    """The results that decide the verdict, if it is not a good one."""
    worst = judged.report.verdict
    if worst <= Verdict.OK:
        return []
    return [result for result in judged.report.results if result.verdict is worst]


def _since(settings: ControllerSettings, heard: HeardNode, judged: Judgement) -> Optional[float]:
    """Since when a condition that decides the verdict has its status; for a silent node, its last report's time."""
    conditions = heard.conditions
    if judged.silent:
        voice = conditions.get(settings.verdict)
        return voice.seen if voice is not None else None
    worst = judged.report.verdict
    if worst <= Verdict.OK:
        return None
    telling = (
        conditions[fault.type]
        for fault in settings.faults
        if fault.type in conditions and _tells(conditions[fault.type].status, fault.status, worst)
    )
    return min((condition.since for condition in telling if condition.since), default=None)


def _tells(status: str, bad: str, verdict: Verdict) -> bool:
    """Whether a condition of this status leads to this verdict."""
    return status == bad if verdict in (Verdict.CRIT, Verdict.WARN) else status == UNKNOWN


def as_json(rows: Sequence[Row]) -> str:
    return json.dumps(rows, indent=2) + "\n"


def as_text(rows: Sequence[Row], rounds: ControllerRounds, now: float, unknown: str = "") -> str:
    """The nodes with something to report, in columns, and a line of counts."""
    table = [list(HEADER)]
    for row in rows:
        if _worth_a_line(row):
            table += [_cells(row, now), *(device_cells(device, now) for device in row.get("devices", ()))]
    lines = _columns(table) if len(table) > 1 else []
    held = sum(1 for row in rows if row["withheld"])
    counts = f"{len(rows)} nodes, {len(rounds.fleet.sick())} sick, {len(rounds.fleet.marked())} marked by nhc"
    if rounds.devices is not None:
        counts += f", {rounds.devices.out()} devices out by nhc's rules"
    lines.append(f"{counts}, {held} withheld" if held else counts)
    if unknown:
        lines.append(unknown)
    return "\n".join(lines) + "\n"


def _worth_a_line(row: Row) -> bool:
    return row["verdict"] not in ("OK", "WARN") or any(
        row.get(key) for key in ("mark", "withheld", "drain", "overruled", "devices", "clock", "lifecycle")
    )


def _cells(row: Row, now: float) -> List[str]:
    since = from_utc(row["since"]) if row["since"] else 0.0
    details = list(row["details"])
    if row["mark"] and row["mark"] not in details:
        details.append(f"mark: {row['mark']}" if details else row["mark"])
    details += [row["clock"]] if row["clock"] and not any(row["clock"] in text for text in details) else []
    keys = ("overruled", "withheld", "hold", "due", "drain", "lifecycle")
    details += [f"{'faults' if key == 'overruled' else key}: {row[key]}" for key in keys if row[key]]
    return [
        row["node"],
        row["verdict"],
        row["state"],
        f"{show_seconds(max(now - since, 0.0))} ago" if since else "-",
        row["marked_by"] or "-",
        ",".join(row["reasons"]) or "-",
        "; ".join(details) or "-",
    ]


def _columns(table: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER) - 1)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip() for row in table]
