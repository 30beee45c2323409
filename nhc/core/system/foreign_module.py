"""Import what another package offers: what its module prints is no output of ours, and what it raises is one line."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class BrokenPart(Exception):
    """A package's part cannot be imported. One line that names the module."""


def import_site() -> None:
    """Import `site`, which adds the directories of installed packages to the path, unless that has been done.

    A local run starts without it (`nhc.core.launch`): it is a tenth of the run.
    """
    if "site" not in sys.modules:
        import site

        site.main()


def attribute_of(where: str) -> Any:
    """The object that an entry point names, `module:attribute`. Raises BrokenPart, also where the module would exit."""
    module, _, attribute = where.partition(":")
    try:
        with redirect_stdout(sys.stderr):
            return getattr(__import__(module, fromlist=[attribute]), attribute)
    except (Exception, SystemExit) as error:
        raise BrokenPart(f"{module} cannot be imported: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """An exception of a package's code, with its kind, in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")
