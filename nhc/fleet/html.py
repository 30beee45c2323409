"""A sweep as one HTML file that needs nothing else: heat map, filters, each node's evidence.

The page is data/report.html with its style and script put in; a Content-Security-Policy names their digests, so
that nothing else in it can run, whatever a node's kernel log said. Above MANY nodes the results that are well are
counted, not listed, which keeps ten thousand nodes within a few MB.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any, Dict, List, Sequence, Tuple

from nhc.fleet.history import History
from nhc.fleet.outliers import Outlier
from nhc.fleet.output import Picture
from nhc.fleet.transport import Node
from nhc.render.json import utc

MANY = 2000
_DATA = os.path.join(os.path.dirname(__file__), "data")


def write_html(file: Any, picture: Picture, history: History, sweep: int, far: Sequence[Outlier]) -> None:
    """Write the page, node by node."""
    style, script = _read("report.css"), _read("report.js")
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


def _dump(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _write_data(file: Any, picture: Picture, history: History, sweep: int, far: Sequence[Outlier]) -> None:
    head = _dump(
        {
            "started_at": utc(picture.started),
            "elapsed": picture.ended - picture.started,
            "counts": {verdict.name: count for verdict, count in picture.folder.counts.items()},
            "outliers": [one.to_json() for one in far[:1000]],
        }
    )
    file.write(head[:-1] + ',"nodes":[')
    comma = ""
    whole = len(picture.nodes) <= MANY
    for record in history.records(sweep):
        file.write(comma + "\n" + _dump(_node(record, picture, whole)))
        comma = ","
    file.write("]}")


def _node(record: Dict[str, Any], picture: Picture, whole: bool) -> Dict[str, Any]:
    extra = record["fleet"]
    kept: Tuple[str, ...]
    results: List[Dict[str, Any]] = []
    fine = 0
    for result in record["results"]:
        if result["verdict"] in ("OK", "SKIP"):
            fine += 1
            if not whole:
                continue
            kept = ("check", "verdict", "target", "message")
        else:
            kept = ("check", "verdict", "target", "message", "reason", "action", "evidence", "source", "line")
        results.append({name: result[name] for name in kept})
    node = Node(record["host"], groups=tuple(extra["groups"]), facts=extra["facts"])
    return {
        "name": node.name, "verdict": record["verdict"], "group": picture.group(node), "results": results,
        "fine": fine, "notes": record["notes"], "version": record["version"], "hostname": extra["hostname"],
        "nhc": extra["nhc"], "seconds": extra["seconds"], "attempts": extra["attempts"], "facts": extra["facts"],
    }  # fmt: skip
