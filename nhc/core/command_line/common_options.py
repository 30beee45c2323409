"""Options that commands of several groups take, and that mean the same in each; and who gives a command."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

import click

from nhc.core.command_line.option_groups import under
from nhc.core.model import printable
from nhc.core.system.machine import System

FORMAT = under("What is shown")(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format.",
)  # fmt: skip
BY = under("Who")("--by", default="", metavar="NAME", help="Who gives this command. Default: the user.")


def _configure(_context: click.Context, option: click.Parameter, value: Optional[str]) -> None:
    if value:
        from nhc.core.system.service_log import configure  # no command but a service needs logging

        configure(**{str(option.name): value})


def service_log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--log-level` and `--log-format`, of every command that stays and logs."""
    shown, more = under("What is logged"), {"expose_value": False, "callback": _configure, "show_envvar": True}
    level = shown("--log-level", "level", type=click.Choice(["debug", "info", "warning", "error"]),
                  envvar="NHC_LOG_LEVEL", help="Log from this level on. Default: info.", **more)  # fmt: skip
    form = shown("--log-format", "form", type=click.Choice(["text", "json"]), envvar="NHC_LOG_FORMAT",
                 help="Lines for a person, or JSON for a collector. Default: text.", **more)  # fmt: skip
    return level(form(command))


def person(by: str = "") -> str:
    """Who gives a command: `--by`, else the user behind sudo, else the user, or the number of one without a name.

    $SUDO_USER counts for root alone: anybody can set it.
    """
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return printable(by or behind, 100) or System().user_name(os.getuid())
