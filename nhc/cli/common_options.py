"""Options that commands of several groups take, and that mean the same in each; and who gives a command."""

from __future__ import annotations

import getpass
import os

import click

from nhc.cli.option_groups import under

FORMAT = under("What is shown")(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format.",
)  # fmt: skip
BY = under("Who")("--by", default="", metavar="NAME", help="Who gives this command. Default: the user.")


def user() -> str:
    """The user behind sudo, else the user, else the number of one without a name."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
