"""`nhc genconf`: write a configuration from this node's hardware and software, keeping only lines that pass."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Dict, List, Tuple

import click

from nhc import __version__
from nhc.core import model
from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.host import Host
from nhc.core.language.site_settings import site_settings
from nhc.core.matching.nodeset import problem
from nhc.core.model import Outcome, Verdict, printable
from nhc.core.state.store import State
from nhc.node.planning import generate, node_type, profiles
from nhc.node.planning.generate import LineGroup


class GenconfOptions(options.CommandOptions):
    target: str = options.text(
        "-H --target", "MASK", "Whom the lines are for, as {gpu[01-64]}. Default: this node.", None
    )
    output: str = options.text(
        "-c --config", "FILE", "Write to FILE, - for standard output. Default: DIR/NAME.conf.auto.", None
    )
    name: str = options.text("-n --name", "NAME", "The configuration's name.", "nhc")
    directory: str = options.text("-D --directory", "DIR", "The configuration directory.", "/etc/nhc")
    dmi: str = options.text("-b --dmi", "REGEX", "Which of the firmware's properties become lines.", generate.DMI_MATCH)
    force: bool = options.flag("--force", "Replace the file where there is one.")
    verbose: bool = options.flag("-v --verbose", "Say on standard error which lines do not hold, and why.")


@click_command
def command(args: GenconfOptions) -> None:
    """Write a configuration from what this node is and has.

    Looks at processors, memory, file systems, drives, network ports, RDMA adapters, accelerators, daemons and
    firmware, and writes a line for each thing that should stay as it is. Every line is tried first: one that does
    not hold now is written as a comment with the reason, for you to look at, and one for something that this
    node does not have is left out. No serial numbers, command
    lines or other secrets are written. A file that is there is never overwritten without --force.
    """
    path = args.output or f"{args.directory.rstrip('/')}/{args.name}.conf.auto"
    if not args.force:
        _keep(path)
    host = Host(memory=State())
    node = site_settings().local_node_name(host)
    mask = args.target or node
    wrong = problem(mask)
    if wrong or re.search(r"\|\||[#\n]", mask):
        raise click.UsageError(f"-H: {wrong[0] if wrong else f'{mask!r} cannot be a target'}")
    pattern = args.dmi[1:-1] if len(args.dmi) > 1 and args.dmi[0] == args.dmi[-1] == "/" else args.dmi
    try:
        re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"-b: {args.dmi!r} is not a regular expression: {error}") from None
    groups = generate.groups(host, pattern)
    held = judge(groups, node)
    text = render(groups, held, mask, host)
    if args.verbose:
        for line, outcome in held.items():
            if outcome.verdict not in (Verdict.OK, Verdict.SKIP):
                click.echo(f"{line}: {printable(outcome.message)}", err=True)
    if not args.force:
        _keep(path)  # it may have been written while the lines were tried
    _write(path, text)


def judge(groups: List[LineGroup], node: str) -> Dict[str, Outcome]:
    """The result of each line on this node now, the worst one if it has several."""
    tried = generate.tried([line for group in groups for line in group.lines], node, Host())
    return {line: model.worst(tuple(outcomes)) for line, outcomes in tried.items()}


def render(groups: List[LineGroup], held: Dict[str, Outcome], mask: str, host: Host) -> str:
    """The configuration's text."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime())
    head = (
        f"# What {site_settings().local_node_name(host)} was and had on {stamp}.\n"
        f"# Written by nhc genconf {__version__}: look it through before you use it.\n"
        "#\n"
        "# A line is TARGET || CHECK ARGUMENTS. Widen the target where other nodes are to be the same, as in\n"
        "# {gpu[01-64]} || check_hw_cpuinfo 2 64 128. Lines that begin with `# Not now:` did not hold when this was\n"
        "# written: repair the node, or change or delete them. nhc explain CHECK tells what a check reads and judges.\n"
    )
    parts = [head, _about_type(host)]
    for group in groups:
        lines = _lines(group, held, mask)
        if lines:
            about = "".join(f"# {line}\n" for line in group.about)
            parts.append(f"\n### {group.title}\n{about}{''.join(lines)}")
    return "".join(parts)


def _lines(group: LineGroup, held: Dict[str, Outcome], mask: str) -> List[str]:
    lines: List[str] = []
    for line in dict.fromkeys(group.lines):
        outcome = held.get(line)
        if outcome is None or outcome.verdict is Verdict.SKIP:
            continue
        if outcome.verdict is Verdict.OK:
            lines.append(f"{mask} || {line}\n")
        else:
            lines.append(f"# Not now: {mask} || {line}\n#   {printable(outcome.message, 150)}\n")
    return lines


def _about_type(host: Host) -> str:
    """A comment that says what `--profile auto` adds on this node."""
    node = node_type.detect(host)
    there = profiles.names(host)
    name = next((name for name in node.names if name in there), "")
    if not name:
        return ""
    kind = " ".join(part for part in (node.cloud, node.type) if part)
    return (
        f"#\n# This node is {kind or 'of a known type'} (by {node.why}). nhc check local adds the profile {name}\n"
        f"# (nhc show profile {name}); checks that have a line here are taken from here.\n"
    )


def _keep(path: str) -> None:
    """Raises UsageError for an existing file: somebody may have edited it."""
    if path != "-" and os.path.isfile(path):
        raise click.UsageError(
            f"{path} is there already and was left as it is. Write to another file with -c FILE, to standard output "
            "with -c -, or replace it with --force."
        )


def _write(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
        return
    from nhc.core.command_line.options import UsageError
    from nhc.core.command_line.report_output import write_atomically

    try:
        folder = os.path.dirname(path)
        if folder and not os.path.isdir(folder) and os.path.basename(path).endswith(".auto"):
            os.makedirs(folder, 0o755, exist_ok=True)  # of the default, not of a FILE that was named
        write_atomically(path, text)
    except OSError as error:
        raise click.UsageError(f"{folder}: {error.strerror or error} (-c - prints the configuration)") from None
    except UsageError as error:
        raise click.UsageError(str(error).replace("the report", "the configuration") + " (-c - prints it)") from None
    lines = _counted(text)
    click.echo(f"{path}: {lines[0]} checks" + (f", {lines[1]} that do not hold now" if lines[1] else ""), err=True)
    if os.path.basename(path).endswith(".auto"):
        click.echo(f"Look it through, then rename it to {path[: -len('.auto')]}.", err=True)


def _counted(text: str) -> Tuple[int, int]:
    """How many lines are active, and how many are commented out because they do not pass."""
    lines = text.split("\n")
    return sum(1 for line in lines if line and line[0] != "#"), sum(
        1 for line in lines if line.startswith("# Not now:")
    )
