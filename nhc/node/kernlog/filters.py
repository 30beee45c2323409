"""The catalogue's fast filter, derived from its patterns, so that it cannot be narrower than they are.

`derive` reads a regular expression and gives strings of which every text that it matches contains one. The column
`text` of nhc/core/data/kernel.tsv is what it gives (`python -m nhc.node.kernlog.filters --write` fills it in). `gate`
has what a
log is searched for first: a string that many rows share, chosen by hand, or the stems of the texts; `implies`
says whether the pattern allows it. A test holds both. No part of this runs on a node: reading 300 patterns this way
costs more than judging a quiet log.
"""

from __future__ import annotations

import sys
from importlib import import_module
from itertools import chain, product
from typing import Any, Callable, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence

from nhc.node.kernlog.catalogue import spelled_out

Strings = FrozenSet[str]

_LIMIT = 64
"""Strings that one part of a pattern may stand for before it counts as one that stands for any."""
_CLASS = 4
"""The most characters of a class that are tried one by one ([Cc]); a longer class stands for any character."""


_TELLING = 3
"""Characters below which a string stands in nearly every line, as a colon does."""
_EVERYWHERE = 1000
_COMMON = 14
"""Characters that all of several strings must share for these to stand for them."""


STEMS = (
    "ailed", "ailure", "rror", "recover", "eboot", "eload", "eat stop", "eat fail", "urprise ", "offline", "respon",
    ": probe o", " Link ", "FAILED", "lockup", "PANIC", "hut down", "hutdown", "imed out", "imeout", "ermanent",
    "perational", "eplace the ", "ower cycle", "ower-cycle", "o longer ", " off the ", "orrected", "orrectable", "rupt",
    "ble ", "not ", "n't ", "achine ", "itical ", "eset", "bort", "topped", "alted", "witch", "lost", "kill", "atal ",
    "mergenc", "ithdraw", "stack", "endor", "egisters", "ault", "ALTED", "eartbeat", "isabl",
)  # fmt: skip
"""Parts that many texts share and few lines of a quiet log have: a log is searched for each once."""


class _Part(NamedTuple):
    """What a part of a pattern says: all texts it matches where these are few, and sets of which each text has one."""

    exact: Optional[Strings]
    needs: List[Strings]


_NOTHING: Strings = frozenset(("",))
_ZERO = _Part(_NOTHING, [])
_ANY = _Part(None, [])


def derive(pattern: str) -> List[str]:
    """Strings of which every text that the pattern matches contains one, the most telling; [] if none follow."""
    need = _PatternReader(_worth).best(pattern)
    return sorted(_shortened(need)) if need else []


def implies(pattern: str, texts: Sequence[str]) -> bool:
    """Whether every text that the pattern matches contains one of these strings."""

    def worth(need: Strings) -> float:
        return float(all(any(text in string for text in texts) for string in need))

    best = _PatternReader(worth).best(pattern)
    return best is not None and worth(best) == 1.0


def _worth(need: Strings) -> float:
    short = _shortened(need)
    least = min(map(len, short))
    return min(least, 24) - 1.5 * (len(short) - 1) - (_EVERYWHERE if least < _TELLING else 0)


def _shortened(need: Strings) -> Strings:
    """The same said in fewer strings: none that contains another, one alone where all have a long part in common."""
    kept = frozenset(text for text in need if not any(other != text and other in text for other in need))
    shortest = min(kept, key=len)
    for size in range(len(shortest), _COMMON - 1, -1):
        for start in range(len(shortest) - size + 1):
            part = shortest[start : start + size]
            if all(part in text for text in kept):
                return frozenset((part,))
    return kept


class _PatternReader:
    """Reads a pattern; of the sets that a branch of it needs, the one of the highest worth stands for the branch."""

    def __init__(self, worth: Callable[[Strings], float]) -> None:
        self.worth = worth

    def best(self, pattern: str) -> Optional[Strings]:
        parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
        return self._best(self._sequence(parser.parse(pattern), _NOTHING))

    def _best(self, part: _Part) -> Optional[Strings]:
        needs = [need for need in (*part.needs, part.exact or _NOTHING) if "" not in need]
        return max(needs, key=self.worth) if needs else None

    def _sequence(self, items: Iterable[Any], run: Strings) -> _Part:
        """What parts after one another say; `run` is what stands right before the first."""
        whole, needs = True, []
        for operation, value in items:
            part = self._item(str(operation), value, _NOTHING)
            joined = None if part.exact is None else _joined(run, part.exact)
            if joined is not None:
                run = joined
                continue
            needs.append(run)
            needs += self._item(str(operation), value, run).needs
            run, whole = part.exact or _NOTHING, False
        needs.append(run)
        return _Part(run if whole else None, [need for need in needs if "" not in need])

    def _item(self, operation: str, value: Any, run: Strings) -> _Part:
        if operation == "LITERAL":
            return _Part(frozenset((chr(value),)), [])
        if operation in ("AT", "ASSERT", "ASSERT_NOT"):
            return _ZERO
        if operation == "IN":
            return _class(value)
        if operation == "BRANCH":
            return self._branch([self._sequence(items, run) for items in value[1]])
        if operation in ("SUBPATTERN", "ATOMIC_GROUP"):
            return self._sequence(value[-1] if operation == "SUBPATTERN" else value, run)
        if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repeat(*value)
        return _ANY

    def _branch(self, parts: List[_Part]) -> _Part:
        if all(part.exact is not None for part in parts):
            exact = _union(part.exact or _NOTHING for part in parts)
            if len(exact) <= _LIMIT:
                return _Part(exact, [])
        best = [self._best(part) for part in parts]
        return _ANY if None in best else _Part(None, [_union(need or _NOTHING for need in best)])

    def _repeat(self, least: int, most: Any, items: Iterable[Any]) -> _Part:
        part = self._sequence(items, _NOTHING)
        if least:
            return _Part(None, [*part.needs, *([part.exact] if part.exact and "" not in part.exact else [])])
        return _Part(part.exact | _NOTHING, []) if part.exact is not None and str(most) == "1" else _ANY


def _joined(left: Strings, right: Strings) -> Optional[Strings]:
    if len(left) * len(right) > _LIMIT:
        return None
    return frozenset(a + b for a, b in product(left, right))


def _union(sets: Iterable[Strings]) -> Strings:
    return frozenset(chain.from_iterable(sets))


def _class(items: List[Any]) -> _Part:
    if len(items) > _CLASS or any(str(operation) != "LITERAL" for operation, _value in items):
        return _ANY
    return _Part(frozenset(chr(value) for _operation, value in items), [])


def written(table: str) -> str:
    """The catalogue's table with the column `text` as its patterns give it. Raises ValueError if they give none."""
    lines = table.split("\n")
    head = next(number for number, line in enumerate(lines) if line.startswith("kind\t"))
    columns = lines[head].split("\t")
    gate, text, pattern = (columns.index(name) for name in ("gate", "text", "pattern"))
    for number in range(head + 1, len(lines)):
        if not lines[number] or lines[number].startswith("#"):
            continue
        cells = lines[number].split("\t")
        needed = derive(spelled_out(cells[pattern]))
        if not needed or any("||" in string or "\t" in string for string in needed):
            raise ValueError(f"nothing that every line must contain follows from {cells[pattern]}")
        cells[text] = "||".join(needed)
        if cells[gate] == "-" or "||" in cells[gate] or cells[gate] in STEMS or cells[gate] in needed:
            stems = list(dict.fromkeys(next((stem for stem in STEMS if stem in string), string) for string in needed))
            cells[gate] = "-" if stems == needed else "||".join(stems)
        lines[number] = "\t".join(cells)
    return "\n".join(lines)


if __name__ == "__main__":
    from pathlib import Path

    import nhc.core.data

    path = Path(nhc.core.data.__path__[0]) / "kernel.tsv"
    fresh = written(path.read_text())
    if "--write" in sys.argv:
        path.write_text(fresh)
    sys.exit(fresh != path.read_text())
