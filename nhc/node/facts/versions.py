"""Versions, compared as package managers do."""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Tuple

    from typing_extensions import TypeAlias

_Piece: TypeAlias = "Tuple[int, int, str]"

_PIECE = re.compile(r"\d+|[A-Za-z]+|~|\^")


def compare(left: str, right: str) -> int:
    """-1, 0 or 1 as `left` is older than, as old as or newer than `right`.

    An epoch (`1:`) comes first. The rest is compared piece by piece as rpm does: numbers as numbers and
    newer than letters, letters as text, `~` older than the end (a release candidate), `^` newer than it.
    Debian's rules (deb-version(7)) differ only in how they order punctuation.
    """
    ours, theirs = _parts(left), _parts(right)
    if len(ours) != len(theirs):
        ours, theirs = ours[:2], theirs[:2]  # one of them names no release: any will do
    return (ours > theirs) - (ours < theirs)


def _parts(version: str) -> List[List[_Piece]]:
    """Epoch, version and, where it is named, release: two numbers, as 1.2-9 is older than 1.2.1-1."""
    epoch, colon, rest = version.partition(":")
    number, dash, release = (rest if colon else version).partition("-")
    parts = [epoch if colon and epoch.isdigit() else "0", number, *([release] if dash else [])]
    return [[*map(_ordered, _PIECE.findall(part)), _END] for part in parts]


def _ordered(piece: str) -> _Piece:
    """A piece of a version as it compares with others: by its kind, then as a number or as text."""
    if piece.isdigit():
        return 4, int(piece), ""
    return {"~": 0, "^": 2}.get(piece, 3), 0, piece


_END: _Piece = (1, 0, "")
"""What stands behind the last piece: `~` is older than it, everything else newer."""


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
        wanted = requirement(part)
        if wanted.operator == "glob":
            raise ValueError(f"{part!r} in {text!r} lacks one of >= <= > < =")
        wild = wanted.operator == "=" and any(letter in wanted.value for letter in "*?[")
        versions.append(wanted._replace(operator="glob") if wild else wanted)
    return PackageRequirement(match[1], tuple(versions))
