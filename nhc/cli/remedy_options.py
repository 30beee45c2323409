"""What the commands of `nhc remedy` share: the settings, the store, and how rows are shown."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import click

from nhc.cli.carried_out import end
from nhc.cli.option_groups import under
from nhc.model import printable
from nhc.remedy.detail import BadDetail, Detail, read
from nhc.remedy.remedy_file import PATH, load, parse
from nhc.remedy.settings import RemedySettings
from nhc.store.database import Store
from nhc.store.episodes import Episode
from nhc.store.settings import fleet_store
from nhc.timestamps import utc

SETTINGS = under("Where")(
    "-s", "--settings", "settings_path", metavar="FILE", help=f"The settings (TOML). Default: {PATH}, if there is one."
)
STORE = under("Where")("--store", "store_url", metavar="URL", help="The store. Default: what the settings say.")


def carried_out(name: str, work: Callable[[], int], group: str = "remedy") -> None:
    """Run a command, and end."""
    end(f"{group} {name}", work, _explained)


def _explained(why: str) -> str:
    """Why a command cannot be carried out; where the settings are only the defaults, that there is no file."""
    if why.startswith(f"{PATH}: ") and not os.path.exists(PATH):
        return f"there is no {PATH}: name the settings with -s ({printable(why[len(PATH) + 2 :])})"
    return printable(why)


def settings_of(path: Optional[str], store: Optional[str] = None) -> RemedySettings:
    """The settings of a command line. Raises SettingsError."""
    settings = load(path) if path else load(PATH) if os.path.exists(PATH) else parse("", PATH)
    return settings._replace(store=store) if store else settings


def opened(path: Optional[str], store: Optional[str]) -> Store:
    """The store of a command line, which has to be there. Raises SettingsError, StoreError."""
    return fleet_store(settings_of(path, store).store, create=False)


def detail_of(row: Episode) -> Detail:
    """What an episode remembers; nothing where that cannot be read."""
    try:
        return read(row.detail)
    except BadDetail as error:
        return Detail(waiting=str(error))


def episode_value(row: Episode) -> Dict[str, Any]:
    """An episode as JSON."""
    detail = detail_of(row)
    return {
        "id": row.id, "node": row.node, "state": row.state, "rung": row.rung, "cause": row.cause,
        "opened": row.opened, "updated": row.updated, "ended": row.ended, "outcome": row.outcome,
        "waiting": detail.waiting, "repairer": detail.repairer, "device": detail.device,
        "successor": detail.successor, "about": str(detail.about),
        "faults": [{"cause": f.cause, "message": f.message, "action": f.action.value} for f in detail.faults],
        "skipped": [{"rung": rung.value, "device": device, "why": why} for rung, device, why in detail.skipped],
    }  # fmt: skip


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
    seconds = max(time.time() - at, 0.0)
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
