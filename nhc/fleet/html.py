"""A sweep as one HTML file that needs nothing else: heat map, filters, each node's evidence.

The page is data/report.html with its style and script put in, which begin with the console's palette, letters and map.
A Content-Security-Policy names their digests, so that nothing else in it can run, whatever a node's kernel log said.
Above MANY nodes the results that are well are counted, not listed, which keeps fifty thousand nodes within a few MB; of
a node that is well the report is then not even read: what the page shows of it stands before and behind its results.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any, Dict, List, Sequence, TextIO, Tuple

from nhc.core.matching.node_ranges import fold
from nhc.core.model import Verdict
from nhc.core.render.page_parts import one_script, part
from nhc.core.timestamps import utc_milliseconds
from nhc.fleet.fold import OTHERS, Cause, Problem, template_of
from nhc.fleet.history import SweepHistory
from nhc.fleet.summary import Outlier, Picture
from nhc.fleet.transport import Node

MANY = 2000
OUTLIERS = 200
"""Outliers on the page; how many more there are is said."""
_DATA = os.path.join(os.path.dirname(__file__), "data")
_VERDICTS = {verdict.name: int(verdict) for verdict in Verdict}
_QUIET = ("", "none", "inspect")
"""Actions that are no suggestion worth its place."""


def write_html(file: TextIO, picture: Picture, history: SweepHistory, sweep: int, far: Sequence[Outlier]) -> None:
    """Write the page, node by node."""
    style, script = part("palette.css") + _read("report.css"), one_script() + _read("report.js")
    page = _read("report.html")
    for name, text in (("STYLE_HASH", _digest(style)), ("SCRIPT_HASH", _digest(script)), ("STYLE", style)):
        page = page.replace(f"@{name}@", text)
    before, after = page.split("@DATA@")
    file.write(before)
    _write_data(file, picture, history, sweep, far)
    file.write(after.replace("@SCRIPT@", script))


def _read(name: str) -> str:
    with open(os.path.join(_DATA, name), encoding="utf-8") as file:
        return file.read()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _dump(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _write_data(file: TextIO, picture: Picture, history: SweepHistory, sweep: int, far: Sequence[Outlier]) -> None:
    table = _Table(picture)
    head = _dump(
        {
            "started_at": utc_milliseconds(picture.started),
            "elapsed": picture.ended - picture.started,
            "counts": {verdict.name: count for verdict, count in picture.folder.counts.items()},
            "missing": len(picture.not_judged) or picture.missing,
            "not_judged": fold(picture.not_judged),
            "outliers": [outlier.to_page() for outlier in far[:OUTLIERS]],
            "outliers_more": max(0, len(far) - OUTLIERS),
            "problems": table.rows,
            "common": _COMMON,
        }
    )
    file.write(head[:-1] + ',"nodes":[')
    comma = ""
    whole = len(picture.nodes) <= MANY
    for _name, line in history.lines(sweep):
        record = None if whole else _edges(line)
        if record is None:
            node = _node(json.loads(line), picture, table, whole)
        else:
            node = _page_node(record, picture) | {"fine": record["fine"]}
        file.write(comma + "\n" + _dump({key: value for key, value in node.items() if value != _COMMON.get(key)}))
        comma = ","
    file.write("]}")


_COMMON: Dict[str, Any] = {
    "verdict": "OK", "group": "", "results": [], "well": [], "fine": 0, "notes": [], "version": "", "hostname": "",
    "nhc": "", "seconds": 0.0, "attempts": 1, "facts": {},
}  # fmt: skip
"""What a node of the page has where nothing else is written."""


class _Table:
    """The problems of the sweep, one row a cause, and where each node's are in it."""

    def __init__(self, picture: Picture) -> None:
        self.rows: List[Dict[str, str]] = []
        self.places: Dict[Tuple[Problem, str], int] = {}
        for problem, causes in picture.folder.causes.items():
            for template, cause in causes.listed(picture.names).items():
                self.places[problem, template] = len(self.rows)
                self.rows.append(_row(problem, cause))

    def place(self, result: Dict[str, Any], name: str) -> int:
        """Where a node's result is in the table."""
        problem = (result["check"], result["target"], _VERDICTS[result["verdict"]], result["reason"])
        place = self.places.get((problem, template_of(result["message"], name)))
        return self.places[problem, OTHERS] if place is None else place


def _row(problem: Problem, cause: Cause) -> Dict[str, str]:
    check, target, level, reason = problem
    return {
        "verdict": Verdict(level).name, "check": check, "target": target, "reason": reason, "message": cause.message,
        "action": "" if cause.action in _QUIET else cause.action,
    }  # fmt: skip


def _edges(line: str) -> Any:
    """What stands before and behind the results of a node that is well; None where they have to be read.

    The marks cannot stand within a string, where each quotation mark has a backslash before it.
    """
    begin, end = line.find(',"results":['), line.rfind('],"fleet":{')
    if begin < 0 or end < begin:
        return None
    head = json.loads(line[:begin] + "}")
    if head.get("verdict") != "OK":
        return None
    return {**head, **json.loads("{" + line[end + 2 :]), "fine": line.count('{"check":', begin, end)}


def _node(record: Dict[str, Any], picture: Picture, table: _Table, whole: bool) -> Dict[str, Any]:
    page_node = _page_node(record, picture)
    results: List[Tuple[int, Dict[str, Any]]] = []
    fine: List[Dict[str, Any]] = []
    for result in record["results"]:
        if result["verdict"] in ("OK", "SKIP"):
            fine.append({name: result[name] for name in ("check", "verdict", "target", "message")})
            continue
        place = table.place(result, page_node["name"])
        own = {name: result[name] for name in ("message", "evidence", "source", "line")}
        action = "" if result["action"] in _QUIET else result["action"]
        row = table.rows[place]
        own = {name: value for name, value in own.items() if value != row.get(name)}
        results.append((place, own if action == row["action"] else {**own, "action": action}))
    return {**page_node, "results": results, "well": fine if whole else [], "fine": len(fine)}


def _page_node(record: Dict[str, Any], picture: Picture) -> Dict[str, Any]:
    extra = record["fleet"]
    node = Node(record["host"], groups=tuple(extra["groups"]), facts=extra["facts"])
    return {
        "name": node.name, "verdict": record["verdict"], "group": picture.group(node), "notes": record["notes"],
        "version": record["version"], "hostname": "" if extra["hostname"] == node.name else extra["hostname"],
        "nhc": extra["nhc"], "seconds": extra["seconds"], "attempts": extra["attempts"], "facts": extra["facts"],
    }  # fmt: skip
