"""Match strings, the language in which a configuration names nodes, users, processes and lines of output.

`/regexp/`, `{n[001-128],login}`, an external matcher of the site's own, else a bash glob; a leading `!`
negates. `nhc.core.matching.node_ranges` expands such lists of nodes and folds names to them.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import Callable, Container, Dict, List, Optional, Tuple, Union

    from typing_extensions import TypeAlias

Matcher: TypeAlias = "Callable[[str], bool]"
External: TypeAlias = "Callable[[str, str], Optional[bool]]"
"""A site's own matcher: string and match string to a verdict, None where the delimiters are not its own.

It raises Undecided.
"""

_PUNCTUATION = dict.fromkeys(map(ord, " !\"#%&',-/:;<=>@_`~"))
"""Characters that mean themselves in a regular expression, as letters and digits do."""
_NEEDS_LIBRARY = regex(r"[!&^@/]|\[[^]]*[@:]")
_SPAN = regex(r"(?a)(\d{1,18})(?:-(\d{1,18}))?")
_NAME = regex(r"(?a)[-\w.:%+]*")
_DIGITS = regex(r"(?a)(\d{1,18})")


class BadRange(ValueError):
    """A node list that cannot be read. `offset` is where in it the trouble begins."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


class Unresolved(BadRange):
    """A node list that is well written and that ClusterShell could not resolve: a group's source that fails."""


class Span(NamedTuple):
    """The numbers `low` to `high`. `width` is the number of digits, 0 for numbers that are not padded."""

    low: int
    high: int
    width: int


Part: TypeAlias = "Union[str, Tuple[Span, ...]]"
Names: TypeAlias = "Tuple[Part, ...]"
"""One comma group of a list: texts and brackets in turn."""

_matchers: Dict[str, Matcher] = {}


class Undecided(Exception):
    """No answer in time."""


def mcheck(string: str, pattern: str) -> bool:
    """Whether `string` matches the match string. What cannot be read matches nothing (or, negated, everything)."""
    negated = _negated(pattern)
    return matcher(pattern[1:] if negated else pattern)(string) != negated


def matcher(pattern: str) -> Matcher:
    """The function that tells whether a string matches `pattern`, kept for the next time it is asked for."""
    known = _matchers.get(pattern)
    if known is None:
        try:
            known = _compile(pattern)
        except ValueError:
            known = _nothing
        _matchers[pattern] = known
    return known


def problem(pattern: str) -> Optional[Tuple[str, int]]:
    """What is wrong with a match string and where in it, None where nothing is."""
    skip = 1 if _negated(pattern) else 0
    text = pattern[skip:]
    if len(text) > 1 and text[0] == "{" and text[-1] != "}":
        return f"{text!r} is not closed: expected a list in braces, as in {{node[01-99]}}", len(pattern)
    try:
        resolve(text)
        if _delimited(text, "{", "}") and not needs_library(text):
            for group, offset in split_groups(text[1:-1]):
                parse_names(group, offset)
    except BadRange as error:
        return str(error), skip + 1 + error.offset
    except ValueError as error:
        return f"not an extended regular expression: {error}", skip
    return None


def needs_library(pattern: str) -> bool:
    """Whether ClusterShell has to be asked, which may run commands of its own configuration."""
    text = pattern[1:] if _negated(pattern) else pattern
    return _delimited(text, "{", "}") and _NEEDS_LIBRARY.search(text[1:-1]) is not None


def resolve(pattern: str) -> None:
    """Read a match string and keep it for `problem` and `mcheck`. Raises Unresolved, ValueError."""
    text = pattern[1:] if _negated(pattern) else pattern
    if _matchers.get(text, _nothing) is _nothing:
        _matchers[text] = _compile(text)


def nodeset_match(name: str, listed: str) -> bool:
    """Whether a node list, without its braces, holds `name`. Raises BadRange where it cannot be read."""
    return _list_matcher(listed)(name)


def _nothing(_string: str) -> bool:
    return False


def _negated(pattern: str) -> bool:
    """Whether the match string begins with the negation; `!(a|b)` is bash's extended glob, which says the same."""
    return pattern.startswith("!") and not (pattern.startswith("!(") and ")" in pattern)


def _delimited(pattern: str, left: str, right: str) -> bool:
    return len(pattern) > 1 and pattern.startswith(left) and pattern.endswith(right)


def _compile(pattern: str) -> Matcher:
    if _delimited(pattern, "{", "}"):
        return _list_matcher(pattern[1:-1])
    if not any(char in "*?[\\(" for char in pattern) and not _delimited(pattern, "/", "/"):
        return lambda string: string == pattern
    simple = _text_matcher(pattern[1:-1]) if _delimited(pattern, "/", "/") else None
    if simple:
        return simple
    from nhc.core.matching import patterns

    if _delimited(pattern, "/", "/"):
        return patterns.regexp(pattern[1:-1])
    return patterns.glob(pattern)


def _text_matcher(pattern: str) -> Optional[Matcher]:
    """For a regular expression that is mere text, anchored or not, as most are: `re` need not be imported for it."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$")
    text = pattern[begins : len(pattern) - ends]
    if not text.isascii() or not text.translate(_PUNCTUATION).isalnum():
        return None
    if begins:
        return (lambda string: string == text) if ends else (lambda string: string.startswith(text))
    return (lambda string: string.endswith(text)) if ends else (lambda string: text in string)


def _list_matcher(listed: str) -> Matcher:
    if _NEEDS_LIBRARY.search(listed):
        nodes = _library_names(listed)
        return lambda name: name in nodes
    groups = [parse_names(text, offset, strict=False) for text, offset in split_groups(listed)]
    return lambda name: any(_matches(parts, name, 0) for parts in groups)


def _library_names(listed: str) -> Container[str]:
    """The names of a list that uses set algebra, node groups or steps, which ClusterShell knows and we do not."""
    try:
        from ClusterShell.NodeSet import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            NodeSet,
            NodeSetException,
        )
    except ImportError:
        raise BadRange(
            f"{listed!r} uses operators that need the ClusterShell library, which is not installed"
        ) from None
    try:
        return frozenset(NodeSet(listed))
    except (NodeSetException, ValueError) as error:
        # A group's source that fails is reported as a mistake in the list, with the source's own error as its cause.
        well_written = isinstance(error.__context__, Exception) and "Group" in type(error.__context__).__name__
        raise (Unresolved if well_written else BadRange)(f"{listed!r}: {error}") from None
    except MemoryError:
        raise
    except Exception as error:  # whatever else a group's source or its configuration raises
        raise Unresolved(f"{listed!r}: {type(error).__name__}: {error}") from None


def unknown_group(pattern: str) -> Optional[Tuple[str, int]]:
    """What is wrong with a node group that nobody is in and that its source does not list, and where; else None.

    ClusterShell takes an unknown group for an empty one. One that is listed may be empty now: that is no mistake. For a
    match string that `needs_library` and that `resolve` could read: it asks the groups' sources.
    """
    from re import finditer

    from ClusterShell.NodeSet import NodeSet, std_group_resolver

    for match in finditer(r"@((?:[\w.-]+:)?)([\w.+*-]+)(?![\[\w.+*-])", pattern):
        source, group = match[1].rstrip(":"), match[2]
        if "*" in group or len(NodeSet(match[0])):
            continue
        try:
            known = std_group_resolver().grouplist(source or None)
        except Exception:  # a source need not be able to list its groups
            known = ()
        if group not in known:
            return f"{match[0]} holds no node: there is no such group, or nobody is in it", match.start()
    return None


def split_groups(listed: str) -> List[Tuple[str, int]]:
    """The comma groups of a list and where they begin; commas inside brackets do not separate."""
    groups: List[Tuple[str, int]] = []
    begin = depth = 0
    for at, char in enumerate(listed):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            groups.append((listed[begin:at], begin))
            begin = at + 1
    groups.append((listed[begin:], begin))
    return [(text.strip(" \t"), at + len(text) - len(text.lstrip(" \t"))) for text, at in groups]


def parse_names(text: str, offset: int, strict: bool = True) -> Names:
    """One comma group: `login`, `n[001-128].gpu`, `r[1-4]n[01-32,40]`. Raises BadRange.

    A range that ends before it begins is a mistake. A match string goes on without it (not `strict`): no number is in
    it, as LBNL NHC has it, and the other groups of the list still match.
    """
    if not text:
        raise BadRange("an empty name in the list", offset)
    parts: List[Part] = []
    at = 0
    while at < len(text):
        if text[at] == "[":
            close = text.find("]", at)
            if close < 0:
                raise BadRange(f"{text!r}: [ is not closed", offset + at)
            spans = text[at + 1 : close].split(",")
            parts.append(tuple(_parse_span(span, text, offset + at, strict) for span in spans))
            at = close + 1
            continue
        name = _NAME.match(text, at)
        if name is None or not name[0]:
            raise BadRange(f"{text!r}: {text[at]!r} cannot be part of a node's name", offset + at)
        parts.append(name[0])
        at = name.end()
    return tuple(parts)


def _parse_span(span: str, text: str, offset: int, strict: bool) -> Span:
    match = _SPAN.fullmatch(span)
    if match is None:
        raise BadRange(f"{text!r}: {span!r} is not a range of numbers such as 01-99", offset)
    low, high = match[1], match[2] or match[1]
    if strict and int(low) > int(high):
        raise BadRange(f"{text!r}: {span!r} ends before it begins: expected {high}-{low}", offset)
    zeros = any(number[0] == "0" and len(number) > 1 for number in (low, high))
    width = max(len(low), len(high)) if zeros or len(low) == len(high) else 0
    return Span(int(low), int(high), width)


def _matches(parts: Names, name: str, at: int) -> bool:
    for place, part in enumerate(parts):
        if isinstance(part, str):
            if not name.startswith(part, at):
                return False
            at += len(part)
            continue
        digits = _DIGITS.match(name, at)
        if digits is None:
            return False
        return any(
            any(_in_span(name[at:end], span) for span in part) and _matches(parts[place + 1 :], name, end)
            for end in range(digits.end(), at, -1)
        )
    return at == len(name)


def _in_span(digits: str, span: Span) -> bool:
    if not span.low <= int(digits) <= span.high:
        return False
    if span.width:
        return len(digits) == span.width
    # `[1-10]`: pdsh and ClusterShell mean 1, 2 ... 10; LBNL NHC takes 01, 02 ... 10.
    return digits[0] != "0" or digits == "0" or len(digits) == len(str(span.high))
