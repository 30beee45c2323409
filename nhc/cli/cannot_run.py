"""What ends a command of the application before it has done anything: one line, and the exit status that says why."""

from __future__ import annotations

import click

from nhc.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional


class Unusable(click.ClickException):
    """Settings, or an installation, that cannot be used."""

    exit_code = EXIT_USAGE


class Unreadable(click.ClickException):
    """What is to be shown cannot be read, or the address to listen on cannot be had."""

    exit_code = EXIT_UNKNOWN


def missing_package(command: str, name: Optional[str], extra: str = "console") -> Unusable:
    """What to say where a Python package of an extra is not there, to be raised."""
    from nhc.extras import how_to_install

    return Unusable(f"{command} needs the Python package {name}: {how_to_install(name or '', extra)}")
