"""Finds mistakes on this side once, before any node is contacted: in what is sent to nodes, and in what is asked.

A configuration that no node could read, a check that nothing defines or a context that does not exist would come back
as one UNKNOWN a node. What only a node can know (its own configuration and scripts, files that are included by an
absolute name, its groups of nodes) is left to the node.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from typing import Dict, Iterable, List, Sequence, Set, Tuple

from nhc.core.command_line import options
from nhc.core.language.line_options import CONTEXTS
from nhc.core.language.lines import RawLine, parse_text
from nhc.core.language.loader import Problem, validate_lines
from nhc.core.language.mistakes import meant_elsewhere
from nhc.core.language.site_scripts import scan

SHOWN = 20
"""Problems that are listed; of more, only the number."""
NEAR = 0.84
"""How alike a name and a built-in check's are where one is taken for a slip of the other (difflib's ratio)."""
OWN_SCRIPTS = "; where the nodes' own scripts define it, send those with --set scripts=DIR"


class Wrong(ValueError):
    """What was given cannot be used. One line for each thing that is wrong."""


class WantedChecks(options.CommandOptions):
    """What of a site's files is sent, and which checks are asked for."""

    config: Tuple[str, ...] = options.texts(
        "-c --config", "FILE", "Send this configuration and use it (repeatable). Default: the node's own.",
        heading="What is checked there",
    )  # fmt: skip
    profile: str = options.text("--profile", "NAME", "As for check local; a file is sent.")
    checks: Tuple[str, ...] = options.texts(
        "--check", "NAME", "Run only checks of this name; shell patterns work (repeatable)."
    )
    tags: Tuple[str, ...] = options.texts("--tag", "TAG", "Run only checks with this tag (repeatable).")
    context: str = options.text("--context", "NAME", "Run the lines meant for this context.")
    suite: str = options.text(
        "--suite", "NAME", "Run this suite of deep checks instead (prejob proves every GPU in a second); a node with "
        "work on it is UNKNOWN.",
    )  # fmt: skip


def refuse_wrong(wanted: WantedChecks, scripts: Sequence[str] = ()) -> None:
    """See that nodes can use this, and the site's checks in `scripts`. Raises Wrong."""
    if wanted.context and wanted.context not in CONTEXTS:
        raise Wrong(f"--context {wanted.context}: there is no such context (there are {', '.join(CONTEXTS)})")
    _profile(wanted.profile)
    lines, problems = _lines(wanted.config)
    complaints, items = validate_lines(lines, scripts)
    problems += [p for p in map(_explained, complaints) if scripts or not _may_be_a_nodes(p)]
    if problems:
        more = [f"and {len(problems) - SHOWN} more problems"] if len(problems) > SHOWN else []
        raise Wrong("\n".join([*(problem.show() for problem in problems[:SHOWN]), *more]))
    if wanted.checks or wanted.tags:
        functions = scan(scripts).functions if scripts else frozenset()
        _known_checks(wanted, {item.name for item in items} | set(functions))
        _known_tags(wanted, {tag for item in items for tag in item.tags})


def _profile(name: str) -> None:
    if name in ("", "auto", "none") or os.path.isfile(name) or "/" in name:
        return  # a path that is not here is one on the node
    from nhc.core.host import Host
    from nhc.node.planning.profiles import names

    known = names(Host())
    if name not in known:
        raise Wrong(f"--profile {name}: there is no such profile{_near(name, known)}")


# The configuration.


def _lines(paths: Sequence[str]) -> Tuple[List[RawLine], List[Problem]]:
    """The lines of these files and of what they include by relative names, and the includes that lead nowhere."""
    from nhc.fleet.bundles import config_files

    lines: List[RawLine] = []
    problems: List[Problem] = []
    files: Dict[str, bytes] = {}
    for path in paths:
        files.update(config_files(os.path.abspath(path)))
    for path, content in files.items():
        if b"\0" in content:
            problems.append(Problem(path, 0, 0, "not a text file"))
            continue
        for line in parse_text(content.decode(errors="replace"), path):
            parts = line.check.split(None, 1)
            if parts[:1] != ["include"]:
                # Groups of nodes and set operators are for the node to resolve: they may not be known here.
                lines.append(line._replace(target="*") if re.search(r"^\{.*[@!&^]", line.target) else line)
                continue
            name = parts[1].strip(" \t\"'") if len(parts) == 2 else ""
            own = bool(name) and not name.startswith("/") and not any(char in name for char in "*?[")
            if own and not os.path.isfile(os.path.join(os.path.dirname(path), name)):
                at = line.position(line.check_offset)
                problems.append(Problem(path, *at, f"include {name}: no such file"))
    return lines, problems


def _may_be_a_nodes(problem: Problem) -> bool:
    """Whether only the nodes can say: a check that their own scripts may define, where none are sent."""
    return problem.message.startswith("no such check: ") and "did you mean" not in problem.message


def _explained(problem: Problem) -> Problem:
    """Of a check that does not exist, what was probably meant: a name that is nearly a built-in one's is a slip."""
    name = re.match(r"no such check: (\S+)", problem.message)
    if name is None:
        return problem
    near = _near(name[1], _built_in())
    own = OWN_SCRIPTS if near else ""
    return problem._replace(message=f"no such check: {name[1]}{near}{own}")


# What is asked for.


def _built_in() -> List[str]:
    from nhc.core.check import find_all

    return [check.name for check in find_all()]


def _known_checks(wanted: WantedChecks, configured: Set[str]) -> None:
    from fnmatch import fnmatchcase

    known = configured | set(_built_in())
    for name in wanted.checks:
        pattern = any(char in name for char in "*?[")
        if any(fnmatchcase(check, name) for check in known) or (pattern and not wanted.config):
            continue  # what the nodes' own configuration has is not known here
        hint = "" if wanted.config else OWN_SCRIPTS
        raise Wrong(f"--check {name}: no check has this name{_near(name, known)}{hint}")


def _known_tags(wanted: WantedChecks, configured: Set[str]) -> None:
    from nhc.core.check import find_all

    known = configured | {tag for check in find_all() for tag in check.tags}
    for tag in wanted.tags:
        if tag not in known and wanted.config:
            raise Wrong(f"--tag {tag}: no check has this tag (there are {', '.join(sorted(known))})")


def _near(name: str, known: Iterable[str]) -> str:
    if meant_elsewhere(name):
        return meant_elsewhere(name)
    near = get_close_matches(name, list(known), 1, NEAR)
    return f" (did you mean {near[0]}?)" if near else ""
