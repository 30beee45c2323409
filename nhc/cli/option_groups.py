"""Help of a command with many options, under headings: what a reader looks for is beside what belongs to it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import click


class GroupedCommand(click.Command):
    """A command whose options carry a heading each; those without one come last, under "Other"."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: Dict[str, List[Tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                rows.setdefault(getattr(parameter, "heading", "Other"), []).append(record)
        other = rows.pop("Other", [])
        for heading, found in (*rows.items(), ("Other", other)):
            if found:
                with formatter.section(heading):
                    formatter.write_dl(found)


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
