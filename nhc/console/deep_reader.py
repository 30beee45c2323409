"""The last deep verdict of each node, and the views made of them, shared by all viewers and read before they ask.

Nothing about a fleet's deep checks changes within a minute, and reading all of it takes longer than a viewer waits. So
the console's background reads it whole once an hour and what is new every half minute, and makes the views anew that
somebody looks at. A viewer's request reads the store only where the background is late.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from nhc.console.deep_coverage import BACK, LastVerdicts, Value, deep_coverage, letters_of_deep
from nhc.console.snapshot import Snapshot
from nhc.store import deep
from nhc.store.database import Store

FRESH = 60.0
"""Seconds after which verdicts are read anew for who asks; the background does so after half of them."""
WHOLE = 3600.0
LOOKED = 600.0
"""Seconds for which the background keeps making a view that nobody has asked for again."""
ANSWERS = 64
"""Views that are kept for further viewers."""


class DeepView(NamedTuple):
    """What was asked for: the screen of a fact and a suite, or the letters of the map."""

    layout: str
    fact: str = ""
    suite: str = ""
    letters: bool = False


class _Verdicts(NamedTuple):
    """What one look at the store found, and the views made of it. `marks` are the newest numbers of the last two."""

    latest: LastVerdicts
    read: float
    whole: float
    marks: Tuple[int, int]
    views: Dict[DeepView, Value]


class DeepReader:
    """Threads share it: the verdicts are replaced as one, and nobody waits for another who reads newer ones."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store, self.clock = store, clock
        self._reading, self._making = threading.Lock(), threading.Lock()
        self._asked: Dict[DeepView, float] = {}
        self._verdicts = _Verdicts({}, float("-inf"), float("-inf"), (0, 0), {})

    def latest(self) -> LastVerdicts:
        """The verdicts, at most a minute old. Raises StoreError."""
        return self._current().latest

    def view(self, snapshot: Snapshot, fact: str, suite: str) -> Value:
        """The screen of a fact and a suite. Raises StoreError."""
        return self._screen(snapshot, DeepView(snapshot.layout, fact, suite))

    def letters(self, snapshot: Snapshot) -> Value:
        """The map recoloured. Raises StoreError."""
        return self._screen(snapshot, DeepView(snapshot.layout, letters=True))

    def refresh(self, snapshot: Optional[Snapshot]) -> None:
        """The background's turn: read before it is asked for, then make what somebody looks at. Raises StoreError."""
        with self._reading:
            old, now = self._verdicts, self.clock()
            new = self._read(old, now, FRESH / 2, WHOLE - FRESH)
            self._asked = {view: at for view, at in list(self._asked.items()) if 0 <= now - at < LOOKED}
            if new is old:
                return
            for view in self._asked:
                if snapshot is not None and view.layout == snapshot.layout:
                    new.views[view] = _made(snapshot, new.latest, view, now)
            self._verdicts = new

    def _screen(self, snapshot: Snapshot, view: DeepView) -> Value:
        verdicts, now = self._current(), self.clock()
        value = verdicts.views.get(view)
        if value is None:
            with self._making:
                value = verdicts.views.get(view)
                if value is None:
                    value = _made(snapshot, verdicts.latest, view, now)
                    if len(verdicts.views) >= ANSWERS:
                        verdicts.views.clear()
                        self._asked.clear()
                    verdicts.views[view] = value
        self._asked[view] = now
        return value

    def _current(self) -> _Verdicts:
        """Those of the background, unless it is late."""
        verdicts, now = self._verdicts, self.clock()
        if 0 <= now - verdicts.read < FRESH:
            return verdicts
        with self._reading:
            self._verdicts = self._read(self._verdicts, now, FRESH, WHOLE)
            return self._verdicts

    def _read(self, old: _Verdicts, now: float, fresh: float, whole: float) -> _Verdicts:
        if now - old.whole >= whole or now < old.whole:
            with self.store.read() as connection:
                newest = deep.newest_id(connection)
                latest = deep.last_conclusive(connection, since=now - BACK)
            return _Verdicts(latest, now, now, (newest, newest), {})
        if now - old.read < fresh:
            return old
        # From the mark before the last one on: PostgreSQL gives numbers before it commits, so that a row with a
        # smaller number may come into sight after one with a larger.
        with self.store.read() as connection:
            newest = deep.newest_id(connection)
            names = deep.nodes_since(connection, old.marks[0])
            new = deep.last_conclusive(connection, names, since=now - BACK) if names else {}
        latest = {**old.latest, **new} if new else old.latest
        return _Verdicts(latest, now, old.whole, (old.marks[1], newest), {})


def _made(snapshot: Snapshot, latest: LastVerdicts, view: DeepView, now: float) -> Value:
    if view.letters:
        return letters_of_deep(snapshot, latest, now)
    return deep_coverage(snapshot, latest, view.fact, view.suite, now)
