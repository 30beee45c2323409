"""`nhc fleet check`, `diff` and `report`: judge many nodes from one place, and look at sweeps again."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import FORMAT, SOME_TIME, Converted, GroupedCommand, check_settings, under
from nhc.core.exit_status import EXIT_USAGE

_which = under("Which nodes")
_what = under("What is checked there")
_how = under("How nodes are reached")
_output = under("What is shown and kept")
_after = under("What follows")


def _limit(value: str) -> Tuple[Optional[int], float]:
    """`5` or `2.5%`: a count, or a share. Raises ValueError."""
    number = value[:-1] if value.endswith("%") else value
    try:
        limit = float(number) if value.endswith("%") else int(number)
    except ValueError:
        limit = -1
    if not (0 <= limit <= 100 if value.endswith("%") else limit >= 0):  # nan is neither
        raise ValueError(f"{value!r} is neither a number of nodes nor a share such as 2%")
    return (None, limit / 100) if value.endswith("%") else (int(limit), 0.0)


FORMATS = ("text", "json", "jsonl")


@click.command("check", cls=GroupedCommand)
@_which("-w", "--nodes", "sets", multiple=True, metavar="SET", help="A node set: gpu[001-128], @group, a&b, or ^FILE "
        "with node sets (repeatable). With -i or --from it picks among their nodes.")  # fmt: skip
@_which("-x", "--exclude", multiple=True, metavar="SET", help="Leave these nodes out; ^FILE too (repeatable).")
@_which("-a", "--all", "all_nodes", is_flag=True, help="Every node that ClusterShell's default group source "
        "knows, as clush -a.")  # fmt: skip
@_which("-i", "--inventory", "inventories", multiple=True, metavar="PATH", help="An Ansible inventory: INI, YAML, a "
        "directory, a script (repeatable).")  # fmt: skip
@_which("-l", "--limit", default="", metavar="PATTERN", help="Of the inventory, what this Ansible pattern names.")
@_which("--from", "sources", multiple=True, metavar="NAME", help="Every node that slurm, kubernetes, ... knows "
        "(repeatable).")  # fmt: skip
@_which("--file", "files", multiple=True, metavar="FILE", help="Node sets from a file, - for standard input "
        "(repeatable).")  # fmt: skip
@_what("-c", "--config", multiple=True, metavar="FILE", help="Send this configuration and use it (repeatable). "
       "Default: the node's own.")  # fmt: skip
@_what("--profile", default="", metavar="NAME", help="As for check local; a file is sent.")
@_what("--check", multiple=True, metavar="NAME", help="Run only checks of this name; shell patterns work (repeatable).")
@_what("--tag", multiple=True, metavar="TAG", help="Run only checks with this tag (repeatable).")
@_what("--context", default="", metavar="NAME", help="Run the lines meant for this context.")
@_what("--suite", default="", metavar="NAME", help="Run this suite of deep checks instead (prejob proves every GPU in "
       "a second); a node with work on it is UNKNOWN.")  # fmt: skip
@check_settings("fleet.toml", heading="How nodes are reached")
@_how("-s", "--settings", "path", default="", metavar="FILE", help="How a sweep is gone about (TOML). Default: "
      "/etc/nhc/fleet.toml, if any.")  # fmt: skip
@_how("--set", "given", multiple=True, metavar="KEY=VALUE", help="A key of that file for this sweep, such as "
      "fanout=16, transport=openssh, accept-new=true, html=FILE (repeatable).")  # fmt: skip
@_how("-u", "--user", default=None, help="Log in as this user, where the inventory names none.")
@_how("--ask-pass", is_flag=True, help="Ask for the login's password (or read it from $NHC_SSH_PASSWORD).")
@_how("--sudo", is_flag=True, default=None, help="Run as root through sudo, which must ask for no password.")
@_how("--ask-sudo-pass", is_flag=True, help="With --sudo: ask for its password (or $NHC_SUDO_PASSWORD).")
@_how("-t", "--timeout", default=None, metavar="TIME", type=SOME_TIME, help="For the checks on a node. Default: 60s.")
@_output("-f", "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True,
        help="text: folded; json: one document; jsonl: each node's report as it arrives.")  # fmt: skip
@_output("-q", "--quiet", is_flag=True, help="Leave out what is well.")
@_after("--max-unhealthy", metavar="LIMIT", type=Converted("limit", _limit),
        help="Exit 0 while at most this many nodes (5) or this share (2%) are CRIT or UNKNOWN.")  # fmt: skip
@_after("--mark", metavar="ADAPTER", help="Hand the reports to slurm, kubernetes, ...: shows what would be marked.")
@_after("--apply", is_flag=True, help="With --mark: do it, under the policy's ceilings.")
def check(path: str, given: Tuple[str, ...], **options: Any) -> int:
    """Judge many nodes over SSH; nothing needs to be installed on them but Python 3.9.

    Exit status, of the worst node: 0 healthy (WARN too), 1 unhealthy (CRIT), 3 unknown; 2 wrong usage. 3 too when the
    adapter of --from or --mark does not answer, and 1 when marking failed.
    """
    from nhc.fleet.commands.fleet_check import run
    from nhc.fleet.settings import FILE
    from nhc.fleet.sweep_request import request

    return run(request(FILE.load(path, given), options))


@click.command("diff")
@click.argument("old", default="last-1")
@click.argument("new", default="last")
@click.option("--history", metavar="FILE", help="The history. Default: ~/.local/share/nhc/fleet.sqlite.")
@FORMAT
def diff(**options: Any) -> int:
    """What changed between two sweeps: numbers as `nhc fleet report --list` shows them, or last, last-1, ...

    Exit status: 0 no node is worse, 1 some are worse, 2 there is no such sweep.
    """
    from nhc.fleet.diff import run

    return _of_history(run, options)


@click.command("report")
@click.argument("sweep", default="last")
@click.option("--list", "listed", is_flag=True, help="List the sweeps kept.")
@click.option("--history", metavar="FILE", help="The history. Default: ~/.local/share/nhc/fleet.sqlite.")
@click.option("-f", "--format", "form", type=click.Choice(["text", "json", "jsonl", "html"]), default="text",
              show_default=True)  # fmt: skip
@click.option("--by", type=click.Choice(["node", "check"]), default="node", show_default=True, help="Fold results by.")
@click.option("--group-by", default="", metavar="FACT", help="Group the heat map by this variable or group.")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@click.option("--skipped", is_flag=True, help="With --by check: also list checks that had nothing to judge.")
@click.option("-q", "--quiet", is_flag=True, help="Leave out what is well.")
@click.option("--outliers/--no-outliers", default=True, show_default=True)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def report(**options: Any) -> int:
    """Show a sweep again: a number, last, last-1, ..."""
    from nhc.fleet.commands.fleet_check import show_again

    return _of_history(show_again, options)


def _of_history(run: Any, options: Dict[str, Any]) -> int:
    """Carry out a command over the history. Raises CommandError."""
    from nhc.fleet.history import HistoryError

    try:
        return int(run(**options))
    except HistoryError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", EXIT_USAGE) from None
