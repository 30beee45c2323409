"""Options of commands, declared once: a class, whose fields carry their flags, unit, bounds, default and help.

    class FleetStatus(StoreOptions):                              # with the options that commands over a store share
        by: str = options.choice("--by", FACTS, "A row for each value.", heading="What is counted")
        within: float = options.duration("--within", "How far back to look.", "30d")  # in seconds
        user: Optional[str] = options.setting("-u --user", FleetSettings, "user")  # as fleet.toml declares it
        form: str = options.FORMAT

An option without a heading stands under that of the one before in its class. Two readers make one of these of a
command line: `read`, without a library, and click (`nhc.core.command_line.common_options.click_command`). Both
understand `-c FILE`, `-cFILE`, `--config FILE`, `--config=FILE`, and clusters of switches (`-qv`).
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any, Callable, ClassVar, Dict, List, Optional, Sequence, Tuple, Type, TypeVar

    from typing_extensions import dataclass_transform

    D = TypeVar("D", bound="CommandOptions")
else:

    def dataclass_transform(**_what):
        return lambda kind: kind


class UsageError(Exception):
    """The command line cannot be understood. The message is for the user."""


class LostOutput(UsageError):
    """What was to be printed could not be written: nobody knows how the node is by it (EXIT_UNKNOWN)."""


class Option(NamedTuple):
    """An option, or without flags an argument.

    One without `metavar` is a switch; `many` collects its values, or counts a switch. `default` is as it would be
    typed; `convert` makes the value of a text, its ValueError says what was expected. `bare` is the text of an option
    that was given without one. `number` is "whole" or "real", from `least` or `above` one to `most`. `group` is the
    entry point group whose names are choices as well. `foreign` words may look like options. `file` is the settings
    file whose path it is, which `--check-settings` reads where it is `checked`. `complete` proposes words to a shell
    that begin as what was typed. `of` is the class of settings whose field, by name, it stands for.
    """

    flags: Tuple[str, ...]
    help: str
    metavar: str = ""
    default: Any = None
    heading: str = ""
    many: bool = False
    needed: bool = False
    convert: Optional[Callable[[str], Any]] = None
    choices: Tuple[str, ...] = ()
    group: str = ""
    number: str = ""
    least: Optional[float] = None
    most: Optional[float] = None
    above: Optional[float] = None
    bare: Optional[str] = None
    foreign: bool = False
    file: str = ""
    checked: bool = False
    complete: Optional[Callable[[str], Sequence[str]]] = None
    of: Optional[Tuple[type, str]] = None

    def initial(self) -> Any:
        """Its value where the command line does not name it."""
        if self.many:
            return self.default or () if self.metavar else 0
        if self.convert is not None and isinstance(self.default, str) and self.default:
            return self.convert(self.default)
        return self.default


@dataclass_transform(frozen_default=True, kw_only_default=True)
class CommandOptions:
    """The options of a command, which come before those of the groups that it derives from; or such a group."""

    declared: ClassVar[Dict[str, Option]] = {}
    headings: ClassVar[Dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if type(value) is Option}
        cls.declared, cls.headings, heading = dict(own), {}, ""
        for base in cls.__bases__:
            cls.declared = {**cls.declared, **getattr(base, "declared", {}), **own}
            cls.headings.update(getattr(base, "headings", {}))
        for name, option in own.items():
            cls.headings[name] = heading = option.heading or heading
            setattr(cls, name, option.initial())

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in self.declared:
                raise TypeError(f"{type(self).__name__} has no option {name}")
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: what a command line says does not change")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(other, name) == getattr(self, name) for name in self.declared)

    __hash__ = None  # type: ignore[assignment]

    def overrides(self, kind: type) -> Dict[str, Any]:
        """What the command line says of the fields of a class of settings."""
        said = {option.of: getattr(self, name) for name, option in self.declared.items() if option.of is not None}
        return {field: value for (of, field), value in said.items() if of is kind and value not in (None, ())}


# One option. `flags` are parted by blanks.


def _option(flags: str, help: str, metavar: str = "", default: Any = None, **more: Any) -> Any:
    return Option(tuple(flags.split()), help, metavar, default, **more)


def flag(flags: str, help: str = "", default: Optional[bool] = False, **more: Any) -> Any:
    """A switch; `--apply/--dry-run` can be switched off as well."""
    return _option(flags, help, default=default, **more)


def text(flags: str, metavar: str, help: str = "", default: Optional[str] = "", **more: Any) -> Any:
    """Any text, or what `convert` makes of it."""
    return _option(flags, help, metavar, default, **more)


def texts(flags: str, metavar: str, help: str = "", **more: Any) -> Any:
    """An option that may be given several times."""
    return _option(flags, help, metavar, many=True, **more)


def choice(flags: str, choices: Sequence[str], help: str = "", default: Optional[str] = "", **more: Any) -> Any:
    """One word of several."""
    return _option(flags, help, more.pop("metavar", f"[{'|'.join(choices)}]"), default, choices=tuple(choices), **more)


def whole(
    flags: str, metavar: str, help: str = "", default: Optional[int] = None, *, least: Optional[int] = None,
    most: Optional[int] = None, **more: Any,
) -> Any:  # fmt: skip
    """A whole number from `least` to `most`."""
    return _option(flags, help, metavar, default, number="whole", least=least, most=most, **more)


def real(
    flags: str, metavar: str, help: str = "", default: Optional[float] = None, *, least: Optional[float] = None,
    most: Optional[float] = None, **more: Any,
) -> Any:  # fmt: skip
    """A finite number from `least` to `most`, or `above` one."""
    return _option(flags, help, metavar, default, number="real", least=least, most=most, **more)


def duration(flags: str, help: str = "", default: Optional[str] = None, *, none: bool = True, **more: Any) -> Any:
    """Seconds: `90`, `500ms`, `2m`, `1.5h`, `1d`, `1w`; without `none` more than 0."""
    return _option(flags, help, "TIME", default, convert=_seconds if none else _some_seconds, **more)


def share(flags: str, help: str = "", default: Optional[str] = None, **more: Any) -> Any:
    """A part of 1, below it: `1%` or `0.01`."""
    return _option(flags, help, "SHARE", default, convert=_share, **more)


def argument(metavar: str, help: str = "", default: Any = "", **more: Any) -> Any:
    """A word without a flag; `needed` where nothing stands for it."""
    return _option("", help, metavar, default, **more)


def arguments(metavar: str, help: str = "", **more: Any) -> Any:
    """All words without a flag."""
    return _option("", help, metavar, many=True, **more)


def settings_file(name: str, *, flags: str = "-s --settings", needed: bool = False, **more: Any) -> Any:
    """The path of a settings file, "" for the usual one; `needed` where that has to be there."""
    usual = f"/etc/nhc/{name}{'' if needed else ', if there is one'}"
    return _option(flags, f"The settings (TOML). Default: {usual}.", "FILE", "", file=name, **more)


def setting(flags: str, kind: Any, field: str, metavar: str = "VALUE", help: str = "", **more: Any) -> Any:
    """What a key of a settings file says, which declares its unit, bounds, default and help. None where not given."""
    from nhc.core.settings import declared  # no command of the node's local path has such an option

    known = declared.option_of(kind, field)
    if known.convert is None:
        return _option(flags, help or known.help, default=None, of=(kind, field), **more)
    return _option(flags, help or known.help, metavar, convert=known.convert, many=known.many, of=(kind, field), **more)


def _seconds(text: str) -> float:
    from nhc.core.units import seconds

    return seconds(text)


def _share(text: str) -> float:
    from nhc.core.units import percent

    try:
        share = percent(text) / 100 if text.strip().endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"{text!r} is not a share below 1, as 1% or 0.01")
    return share


def _some_seconds(text: str) -> float:
    duration = _seconds(text)
    if not duration:
        raise ValueError(f"{text!r} is no time at all")
    return duration


# What many commands have.

FORMAT = choice("-f --format", ("text", "json"), "Output format.", "text", heading="What is shown")


class Formatted(CommandOptions):
    """What a command with documents of its own shows."""

    form: str = FORMAT


BY = text("--by", "NAME", "Who gives this command. Default: the user.", heading="Who")
ON_UNKNOWN = choice("--on-unknown", ("tell", "admit", "refuse"), "What an unknown verdict does: tell (exit status 3), "
                    "admit (0) or refuse (1), for a container before a job.", "tell", metavar="CHOICE")  # fmt: skip


def checks(incomplete: str) -> List[str]:
    """Names of checks that begin so."""
    from nhc.core.check import find_all

    return [check.name for check in find_all() if check.name.startswith(incomplete)]


def tags(incomplete: str) -> List[str]:
    """Tags of checks that begin so."""
    from nhc.core.check import find_all

    return sorted({tag for check in find_all() for tag in check.tags if tag.startswith(incomplete)})


FORMATS = ("text", "json", "jsonl", "nagios", "npd", "prometheus")
WHEN = ("auto", "always", "never")


REPORT_FORMAT = choice("-f --format", FORMATS, f"Output format: {', '.join(FORMATS)}.", "text", metavar="FORMAT",
                       group="nhc.renderers", heading="What is shown")  # fmt: skip


class ReportOutput(CommandOptions):
    """How a report is shown."""

    form: str = REPORT_FORMAT
    output: str = text("-o --output", "FILE", "Write the report to this file, replaced whole, instead of standard "
                       "output (-).")  # fmt: skip
    evidence: bool = flag("-e --evidence", "Show the lines behind each verdict in text output.")
    skipped: bool = flag("--skipped", "List also the checks that this node has nothing for. They are always counted.")
    verbose: int = flag("-v --verbose", "Show where each check is configured and how long it took (repeatable).",
                        many=True)  # fmt: skip
    quiet: int = flag("-q --quiet", "Show only what is wrong; twice: nothing.", many=True)
    color: str = choice("--color", WHEN, "Colour: auto (on a terminal), always or never.", "auto", metavar="WHEN")


class CheckLocal(ReportOutput):
    """The options of `nhc check local`."""

    config: Tuple[str, ...] = texts("-c --config", "FILE", "Read this file or directory (repeatable). Default: "
                                    "/etc/nhc/nhc.conf, else the built-in default.",
                                    heading="What to judge by")  # fmt: skip
    scripts: Tuple[str, ...] = texts("--scripts", "DIR", "Load site checks (*.nhc) from this directory (repeatable). "
                                     "Default: /etc/nhc/scripts.")  # fmt: skip
    profile: str = text("--profile", "NAME", "Add this node type's expectations: a name of conf/profiles, a file, auto "
                        "or none.", "auto")  # fmt: skip
    node: str = text("-n --node", "NAME", "The node's name, which targets are matched against. Default: the kernel's "
                     "host name.")  # fmt: skip
    root: str = text("--root", "DIR", "Judge the node whose whole root directory is mounted there, from a container. "
                     "Default: $NHC_ROOT, else /.")  # fmt: skip
    check: Tuple[str, ...] = texts("--check", "NAME", "Run only checks of this name; shell patterns work (repeatable).",
                                   heading="Which checks", complete=checks)  # fmt: skip
    tag: Tuple[str, ...] = texts("--tag", "TAG", "Run only checks with this tag, such as gpu, fs, net (repeatable).",
                                 complete=tags)  # fmt: skip
    context: str = text("--context", "NAME", "Run the lines meant for this context: healthcheck, prolog, epilog, "
                        "agent.")  # fmt: skip
    all: bool = flag("-a --all", "Run every check; without it the run stops at the first that fails.",
                     heading="How they run")  # fmt: skip
    timeout: Optional[float] = duration("-t --timeout", "Deadline of the whole run, 0 for none. Default: TIMEOUT in "
                                        "the configuration, else 30s.")  # fmt: skip
    max_age: Optional[float] = duration("--max-age", "Use the agent's or the last run's report when it is at most this "
                                        "old.")  # fmt: skip
    on_unknown: str = ON_UNKNOWN


def read(kind: Type[D], argv: Sequence[str]) -> D:
    """The options of a declared class from the command line. Raises UsageError."""
    found = kind.declared
    values = {name: option.initial() for name, option in found.items()}
    by_flag = {flag: name for name, option in found.items() for flag in option.flags}
    arguments: List[str] = list(argv)
    while arguments:
        argument = arguments.pop(0)
        if argument.startswith("--"):
            flag, attached, value = argument.partition("=")
            name = _known(by_flag, flag)
            if not found[name].metavar:
                if attached:
                    raise UsageError(f"option {flag} takes no value")
                _set(values, found[name], name, flag, "")
            else:
                _set(values, found[name], name, flag, value if attached else _next(arguments, flag))
        elif len(argument) > 1 and argument[0] == "-":
            flag, tail = argument[:2], argument[2:]
            name = _known(by_flag, flag)
            if found[name].metavar:
                _set(values, found[name], name, flag, tail or _next(arguments, flag))
            else:
                _set(values, found[name], name, flag, "")
                if tail:
                    arguments.insert(0, f"-{tail}")
        else:
            raise UsageError(f"unexpected argument {argument!r}: checks are named with --check")
    return kind(**values)


def offered(group: str) -> Sequence[str]:
    """What installed packages add to an option's choices. Asked only for a value that is none of ours."""
    if not group:
        return ()
    from nhc.core.plugins import offers

    return sorted(offers(group))


def _known(by_flag: Dict[str, str], flag: str) -> str:
    if flag not in by_flag:
        from difflib import get_close_matches

        near = get_close_matches(flag, by_flag, 1)
        raise UsageError(f"no such option: {flag}{f' (did you mean {near[0]}?)' if near else ''}")
    return by_flag[flag]


def _next(arguments: List[str], flag: str) -> str:
    if not arguments:
        raise UsageError(f"option {flag} needs a value")
    return arguments.pop(0)


def _set(values: Dict[str, Any], option: Option, name: str, flag: str, text: str) -> None:
    if option.choices and text not in option.choices and text not in offered(option.group):
        raise UsageError(f"{flag}: {text!r} is not one of {', '.join((*option.choices, *offered(option.group)))}")
    if not option.metavar:
        values[name] = values[name] + 1 if option.many else True
        return
    try:
        value: Any = option.convert(text) if option.convert is not None else text
    except ValueError as error:
        raise UsageError(f"{option.flags[-1]}: {error}") from None
    values[name] = (*values[name], value) if option.many else value
