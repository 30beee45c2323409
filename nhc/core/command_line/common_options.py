"""Options that commands of several groups take, and that mean the same in each; and who gives a command."""

from __future__ import annotations

import os
from functools import wraps
from typing import Any, Callable, Collection

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.option_groups import under
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.model import printable
from nhc.core.system.machine import System

FORMAT = under("What is shown")(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format.",
)  # fmt: skip
BY = under("Who")("--by", default="", metavar="NAME", help="Who gives this command. Default: the user.")


def service_log(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that stays and logs: from the level $NHC_LOG_LEVEL on, in the form $NHC_LOG_FORMAT."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        if any(os.environ.get(variable) for variable in ("NHC_LOG_LEVEL", "NHC_LOG_FORMAT")):
            from nhc.core.system.service_log import FORMS, LEVELS, configure  # no command but a service needs logging

            configure(_said("NHC_LOG_LEVEL", LEVELS), _said("NHC_LOG_FORMAT", FORMS))
        return command(*args, **options)

    return run


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
