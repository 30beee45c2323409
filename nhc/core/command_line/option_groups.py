"""Help of a command with many options, under headings: what a reader looks for is beside what belongs to it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import click
import click.shell_completion

from nhc.core.command_line.options import offered


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
        for heading, records in (*rows.items(), ("Other", other)):
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
