"""Options that commands of several groups take, and that mean the same in each."""

from __future__ import annotations

import click

from nhc.cli.option_groups import under

FORMAT = under("What is shown")(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format.",
)  # fmt: skip
BY = under("Who")("--by", default="", metavar="NAME", help="Who gives this command. Default: the user.")
