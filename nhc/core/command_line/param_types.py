"""Values of a command line that are read as in every configuration file: a duration, a per cent, a share, nodes."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.matching.node_ranges import expand
from nhc.core.units import percent, seconds


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
