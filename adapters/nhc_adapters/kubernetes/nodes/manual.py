"""A drain by hand: a mark with an owner and an end, which no condition takes back and no controller undoes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

from nhc.model import printable
from nhc.timestamps import from_utc, utc

MANUAL = "nhc/drained-by"
"""Annotation: who drained this node by hand, since when, and until when."""


@dataclass(frozen=True)
class Manual:
    """Who took the node out, and when that ends (Unix times); no end: when it is uncordoned."""

    by: str
    since: float
    until: Optional[float] = None

    def stands(self, now: float) -> bool:
        return self.until is None or now < self.until

    def line(self) -> str:
        return f"drained by {self.by or 'an operator'}" + ("" if self.until is None else f" until {utc(self.until)}")

    def text(self) -> str:
        """The annotation's text."""
        said: Dict[str, Any] = {"by": printable(self.by, 120), "since": utc(self.since)}
        if self.until is not None:
            said["until"] = utc(self.until)
        return json.dumps(said, separators=(",", ":"))


def read_manual(node: Mapping[str, Any]) -> Optional[Manual]:
    """Who drained this node by hand, None where nobody did. What makes no sense is somebody's all the same."""
    said = (node.get("metadata", {}).get("annotations") or {}).get(MANUAL)
    if said is None:
        return None
    try:
        raw = json.loads(said)
        until = from_utc(raw["until"], float("nan")) if "until" in raw else None
        if until != until:
            until = None
        return Manual(str(raw.get("by", "")), from_utc(raw.get("since")), until)
    except (ValueError, TypeError, AttributeError):
        return Manual("", 0.0)
