"""`nhc config`: reads a configuration without running it (`check`, `match`), and shows the lines that judge this node,
each with its file and line number (`show`).
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional, Tuple

import click

from nhc.core.check import find
from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command, named_nodes
from nhc.core.command_line.printing import show as show_value
from nhc.core.exit_status import EXIT_UNKNOWN
from nhc.core.host import Host
from nhc.core.language import loader, trust
from nhc.core.language.loader import ConfigError, validate, without_lines
from nhc.core.language.setting_rules import problem
from nhc.core.language.site_settings import is_secret, site_settings
from nhc.core.language.targets import Targets, external_matcher
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.node_ranges import fold
from nhc.core.matching.nodeset import Undecided
from nhc.core.model import printable
from nhc.core.plan import AUTO, BUILT_IN, UNLESS_NAMED, Item, Plan
from nhc.core.state.store import State
from nhc.core.units import show_number, show_seconds
from nhc.node.planning import profiles
from nhc.node.planning.local import PROFILE, SCRIPTS, default_text, node_plan
from nhc.node.planning.profiles import problem_of

if TYPE_CHECKING:
    from typing import Optional, Sequence, Tuple

    from nhc.core.matching.nodeset import External


class CheckOptions(options.CommandOptions):
    files: Tuple[str, ...] = options.arguments("[FILE]...")
    scripts: Tuple[str, ...] = options.texts("--scripts", "DIR", f"The site's own checks. Default: {SCRIPTS}.")
    node: Optional[str] = options.text("-n --node", "NAME", "Only the lines that apply to this node.", None)
    node_set: str = options.text("-w --nodes", "SET", "Name those of these nodes that no line is for.")


@click_command
def check(args: CheckOptions) -> int:
    """Validate configuration files and directories without running anything.

    Every line is read, whatever node it is for, and every problem is named with its file, line and column: checks
    that do not exist, arguments that do not fit, targets that cannot be read. Exit status: 0 fine, 1 no line is for one
    of the nodes of --nodes, 2 not fine.
    """
    return check_command(args.files, args.scripts, args.node, named_nodes(args.node_set))


class MatchOptions(options.CommandOptions):
    name: str = options.argument("NAME", needed=True)
    pattern: Optional[str] = options.argument("[PATTERN]", default=None)


@click_command
def match(args: MatchOptions) -> int:
    """Say whether the target PATTERN applies to the node NAME: exit status 0 if it does, 1 if not.

    With - alone, standard input holds lines of a name, a tab and a pattern, and for each the status is printed.
    """
    if args.pattern is None and args.name != "-":
        raise click.UsageError("expected NAME and PATTERN, or - alone")
    return match_command(args.name, args.pattern)


def check_command(
    files: Sequence[str], scripts: Sequence[str] = (), hostname: Optional[str] = None, nodes: Sequence[str] = ()
) -> int:
    """Validate configurations: every line, or with `hostname` the lines for that node. Exit status 0, 1 or 2.

    1: no line is for one of `nodes`. For this node's own configuration that is reported, but the status is 0.

    `scripts` are the directories of the site's own checks. The default of each is this node's own
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
    own = [] if files or nodes or hostname else [site.local_node_name(Host())]
    missing = without_lines(files or (site.config,), nodes or own, site.settings, where)
    if missing:
        print(f"no line is for {fold(missing)}: hooks check nothing there", file=sys.stderr)
    print(f"{show_number(validation.lines, 'line')}, {show_number(validation.checks, 'check')}: fine")
    return int(bool(missing and nodes))


def match_command(name: str, pattern: Optional[str] = None) -> int:
    """Whether a target applies to a node: exit status 0 or 1. A target that cannot be read applies to no node.

    3: it cannot be decided in time (a regular expression that backtracks for ever).

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


DEFAULT = "the built-in default"


class ConfigShowOptions(options.Formatted):
    files: Tuple[str, ...] = options.arguments("[FILE]...")
    node: str = options.text("-n --node", "NAME", "The node. Default: this one.")
    scripts: Tuple[str, ...] = options.texts("--scripts", "DIR", f"The site's own checks. Default: {SCRIPTS}.")
    profile: str = options.text(
        "--profile", "NAME", "The node type: a name, a file, auto, none. Default: auto for this node, else none."
    )
    context: str = options.text("--context", "NAME", "Only what runs there: prolog, epilog, healthcheck, agent.")


@click_command
def show(args: ConfigShowOptions) -> None:
    """Print what applies to a node: every check, variable and note, and where each comes from.

    FILE is a configuration file or directory; the default is /etc/nhc/nhc.conf, else the built-in checks. Another
    node's type cannot be seen from here: name its profile with --profile. Nothing is run. Exit status: 0, 2 where
    the configuration cannot be used.
    """
    state = State()
    host = Host(memory=state)
    site = site_settings()
    here = site.local_node_name(host)
    paths = site.paths(args.files)
    name = args.node or here
    settings = site.settings_for(name)
    wanted = args.profile or (AUTO if name == here else UNLESS_NAMED)
    try:
        directories = site.scripts_directories(args.scripts)
        plan = node_plan(state, host, name, paths, scripts=directories, settings=settings, profile=wanted,
                         ask=True, default=default_text)  # fmt: skip
        chosen = _profile(plan, host, wanted)
        origins = dict.fromkeys(site.settings, (site.path, 0))
        origins.update(loader.origins(paths, name, directories, settings) if paths else {})
    except (profiles.NoProfile, OSError) as error:
        raise click.UsageError(str(error)) from None
    if args.context:
        kept = tuple(item for item in plan.items if not item.contexts or args.context in item.contexts)
        plan = plan._replace(items=kept)
    value = {
        "node": name,
        "files": paths or [DEFAULT],
        "scripts": list(plan.scripts),
        "profile": chosen,
        "checks": [_check(item) for item in plan.items],
        "variables": [_variable(each, value, origins, chosen) for each, value in sorted(plan.settings.items())],
        "notes": [*plan.notes, *([site.note] if site.note else [])],
    }
    if args.form == "json":
        show_value(value)
    else:
        click.echo(_text(value, name != here and not args.profile), nl=False)


def _profile(plan: Plan, host: Host, wanted: str) -> Optional[Dict[str, str]]:
    """The profile whose lines are in the plan, or None."""
    own = plan.settings.get(PROFILE, "") if wanted in (AUTO, UNLESS_NAMED) else ""
    chosen = profiles.resolve(own or wanted, host, True)
    if chosen is None or not chosen.name:
        return None
    return {"name": chosen.name, "file": chosen.path, "why": f"{PROFILE}={own}" if own else chosen.why}


def _check(item: Item) -> Dict[str, Any]:
    file, _, line = item.source.rpartition(":")
    declared = find(item.argv[0]) if item.kind == BUILT_IN else None
    return {
        "check": item.name,
        "kind": item.kind,
        "line": item.line,
        "file": file or item.source,
        "line_number": int(line) if line.isdigit() else 0,
        "timeout": item.timeout or (declared.timeout if declared else None),
        "every": item.every or (declared.every if declared else None),
        "on_timeout": item.on_timeout or (declared.on_timeout if declared else "unknown"),
        "strikes": item.strikes or 1,
        "of": item.of,
        "warn_only": item.warn_only,
        "tags": list(dict.fromkeys((*(declared.tags if declared else ()), *item.tags))),
        "contexts": list(item.contexts),
        "options": _options(item),
    }


def _options(item: Item) -> str:
    """What the line says between bars, without defaults."""
    shown = [
        f"{key} {show_seconds(value)}" for key, value in (("every", item.every), ("timeout", item.timeout)) if value
    ]
    shown += [f"on-timeout {item.on_timeout}"] if item.on_timeout else []
    shown += item.counting()
    shown += [f"tags {' '.join(item.tags)}"] if item.tags else []
    shown += [f"context {' '.join(item.contexts)}"] if item.contexts else []
    return ", ".join(shown)


def _variable(
    name: str, value: str, origins: Dict[str, Tuple[str, int]], profile: Optional[Dict[str, str]]
) -> Dict[str, Any]:
    """One of the variables at the end of the files. A variable that no line sets comes from a script, else from the
    profile.
    """
    file, number = origins.get(name, ("", 0))
    if not file and profile:
        file = profile["file"] or f"profile {profile['name']}"
    return {"name": name, "value": "(not shown)" if is_secret(name) else value, "file": file, "line_number": number}


def _text(value: Dict[str, Any], elsewhere: bool) -> str:
    profile = value["profile"]
    which = f"profile {profile['name']} ({profile['why']})" if profile else "no profile"
    if elsewhere and not profile:
        which += ": this machine cannot see that node's type, name it with --profile"
    checks, variables = value["checks"], value["variables"]
    lines = [f"{value['node']}: {len(checks)} checks, from {', '.join(value['files'])}; {which}"]
    places = [_place(row) for row in (*checks, *variables)]
    width = min(max(map(len, places), default=0), 44)
    for row, place in zip(checks, places):
        said = f"  |{row['options']}|" if row["options"] else ""
        lines.append(f"{place:{width}}  {printable(row['line'])}{said}")
    for row, place in zip(variables, places[len(checks) :]):
        lines.append(f"{place:{width}}  {row['name']}={printable(row['value'])}")
    lines += [f"note: {printable(note)}" for note in value["notes"]]
    return "".join(f"{line}\n" for line in lines)


def _place(row: Dict[str, Any]) -> str:
    number = f":{row['line_number']}" if row["line_number"] else ""
    return f"{row['file'] or '(set elsewhere)'}{number}"
