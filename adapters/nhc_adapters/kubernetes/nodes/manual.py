"""A drain by hand: a mark with an owner and an end; no condition clears it and no controller undoes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

from nhc.core.json_values import object_from, text_of
from nhc.core.model import printable
from nhc.core.timestamps import from_utc, utc
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of

MANUAL = "nhc/drained-by"
"""Annotation: who drained this node by hand, since when, and until when."""


@dataclass(frozen=True)
class Manual:
    """Who took the node out, and when that ends (Unix times); no end: when it is uncordoned."""

    by: str
    since: float
    until: Optional[float] = None
    asked: bool = False
    """Whether others asked for it (`nodes.maintenance`): then it is returned when a later report is healthy."""

    def stands(self, now: float) -> bool:
        return self.until is None or now < self.until

    def line(self) -> str:
        what = "out for maintenance, asked for" if self.asked else "drained"
        return f"{what} by {self.by or 'an operator'}" + ("" if self.until is None else f" until {utc(self.until)}")

    def text(self) -> str:
        """The annotation's text."""
        value: Dict[str, Any] = {"by": printable(self.by, 120), "since": utc(self.since)}
        if self.until is not None:
            value["until"] = utc(self.until)
        if self.asked:
            value["asked"] = True
        return json.dumps(value, separators=(",", ":"))


def read_manual(node: Mapping[str, Any]) -> Optional[Manual]:
    """Who drained this node by hand, None if no one did. An invalid annotation counts as a drain, too."""
    text = annotations_of(node).get(MANUAL)
    if text is None:
        return None
    raw = object_from(text)
    until = from_utc(raw.get("until")) or None
    return Manual(text_of(raw.get("by")), from_utc(raw.get("since")), until, raw.get("asked") is True)
