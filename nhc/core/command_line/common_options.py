"""Options that commands of several groups take, and that mean the same in each; and who gives a command."""

from __future__ import annotations

import os

import click

from nhc.core.command_line.option_groups import under
from nhc.core.model import printable
from nhc.core.system.machine import System

FORMAT = under("What is shown")(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format.",
)  # fmt: skip
BY = under("Who")("--by", default="", metavar="NAME", help="Who gives this command. Default: the user.")


def person(by: str = "") -> str:
    """Who gives a command: `--by`, else the user behind sudo, else the user, or the number of one without a name.

    $SUDO_USER counts for root alone: anybody can set it.
    """
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return printable(by or behind, 100) or System().user_name(os.getuid())
