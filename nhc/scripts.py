"""What a site's shell scripts (`*.nhc`) define, read off their text: nothing is run to plan a run."""

from __future__ import annotations

import os
import re

from nhc import words
from nhc.bounded_read import read_text
from nhc.classify import Scripts
from nhc.values import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Sequence, Set, Tuple

_FUNCTION = re.compile(
    r"^[ \t]*(?:function[ \t]+([^\s(){}|&;<>$`'\"]+)|([^\s(){}|&;<>$`'\"=#]+)[ \t]*\([ \t]*\))", re.MULTILINE
)
_SOURCES = re.compile(r"^\s*(?:source|\.)\s", re.MULTILINE)
_TOP_LEVEL = re.compile(r"^(?:export[ \t]+)?([A-Za-z_]\w*)=.*$", re.MULTILINE | re.ASCII)


def functions_in(text: str) -> FrozenSet[str]:
    """The names of the functions that shell text defines."""
    return frozenset(first or second for first, second in _FUNCTION.findall(text))


def is_lbnl(name: str, text: str) -> bool:
    """Whether a script is one of LBNL NHC's own, whose checks and helpers ours replace.

    Its files source nothing; one of those names that does is a site's own version (as in Azure's health checks).
    """
    ours = name == "common.nhc" or name == "csc_nvidia_smi.nhc" or name.startswith("lbnl_")
    return ours and not _SOURCES.search(text)


def scan(directories: Sequence[str]) -> Scripts:
    """Read the `*.nhc` files of the directories in the order in which LBNL NHC loads them."""
    paths: List[str] = []
    texts: List[str] = []
    notes: List[str] = []
    for directory in directories:
        try:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".nhc") and name[0] != ".")
        except FileNotFoundError:
            continue
        except OSError as error:
            notes.append(f"{directory}: {error.strerror}: no site scripts are loaded from it")
            continue
        for name in names:
            path = f"{directory.rstrip('/')}/{name}"
            try:
                text = read_text(path, errors="replace")
            except OSError as error:
                notes.append(f"{path}: {error.strerror}: not loaded")
                continue
            if not is_lbnl(name, text):
                paths.append(path)
                texts.append(text)
    text = "\n".join(texts)
    assignments = tuple(found[0] for found in _TOP_LEVEL.finditer(text))
    return Scripts(tuple(paths), functions_in(text), text, assignments, tuple(notes), tuple(directories))


def defaults(scripts: Scripts, known: Dict[str, str], names: FrozenSet[str]) -> Tuple[Dict[str, str], FrozenSet[str]]:
    """The values that the scripts' top level gives to variables of `names`, and those it computes."""
    values: Dict[str, str] = {}
    computed: Set[str] = set()

    def look_up(name: str) -> str:
        return values.get(name, known.get(name, os.environ.get(name, "")))

    for line in scripts.assignments:
        split = words.split(line, look_up)
        if split is None:
            computed.update(name for name in names if re.match(rf"(?:export\s+)?{name}=", line))
            continue
        for word in split:
            found = words.assignment(word)
            if found and found[0] in names:
                values[found[0]] = found[1]
    return values, frozenset(computed)
