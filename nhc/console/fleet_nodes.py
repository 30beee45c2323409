"""The nodes of a fleet as they were last read: what did not change is reused for the next snapshot."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Collection, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple

from nhc.core.timestamps import AHEAD

LETTERS = {"OK": "o", "WARN": "w", "UNKNOWN": "u", "CRIT": "c", "SKIP": "u", "": "n"}
STALE = "s"
NEVER = "n"
"""A node that no report has come from. Neither it nor a stale one is ever shown as healthy."""
WORST = "cuwsno"
"""The letters, the worst first."""
_SUM = 1 << 64


class NodeRow(NamedTuple):
    """One node. Times are Unix seconds, None where there is none; `groups` are facts such as rack or pool."""

    node: str
    verdict: str
    reported_at: Optional[float]
    since: Optional[float]
    kind: str
    groups: Mapping[str, str]
    source: str


class FleetNodes:
    """Rows by name, in the order of their names. `layout` changes when names or groups change.

    The layout is made of a sum of digests, one a node: what one node adds is known without the others.
    """

    def __init__(self, rows: Iterable[NodeRow] = ()) -> None:
        self.rows: Dict[str, NodeRow] = {}
        self.names: Tuple[str, ...] = ()
        self.sizes: Counter[Tuple[str, str]] = Counter()
        self._sum = 0
        self.put(rows)

    @property
    def layout(self) -> str:
        """A text that identifies the names and their groups."""
        return f"{self._sum:016x}"

    def put(self, rows: Iterable[NodeRow]) -> None:
        """Take over rows that are new or as they are now."""
        before, count = self.rows, len(self.rows)
        for row in rows:
            old = before.get(row.node)
            if old is None or (old.groups is not row.groups and old.groups != row.groups):
                self._count(old, -1)
                self._count(row, 1)
            before[row.node] = row
        if len(before) != count:
            self._in_order()

    def replace(self, rows: Iterable[NodeRow]) -> None:
        """Take over these rows, and leave all others out."""
        new = list(rows)
        self.forget(self.rows.keys() - {row.node for row in new})
        self.put(new)

    def forget(self, names: Collection[str]) -> None:
        """Leave nodes out that are not there any more."""
        for name in names:
            self._count(self.rows.pop(name), -1)
        if names:
            self._in_order()

    def letters(self, now: float, stale: float) -> str:
        """A letter for each node, in the order of the names: its verdict, unless that is too old to count, or dated
        ahead of our clock.
        """
        oldest, newest = now - stale, now + AHEAD
        return "".join([
            NEVER if at is None else LETTERS.get(verdict, "u") if oldest <= at <= newest else STALE
            for _node, verdict, at, *_rest in self.rows.values()
        ])  # fmt: skip

    def _in_order(self) -> None:
        self.names = tuple(sorted(self.rows))
        self.rows = {name: self.rows[name] for name in self.names}

    def _count(self, row: Optional[NodeRow], by: int) -> None:
        if row is None:
            return
        text = f"{row.node}\0{sorted(row.groups.items())}".encode()
        self._sum = (self._sum + by * int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")) % _SUM
        for pair in row.groups.items():
            self.sizes[pair] += by
            if not self.sizes[pair]:
                del self.sizes[pair]


def letter_of(row: NodeRow, now: float, stale: float) -> str:
    """The letter of a node: its verdict, unless that is too old to count."""
    return FleetNodes([row]).letters(now, stale)
