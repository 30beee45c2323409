"""A plan: what one run is to do, as the configuration asks and this node needs it.

`nhc.core.language.loader` makes a plan from files, `nhc.node.run.engine` carries it out. Pure values, no parsing.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Tuple

BUILT_IN = "built-in"
"""An item that a check of ours judges: `argv` is its name and arguments."""
COMMAND = "command"
"""An item that is a program to run by argv; a status other than 0 is CRIT."""
SHELL = "shell"
"""An item that needs bash: `line` is evaluated in the run's one persistent shell."""
SHELL_LINE = "shell line: "
"""How the question begins by which a Host is asked for a shell line's outcomes."""
DEEP = "deep"
"""The context of `nhc deep run`, which alone runs what is meant for it."""
DEEP_CHECKS = "check_deep_"
"""How the names of checks begin that load a node: they run in that context alone, whatever their lines say."""
UNDECIDED = "undecided"
"""An item that cannot be run or left out, since its line or target cannot be read, or not in time.

It is UNKNOWN; `argv` is the reason and the message.
"""
AUTO, NONE, UNLESS_NAMED = "auto", "none", ""
"""Which profile is added: that of the node's type, none, or none unless the configuration names one."""
NO_CHECK = "nhc"
"""The name under which a result is filed that belongs to no check."""
RUN_SECONDS = 30.0
"""Seconds for a whole run where nothing else is said: LBNL NHC's TIMEOUT."""

OWN_DEADLINE_MARGIN = 0.2
"""Seconds by which the watchdog lets a line that keeps a deadline of its own say that it has passed."""

UNLIMITED = 86400.0
"""Seconds for a line of a run without a limit."""


class Declared(NamedTuple):
    """What a built-in's declaration says of one line, so that it can be supervised without importing the check.

    `timeout` is the check's own deadline, or what the arguments ask for. `own_deadline` says that the check keeps a
    deadline itself (it has a timeout among its arguments). `samples` are reasons that tell of one moment, `settles` and
    `starting` those that a node may have right after its boot (`nhc.core.check.Check`). `changes`
    says that the line may change something: it runs a command of the site's, restarts or kills. `source` names what the
    check reads that other checks read, too, and that is slow to begin with; `parts` are what it reads of it, None for
    all.
    """

    timeout: float
    own_deadline: bool
    on_timeout: str
    needs: Tuple[str, ...]
    tags: Tuple[str, ...]
    changes: bool = False
    samples: Tuple[str, ...] = ()
    source: str = ""
    parts: Optional[Tuple[str, ...]] = None
    settles: Tuple[str, ...] = ()
    starting: Tuple[str, ...] = ()


class Item(NamedTuple):
    """One line of the configuration that applies to this node.

    `name` is what results are filed under: the check's name, the site function's, the program's, or for a free shell
    line its first word that looks like a check, else "shell". `settings` are the variables in force when it runs.
    `timeout` (seconds), `every` (seconds) and `on_timeout` ("crit" or "unknown") are None where the line leaves them to
    the check. `strikes` is how many failures make one count, 0 where the line leaves that to the check: in a row, or
    among the last `of` runs where that is not 0. `warn_only` lowers CRIT to WARN.
    `contexts` limits the item to some callers ("prolog", "epilog", "healthcheck", "agent", "deep"); empty means all.
    `source` is `file:line`. `declared` is there where a kept plan knows it (`nhc.node.planning.cache`).
    """

    kind: str
    name: str
    line: str
    source: str = ""
    argv: Tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    timeout: Optional[float] = None
    every: Optional[float] = None
    on_timeout: Optional[str] = None
    strikes: int = 0
    tags: Tuple[str, ...] = ()
    contexts: Tuple[str, ...] = ()
    of: int = 0
    warn_only: bool = False
    declared: Optional[Declared] = None

    def counting(self) -> List[str]:
        """How the line's options say what counts: `strikes 3 of 10`, `warn-only`."""
        strikes = f"strikes {self.strikes}{f' of {self.of}' if self.of else ''}"
        return [strikes] * bool(self.strikes) + ["warn-only"] * self.warn_only


class Plan(NamedTuple):
    """The items in the configuration's order, and what they share.

    `settings` are the variables at the end of the files. `scripts` are the site's `*.nhc` files, to be
    loaded into the shell when there is one. `notes` are warnings for the report, one line each. `inputs` are
    the files and directories the plan was made of: while none changes, neither does the plan. It is empty
    where more than files decided (an external matcher was asked, a script read the environment). `offered` are the
    checks of installed packages that its lines name: the name, `module:function`, the package with its version.
    """

    items: Tuple[Item, ...]
    settings: Mapping[str, str] = {}
    scripts: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    inputs: Tuple[str, ...] = ()
    offered: Tuple[Tuple[str, str, str], ...] = ()


# How long one line may take: its own `timeout` first, then for a built-in check what its declaration asks for
# (`nhc.core.declare.declare`), then the whole run's time. One rule, for the engine's watchdog and the agent's rounds.


def seconds_of_run(plan: Plan) -> float:
    """The plan's TIMEOUT in seconds, which counts wherever it is set; 30 where it is not or makes no sense."""
    try:
        return max(0.0, float(plan.settings.get("TIMEOUT", "") or RUN_SECONDS))
    except ValueError:
        return RUN_SECONDS


def seconds_of_line(item: Item, run: float, declared: Optional[Declared] = None) -> float:
    """Seconds for one line of a run that may take `run` seconds (0: without a limit)."""
    return item.timeout or (declared.timeout if declared is not None else run) or UNLIMITED


def seconds_of_watchdog(item: Item, run: float, declared: Optional[Declared] = None) -> float:
    """Seconds after which the line is ended from outside."""
    keeps = item.kind == COMMAND if declared is None else declared.own_deadline
    return seconds_of_line(item, run, declared) + (OWN_DEADLINE_MARGIN if keeps else 0.0)


def seconds_of_command(watchdog: float) -> float:
    """What a line that is a command keeps itself, of what the watchdog has for it."""
    return watchdog - OWN_DEADLINE_MARGIN
