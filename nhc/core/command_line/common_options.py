"""What commands' options are made of: headings, values read as in settings files, options that mean the same in many
commands; and who gives a command.
"""

from __future__ import annotations

import inspect
import math
import os
from functools import wraps
from typing import Any, Callable, Collection, Dict, List, Optional, Sequence, Tuple, Type, TypeVar

import click
import click.shell_completion
from click.core import ParameterSource

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.options import Option, made, offered, options_of
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.matching.node_ranges import expand
from nhc.core.model import printable
from nhc.core.system.machine import System
from nhc.core.units import percent, seconds


class GroupedCommand(click.Command):
    """A command whose options carry a heading each; those without one come last, under "Other".

    Arguments stand in the first line of the help. click 8.5 wants a row for each of them here as well, with nothing
    beside it where the argument has no help of its own: such a row is left out.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: Dict[str, List[Tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and (isinstance(parameter, click.Option) or record[1]):
                rows.setdefault(getattr(parameter, "heading", "Other"), []).append(record)
        other = rows.pop("Other", [])
        for heading, records in (*rows.items(), ("Other" if rows else "Options", other)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class HeadedOption(click.Option):
    """An option under a heading."""

    def __init__(self, flags: Sequence[str], heading: str = "Other", **more: Any) -> None:
        super().__init__(flags, **more)
        self.heading = heading


def under(heading: str) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """`click.option` for options under this heading."""

    def option(*flags: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return click.option(*flags, cls=HeadedOption, heading=heading, **more)

    return option


class OfferedChoice(click.Choice):
    """A choice of ours, or one that an installed package offers under an entry point group."""

    def __init__(self, choices: Sequence[str], group: str) -> None:
        super().__init__(list(choices))
        self.group = group

    def convert(self, value: object, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Any:
        return value if value in offered(self.group) else super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> List[click.shell_completion.CompletionItem]:
        names = [name for name in offered(self.group) if name.startswith(incomplete)]
        return [*super().shell_complete(ctx, param, incomplete), *map(click.shell_completion.CompletionItem, names)]


class Parameter(HeadedOption):
    """A declared option, for click."""

    def __init__(self, name: str, option: Option, heading: str) -> None:
        super().__init__(
            [*option.flags, name], heading, help=option.help, required=option.needed, **_value(option)
        )  # fmt: skip


def _value(option: Option) -> Dict[str, Any]:
    """What click makes of an option's text, and what it shows of that."""
    if not option.metavar:
        return {"count": True} if option.many else {"is_flag": True, "default": option.default}
    more: Dict[str, Any] = {"metavar": option.metavar, "type": _type(option)}
    if option.flags:
        more.update(multiple=option.many, show_default=option.default not in (None, ""))
    elif option.many:
        more["nargs"] = -1
    if not option.many and not option.needed:
        more["default"] = option.default
    if option.bare is not None:
        more.update(is_flag=False, flag_value=option.bare)
    if option.complete is not None:
        more["shell_complete"] = _completion(option.complete)
    return more


_PATHS = {"FILE": click.Path(), "PATH": click.Path(), "DIR": click.Path(file_okay=False)}
"""What the shell completes; that they are there is for the command to say."""


def _type(option: Option) -> Optional[click.ParamType]:
    if option.convert is not None:
        return Converted(option.metavar.lower(), option.convert)
    if option.choices:
        return OfferedChoice(option.choices, option.group) if option.group else click.Choice(list(option.choices))
    if option.number:
        least, most = option.least, option.most
        whole = option.number == "whole"
        return click.IntRange(least, most) if whole else FiniteNumber(least, most)
    return _PATHS.get(option.metavar)


def _completion(complete: Callable[[str], Sequence[str]]) -> Callable[..., List[str]]:
    return lambda _context, _parameter, incomplete: list(complete(incomplete))


def parameters(kind: type) -> List[click.Parameter]:
    """The options and arguments of a declared class, for click."""
    found: List[click.Parameter] = []
    heading = "Other"
    for name, option in options_of(kind):
        heading = option.heading or heading
        if option.flags:
            parameter: click.Parameter = Parameter(name, option, heading)
        else:
            parameter = click.Argument([name], required=option.needed, **_value(option))
        found.append(parameter)
        if option.checked:
            found.append(_checks_settings(parameter, option.file, heading))
    return found


T = TypeVar("T")


def command(kind: Type[T], *, service: bool = False) -> Callable[[Callable[[T], Any]], click.Command]:
    """The function as a command, which is given its options as one of a declared class. Its name is for the table of
    commands to say. A `service` stays and logs: from the level $NHC_LOG_LEVEL on, in the form $NHC_LOG_FORMAT.
    """

    def decorate(function: Callable[[T], Any]) -> click.Command:
        @wraps(function)
        def run(**values: Any) -> Any:
            if service:
                _configure_log()
            return function(made(kind, values))

        return GroupedCommand(
            function.__name__, callback=run, params=parameters(kind), help=inspect.cleandoc(function.__doc__ or "")
        )

    return decorate


def _checks_settings(path: click.Parameter, name: str, heading: str) -> click.Option:
    """`--check-settings` of a command whose option or argument `path` is the path of this settings file.

    Nothing else of the command line is needed then, and nothing else is done.
    """

    def read(ctx: click.Context) -> None:
        from nhc.core.settings.files import file_of  # the settings of services, which most commands do not read

        click.echo(file_of(name).check(ctx.meta[_READ] or ""))
        ctx.exit()

    def named(ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        ctx.meta[_READ] = value
        if ctx.meta.get(_ASKED):
            read(ctx)
        return value

    def asked(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        ctx.meta[_ASKED] = value and not ctx.resilient_parsing
        if ctx.meta[_ASKED] and _READ in ctx.meta:
            read(ctx)

    path.is_eager, path.callback = True, named
    return HeadedOption(
        ["--check-settings"], heading, is_flag=True, is_eager=True, expose_value=False,
        callback=asked, help="Read the settings, say what is wrong, and end.",
    )  # fmt: skip


FORMAT = under("What is shown")(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format.",
)  # fmt: skip
BY = under("Who")("--by", default="", metavar="NAME", help="Who gives this command. Default: the user.")


_ASKED, _READ = "nhc.check-settings", "nhc.settings-path"


def check_settings(name: str, option: str = "path", heading: str = "What is done") -> Callable[[Any], Any]:
    """`--check-settings` of a command that reads this settings file, whose path is the value of an option below.

    Nothing else of the command line is needed then, and nothing else is done.
    """

    def read(ctx: click.Context, path: Any) -> None:
        from nhc.core.settings.files import file_of  # the settings of services, which most commands do not read

        click.echo(file_of(name).check(path or ""))
        ctx.exit()

    def named(ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        ctx.meta[_READ] = "" if ctx.get_parameter_source(option) is ParameterSource.DEFAULT else value
        if ctx.meta.get(_ASKED):
            read(ctx, ctx.meta[_READ])
        return value

    def asked(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        ctx.meta[_ASKED] = value and not ctx.resilient_parsing
        if ctx.meta[_ASKED] and _READ in ctx.meta:
            read(ctx, ctx.meta[_READ])

    def decorate(command: Any) -> Any:
        path = next(one for one in command.__click_params__ if one.name == option)
        path.is_eager, path.callback = True, named
        return under(heading)(
            "--check-settings", is_flag=True, is_eager=True, expose_value=False, callback=asked,
            help="Read the settings, say what is wrong, and end.",
        )(command)  # fmt: skip

    return decorate


def service_log(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that stays and logs: from the level $NHC_LOG_LEVEL on, in the form $NHC_LOG_FORMAT."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        _configure_log()
        return command(*args, **options)

    return run


def _configure_log() -> None:
    if any(os.environ.get(variable) for variable in ("NHC_LOG_LEVEL", "NHC_LOG_FORMAT")):
        from nhc.core.system.service_log import FORMS, LEVELS, configure  # no command but a service needs logging

        configure(_said("NHC_LOG_LEVEL", LEVELS), _said("NHC_LOG_FORMAT", FORMS))


def _said(variable: str, known: Collection[str]) -> str:
    value = os.environ.get(variable, "")
    if value and value not in known:
        raise CommandError(f"${variable}: {printable(value, 40)!r} is not one of {', '.join(known)}", EXIT_USAGE)
    return value


def person(by: str = "") -> str:
    """Who gives a command: `--by`, else the user behind sudo, else the user, or the number of one without a name.

    $SUDO_USER counts for root alone: anybody can set it.
    """
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return printable(by or behind, 100) or System().user_name(os.getuid())


class Converted(click.ParamType):
    """A click type: a function of a text that raises ValueError. A default that is no text is taken as it is."""

    def __init__(self, name: str, convert: Callable[[str], Any]) -> None:
        self.name, self._convert = name, convert

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._convert(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FiniteNumber(click.FloatRange):
    """A click type: a finite number within bounds. click's own takes nan, which is outside no range."""

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def _some_seconds(text: str) -> float:
    duration = seconds(text)
    if not duration:
        raise ValueError(f"{text!r} is no time at all")
    return duration


def _share(text: str) -> float:
    try:
        share = percent(text) / 100 if text.strip().endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ValueError(f"{text!r} is not a share below 1, as 1% or 0.01")
    return share


DURATION = Converted("duration", seconds)
"""Seconds: `90`, `500ms`, `2m`, `1.5h`, `1d`, `1w`."""
SOME_TIME = Converted("duration", _some_seconds)
"""The same, and more than none."""
PER_CENT = Converted("share", percent)
"""Per cent: `97%` or `97`."""
SHARE = Converted("share", _share)
"""A part of 1, below it: `1%` or `0.01`."""


def named_nodes(text: str, said_by: str = "--nodes") -> List[str]:
    """The names of a list such as `gpu[001-064]`, none for "". Raises CommandError."""
    try:
        return expand(text)
    except ValueError as error:
        raise CommandError(f"{said_by}: {error}", EXIT_USAGE) from None
