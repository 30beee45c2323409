"""Versions, compared as package managers do."""

from __future__ import annotations

import re

from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Tuple

_PIECE = re.compile(r"\d+|[A-Za-z]+|~|\^")


def _pieces(version: str) -> List[str]:
    return _PIECE.findall(version)


def compare(left: str, right: str) -> int:
    """-1, 0 or 1 as `left` is older than, as old as or newer than `right`.

    An epoch (`1:`) comes first. The rest is compared piece by piece as rpm does: numbers as numbers and
    newer than letters, letters as text, `~` older than the end (a release candidate), `^` newer than it.
    Debian's rules (deb-version(7)) differ only in how they order punctuation.
    """
    epochs = [int(v.partition(":")[0]) if ":" in v and v.partition(":")[0].isdigit() else 0 for v in (left, right)]
    if epochs[0] != epochs[1]:
        return -1 if epochs[0] < epochs[1] else 1
    bodies = [v.partition(":")[2] if ":" in v else v for v in (left, right)]
    # A version and its release are two numbers: 1.2-9 is older than 1.2.1-1.
    halves = [body.partition("-") for body in bodies]
    for place in (0, 2):
        if place == 2 and not all(half[1] for half in halves):
            return 0  # one of them names no release: any will do
        found = _compare_part(halves[0][place], halves[1][place])
        if found:
            return found
    return 0


def _compare_part(left: str, right: str) -> int:
    ours, theirs = _pieces(left), _pieces(right)
    for mine, other in zip(ours, theirs):
        if mine == other:
            continue
        order = _rank(mine) - _rank(other)
        if order:
            return -1 if order < 0 else 1
        if mine[0].isdigit():
            if int(mine) != int(other):
                return -1 if int(mine) < int(other) else 1
            continue
        return -1 if mine < other else 1
    if len(ours) == len(theirs):
        return 0
    longer, sign = (ours, 1) if len(ours) > len(theirs) else (theirs, -1)
    return -sign if longer[min(len(ours), len(theirs))] == "~" else sign


def _rank(piece: str) -> int:
    if piece == "~":
        return 0
    if piece == "^":
        return 1
    return 3 if piece[0].isdigit() else 2


class Requirement(NamedTuple):
    """What a version must be: `operator` is one of >= <= > < = or "glob"."""

    operator: str
    value: str

    def holds(self, version: str) -> bool:
        if self.operator == "glob":
            from fnmatch import fnmatchcase

            return fnmatchcase(version, self.value)
        order = compare(version, self.value)
        return {">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0, "=": order == 0}[self.operator]

    def __str__(self) -> str:
        return self.value if self.operator == "glob" else f"{self.operator}{self.value}"


_REQUIREMENT = re.compile(r"(>=|<=|>|<|==|=)?\s*(\S+)")


def requirement(text: str) -> Requirement:
    """`>=5.14`, `<6`, `=6.1` or a shell pattern such as `5.14.*`. Raises ValueError."""
    match = _REQUIREMENT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a version requirement (as >=5.14, <6 or the pattern 5.14.*)")
    operator = {None: "glob", "==": "="}.get(match[1], match[1])
    return Requirement(str(operator), match[2])


class PackageRequirement(NamedTuple):
    """A package that must be there, and the versions that will do."""

    name: str
    versions: Tuple[Requirement, ...]


_PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9+._:-]*?)((?:>=|<=|>|<|=).+)?")


def package_requirement(text: str) -> PackageRequirement:
    """`munge`, `slurm-slurmd>=23.11`, `cuda-toolkit-12-4=12.4.*`, `ucx>=1.15,<1.17`. Raises ValueError."""
    match = _PACKAGE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a package requirement (as munge, slurm>=23.11 or ucx=1.15.*)")
    versions = []
    for part in (match[2] or "").split(",") if match[2] else ():
        found = requirement(part)
        if found.operator == "glob":
            raise ValueError(f"{part!r} in {text!r} lacks one of >= <= > < =")
        wild = found.operator == "=" and any(letter in found.value for letter in "*?[")
        versions.append(Requirement("glob", found.value) if wild else found)
    return PackageRequirement(match[1], tuple(versions))
