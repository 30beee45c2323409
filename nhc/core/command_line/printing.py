"""How commands show what they know: JSON, rows in columns, a time, an age."""

from __future__ import annotations

import json
import time
from typing import Iterator, List, Optional, Sequence

import click

from nhc.core.timestamps import utc
from nhc.core.units import show_age


def show(value: object) -> None:
    """A value as JSON on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns; the last one is as wide as it is."""
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells: List[str] = [f"{cell:<{width}}" for cell, width in zip(row, widths)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """Rows in columns on standard output."""
    for line in table(rows):
        click.echo(line)


def when(at: Optional[float]) -> str:
    """A time as a person reads it, "-" for none."""
    return "-" if at is None else utc(at)


def age(at: float) -> str:
    """How long ago, in the largest unit that fits."""
    return show_age(time.time() - at)
