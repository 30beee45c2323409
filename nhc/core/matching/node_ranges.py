"""Lists of nodes as ranges: `gpu[001-127],login` expanded to names, and names folded to such a list."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, regex
from nhc.core.matching.nodeset import BadRange, Span, parse_names, split_groups

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Sequence, Set, Tuple

EXPAND_LIMIT = 1_000_000
"""Names that `expand` makes at most: a typing error must not take the node's memory."""

_DIGITS = regex(r"(?a)(\d{1,18})")


def expand(text: str) -> List[str]:
    """The names of a list such as `gpu[001-127],login`, in its order, each once. Raises BadRange."""
    names: Dict[str, None] = {}
    for group, offset in split_groups(text) if text.strip() else []:
        made = [""]
        for part in parse_names(group, offset):
            tails = [part] if isinstance(part, str) else [tail for span in part for tail in _numbers(span, offset)]
            if len(made) * len(tails) > EXPAND_LIMIT:
                raise BadRange(f"{group!r} stands for more than {EXPAND_LIMIT} names", offset)
            made = [head + tail for head in made for tail in tails]
        names.update(dict.fromkeys(made))
    return list(names)


def _numbers(span: Span, offset: int) -> List[str]:
    if span.high - span.low >= EXPAND_LIMIT:
        raise BadRange(f"more than {EXPAND_LIMIT} names", offset)
    return [f"{number:0{span.width}d}" for number in range(span.low, span.high + 1)]


def fold(names: Sequence[str]) -> str:
    """Names as a list of ranges, in as few groups as they make: `r[1-40]n[01-32],login`. `expand` gives them again."""
    return _join(names, at_end=False)


def fold_for_scheduler(names: Sequence[str]) -> str:
    """The same for a scheduler: one bracket a name, at its end, which is all that every hostlist of theirs reads.

    slurm.conf(5), NodeName: "one of them must be at the end of the name (e.g. unit[0-31]rack is invalid)".
    """
    return _join(names, at_end=True)


def _join(names: Sequence[str], at_end: bool) -> str:
    by_shape: Dict[Tuple[str, ...], List[List[str]]] = {}
    for name in dict.fromkeys(names):
        pieces = _DIGITS.split(name)
        by_shape.setdefault(tuple(pieces[::2]), []).append(pieces)
    return ",".join(folded for alike in by_shape.values() for folded in _fold_alike(alike, at_end))


def _fold_alike(alike: List[List[str]], at_end: bool) -> List[str]:
    """Names of one shape, as `_DIGITS.split` takes them apart: texts at even places, numbers at odd ones."""
    last = len(alike[0]) - 2
    places = range(last, 0, -2) if not at_end else [last] if last > 0 and not alike[0][-1] else []
    for place in places:  # the last number first: what is equal behind it shares a bracket before it
        numbers: Dict[Tuple[str, ...], List[str]] = {}
        for pieces in alike:
            numbers.setdefault((*pieces[:place], "", *pieces[place + 1 :]), []).append(pieces[place])
        alike = [[*rest[:place], _ranges(digits), *rest[place + 1 :]] for rest, digits in numbers.items()]
    return ["".join(pieces) for pieces in alike]


def _ranges(digits: List[str]) -> str:
    if len(digits) == 1:
        return digits[0]
    spans: List[Tuple[str, str]] = []
    for number in sorted(digits, key=lambda text: (len(text), text)):
        if spans and _follows(spans[-1], number):
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    inside = ",".join(low if low == high else f"{low}-{high}" for low, high in spans)
    return f"[{inside}]"


def _follows(span: Tuple[str, str], number: str) -> bool:
    """Whether the span can go on to `number`: the next one, and of the same width or without padding."""
    low, high = span
    if int(number) != int(high) + 1:
        return False
    return len(number) == len(high) if low[0] == "0" and len(low) > 1 else number[0] != "0"


class NodeNames:
    """One name a node: the scheduler's, which may be `n1` where a report says `n1.example.org`, and the store's."""

    def __init__(self, scheduler: Iterable[str], store: Iterable[str]) -> None:
        self._scheduler: Set[str] = set(scheduler)
        self._stored: Dict[str, str] = {}
        for name in store:
            here = self.scheduler_name(name)
            if here != name:
                self._stored[here] = name

    def scheduler_name(self, name: str) -> str:
        """The scheduler's name of a node that a report names."""
        if name in self._scheduler:
            return name
        short = name.partition(".")[0]
        return short if short in self._scheduler else name

    def stored(self, name: str) -> str:
        """The store's name of a node."""
        return self._stored.get(name, name)
