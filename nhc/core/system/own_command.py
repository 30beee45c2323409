"""The argv by which this very nhc starts itself or a program of its own, from whatever directory and installation."""

from __future__ import annotations

import os
import sys

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List, Sequence

ENTRY = "import sys; sys.path[:0] = {paths!r}; sys.argv[0] = 'nhc'; from {module} import {function}; {function}()"


def own_command(arguments: Sequence[str]) -> List[str]:
    """`nhc WORDS` under the same Python."""
    return [*own_program("nhc.cli.main", "entry"), *arguments]


def own_program(module: str, function: str) -> List[str]:
    """A function of one of our modules, as a program under the same Python.

    `-I` keeps the current directory and the user's environment out of Python's path, as in the launchers.
    """
    paths = [path for path in sys.path if os.path.isabs(path)]
    return [sys.executable, "-I", "-c", ENTRY.format(paths=paths, module=module, function=function)]
