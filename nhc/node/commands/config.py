"""`nhc config check` and `nhc config match`: what a configuration says, without running it."""

from __future__ import annotations

import sys

import click

from nhc.core.command_line.common_options import named_nodes
from nhc.core.exit_status import EXIT_UNKNOWN
from nhc.core.host import Host
from nhc.core.language import trust
from nhc.core.language.loader import ConfigError, validate, without_lines
from nhc.core.language.setting_rules import problem
from nhc.core.language.site_settings import site_settings
from nhc.core.language.targets import Targets, external_matcher
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.node_ranges import fold
from nhc.core.matching.nodeset import Undecided
from nhc.core.units import show_number
from nhc.node.planning.local import SCRIPTS
from nhc.node.planning.profiles import problem_of

if TYPE_CHECKING:
    from typing import Optional, Sequence, Tuple

    from nhc.core.matching.nodeset import External


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--scripts", multiple=True, metavar="DIR", help=f"The site's own checks. Default: {SCRIPTS}.")
@click.option("-n", "--node", default=None, metavar="NAME", help="Only the lines that apply to this node.")
@click.option(
    "-w", "--nodes", "node_set", default="", metavar="SET", help="Name those of these nodes that no line is for."
)
def check(files: Tuple[str, ...], scripts: Tuple[str, ...], node: Optional[str], node_set: str) -> int:
    """Validate configuration files and directories without running anything.

    Every line is read, whatever node it is for, and every problem is named with its file, line and column: checks
    that do not exist, arguments that do not fit, targets that cannot be read. Exit status: 0 fine, 1 no line is for one
    of the nodes of --nodes, 2 not fine.
    """
    return check_command(files, scripts, node, named_nodes(node_set))


@click.command()
@click.argument("name")
@click.argument("pattern", required=False)
def match(name: str, pattern: Optional[str]) -> int:
    """Say whether the target PATTERN applies to the node NAME: exit status 0 if it does, 1 if not.

    With - alone, standard input holds lines of a name, a tab and a pattern, and for each the status is printed.
    """
    if pattern is None and name != "-":
        raise click.UsageError("expected NAME and PATTERN, or - alone")
    return match_command(name, pattern)


def check_command(
    files: Sequence[str], scripts: Sequence[str] = (), hostname: Optional[str] = None, nodes: Sequence[str] = ()
) -> int:
    """Validate configurations: every line, or with `hostname` the lines for that node. Exit status 0, 1 or 2.

    1: no line is for one of `nodes`. Of this node's own configuration it is said of this node, without a status.

    `scripts` are the directories of the site's own checks. What is not given is this node's own
    (`nhc.core.language.site_settings`).
    """
    site = site_settings()
    try:
        where = site.scripts_directories(scripts)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    untrusted = trust.judge_of(trust.rule(site.settings, hook=False, named=bool(files)))
    validation = validate(
        files or (site.config,), hostname, site.settings, where, profile_problem=problem_of, untrusted=untrusted
    )
    if site.note:
        print(site.note, file=sys.stderr)
    for note in validation.notes:
        print(f"note: {note}", file=sys.stderr)
    for trouble in validation.problems:
        print(trouble.show(), file=sys.stderr)
    wrong = [mistake for mistake in (problem(*pair) for pair in site.settings.items()) if mistake]
    for mistake in wrong:
        print(f"{site.path}: {mistake}", file=sys.stderr)
    if validation.problems or site.note or wrong:
        return 2
    own = [] if files or nodes or hostname else [site.node_here(Host())]
    missing = without_lines(files or (site.config,), nodes or own, site.settings, where)
    if missing:
        print(f"no line is for {fold(missing)}: hooks check nothing there", file=sys.stderr)
    print(f"{show_number(validation.lines, 'line')}, {show_number(validation.checks, 'check')}: fine")
    return int(bool(missing and nodes))


def match_command(name: str, pattern: Optional[str] = None) -> int:
    """Whether a target applies to a node: exit status 0 or 1. One that cannot be read applies to none.

    One that cannot be decided in time (a regular expression that backtracks for ever) is 3.

    Without a pattern, standard input holds lines of a name, a tab and a pattern, and 0 or 1 is printed for each.
    """
    site = site_settings()
    if site.note:
        print(site.note, file=sys.stderr)
    external = external_matcher(site.settings)
    targets = Targets()
    if pattern is not None:
        return _matches(targets, external, name, pattern, pattern)
    for number, line in enumerate(sys.stdin, 1):
        named, tab, asked = line.rstrip("\r\n").partition("\t")
        if not tab:
            print(f"line {number}: expected a name, a tab and a pattern", file=sys.stderr)
        print(_matches(targets, external, named, asked, f"line {number}: {asked}") if tab else 1)
    return 0


def _matches(targets: Targets, external: Optional[External], name: str, pattern: str, where: str) -> int:
    wrong = None
    try:
        if external is None or external("", pattern.lstrip("!")) is None:
            wrong = targets.problem(pattern)
        if wrong:
            print(f"{where}: {wrong[0]}", file=sys.stderr)
        return int(not targets.applies(name, pattern, external))
    except Undecided as why:
        if wrong is None or wrong[0] != str(why):
            print(f"{where}: {why}", file=sys.stderr)
        return EXIT_UNKNOWN
