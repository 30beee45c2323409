"""What a site's shell scripts (`*.nhc`) define, read off their text: nothing is run to plan a run."""

from __future__ import annotations

import os
import re

from nhc.core import check
from nhc.core.language import shell_words
from nhc.core.language.shell_words import HELPERS, Scripts
from nhc.core.light import TYPE_CHECKING
from nhc.core.system.bounded_read import read_text

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Sequence, Set, Tuple

_FUNCTION = re.compile(
    r"^[ \t]*(?:function[ \t]+([^\s(){}|&;<>$`'\"]+)|([^\s(){}|&;<>$`'\"=#]+)[ \t]*\([ \t]*\))", re.MULTILINE
)
_SOURCES = re.compile(r"^\s*(?:source|\.)\s", re.MULTILINE)
_TOP_LEVEL = re.compile(r"^(?:export[ \t]+)?([A-Za-z_]\w*)=.*$", re.MULTILINE | re.ASCII)
_LBNL_INTERNAL = frozenset([
    "nhc_dmi_gather_data", "nhc_dmi_gather_raw_data", "nhc_file_stat", "nhc_fs_parse_size", "nhc_fs_unparse_size",
    "nhc_hw_cpu_gather_data", "nhc_hw_eth_gather_data", "nhc_hw_hsn_gather_data", "nhc_hw_kmod_gather_data",
    "nhc_hw_mem_gather_data", "nhc_job_find_users", "nhc_job_user_auth", "nhc_load_conf", "nhc_nv_gather_data",
    "nhc_nvsmi_gather_data", "nhc_ps_check_res", "nhc_sockets_gather_data", "str_clean",
])  # fmt: skip
"""Functions of LBNL NHC's files that only its own checks call: no reason to load an edited file for."""


USUAL_NAME = "scripts"
"""The name that LBNL NHC and the packages give the directory: a site that has no checks of its own leaves it empty."""


def functions_in(text: str) -> FrozenSet[str]:
    """The names of the functions that shell text defines."""
    return frozenset(first or second for first, second in _FUNCTION.findall(text))


def named_as_lbnls(name: str) -> bool:
    """Whether a file is called as LBNL NHC's own are, or were when they came with Warewulf (`ww_*`)."""
    return name in ("common.nhc", "csc_nvidia_smi.nhc") or name.startswith(("lbnl_", "ww_"))


def is_lbnls(name: str, text: str) -> bool:
    """Whether a script is one of LBNL NHC's own as a release has it (nhc/core/data/lbnl_files.tsv)."""
    import hashlib

    from nhc.core.data.reader import read

    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"\n{name}\t{digest}\t" in read("lbnl_files.tsv")


def replaced_in(name: str, text: str) -> FrozenSet[str]:
    """The functions of a script called as LBNL NHC's that nhc has itself: these stay nhc's.

    A file that sources another is a site's own version (as in Azure's health checks), and has its functions itself.
    """
    if not named_as_lbnls(name) or _SOURCES.search(text):
        return frozenset()
    return frozenset(
        function for function in functions_in(text) if function in HELPERS or check.find(function, search=False)
    )


def scan(directories: Sequence[str]) -> Scripts:
    """Read the `*.nhc` files of the directories in the order in which LBNL NHC loads them.

    LBNL NHC's own files are replaced by what nhc has built in. Of a site's own that is called like one of them
    everything is loaded but the functions that nhc has itself, and a note names those.
    """
    paths: List[str] = []
    texts: List[str] = []
    notes: List[str] = []
    functions: Set[str] = set()
    for directory in directories:
        try:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".nhc") and name[0] != ".")
        except FileNotFoundError:
            continue
        except OSError as error:
            notes.append(f"{directory}: {error.strerror}: no site scripts are loaded from it")
            continue
        if not names and os.path.basename(directory.rstrip("/")) != USUAL_NAME:
            notes.append(f"{directory}: no *.nhc script in this directory: nothing is loaded from it")
        for name in names:
            path = f"{directory.rstrip('/')}/{name}"
            try:
                text = read_text(path, errors="replace")
            except OSError as error:
                notes.append(f"{path}: {error.strerror}: not loaded")
                continue
            replaced = replaced_in(name, text)
            if replaced and is_lbnls(name, text):
                continue
            if replaced:
                notes.append(_replaced_note(path, replaced))
            own = functions_in(text) - replaced
            if own - _LBNL_INTERNAL or not replaced:
                paths.append(path)
                texts.append(text)
                functions |= own
    text = "\n".join(texts)
    assignments = tuple(match[0] for match in _TOP_LEVEL.finditer(text))
    return Scripts(tuple(paths), frozenset(functions), text, assignments, tuple(notes), tuple(directories))


def _replaced_note(path: str, replaced: FrozenSet[str]) -> str:
    named = sorted(replaced, key=lambda name: (not name.startswith("check_"), name))
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    which = f"{', '.join(named[:3])}{more} {'is' if len(named) == 1 else 'are'}"
    return f"{path}: {which} nhc's own, for the file is called as LBNL NHC's; rename it to have its version"


def defaults(scripts: Scripts, known: Dict[str, str], names: FrozenSet[str]) -> Tuple[Dict[str, str], FrozenSet[str]]:
    """The values that the scripts' top level gives to variables of `names`, and those it computes."""
    values: Dict[str, str] = {}
    computed: Set[str] = set()

    def look_up(name: str) -> str:
        return values.get(name, known.get(name, os.environ.get(name, "")))

    for line in scripts.assignments:
        split = shell_words.split(line, look_up)
        if split is None:
            computed.update(name for name in names if re.match(rf"(?:export\s+)?{name}=", line))
            continue
        for word in split:
            pair = shell_words.assignment(word)
            if pair and pair[0] in names:
                values[pair[0]] = pair[1]
    return values, frozenset(computed)
