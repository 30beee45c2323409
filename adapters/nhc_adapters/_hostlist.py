"""Node lists as schedulers write them: `n[001-003,7],login`. Standard library only.

Folding keeps one controller call for thousands of nodes short enough for one argument of exec.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Dict, Iterable, List, Tuple

ARGUMENT_LIMIT = 100_000
"""Characters of one folded list: Linux takes 131072 in a single argument (MAX_ARG_STRLEN)."""

EXPAND_LIMIT = 1_000_000

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def fold(names: Iterable[str]) -> str:
    """Names as one list, ranges folded on their last number. Slurm reads the result back as the same names."""
    groups: Dict[Tuple[str, str, int], List[int]] = {}
    plain: List[str] = []
    for name in sorted(set(names)):
        # \d also matches digits that int() reads and Slurm does not.
        match = _NUMBERED.fullmatch(name) if name.isascii() else None
        if match is None:
            plain.append(name)
            continue
        prefix, digits, suffix = match.groups()
        # 9 and 10 belong together, 09 and 10 too, 9 and 010 do not: width counts where zeros lead.
        width = len(digits) if digits[0] == "0" and len(digits) > 1 else 0
        groups.setdefault((prefix, suffix, width), []).append(int(digits))
    _join_widths(groups)
    parts = [_fold_group(prefix, suffix, width, sorted(numbers)) for (prefix, suffix, width), numbers in groups.items()]
    return ",".join(plain + parts)


def _join_widths(groups: Dict[Tuple[str, str, int], List[int]]) -> None:
    """Put 100..999 to 001..099: unpadded numbers as wide as a padded group belong to it."""
    for prefix, suffix, width in [key for key in groups if key[2]]:
        unpadded = groups.get((prefix, suffix, 0), [])
        same = [number for number in unpadded if len(str(number)) == width]
        if same:
            groups[prefix, suffix, width] += same
            rest = [number for number in unpadded if len(str(number)) != width]
            if rest:
                groups[prefix, suffix, 0] = rest
            else:
                del groups[prefix, suffix, 0]


def _fold_group(prefix: str, suffix: str, width: int, numbers: List[int]) -> str:
    ranges: List[List[int]] = []
    for number in numbers:
        # A range of unpadded numbers must not grow a digit: in n[9-10] the 9 could be taken for a width.
        follows = bool(ranges) and number == ranges[-1][1] + 1
        if follows and (width or len(str(number)) == len(str(ranges[-1][0]))):
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}" for first, last in ranges]
    if len(shown) == 1 and ranges[0][0] == ranges[0][1]:
        return f"{prefix}{shown[0]}{suffix}"
    return f"{prefix}[{','.join(shown)}]{suffix}"


def chunks(names: Iterable[str], limit: int = ARGUMENT_LIMIT) -> List[Tuple[List[str], str]]:
    """The names in as few lists as fit an argument each, with their folded form."""
    todo = [sorted(set(names))]
    done: List[Tuple[List[str], str]] = []
    while todo:
        some = todo.pop(0)
        folded = fold(some)
        if len(folded) > limit and len(some) > 1:
            half = len(some) // 2
            todo[:0] = [some[:half], some[half:]]
        elif some:
            done.append((some, folded))
    return done


def expand(text: str) -> List[str]:
    """The names in a list, several brackets included (`r[1-2]n[01-16]`). Raises ValueError."""
    names: List[str] = []
    for part in _split(text):
        pieces = re.split(r"\[([^\[\]]*)\]", part)
        if any("[" in piece or "]" in piece for piece in pieces):
            raise ValueError(f"{part!r}: brackets do not match")
        choices = [_numbers(piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
        size = 1
        for choice in choices:
            size *= len(choice)
        if len(names) + size > EXPAND_LIMIT:
            raise ValueError(f"more than {EXPAND_LIMIT} names in {part!r}")
        names.extend("".join(choice) for choice in product(*choices))
    return names


def _split(text: str) -> List[str]:
    """Split at commas outside of brackets."""
    return [part.strip() for part in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", text) if part.strip()]


def _numbers(text: str) -> List[str]:
    found: List[str] = []
    for piece in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", piece)
        if match is None:
            raise ValueError(f"{piece!r} is not a number or a range")
        first, last = match[1], match[2] or match[1]
        if int(last) - int(first) >= EXPAND_LIMIT:
            raise ValueError(f"more than {EXPAND_LIMIT} names in {piece!r}")
        found.extend(f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return found
