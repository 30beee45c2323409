"""Catalogues and other data, each with its provenance; `read` works from a directory and from a zip file alike."""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, List


def read_bytes(name: str) -> bytes:
    """The content of a file of this package. Raises OSError when there is none."""
    loader: Any = __spec__.loader
    content: bytes = loader.get_data(os.path.join(os.path.dirname(__file__), name))
    return content


def read(name: str) -> str:
    """A text file of this package."""
    return read_bytes(name).decode()


def table(name: str) -> List[List[str]]:
    """The rows of a table of nhc.core.data: no comments, no head, "-" as an empty cell."""
    lines = [line for line in read(name).split("\n") if line and line[0] != "#"]
    return [["" if cell == "-" else cell for cell in line.split("\t")] for line in lines[1:]]
