"""A duration on a command line: read as in every configuration file (`90`, `500ms`, `2m`, `1.5h`, `1d`, `1w`)."""

from __future__ import annotations

from typing import Optional

import click

from nhc.units import seconds


class Duration(click.ParamType):
    """A click type whose values are seconds."""

    name = "duration"

    def convert(self, value: object, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()
