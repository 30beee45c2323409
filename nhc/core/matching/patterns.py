"""The two pattern languages of match strings, POSIX extended regular expressions and bash's globs, on Python's `re`.

A match string either is one of these or holds names; `nhc.core.matching.nodeset` tells which. Only whether a string
matches is asked, so POSIX's leftmost-longest rule, which decides what is matched, plays no part.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Set, Tuple, Union

    from typing_extensions import TypeAlias

Matcher: TypeAlias = "Callable[[str], bool]"

CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r" \t\n\r\f\v",
    "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "print": " -~", "graph": "!-~", "cntrl": r"\x00-\x1f\x7f",
    "xdigit": "0-9A-Fa-f", "word": r"\w",
}  # fmt: skip
"""POSIX' classes of ASCII characters, as they stand within a bracket of Python's `re`."""

_INTERVAL = re.compile(r"\{(\d*)(?:(,)(\d*))?\}", re.ASCII)
_DUP_MAX = 32767  # RE_DUP_MAX of the GNU C library

_GNU_ANCHORS = {"<": r"\b(?=\w)", ">": r"\b(?<=\w)", "b": r"\b", "B": r"\B", "`": r"\A", "'": r"\Z"}


class BadPattern(ValueError):
    """A regular expression that regcomp(3) would refuse."""


def regexp(pattern: str) -> Matcher:
    """Whether the extended regular expression occurs in a string. Raises BadPattern for an invalid one."""
    try:
        search = re.compile(translate_ere(pattern), re.DOTALL | re.ASCII).search
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(str(error)) from None
    return lambda string: search(string) is not None


def translate_ere(pattern: str) -> str:
    """The GNU C library's extended regular expression in Python's terms."""
    out: List[str] = []
    groups: List[int] = []
    atom: Optional[int] = None  # where in `out` the thing begins that a repetition would repeat
    at, end = 0, len(pattern)
    while at < end:
        char = pattern[at]
        if char in "*+?{":
            repeat, at = _repetition(pattern, at)
            if atom is None:
                raise BadPattern(f"nothing before {repeat!r} to repeat")
            out[atom:] = [f"(?:{''.join(out[atom:])}){repeat}"]
            continue
        begin = len(out)
        if char == "\\":
            piece, repeatable = _escape(pattern, at)
            at += 2
        elif char == "[":
            expression = bracket(pattern, at, in_glob=False)
            if expression is None:
                raise BadPattern("unmatched [")
            (piece, at), repeatable = expression, True
        elif char == "(":
            groups.append(begin)
            piece, repeatable, at = "(", False, at + 1
        elif char == ")" and groups:
            begin, piece, repeatable, at = groups.pop(), ")", True, at + 1
        elif char == "|":
            piece, repeatable, at = "|", False, at + 1
        elif char in "^$":
            piece, repeatable, at = (r"\A" if char == "^" else r"\Z"), False, at + 1
        else:
            piece, repeatable, at = ("." if char == "." else re.escape(char)), True, at + 1
        out.append(piece)
        atom = begin if repeatable else None
    if groups:
        raise BadPattern("unmatched (")
    return "".join(out)


def _repetition(pattern: str, at: int) -> Tuple[str, int]:
    if pattern[at] != "{":
        return pattern[at], at + 1
    match = _INTERVAL.match(pattern, at)
    if not match or (not match[1] and not match[2]):
        raise BadPattern("a { that begins no interval")
    low = int(match[1] or 0)
    high = int(match[3]) if match[3] else (-1 if match[2] else low)
    if max(low, high) > _DUP_MAX or -1 < high < low:
        raise BadPattern(f"bad interval {match[0]}")
    return f"{{{low},{'' if high < 0 else high}}}", match.end()


def _escape(pattern: str, at: int) -> Tuple[str, bool]:
    """What a backslash makes of the next character, and whether it can be repeated."""
    if at + 1 >= len(pattern):
        raise BadPattern("a backslash at the end")
    char = pattern[at + 1]
    if char in _GNU_ANCHORS:
        return _GNU_ANCHORS[char], False
    if char in "wWsS":
        return f"\\{char}", True
    if char in "123456789":
        return f"(?:\\{char})", True
    return re.escape(char), True


def bracket(pattern: str, at: int, in_glob: bool) -> Optional[Tuple[str, int]]:
    """The bracket expression at `at` in Python's terms and where it ends, None where it never ends.

    In a shell pattern `!` negates as `^` does and a backslash quotes; in a regular expression it stands for itself.
    """
    start = at + 1
    negated = pattern[start : start + 1] in (("!", "^") if in_glob else ("^",)) and start < len(pattern)
    place = first = start + (1 if negated else 0)
    members: List[str] = []
    while True:
        if place >= len(pattern):
            return None
        if pattern[place] == "]" and place > first:
            break
        low, place = _member(pattern, place, in_glob)
        if len(low) != 1:  # a class, ready-made
            members.append(low)
            continue
        if pattern[place : place + 1] == "-" and pattern[place + 1 : place + 2] not in ("]", ""):
            high, place = _member(pattern, place + 1, in_glob)
            if len(high) != 1 or low > high:
                if not in_glob:
                    raise BadPattern("a range that ends before it begins")
                continue
            members.append(f"{_in_class(low)}-{_in_class(high)}")
        else:
            members.append(_in_class(low))
    inside = "".join(members)
    if not inside:
        return ("(?s:.)" if negated else "(?!)"), place + 1
    return f"[{'^' if negated else ''}{inside}]", place + 1


def _member(pattern: str, at: int, in_glob: bool) -> Tuple[str, int]:
    """One member of a bracket expression: a character, or the inside of a class."""
    kind = pattern[at + 1 : at + 2]
    if pattern[at] == "[" and kind in (":", ".", "="):
        close = pattern.find(f"{kind}]", at + 2)
        if close > 0:
            name = pattern[at + 2 : close]
            if kind == ":" and name in CLASSES:
                return CLASSES[name], close + 2
            if kind != ":" and len(name) == 1:
                return name, close + 2
            if not in_glob:
                raise BadPattern(f"no such class: {pattern[at : close + 2]}")
            return "", close + 2
    if in_glob and pattern[at] == "\\" and at + 1 < len(pattern):
        return pattern[at + 1], at + 2
    return pattern[at], at + 1


def _in_class(char: str) -> str:
    return char if char.isalnum() else re.escape(char) if char.isspace() else f"\\{char}"


# Globs. An element is a piece of Python regular expression for one character, STAR, or an extended group.

STAR = "*"


class ExtendedGlob(NamedTuple):
    """`?(a|b)`, `*(a|b)`, `+(a|b)`, `@(a|b)` or `!(a|b)`."""

    kind: str
    choices: Tuple[Tuple[Element, ...], ...]


Element: TypeAlias = "Union[str, ExtendedGlob]"


def glob(pattern: str) -> Matcher:
    """Whether a whole string matches bash's pattern, extended globs included: `[[ string == pattern ]]`."""
    elements, _ = _parse(pattern, 0, "")
    source = _source(elements)
    if source is not None:
        match = re.compile(source, re.DOTALL | re.ASCII).fullmatch
        return lambda string: match(string) is not None
    return lambda string: len(string) in _ends(elements, string, {0})


def _parse(pattern: str, at: int, stops: str) -> Tuple[Tuple[Element, ...], int]:
    """Elements up to a character of `stops` or the end."""
    elements: List[Element] = []
    while at < len(pattern):
        char = pattern[at]
        if char in stops:
            break
        if char in "?*+@!" and pattern[at + 1 : at + 2] == "(":
            group = _parse_group(pattern, at)
            if group is not None:
                elements.append(group[0])
                at = group[1]
                continue
        if char == "*":
            elements.append(STAR)
        elif char == "?":
            elements.append(".")
        elif char == "\\" and at + 1 < len(pattern):
            at += 1
            elements.append(re.escape(pattern[at]))
        elif char == "[":
            expression = bracket(pattern, at, in_glob=True)
            if expression is not None:
                elements.append(expression[0])
                at = expression[1]
                continue
            elements.append(re.escape(char))
        else:
            elements.append(re.escape(char))
        at += 1
    return tuple(elements), at


def _parse_group(pattern: str, at: int) -> Optional[Tuple[ExtendedGlob, int]]:
    kind = pattern[at]
    choices: List[Tuple[Element, ...]] = []
    at += 1
    while True:
        choice, at = _parse(pattern, at + 1, "|)")
        choices.append(choice)
        if at >= len(pattern):
            return None
        if pattern[at] == ")":
            return ExtendedGlob(kind, tuple(choices)), at + 1


def _source(elements: Tuple[Element, ...]) -> Optional[str]:
    """The elements as one regular expression, None where a `!( )` is among them: that has no equivalent."""
    parts: List[str] = []
    for element in elements:
        if element == STAR:
            if not parts or parts[-1] != ".*":
                parts.append(".*")
        elif isinstance(element, str):
            parts.append(element)
        else:
            choices = [_source(choice) for choice in element.choices]
            if element.kind == "!" or None in choices:
                return None
            inside = "|".join(choice or "" for choice in choices)
            parts.append(f"(?:{inside}){element.kind if element.kind in '?*+' else ''}")
    return "".join(parts)


def _ends(elements: Tuple[Element, ...], string: str, starts: Set[int]) -> Set[int]:
    """Where a match of all the elements can end when it begins at one of `starts`."""
    for element in elements:
        reached: Set[int] = set()
        if element == STAR:
            reached.update(range(min(starts), len(string) + 1) if starts else ())
        elif isinstance(element, str):
            match = re.compile(element, re.DOTALL | re.ASCII).fullmatch
            reached.update(at + 1 for at in starts if at < len(string) and match(string[at]))
        else:
            reached = _group_ends(element, string, starts)
        starts = reached
    return starts


def _group_ends(group: ExtendedGlob, string: str, starts: Set[int]) -> Set[int]:
    if group.kind == "!":
        ends: Set[int] = set()
        for start in starts:
            taken = _any_choice(group, string, {start})
            ends.update(end for end in range(start, len(string) + 1) if end not in taken)
        return ends
    once = _any_choice(group, string, starts)
    if group.kind == "@":
        return once
    if group.kind == "?":
        return starts | once
    reached = set(once)
    while once:  # repeat until nothing new is reached
        once = _any_choice(group, string, once) - reached
        reached |= once
    return reached | starts if group.kind == "*" else reached


def _any_choice(group: ExtendedGlob, string: str, starts: Set[int]) -> Set[int]:
    reached: Set[int] = set()
    for choice in group.choices:
        reached |= _ends(choice, string, starts)
    return reached
