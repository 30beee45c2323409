"""What the commands of the loop share: the settings, the store, the parts that act on nodes, and how an episode is
shown.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, Optional

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.light import TYPE_CHECKING
from nhc.marks import plugins
from nhc.marks.ports.adapter import AdapterError
from nhc.remedy.cases import next_repair, standing_cause
from nhc.remedy.detail import BadDetail, Detail, read
from nhc.remedy.remedy_file import PATH, load, parse
from nhc.remedy.settings import LeaderSettings, RemedySettings
from nhc.store.database import Store
from nhc.store.episodes import Episode
from nhc.store.settings import fleet_store

if TYPE_CHECKING:
    from nhc.remedy.remedy_site import RemedySite
    from nhc.store.rounds.leader import Candidate


class RemedyOptions(options.CommandOptions):
    """Which settings."""

    settings: str = options.settings_file("remedy.toml", heading="Where")


class ShownRemedyOptions(RemedyOptions, options.Formatted):
    """The same, of a command that shows something."""


def settings_of(path: str) -> RemedySettings:
    """The settings of a command line. Raises SettingsError."""
    return load(path) if path else load(PATH) if os.path.exists(PATH) else parse("", PATH)


def opened(path: str) -> contextlib.closing[Store]:
    """The store that the settings of a command line name, which has to be there. Raises SettingsError, StoreError."""
    return contextlib.closing(fleet_store(settings_of(path).store, create=False))


@contextlib.contextmanager
def site_of(path: str, *, look: bool = False) -> Iterator[RemedySite]:
    """The nodes, repairers and store that the settings of a command line name, for a command that acts through them.

    `look`: the command changes nothing, so it makes no store. Raises SettingsError, StoreError, NoAdapter; CommandError
    where an adapter cannot be made of its settings.
    """
    from nhc.remedy.remedy_site import open_site  # commands that only read the store do without repairers

    try:
        site = open_site(settings_of(path), look=look)
    except AdapterError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    with contextlib.closing(site):
        yield site


def candidate(settings: LeaderSettings, named: str) -> Optional[Candidate]:
    """The lock that decides which process leads, None for the store's own. Raises CommandError."""
    by = named or settings.by
    if by == "store":
        return None
    try:
        made: Candidate = plugins.candidate(by)(settings.settings if by == settings.by else {}, os.environ)
        return made
    except AdapterError as error:
        raise CommandError(str(error), EXIT_USAGE) from None


def detail_of(row: Episode) -> Detail:
    """An episode's detail; an empty one if it cannot be read."""
    try:
        return read(row.detail)
    except BadDetail as error:
        return Detail(waiting=str(error))


def episode_value(row: Episode) -> Dict[str, Any]:
    """An episode as JSON."""
    detail = detail_of(row)
    return {
        "id": row.id, "node": row.node, "state": row.state, "rung": next_repair(row), "cause": standing_cause(row),
        "opened": row.opened, "updated": row.updated, "ended": row.ended, "outcome": row.outcome,
        "waiting": detail.waiting, "repairer": detail.repairer, "device": detail.device,
        "successor": detail.successor, "about": str(detail.about),
        "faults": [{"cause": f.cause, "message": f.message, "action": f.action.value} for f in detail.faults],
        "skipped": [{"rung": rung.value, "device": device, "why": why} for rung, device, why in detail.skipped],
    }  # fmt: skip
