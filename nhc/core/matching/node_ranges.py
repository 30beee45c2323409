"""Lists of nodes as ranges: `gpu[001-127],login` expanded to names, and names folded to such a list."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, regex
from nhc.core.matching.nodeset import BadRange, Span, parse_names, split_groups

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

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
    """Names as a list of ranges: `gpu[001-003],login`. `expand` gives the same names again.

    Names that differ in one of their numbers share a bracket: the last that varies among them.
    """
    by_shape: Dict[Tuple[str, ...], List[List[str]]] = {}
    for name in dict.fromkeys(names):
        pieces = _DIGITS.split(name)
        by_shape.setdefault(tuple(pieces[::2]), []).append(pieces)
    return ",".join(folded for alike in by_shape.values() for folded in _fold_alike(alike))


def _fold_alike(alike: List[List[str]]) -> List[str]:
    """Names of one shape, as `_DIGITS.split` takes them apart: texts at even places, numbers at odd ones."""
    varying = [place for place in range(1, len(alike[0]), 2) if len({pieces[place] for pieces in alike}) > 1]
    if not varying:
        return ["".join(alike[0])]
    at = varying[-1]
    numbers: Dict[Tuple[str, str], List[str]] = {}
    for pieces in alike:
        numbers.setdefault(("".join(pieces[:at]), "".join(pieces[at + 1 :])), []).append(pieces[at])
    return [f"{head}{_ranges(digits)}{tail}" for (head, tail), digits in numbers.items()]


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
