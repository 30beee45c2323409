"""An adapter for a scheduler that reads a directory: NODE.out, there while the node is out, holds the reason.

NHC_OUTFILES names the directory; the file `nodes` in it names all nodes, one a line.
"""

from __future__ import annotations

import os
from typing import Iterable, List, Mapping, Optional, Sequence

from nhc.api import (
    OWNER,
    OWNER_SETTING,
    AdapterError,
    Applied,
    Effect,
    Mark,
    NodeState,
    in_place_of,
    mark_text,
    may_clear,
    may_mark,
    read_mark_text,
)


class OutFiles:
    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> None:
        self.directory = (settings or {}).get("NHC_OUTFILES", "/var/spool/outfiles")
        self.owner = (settings or {}).get(OWNER_SETTING, OWNER)

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        try:
            with open(f"{self.directory}/nodes", encoding="utf-8") as file:
                known = sorted(set(file.read().split()))
            return [self._state(name) for name in known if names is None or name in names]
        except OSError as error:
            raise AdapterError(f"{error.filename}: {error.strerror}") from None

    def _state(self, name: str) -> NodeState:
        try:
            with open(f"{self.directory}/{name}.out", encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return NodeState(name, "in", available=True)
        return NodeState(name, "out", available=False, mark=read_mark_text(text))

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        states = self._seen(list(marks), seen)
        applied = []
        for name in marks:
            mark = marks[name]._replace(owner=self.owner)
            state = states.get(name)
            effect, why = may_mark(state, mark)
            if effect is Effect.CHANGED and state is not None:
                mark = in_place_of(state, mark)
                effect, why = self._write(name, mark_text(mark, with_since=True), why)
            applied.append(Applied(name, effect, why))
        return applied

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        states = self._seen(names, seen)
        applied = []
        for name in names:
            effect, why = may_clear(states.get(name), self.owner)
            if effect is Effect.CHANGED:
                effect, why = self._write(name, None, why)
            applied.append(Applied(name, effect, why))
        return applied

    def _seen(self, names: Sequence[str], seen: Optional[Iterable[NodeState]]) -> dict[str, NodeState]:
        return {state.name: state for state in (self.nodes(names) if seen is None else seen)}

    def _write(self, name: str, text: Optional[str], why: str) -> tuple[Effect, str]:
        """Write or remove a node's file, whole: the scheduler reads it at any time."""
        path = f"{self.directory}/{name}.out"
        try:
            if text is None:
                os.unlink(path)
            else:
                with open(f"{path}.new", "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(f"{path}.new", path)
        except OSError as error:
            return Effect.FAILED, f"{path}: {error.strerror}"
        return Effect.CHANGED, why
