"""The fleet's store as a source of nodes, for a fleet without a scheduler: each name that reports is a node, and its
mark is in its row.

A mark keeps work away only in the parts that read it: repairs, bounds, the console and `nhc sync`. A silent node does
not count as dead, since it may have been switched off on purpose; after a day it no longer counts as a part of the
fleet.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

from sqlalchemy.engine import Connection

from nhc.marks.ports.adapter import OWNER, OWNER_SETTING, AdapterError, Applied, Effect, Mark, NodeState
from nhc.marks.ports.marks import in_place_of, mark_text, may_clear, may_mark, read_mark_text
from nhc.store import nodes
from nhc.store.database import Store
from nhc.store.errors import StoreError
from nhc.store.nodes import StoredNode
from nhc.store.settings import load, opened

GONE = 86400.0
"""Seconds without a report after which a node is no part of the fleet."""


class StoreNodes:
    """Nodes by their reports: `nhc.marks.ports.adapter.Marker`. NHC_STORE names the store; default: store.toml's."""

    def __init__(
        self, settings: Optional[Mapping[str, str]] = None, environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> None:  # fmt: skip
        given = {**(os.environ if environ is None else environ), **(settings or {})}
        self.owner = given.get(OWNER_SETTING) or OWNER
        self._url = given.get("NHC_STORE", "")
        self._store: Optional[Store] = None

    @contextmanager
    def _connected(self, write: bool = False) -> Iterator[Connection]:
        """Raises AdapterError."""
        try:
            if self._store is None:
                self._store = opened(load(url=self._url), create=False)
            with self._store.write() if write else self._store.read() as connection:
                yield connection
        except StoreError as error:
            raise AdapterError(str(error)) from None

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        now = time.time()
        with self._connected() as connection:
            return [state_of(row, now) for row in nodes.list_nodes(connection, names and sorted(set(names)))]

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        states = self._states(list(marks), seen)
        done, texts = [], {}
        for node, mark in marks.items():
            own, state = mark._replace(owner=self.owner), states.get(node)
            effect, why = may_mark(state, own)
            done.append(Applied(node, effect, why))
            if effect is Effect.CHANGED and state is not None:
                texts[node] = mark_text(in_place_of(state, own), with_since=True)
        self._save(texts)
        return done

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        states = self._states(names, seen)
        done = [Applied(node, *may_clear(states.get(node), self.owner)) for node in dict.fromkeys(names)]
        self._save({one.node: "" for one in done if one.effect is Effect.CHANGED})
        return done

    def _states(self, names: Sequence[str], seen: Optional[Iterable[NodeState]]) -> Dict[str, NodeState]:
        return {state.name: state for state in (self.nodes(names) if seen is None else seen)}

    def _save(self, texts: Mapping[str, str]) -> None:
        if texts:
            with self._connected(write=True) as connection:
                nodes.set_marks(connection, texts)


def state_of(row: StoredNode, now: float) -> NodeState:
    """A node as the store has it. One that was only described (no report yet) is left out."""
    gone = row.received_at is None or now - row.received_at > GONE
    return NodeState(
        row.node, "out" if row.mark else "silent" if gone else "reporting", not row.mark,
        mark=read_mark_text(row.mark), boot_id=row.boot_id, absent=gone,
        placed=tuple((kind, name) for kind, name in row.groups.items() if name),
    )  # fmt: skip
