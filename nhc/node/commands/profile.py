"""`nhc profile`: the type of this node, and what a node of a type should have."""

from __future__ import annotations

import sys
from typing import Dict, Optional

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import print_result, show_table
from nhc.core.command_line.printing import show as show_value
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN
from nhc.core.host import Host
from nhc.core.model import printable
from nhc.node.planning import node_type, profiles

CRITERIA = ("clustermax",)
"""Lists of published criteria that come with nhc, each a table in nhc/core/data."""


class DetectOptions(options.Formatted):
    criteria: str = options.argument(f"[{'|'.join(CRITERIA)}]", choices=CRITERIA)
    no_metadata: bool = options.flag("--no-metadata", "Do not ask the cloud's metadata service.")


@click_command
def detect(args: DetectOptions) -> int:
    """Name this node's type and the profile that `--profile auto` uses for it; or judge it by published criteria.

    Goes by the firmware's tables, the cloud's metadata service (asked only where the firmware names a cloud that
    does not write the type there; 0.8 s at most) and the accelerators on the PCI bus. What is found is remembered
    until the next boot, so that runs before jobs need not ask again.

    `clustermax` lists ClusterMAX's criteria: met, not met, unknown, or not for this machine and who can judge it. What
    they ask is run now, on a node without work. It changes nothing, and marks nothing.

    Exit status: 0 where there is a profile, 3 where there is none; of criteria 1 where one is not met, 3 where one
    could not be told, else 0.
    """
    if args.criteria:
        return _by_criteria(args.criteria, args.form)
    from nhc.core.state.store import State

    host = Host(memory=State())
    node = node_type.detect(host, ask=not args.no_metadata)
    if not args.no_metadata:
        node_type.remember(host, node)
    there = profiles.names(host)
    chosen = next((name for name in node.names if name in there), "")
    if args.form == "json":
        show_value({"profile": chosen or None, "cloud": node.cloud, "type": node.type, "why": node.why,
                    "problem": node.problem, "candidates": list(node.names)})  # fmt: skip
    else:
        kind = " ".join(part for part in (node.cloud, node.type) if part) or "unknown"
        click.echo(f"type:    {kind}")
        click.echo(f"profile: {chosen or 'none'}")
        if node.why:
            click.echo(f"by:      {node.why}")
        if node.problem:
            click.echo(f"but:     {node.problem}")
        missing = [name for name in node.names if name not in there]
        if missing:
            click.echo(f"no profile for: {', '.join(missing)} (write {profiles.SITE}/{missing[0]}.conf to add one)")
    return EXIT_HEALTHY if chosen else EXIT_UNKNOWN


def _by_criteria(name: str, form: str) -> int:
    """Print each criterion with this node's result."""
    from nhc.core.language.site_settings import site_settings
    from nhc.node.planning import criteria as published

    host = Host()
    judged = published.judge(published.criteria(name), host, site_settings().local_node_name(host))
    counts = {state: sum(one.state == state for one in judged) for state in published.STATES}
    if form == "json":
        rows = [
            {"id": one.criterion.id, "category": one.criterion.category, "criterion": one.criterion.title,
             "state": one.state, "why": one.why}
            for one in judged
        ]  # fmt: skip
        show_value({"criteria": rows, "counts": counts})
    else:
        judged.sort(key=lambda one: published.STATES.index(one.state))
        show_table([(one.state, one.criterion.id, one.criterion.title, printable(one.why, 150)) for one in judged])
        click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    if counts[published.NOT_MET]:
        return EXIT_UNHEALTHY
    return EXIT_UNKNOWN if counts[published.UNKNOWN] else EXIT_HEALTHY


def _names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in profiles.names(Host()) if name.startswith(incomplete)]


class ProfileShowOptions(options.CommandOptions):
    name: str = options.argument("NAME", needed=True, complete=_names)


@click_command
def show(args: ProfileShowOptions) -> None:
    """Print the profile NAME, a file of that form, or the one of this node (`auto`).

    Exit status: 0; 2 where there is no such profile; 3 where this node's type has none.
    """
    from nhc.core.command_line.command_error import CommandError
    from nhc.core.state.store import State

    host = Host(memory=State())
    try:
        profile = profiles.resolve(args.name, host, ask=True)
        if profile is None or not profile.name:
            raise CommandError(profile.note if profile and profile.note else "this node's type has no profile")
        click.echo(profiles.text_of(profile, host), nl=False)
    except (profiles.NoProfile, OSError) as error:
        raise click.UsageError(str(error)) from None


class ListProfilesOptions(options.CommandOptions):
    pattern: str = options.argument("[PATTERN]", default="*")


@click_command
def list_profiles(args: ListProfilesOptions) -> None:
    """List the profiles with what they are for; PATTERN, as azure-*, chooses some."""
    from fnmatch import fnmatchcase

    host = Host()
    chosen = [name for name in profiles.names(host) if fnmatchcase(name, args.pattern.lower())]
    if not chosen:
        raise click.UsageError(f"no profile matches {args.pattern!r}")
    width = max(len(name) for name in chosen)
    for name in chosen:
        title = _title(host, name)
        print_result(f"{name:{width}}  {title}", name=name, title=title)


def _title(host: Host, name: str) -> str:
    """The first line of a profile, which says what it is for."""
    profile = profiles.resolve(name, host)
    try:
        first = profiles.text_of(profile, host).split("\n", 1)[0] if profile else ""
    except OSError as error:
        return f"({error.strerror})"
    return first.lstrip("# ")


def bundle(directory: str, output: str) -> int:
    """Write nhc/core/data/profiles.conf from conf/profiles; how many there are."""
    import os

    fragments: Dict[str, str] = {}
    for file in sorted(os.listdir(directory)):
        if file.endswith(".conf"):
            with open(f"{directory}/{file}", encoding="utf-8") as source:
                fragments[file[: -len(".conf")]] = source.read()
    with open(output, "w", encoding="utf-8") as target:
        target.write(profiles.join(fragments))
    return len(fragments)


def main(root: Optional[str] = None) -> None:
    """`python -m nhc.node.commands.profile`: rewrite the bundle after a change in conf/profiles."""
    import os

    import nhc

    base = root or os.path.dirname(os.path.dirname(os.path.abspath(nhc.__file__)))
    count = bundle(f"{base}/conf/profiles", f"{base}/nhc/core/data/{profiles.BUNDLE}")
    print(f"nhc/core/data/{profiles.BUNDLE}: {count} profiles", file=sys.stderr)


if __name__ == "__main__":
    main()
