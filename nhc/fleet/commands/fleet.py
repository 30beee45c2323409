"""`nhc fleet check`, `diff` and `report`: judge many nodes from one place, and look at sweeps again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, cast

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import FORMAT
from nhc.core.command_line.option_groups import GroupedCommand, under
from nhc.core.command_line.param_types import SOME_TIME, Converted
from nhc.core.exit_status import EXIT_USAGE

if TYPE_CHECKING:
    from nhc.fleet.sweep_options import SweepOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


_which = under("Which nodes")
_what = under("What is checked there")
_reach = under("How a node is reached")
_login = under("Logging in")
_bounds = under("Bounds")
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


def _time(*flags: str, default: str, help: str) -> Decorator:
    return _bounds(*flags, default=default, show_default=True, metavar="TIME", type=SOME_TIME, help=help)


FORMATS = ("text", "json", "jsonl")
FANOUT = 4096


@click.command("check", cls=GroupedCommand)
@_which("-w", "--nodes", "sets", multiple=True, metavar="SET", help="A node set: gpu[001-128], @group, a&b, or ^FILE "
        "with node sets (repeatable). With -i or --from it picks among their nodes.")  # fmt: skip
@_which("-x", "--exclude", multiple=True, metavar="SET", help="Leave these nodes out; ^FILE too (repeatable).")
@_which("-a", "--all", "all_nodes", is_flag=True, help="Every node that ClusterShell's default group source "
        "knows, as clush -a.")  # fmt: skip
@_which("-i", "--inventory", "inventories", multiple=True, metavar="PATH", help="An Ansible inventory: INI, YAML, a "
        "directory, a script (repeatable).")  # fmt: skip
@_which("-l", "--limit", default="", metavar="PATTERN", help="Of the inventory, what this Ansible pattern names.")
@_which("--vault-password-file", "vault_files", multiple=True, metavar="[ID@]FILE", help="Of the inventory's vault: a "
        "file that holds the password, or a program that prints it (repeatable).")  # fmt: skip
@_which("--ask-vault-pass", is_flag=True, help="Ask for the password of the inventory's vault.")
@_which("--from", "sources", multiple=True, metavar="NAME", help="Every node that slurm, kubernetes, ... knows "
        "(repeatable).")  # fmt: skip
@_which("--file", "files", multiple=True, metavar="FILE", help="Node sets from a file, - for standard input "
        "(repeatable).")  # fmt: skip
@_what("-c", "--config", multiple=True, metavar="FILE", help="Send this configuration and use it (repeatable). "
       "Default: the node's own.")  # fmt: skip
@_what("--scripts", multiple=True, metavar="DIR", help="Send these site checks (*.nhc) and load them (repeatable).")
@_what("--profile", default="", metavar="NAME", help="As for check local; a file is sent.")
@_what("--check", multiple=True, metavar="NAME", help="Run only checks of this name; shell patterns work (repeatable).")
@_what("--tag", multiple=True, metavar="TAG", help="Run only checks with this tag (repeatable).")
@_what("--context", default="", metavar="NAME", help="Run the lines meant for this context.")
@_what("--suite", default="", metavar="NAME", help="Run this suite of deep checks instead (prejob proves every GPU in "
       "a second); a node with work on it is UNKNOWN.")  # fmt: skip
@_what("--label", "facts", multiple=True, metavar="FACT", help="Keep this variable of the inventory with each report "
       "(repeatable).")  # fmt: skip
@_what("--nhc", "use", type=click.Choice(["auto", "pushed", "installed"]), default="auto", show_default=True,
       help="auto: the node's own nhc where it is this version, else one that is sent.")  # fmt: skip
@_what("--pyz", metavar="FILE", help="Send this nhc.pyz. Default: one built from this nhc.")
@_what("--python", default="", metavar="PATH", help="The nodes' Python. Default: the first that fits.")
@_what("--node-dir", default="", metavar="DIR", help="Where nodes keep what is sent: a directory of the user's "
       "own. Default: /var/cache/nhc-fleet or /var/tmp/nhc-UID.")  # fmt: skip
@_reach("--transport", type=click.Choice(["ssh", "paramiko", "openssh", "local"]), default="ssh", show_default=True,
        help="ssh: in this process, by libssh where that will do, else by paramiko; paramiko: by that alone; openssh: "
        "the ssh program; local: no connection.")  # fmt: skip
@_reach("-F", "--ssh-config", metavar="FILE", help="Read this ssh_config instead of the user's and the system's.")
@_reach("-p", "--port", default=0, type=click.IntRange(0, 65535), help="The port, where the inventory names none.")
@_reach("--accept-new", is_flag=True, help="Accept and remember host keys of hosts not known yet; a changed key is "
        "never accepted.")  # fmt: skip
@_login("-u", "--user", default="", help="Log in as this user, where the inventory names none.")
@_login("--identity", default="", metavar="FILE", help="A private key to offer.")
@_login("--ask-pass", is_flag=True, help="Ask for the login's password (or read it from $NHC_SSH_PASSWORD).")
@_login("--sudo", is_flag=True, help="Run as root through sudo, which must ask for no password.")
@_login("--ask-sudo-pass", is_flag=True, help="With --sudo: ask for its password (or $NHC_SUDO_PASSWORD).")
@_bounds("--fanout", default=128, show_default=True, type=click.IntRange(1, FANOUT), help="Nodes at once.")
@_bounds("--shards", default=0, type=click.IntRange(0, 256), help="Processes. Default: one per core.")
@_time("--connect-timeout", default="10s", help="For connecting and logging in, all tries together; "
                         "as long again for a command to start.")  # fmt: skip
@_time("-t", "--timeout", default="60s", help="For the checks on a node; kept there, too.")
@_bounds("--retries", default=1, show_default=True, type=click.IntRange(0, 10),
         help="Tries again after what may pass: a connection that broke, a resolver that is busy.")  # fmt: skip
@_output("-f", "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True,
        help="text: folded; json: one document; jsonl: each node's report as it arrives.")  # fmt: skip
@_output("--by", type=click.Choice(["node", "check"]), default="node", show_default=True, help="Fold results by.")
@_output("--skipped", is_flag=True, help="With --by check: also list checks that had nothing to judge.")
@_output("--html", metavar="FILE", help="Also write an HTML report.")
@_output("--json", "json_path", metavar="FILE", help="Also write what --format json prints.")
@_output("--group-by", default="", metavar="FACT", help="Group the HTML report's heat map by this variable or group. "
        "Default: rack, else the first group.")  # fmt: skip
@_output("--outliers/--no-outliers", default=True, show_default=True, help="List nodes whose metrics are far from "
        "their peers'.")  # fmt: skip
@_output("--history", metavar="FILE", help="Keep the sweep here. Default: ~/.local/share/nhc/fleet.sqlite.")
@_output("--no-history", is_flag=True, help="Do not keep the sweep.")
@_output("-q", "--quiet", is_flag=True, help="Leave out what is well.")
@_output("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
        help="auto: on a terminal.")  # fmt: skip
@_after("--store", metavar="URL", default="", help="With --suite: keep what it measured in this store, too.")
@_after("--max-unhealthy", metavar="LIMIT", type=Converted("limit", _limit),
        help="Exit 0 while at most this many nodes (5) or this share (2%) are CRIT or UNKNOWN.")  # fmt: skip
@_after("--mark", metavar="ADAPTER", help="Hand the reports to slurm, kubernetes, ...: shows what would be marked.")
@_after("--apply", is_flag=True, help="With --mark: do it, under the policy's ceilings.")
@_after("--policy", "policy_path", metavar="FILE", help="With --mark: ceilings and rates (TOML). Default: "
        "/etc/nhc/policy.toml, if any.")  # fmt: skip
@_after("--max-drained", metavar="LIMIT", help="With --mark: most nodes marked at once: 20, 10% or none.")
@_after("--ledger", "ledger_path", metavar="DIR", help="With --mark: where operations are remembered.")
def check(**options: Any) -> int:
    """Judge many nodes over SSH; nothing needs to be installed on them but Python 3.9.

    Exit status, of the worst node: 0 healthy (WARN too), 1 unhealthy (CRIT), 3 unknown; 2 wrong usage. 3 too when the
    adapter of --from or --mark does not answer, and 1 when marking failed.
    """
    from nhc.fleet.commands.fleet_check import run

    return run(cast("SweepOptions", options))


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
    from nhc.fleet.commands.fleet_check import again

    return _of_history(again, options)


def _of_history(run: Any, options: Dict[str, Any]) -> int:
    """Carry out a command over the history. Raises CommandError."""
    from nhc.fleet.history import HistoryError

    try:
        return int(run(options))
    except HistoryError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", EXIT_USAGE) from None
