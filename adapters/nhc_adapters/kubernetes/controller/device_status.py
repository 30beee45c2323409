"""A node's devices in `nhc status kubernetes`: what is out and why, what keeps nhc from acting, what a driver says."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from nhc.core.timestamps import from_utc, utc
from nhc.core.units import show_seconds
from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc_adapters.kubernetes.controller.device_rounds import DeviceRounds, Unit
from nhc_adapters.kubernetes.controller.device_view import NodeDevices

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
    rows = [_row(unit, withheld.get(unit.name, "")) for unit in units.values()]
    for physical, fault, against in known.contradicted:
        unit = units.get(f"{node}/{physical.device}") or Unit(node, physical.device, (), fault, physical)
        rows = [row for row in rows if row["device"] != str(physical.device)]
        rows.append(_row(unit._replace(fault=fault), f"mark: {against}"))
    for testimony in known.testimonies:
        row = next((row for row in rows if row["device"] == str(testimony.device)), None)
        if row is None:
            row = _row(Unit(node, testimony.device, ()), "")
            rows.append(row)
        row["driver"] = testimony.text
    for row in rows:
        row["whole_node"] = known.why_node
    return rows


def _row(unit: Unit, withheld: str) -> Row:
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
