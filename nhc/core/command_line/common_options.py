"""Commands of click out of declared options (`nhc.core.command_line.options`): headings, types, `--check-settings`; and
who gives a command.
"""

from __future__ import annotations

import inspect
import math
import os
from functools import wraps
from typing import Any, Callable, Collection, Dict, List, Optional, Sequence, Tuple, Type

import click
import click.shell_completion

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.options import CommandOptions, Option, offered
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.matching.node_ranges import expand
from nhc.core.model import printable
from nhc.core.system.machine import System


class GroupedCommand(click.Command):
    """A command whose options carry a heading each; `--help` comes last, under "Other" where there is any.

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
        if set(rows) <= {"Options"}:
            rows.setdefault("Options", []).extend(other)
        else:
            rows["Other"] = other
        for heading, records in rows.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class HeadedOption(click.Option):
    """An option under a heading."""

    def __init__(self, flags: Sequence[str], heading: str = "Other", **more: Any) -> None:
        super().__init__(flags, **more)
        self.heading = heading


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


def _value(option: Option) -> Dict[str, Any]:
    """What click makes of an option's text, and what it shows of that."""
    if not option.metavar:
        return {"count": True} if option.many else {"is_flag": True, "default": option.default}
    more: Dict[str, Any] = {"metavar": option.metavar, "type": _type(option)}
    if option.flags:
        more.update(multiple=option.many, show_default=option.default not in (None, "", "0", 0))
    elif option.many:
        more["nargs"] = -1
    if not option.needed:
        more["default"] = option.default or None if option.choices or option.many else option.default
    if option.bare is not None:
        more.update(is_flag=False, flag_value=option.bare)
    if option.complete is not None:
        more["shell_complete"] = _completion(option.complete)
    return more


class _CompletedPath(click.Path):
    """A path that the shell completes; whether it is there, and a directory, is for the command to say."""

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Any:
        return value


_PATHS = {"FILE": _CompletedPath(), "PATH": _CompletedPath(), "DIR": _CompletedPath(file_okay=False)}


def _type(option: Option) -> Optional[click.ParamType]:
    if option.convert is not None:
        return Converted(option.metavar.lower(), option.convert)
    if option.choices:
        return OfferedChoice(option.choices, option.group) if option.group else click.Choice(list(option.choices))
    if option.number:
        ends: Dict[str, Any] = {"min": option.least if option.above is None else option.above, "max": option.most}
        if option.number == "whole" and not any(end is not None for end in ends.values()):
            return click.INT
        return (click.IntRange if option.number == "whole" else FiniteNumber)(**ends, min_open=option.above is not None)
    return _PATHS.get(option.metavar)


def _completion(complete: Callable[[str], Sequence[str]]) -> Callable[..., List[str]]:
    return lambda _context, _parameter, incomplete: list(complete(incomplete))


def parameters(kind: Type[CommandOptions]) -> List[click.Parameter]:
    """The options and arguments of a declared class, for click."""
    found: List[click.Parameter] = []
    for name, option in kind.declared.items():
        heading = kind.headings[name] or "Options"
        if option.flags:
            flags = [*option.flags, name]
            parameter: click.Parameter = HeadedOption(
                flags, heading, help=option.help, required=option.needed, **_value(option)
            )
        else:
            parameter = click.Argument([name], required=option.needed, **_value(option))
        found.append(parameter)
        if option.checked:
            found.append(_checks_settings(parameter, option.file, heading))
    return found


def click_command(function: Callable[..., Any], text: str = "", *, service: bool = False) -> click.Command:
    """The function as a command, with the options of the declared class that its only argument, if any, is of.

    `text` is its help, if not the function's own. Its name is for the table of commands to say.
    """
    kinds = [_class(function, of) for name, of in function.__annotations__.items() if name != "return"]

    @wraps(function)
    def run(**values: Any) -> Any:
        if service:
            _configure_log()
        known = {name: value for name, value in values.items() if value is not None}
        return function(*(kind(**known) for kind in kinds))

    text = text or inspect.cleandoc(function.__doc__ or "")
    params = [parameter for kind in kinds for parameter in parameters(kind)]
    foreign = any(option.foreign for kind in kinds for option in kind.declared.values())
    return GroupedCommand(
        function.__name__, callback=run, params=params, help=text,
        context_settings={"ignore_unknown_options": True} if foreign else None,
    )  # fmt: skip


def _class(function: Callable[..., Any], annotation: Any) -> Type[CommandOptions]:
    """What an annotation of a command says, which may be a text: `RunOptions`, `options.Formatted`."""
    if not isinstance(annotation, str):
        return annotation  # type: ignore[no-any-return]
    first, *rest = annotation.split(".")
    found: Any = function.__globals__[first]
    for name in rest:
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


def service_command(function: Callable[..., Any]) -> click.Command:
    """A command that stays and logs: from the level $NHC_LOG_LEVEL on, in the form $NHC_LOG_FORMAT."""
    return click_command(function, service=True)


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


_ASKED, _READ = "nhc.check-settings", "nhc.settings-path"


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


def named_nodes(text: str, said_by: str = "--nodes") -> List[str]:
    """The names of a list such as `gpu[001-064]`, none for "". Raises CommandError."""
    try:
        return expand(text)
    except ValueError as error:
        raise CommandError(f"{said_by}: {error}", EXIT_USAGE) from None
