"""The nhc.conf language: files, directories and includes to a Plan for one node.

    *          || check_fs_mount_rw -f /scratch
    {gpu[01-16]} |every 5m, timeout 20s, strikes 2| check_gpu_count 8
    include conf.d/*.conf

An nhc.conf of LBNL NHC is read as its administrator meant it (docs/lbnl-compatibility.md); the
language is described in docs/configuration.md.
"""

from __future__ import annotations

from nhc.core.language.lines import RawLine, parse_line, parse_text
from nhc.core.language.plan_builder import PlanBuilder, lines_of_file
from nhc.core.language.problems import ConfigError, Problem
from nhc.core.language.shell_names import NO_SCRIPTS, SETTINGS, Scripts
from nhc.core.language.targets import Targets
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.plan import Item, Plan

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

__all__ = ["SETTINGS", "ConfigError", "Problem", "load", "load_check", "load_text", "parse_text", "validate"]


def load(
    paths: Sequence[str],
    hostname: str,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    strict: bool = False,
    targets: Optional[Targets] = None,
    untrusted: Callable[[str], str] = lambda path: "",
) -> Plan:
    """The plan for `hostname` from files and directories of `*.conf` files.

    A line that is wrong is noted in the plan, and no other line suffers; with `strict`, and for a file that
    is missing or includes itself, ConfigError is raised. `targets` decides in place of
    `nhc.core.language.targets.Targets`. `untrusted` says why a file is refused (`nhc.core.language.trust`).
    """
    scripts = _scan(scripts_dirs)
    builder = PlanBuilder(hostname, settings, scripts, explain=strict, targets=targets, untrusted=untrusted)
    for path in paths:
        builder.path(path)
    return builder.plan(strict)


def load_text(
    text: str,
    name: str,
    hostname: str,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    strict: bool = False,
) -> Plan:
    """The plan from a configuration's text; `name` stands for the file in messages."""
    builder = PlanBuilder(hostname, settings, _scan(scripts_dirs), explain=strict)
    builder.text(text, name)
    return builder.plan(strict)


def load_check(
    check: str, name: str, hostname: str, settings: Mapping[str, str] = {}, scripts_dirs: Sequence[str] = ()
) -> Plan:
    """The plan of one check line without a target, taken as it is (LBNL NHC's `-e`)."""
    builder = PlanBuilder(hostname, settings, _scan(scripts_dirs))
    line = parse_line(f"* || {check}", name, 0)
    builder.line(line._replace(check=check.strip(" \t")))
    return builder.plan(False)


class Validation(NamedTuple):
    """What `nhc config check` says: problems, how many lines and checks were read, and notes."""

    problems: Tuple[Problem, ...]
    lines: int
    checks: int
    notes: Tuple[str, ...] = ()


def validate(
    paths: Sequence[str],
    hostname: Optional[str] = None,
    settings: Mapping[str, str] = {},
    scripts_dirs: Sequence[str] = (),
    profile_problem: Callable[[str], str] = lambda name: "",
    untrusted: Callable[[str], str] = lambda path: "",
) -> Validation:
    """Read everything and report everything. Without a host name every line is judged, whatever its target.

    `profile_problem` says what is wrong with a value of NHC_PROFILE, empty where nothing is.
    """
    builder = PlanBuilder(
        hostname, settings, _scan(scripts_dirs), hostname is None, explain=True, profile_problem=profile_problem,
        untrusted=untrusted,
    )  # fmt: skip
    for path in paths:
        builder.path(path)
    problems = [*builder.fatal, *builder.problems]
    order = {file: index for index, file in enumerate(builder.files)}
    problems.sort(key=lambda problem: (order.get(problem.file, -1), problem.line, problem.column))
    return Validation(tuple(problems), builder.lines, len(builder.items), (*builder.scripts.notes, *builder.notes))


def without_lines(
    paths: Sequence[str], nodes: Sequence[str], settings: Mapping[str, str] = {}, scripts_dirs: Sequence[str] = ()
) -> List[str]:
    """Those of the nodes that no line with a check is for: hooks never check them. Each file is read once."""
    from functools import lru_cache

    scripts, targets, lines_of = _scan(scripts_dirs), Targets(), lru_cache(None)(lines_of_file)
    missing = []
    for node in nodes:
        builder = PlanBuilder(node, settings, scripts, targets=targets, lines_of=lines_of)
        for path in paths:
            builder.path(path)
        if not builder.items:
            missing.append(node)
    targets.close()
    return missing


def origins(
    paths: Sequence[str], hostname: str, scripts_dirs: Sequence[str] = (), settings: Mapping[str, str] = {}
) -> Dict[str, Tuple[str, int]]:
    """File and line of what sets each variable last on `hostname`; those that only a shell line sets are left out."""
    builder = PlanBuilder(hostname, settings, _scan(scripts_dirs))
    for path in paths:
        builder.path(path)
    return builder.origins


def validate_lines(lines: Sequence[RawLine], scripts_dirs: Sequence[str] = ()) -> Tuple[List[Problem], List[Item]]:
    """What is wrong with lines that have been read already, none of them an include, and what the others ask for."""
    builder = PlanBuilder(None, {}, _scan(scripts_dirs), every_line=True, explain=True)
    for line in lines:
        builder.line(line)
    return [*builder.fatal, *builder.problems], builder.items


def _scan(directories: Sequence[str]) -> Scripts:
    """What the site's scripts define."""
    if not directories:
        return NO_SCRIPTS
    from nhc.core.language import site_scripts

    return site_scripts.scan(directories)
