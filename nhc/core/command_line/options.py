"""One definition of options for two readers: the quick one below, and click (`nhc.cli.click_app`).

The quick reader understands what click does: `-c FILE`, `-cFILE`, `--config FILE`, `--config=FILE`, and
clusters of switches (`-qv`).
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple, TypedDict

    class CheckLocalOptions(TypedDict):
        """The values of CHECK_LOCAL by their names. Times are as they were written: `10m`."""

        config: List[str]
        scripts: List[str]
        profile: str
        node: str
        root: str
        check: List[str]
        tag: List[str]
        context: str
        all: bool
        timeout: Optional[str]
        max_age: Optional[str]
        on_unknown: str
        format: str
        output: str
        evidence: bool
        skipped: bool
        verbose: int
        quiet: int
        color: str


class UsageError(Exception):
    """The command line cannot be understood. The message is for the user."""


class LostOutput(UsageError):
    """What was to be printed could not be written: nobody knows how the node is by it (EXIT_UNKNOWN)."""


class Option(NamedTuple):
    """An option. One without `metavar` is a switch; `many` collects its values, or counts a switch.

    `heading` is what it stands under in the help. `group` is the entry point group whose names are choices as well.
    """

    flags: Tuple[str, ...]
    name: str
    help: str
    metavar: str = ""
    many: bool = False
    default: object = None
    choices: Tuple[str, ...] = ()
    heading: str = ""
    group: str = ""

    def initial(self) -> Any:
        if self.many:
            return [] if self.metavar else 0
        return self.default if self.metavar else bool(self.default)


FORMATS = ("text", "json", "jsonl", "nagios", "npd", "prometheus")

_CONFIGURED, _WHICH, _HOW, _SHOWN = "What to judge by", "Which checks", "How they run", "What is shown"

CHECK_LOCAL = (
    Option(("-c", "--config"), "config", "Read this file or directory (repeatable). Default: /etc/nhc/nhc.conf, "
           "else the built-in default.", "FILE", many=True,
           heading=_CONFIGURED),
    Option(("--scripts",), "scripts", "Load site checks (*.nhc) from this directory (repeatable). "
           "Default: /etc/nhc/scripts.", "DIR", many=True,
           heading=_CONFIGURED),
    Option(("--profile",), "profile", "Add this node type's expectations: a name of conf/profiles, a file, auto or "
           "none.", "NAME", default="auto",
           heading=_CONFIGURED),
    Option(("-n", "--node"), "node", "The node's name, which targets are matched against. Default: the kernel's host "
           "name.", "NAME", default="",
           heading=_CONFIGURED),
    Option(("--root",), "root", "Judge the node whose whole root directory is mounted there, from a container. "
           "Default: $NHC_ROOT, else /.", "DIR", default="",
           heading=_CONFIGURED),
    Option(("--check",), "check", "Run only checks of this name; shell patterns work (repeatable).", "NAME", many=True,
           heading=_WHICH),
    Option(("--tag",), "tag", "Run only checks with this tag, such as gpu, fs, net (repeatable).", "TAG", many=True,
           heading=_WHICH),
    Option(("--context",), "context", "Run the lines meant for this context: healthcheck, prolog, epilog, agent.",
           "NAME", default="",
           heading=_WHICH),
    Option(("-a", "--all"), "all", "Run every check; without it the run stops at the first that fails.",
           heading=_HOW),
    Option(("-t", "--timeout"), "timeout", "Deadline of the whole run, 0 for none. Default: TIMEOUT in the "
           "configuration, else 30s.", "TIME",
           heading=_HOW),
    Option(("--max-age",), "max_age", "Use the agent's or the last run's report when it is at most this old.", "TIME",
           heading=_HOW),
    Option(("--on-unknown",), "on_unknown", "What an unknown verdict does: tell (exit status 3), admit (0) or refuse "
           "(1), for a container before a job.", "CHOICE", default="tell", choices=("tell", "admit", "refuse"),
           heading=_HOW),
    Option(("-f", "--format"), "format", f"Output format: {', '.join(FORMATS)}.", "FORMAT", default="text",
           choices=FORMATS, heading=_SHOWN, group="nhc.renderers"),
    Option(("-o", "--output"), "output", "Write the report to this file, replaced whole, instead of standard output "
           "(-).", "FILE", default="",
           heading=_SHOWN),
    Option(("-e", "--evidence"), "evidence", "Show the lines behind each verdict in text output.",
           heading=_SHOWN),
    Option(("--skipped",), "skipped", "List also the checks that this node has nothing for. They are always "
           "counted.",
           heading=_SHOWN),
    Option(("-v", "--verbose"), "verbose", "Show where each check is configured and how long it took (repeatable).",
           many=True,
           heading=_SHOWN),
    Option(("-q", "--quiet"), "quiet", "Show only what is wrong; twice: nothing.", many=True,
           heading=_SHOWN),
    Option(("--color",), "color", "Colour: auto (on a terminal), always or never.", "WHEN", default="auto",
           choices=("auto", "always", "never"),
           heading=_SHOWN),
)  # fmt: skip
"""The options of `nhc check local`."""


def read(options: Sequence[Option], argv: Sequence[str]) -> Dict[str, Any]:
    """The options' values from the command line. Raises UsageError."""
    values = {option.name: option.initial() for option in options}
    by_flag = {name: option for option in options for name in option.flags}
    arguments: List[str] = list(argv)
    while arguments:
        argument = arguments.pop(0)
        if argument.startswith("--"):
            name, attached, value = argument.partition("=")
            option = _known(by_flag, name)
            if not option.metavar:
                if attached:
                    raise UsageError(f"option {name} takes no value")
                _set(values, option, name, "")
            else:
                _set(values, option, name, value if attached else _next(arguments, name))
        elif len(argument) > 1 and argument[0] == "-":
            name, tail = argument[:2], argument[2:]
            option = _known(by_flag, name)
            if option.metavar:
                _set(values, option, name, tail or _next(arguments, name))
            else:
                _set(values, option, name, "")
                if tail:
                    arguments.insert(0, f"-{tail}")
        else:
            raise UsageError(f"unexpected argument {argument!r}: checks are named with --check")
    return values


def check_local_options(values: Any) -> CheckLocalOptions:
    """The values of CHECK_LOCAL, whichever of the two readers has read them."""
    options: CheckLocalOptions = values
    return options


def offered(group: str) -> Sequence[str]:
    """What installed packages add to an option's choices. Asked only for a value that is none of ours."""
    if not group:
        return ()
    from nhc.core.plugins import offers

    return sorted(offers(group))


def _known(by_flag: Dict[str, Option], name: str) -> Option:
    option = by_flag.get(name)
    if option is None:
        from difflib import get_close_matches

        near = get_close_matches(name, by_flag, 1)
        raise UsageError(f"no such option: {name}{f' (did you mean {near[0]}?)' if near else ''}")
    return option


def _next(arguments: List[str], name: str) -> str:
    if not arguments:
        raise UsageError(f"option {name} needs a value")
    return arguments.pop(0)


def _set(values: Dict[str, Any], option: Option, name: str, value: str) -> None:
    if option.choices and value not in option.choices and value not in offered(option.group):
        raise UsageError(f"{name}: {value!r} is not one of {', '.join((*option.choices, *offered(option.group)))}")
    if not option.metavar:
        values[option.name] = values[option.name] + 1 if option.many else True
    elif option.many:
        values[option.name].append(value)
    else:
        values[option.name] = value
