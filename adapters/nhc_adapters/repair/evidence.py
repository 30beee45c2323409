"""Evidence cut to its budget of bytes and seconds."""

from __future__ import annotations

import time
from typing import Callable, Iterable, Iterator, List, Tuple

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import EvidenceBudget, Exhibit
from nhc_adapters.repair.calls import CallFailed

Piece = Tuple[str, str, Callable[[], bytes]]
"""A piece's name, its media type, and what gets it (b"" where there is none yet)."""

_WHOLE = ("image/",)
"""Media types of which a part is worth nothing."""


class EvidenceCollector:
    """What has been taken of a budget. The end of a log is kept, where it is longer: the fault is there."""

    def __init__(self, budget: EvidenceBudget) -> None:
        self.taken = 0
        self._left = budget.size
        self._until = time.monotonic() + budget.seconds
        self._missing: List[str] = []

    def spent(self) -> bool:
        return self._left <= 0 or time.monotonic() >= self._until

    def take(self, name: str, kind: str, content: bytes) -> Iterator[Exhibit]:
        """The piece, as much of it as the budget lets; nothing where it would be worth nothing."""
        cut = len(content) > self._left
        if cut and kind.startswith(_WHOLE):
            self.missing(name, f"{len(content)} bytes are more than is left of the budget")
            return
        kept = content[-self._left :] if cut else content
        self._left -= len(kept)
        self.taken += 1
        yield Exhibit(name, kind, kept, cut)

    def gather(self, pieces: Iterable[Piece], nothing: str) -> Iterator[Exhibit]:
        """The pieces that can be had, each asked for once. Raises AdapterError, `nothing` and why, where none can."""
        for name, kind, get in pieces:
            if self.spent():
                break
            try:
                content = get()
            except CallFailed as error:
                self.missing(name, str(error))
                continue
            if content:
                yield from self.take(name, kind, content)
        if not self.taken:
            raise AdapterError(f"{nothing}: {self.complaint() or 'no output yet'}")

    def missing(self, name: str, why: str) -> None:
        self._missing.append(f"{name}: {why}")

    def complaint(self) -> str:
        return "; ".join(self._missing)
