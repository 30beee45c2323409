"""Lists of nodes without their braces: `gpu[001-064]`, as pdsh and clush take it, is a glob here and matches nothing.

LBNL NHC's language reads brackets outside braces as bash's glob does, where they stand for one character: `gpu[0-9]`
and `gpu[135]` are right, `gpu[001-064]` never matches, its check never runs, and everything says OK. What reads as a
list and means something else as a glob is therefore a mistake; what means the same both ways is none.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.nodeset import BadRange, matcher, needs_library, nodeset_match

if TYPE_CHECKING:
    from typing import List, Optional

_SPAN = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_GROUP = re.compile(r"@(?:[\w.-]+:)?[\w.-]+", re.ASCII)
"""As clush takes it: `@gpu`, `@slurm:gpu`. As a glob it is a node called so."""
_BRACKET = re.compile(r"\[([^][]*)\]")


class Unbraced(NamedTuple):
    """A target that reads as a list of nodes. `meant` is the target to write for that.

    `certain` is false where the glob is one that somebody could have meant: `[0-15]` is the characters 0, 1 and 5.
    """

    meant: str
    why: str
    certain: bool

    def message(self) -> str:
        return f"{self.why}: write {self.meant}"


def unbraced(pattern: str) -> Optional[Unbraced]:
    """The list of nodes that a target reads as though it has no braces, None for one that is as it should be."""
    negation = "!" if pattern.startswith("!") else ""
    text = pattern[len(negation) :]
    if text[:1] in ("{", "/") or any(char in text for char in "(\\|"):
        return None
    if _GROUP.fullmatch(text):
        return Unbraced(f"{negation}{{{text}}}", f"{pattern!r}: a node group goes in braces", certain=True)
    names = [name for name in _apart(text) if name]
    if len(names) > 1:
        if any(char in name for name in names for char in "*?"):
            meant, why = f"@({'|'.join(names)})", "no node's name holds a comma or a blank"
        else:
            meant, why = f"{{{','.join(names)}}}", "a list of nodes goes in braces"
        return Unbraced(negation + meant, f"{pattern!r}: {why}", certain=True) if _readable(meant) else None
    brackets = _BRACKET.findall(text)
    odd = next((inside for inside in brackets if _is_list(inside)), None)
    if odd is None or any(char in text for char in "*?") or not _readable(f"{{{text}}}"):
        return None
    certain = _senseless(odd)
    either = "" if certain else f", or [{_characters(odd)}] for these characters"
    why = f"{pattern!r} is a glob, in which [{odd}] stands for one character"
    return Unbraced(f"{negation}{{{text}}}{either}", why, certain)


def differs(name: str, pattern: str, listing: Unbraced) -> bool:
    """Whether the target applies to a node in one of its two readings and in the other not.

    A group's nodes are not asked for, as its source may run commands: it may hold any node.
    """
    if _GROUP.fullmatch(pattern.lstrip("!")):
        return True
    text = pattern.lstrip("!")
    meant = listing.meant.lstrip("!")
    listed = _BRACES.match(meant)
    as_list = nodeset_match(name, listed[1]) if listed else matcher(meant)(name)
    return as_list != matcher(text)(name)


_BRACES = re.compile(r"\{([^{}]*)\}")


def _apart(text: str) -> List[str]:
    """The names between the commas and blanks that stand outside brackets."""
    names, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char in ", \t" and depth == 0:
            names.append("")
        else:
            names[-1] += char
    return names


def _readable(meant: str) -> bool:
    if meant.startswith("{"):
        if needs_library(meant):
            return False  # nobody asked ClusterShell, which may run commands
        try:
            nodeset_match("", meant[1:-1])
        except BadRange:
            return False
    return True


def _is_list(inside: str) -> bool:
    """Whether a bracket holds ranges of numbers, and other ones than its single characters."""
    if "-" not in inside and "," not in inside:
        return False  # [135]: three characters
    spans = [_SPAN.fullmatch(span) for span in inside.split(",")]
    ranges = [(span[1], span[2] or span[1]) for span in spans if span]
    if len(ranges) < len(spans) or any(len(low) > len(high) or int(low) > int(high) for low, high in ranges):
        return False  # [0-9a-f], [01-3]: no range of numbers begins longer than it ends
    return any(len(high) > 1 for _low, high in ranges)


def _senseless(inside: str) -> bool:
    """Whether nobody writes this for single characters: one twice, a range that runs backwards, a comma."""
    members: List[str] = []
    at = 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            low, high = inside[at], inside[at + 2]
            if low >= high:
                return True
            members += [chr(code) for code in range(ord(low), ord(high) + 1)]
            at += 3
        else:
            members.append(inside[at])
            at += 1
    return "," in members or len(set(members)) < len(members)


def _characters(inside: str) -> str:
    """The characters of a bracket, spelled out."""
    return "".join(char for char in "0123456789" if matcher(f"[{inside}]")(char))
