"""`nhc config show`: what a node is judged by, each line with the file and line it comes from."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import click

from nhc.core.check import find
from nhc.core.command_line.common_options import FORMAT
from nhc.core.command_line.printing import show as show_value
from nhc.core.host import Host
from nhc.core.language import loader
from nhc.core.language.site_settings import is_secret, site_settings
from nhc.core.model import printable
from nhc.core.plan import AUTO, BUILT_IN, UNLESS_NAMED, Item, Plan
from nhc.core.state.store import State
from nhc.core.units import show_seconds
from nhc.node.planning import profiles
from nhc.node.planning.local import SCRIPTS, default_text
from nhc.node.planning.node_plan import PROFILE, node_plan

DEFAULT = "the built-in default"


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("-n", "--node", default="", metavar="NAME", help="The node. Default: this one.")
@click.option("--scripts", multiple=True, metavar="DIR", help=f"The site's own checks. Default: {SCRIPTS}.")
@click.option("--profile", default="", metavar="NAME",
              help="The node type: a name, a file, auto, none. Default: auto for this node, else none.")  # fmt: skip
@click.option("--context", default="", metavar="NAME", help="Only what runs there: prolog, epilog, healthcheck, agent.")
@FORMAT
def show(files: Tuple[str, ...], node: str, scripts: Tuple[str, ...], profile: str, context: str, form: str) -> None:
    """Print what applies to a node: every check, variable and note, and where each comes from.

    FILE is a configuration file or directory; the default is /etc/nhc/nhc.conf, else the built-in checks. Another
    node's type cannot be seen from here: name its profile with --profile. Nothing is run. Exit status: 0, 2 where
    the configuration cannot be used.
    """
    state = State()
    host = Host(memory=state)
    site = site_settings()
    here = site.node_here(host)
    paths = site.paths(files)
    name = node or here
    settings = site.of_node(name)
    wanted = profile or (AUTO if name == here else UNLESS_NAMED)
    try:
        directories = site.scripts_directories(scripts)
        plan = node_plan(state, host, name, paths, scripts=directories, settings=settings, profile=wanted,
                         ask=True, default=default_text)  # fmt: skip
        chosen = _profile(plan, host, wanted)
        origins = dict.fromkeys(site.settings, (site.path, 0))
        origins.update(loader.origins(paths, name, directories, settings) if paths else {})
    except (profiles.NoProfile, OSError) as error:
        raise click.UsageError(str(error)) from None
    if context:
        kept = tuple(item for item in plan.items if not item.contexts or context in item.contexts)
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
    if form == "json":
        show_value(value)
    else:
        click.echo(_text(value, name != here and not profile), nl=False)


def _profile(plan: Plan, host: Host, wanted: str) -> Optional[Dict[str, str]]:
    """The profile whose lines are in the plan; None for none."""
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
    """What the line says between bars, as far as it is not the default."""
    options = [
        f"{key} {show_seconds(value)}" for key, value in (("every", item.every), ("timeout", item.timeout)) if value
    ]
    options += [f"on-timeout {item.on_timeout}"] if item.on_timeout else []
    options += item.counting()
    options += [f"tags {' '.join(item.tags)}"] if item.tags else []
    options += [f"context {' '.join(item.contexts)}"] if item.contexts else []
    return ", ".join(options)


def _variable(
    name: str, value: str, origins: Dict[str, Tuple[str, int]], profile: Optional[Dict[str, str]]
) -> Dict[str, Any]:
    """One of the variables at the end of the files. What no line sets comes from a script, else from the profile."""
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
        options = f"  |{row['options']}|" if row["options"] else ""
        lines.append(f"{place:{width}}  {printable(row['line'])}{options}")
    for row, place in zip(variables, places[len(checks) :]):
        lines.append(f"{place:{width}}  {row['name']}={printable(row['value'])}")
    lines += [f"note: {printable(note)}" for note in value["notes"]]
    return "".join(f"{line}\n" for line in lines)


def _place(row: Dict[str, Any]) -> str:
    number = f":{row['line_number']}" if row["line_number"] else ""
    return f"{row['file'] or '(set elsewhere)'}{number}"
