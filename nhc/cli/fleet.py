"""`nhc fleet check`, `diff` and `report`: judge many nodes from one place, and look at sweeps again."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Optional, Tuple

import click

from nhc.cli import EXIT_USAGE

_TIMES = "TIME"
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _seconds(_context: Any, parameter: Any, value: Optional[str]) -> Optional[float]:
    from nhc.units import seconds

    if value is None:
        return None
    try:
        found = seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
    if not found:
        raise click.BadParameter(f"{value!r} is no time at all", param=parameter)
    return found


def _share(_context: Any, parameter: Any, value: Optional[str]) -> Optional[Tuple[Optional[int], float]]:
    """`5` or `2.5%`: a count, or a share."""
    if value is None:
        return None
    number = value[:-1] if value.endswith("%") else value
    try:
        found = float(number) if value.endswith("%") else int(number)
    except ValueError:
        found = -1
    if not (0 <= found <= 100 if value.endswith("%") else found >= 0):  # nan is neither
        raise click.BadParameter(f"{value!r} is neither a number of nodes nor a share such as 2%", param=parameter)
    return (None, found / 100) if value.endswith("%") else (int(found), 0.0)


def _many(*flags: str, metavar: str, help: str) -> Decorator:
    return click.option(*flags, multiple=True, metavar=metavar, help=help)


def _time(*flags: str, default: str, help: str) -> Decorator:
    return click.option(*flags, default=default, show_default=True, metavar=_TIMES, callback=_seconds, help=help)


@click.command("check")
# Which nodes.
@_many("-w", "--nodes", "sets", metavar="SET", help="A node set: gpu[001-128], @group, a&b (repeatable). With -i or "
       "--from it picks among their nodes.")  # fmt: skip
@_many("-x", "--exclude", metavar="SET", help="Leave these nodes out (repeatable).")
@_many("-i", "--inventory", "inventories", metavar="PATH", help="An Ansible inventory: INI, YAML, a directory, a "
       "script (repeatable).")  # fmt: skip
@click.option("-l", "--limit", default="", metavar="PATTERN", help="Of the inventory, what this Ansible pattern names.")
@_many("--from", "sources", metavar="NAME", help="Every node that slurm, kubernetes, ... knows (repeatable).")
@_many("--file", "files", metavar="FILE", help="Node sets from a file, - for standard input (repeatable).")
# What is checked there.
@_many("-c", "--config", metavar="FILE", help="Send this configuration and use it. Default: the node's own.")
@_many("--scripts", metavar="DIR", help="Send these site checks (*.nhc) and load them.")
@click.option("--profile", default="", metavar="NAME", help="As for check local; a file is sent.")
@_many("--check", metavar="NAME", help="Run only checks of this name (repeatable).")
@_many("--tag", metavar="TAG", help="Run only checks with this tag (repeatable).")
@click.option("--context", default="", metavar="NAME", help="Run the lines meant for this context.")
@_many("--label", "facts", metavar="FACT", help="Keep this variable of the inventory with each report (repeatable).")
# How a node is reached.
@click.option("--transport", type=click.Choice(["ssh", "openssh", "local"]), default="ssh", show_default=True,
              help="ssh: in this process (paramiko); openssh: the ssh program; local: no connection.")  # fmt: skip
@click.option("-F", "--ssh-config", metavar="FILE", help="Read this ssh_config instead of the user's and the system's.")
@click.option("-u", "--user", default="", help="Log in as this user, where the inventory names none.")
@click.option(
    "-p", "--port", default=0, type=click.IntRange(0, 65535), help="The port, where the inventory names none."
)
@click.option("--identity", default="", metavar="FILE", help="A private key to offer.")
@click.option("--accept-new", is_flag=True, help="Accept and remember host keys of hosts not known yet; a changed key "
              "is never accepted.")  # fmt: skip
@click.option("--ask-pass", is_flag=True, help="Ask for the login's password (or read it from $NHC_SSH_PASSWORD).")
@click.option("--sudo", is_flag=True, help="Run as root through sudo, which must ask for no password.")
@click.option("--ask-sudo-pass", is_flag=True, help="With --sudo: ask for its password (or $NHC_SUDO_PASSWORD).")
@click.option("--python", default="", metavar="PATH", help="The nodes' Python. Default: the first that fits.")
@click.option("--nhc", "use", type=click.Choice(["auto", "pushed", "installed"]), default="auto", show_default=True,
              help="auto: the node's own nhc where it is this version, else one that is sent.")  # fmt: skip
@click.option("--pyz", metavar="FILE", help="Send this nhc.pyz. Default: one built from this nhc.")
@click.option("--node-dir", default="", metavar="DIR", help="Where nodes keep what is sent: a directory of the user's "
              "own. Default: /var/cache/nhc-fleet or /var/tmp/nhc-UID.")  # fmt: skip
# Bounds.
@click.option("--fanout", default=128, show_default=True, type=click.IntRange(1, 4096), help="Nodes at once.")
@click.option("--shards", default=0, type=click.IntRange(0, 256), help="Processes. Default: one per core.")
@_time("--connect-timeout", default="10s", help="For connecting and logging in, all tries "
       "together; as long again for a command to start.")  # fmt: skip
@_time("-t", "--timeout", default="60s", help="For the checks on a node; kept there, too.")
@click.option("--retries", default=1, show_default=True, type=click.IntRange(0, 10),
              help="Tries again after what may pass: a connection that broke, a resolver that is busy.")  # fmt: skip
# What is shown and kept.
@click.option("-f", "--format", "form", type=click.Choice(["text", "json", "jsonl"]), default="text", show_default=True,
              help="jsonl: each node's report as it arrives.")  # fmt: skip
@click.option("--by", type=click.Choice(["node", "check"]), default="node", show_default=True, help="Fold results by.")
@click.option("--html", metavar="FILE", help="Also write an HTML report.")
@click.option("--json", "json_path", metavar="FILE", help="Also write what --format json prints.")
@click.option("--group-by", default="", metavar="FACT", help="Group the HTML report's heat map by this variable or "
              "group. Default: rack, else the first group.")  # fmt: skip
@click.option("--outliers/--no-outliers", default=True, show_default=True, help="List nodes whose metrics are far "
              "from their peers'.")  # fmt: skip
@click.option("--history", metavar="FILE", help="Keep the sweep here. Default: ~/.local/share/nhc/fleet.sqlite.")
@click.option("--no-history", is_flag=True, help="Do not keep the sweep.")
@click.option("-q", "--quiet", is_flag=True, help="Leave out what is well.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
# What follows.
@click.option("--max-unhealthy", metavar="LIMIT", callback=_share, help="Exit 0 while at most this many nodes (5) or "
              "this share (2%) are CRIT or UNKNOWN.")  # fmt: skip
@click.option(
    "--mark", metavar="ADAPTER", help="Hand the reports to slurm, kubernetes, ...: shows what would be marked."
)
@click.option("--apply", is_flag=True, help="With --mark: do it, under the policy's ceilings.")
@click.option("--policy", "policy_path", metavar="FILE", help="With --mark: ceilings and rates (TOML). Default: "
              "/etc/nhc/policy.toml, if any.")  # fmt: skip
@click.option("--max-drained", metavar="LIMIT", help="With --mark: most nodes marked at once: 20, 10% or none.")
@click.option("--ledger", "ledger_path", metavar="DIR", help="With --mark: where deeds are remembered.")
def check(**options: Any) -> None:
    """Judge many nodes over SSH; nothing needs to be installed on them but Python 3.9.

    Exit status, of the worst node: 0 healthy, 1 unhealthy (CRIT), 3 unknown; 2 wrong usage. 3 too when the adapter
    of --from or --mark does not answer, and 1 when marking failed.
    """
    from nhc.fleet.command import run
    from nhc.fleet.given import Usage
    from nhc.model import printable

    try:
        status = run(options)
    except Usage as error:
        print(f"nhc fleet check: {printable(str(error))}", file=sys.stderr)
        status = error.status
    raise SystemExit(status)


@click.command("diff")
@click.argument("old", default="last-1")
@click.argument("new", default="last")
@click.option("--history", metavar="FILE", help="The history. Default: ~/.local/share/nhc/fleet.sqlite.")
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def diff(**options: Any) -> None:
    """What changed between two sweeps: numbers as `nhc fleet report --list` shows them, or last, last-1, ...

    Exit status: 0 no node is worse, 1 some are worse, 2 there is no such sweep.
    """
    from nhc.fleet.diff import run

    raise SystemExit(_history(run, options))


@click.command("report")
@click.argument("sweep", default="last")
@click.option("--list", "listed", is_flag=True, help="List the sweeps kept.")
@click.option("--history", metavar="FILE", help="The history. Default: ~/.local/share/nhc/fleet.sqlite.")
@click.option("-f", "--format", "form", type=click.Choice(["text", "json", "jsonl", "html"]), default="text",
              show_default=True)  # fmt: skip
@click.option("--by", type=click.Choice(["node", "check"]), default="node", show_default=True, help="Fold results by.")
@click.option("--group-by", default="", metavar="FACT", help="Group the heat map by this variable or group.")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@click.option("-q", "--quiet", is_flag=True, help="Leave out what is well.")
@click.option("--outliers/--no-outliers", default=True, show_default=True)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def report(**options: Any) -> None:
    """Show a sweep again: a number, last, last-1, ..."""
    from nhc.fleet.command import again

    raise SystemExit(_history(again, options))


def _history(run: Any, options: Dict[str, Any]) -> int:
    from nhc.fleet.history import HistoryError

    try:
        return int(run(options))
    except HistoryError as error:
        print(f"nhc fleet: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"nhc fleet: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
