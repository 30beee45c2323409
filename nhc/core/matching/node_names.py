"""One name a node. A scheduler may say `n1` where the report says `n1.example.org`; the scheduler's name counts."""

from __future__ import annotations

from typing import Dict, Iterable, Set


class Names:
    """The scheduler's names, and which name the store has for each."""

    def __init__(self, scheduler: Iterable[str], store: Iterable[str]) -> None:
        self._scheduler: Set[str] = set(scheduler)
        self._stored: Dict[str, str] = {}
        for name in store:
            here = self.here(name)
            if here != name:
                self._stored[here] = name

    def here(self, name: str) -> str:
        """The scheduler's name of a node that a report names."""
        if name in self._scheduler:
            return name
        short = name.partition(".")[0]
        return short if short in self._scheduler else name

    def stored(self, name: str) -> str:
        """The store's name of a node."""
        return self._stored.get(name, name)
