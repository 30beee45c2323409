"""The nodes that a command line names."""

from __future__ import annotations

from nhc.core.command_line.command_error import CommandError
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.node_ranges import expand

if TYPE_CHECKING:
    from typing import List


def named_nodes(text: str, said_by: str = "--nodes") -> List[str]:
    """The names of a list such as `gpu[001-064]`, none for "". Raises CommandError."""
    try:
        return expand(text)
    except ValueError as error:
        raise CommandError(f"{said_by}: {error}", EXIT_USAGE) from None
