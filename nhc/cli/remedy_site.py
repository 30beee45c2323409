"""The nodes, repairers and store that the settings of the remedy loop name, for the commands that act through them."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional

from nhc.cli.command_error import CommandError
from nhc.cli.remedy_options import settings_of
from nhc.plugins import NoAdapter
from nhc.ports.adapter import AdapterError
from nhc.remedy.site import RemedySite, open_site


@contextlib.contextmanager
def site_of(path: Optional[str], store: Optional[str], *, look: bool = False) -> Iterator[RemedySite]:
    """The site of a command line, closed at the end. `look`: the command changes nothing, so it makes no store.

    Raises SettingsError, StoreError; CommandError where an adapter cannot be made of its settings.
    """
    try:
        site = open_site(settings_of(path, store), look=look)
    except (NoAdapter, AdapterError) as error:
        raise CommandError(str(error), 2) from None
    try:
        yield site
    finally:
        site.close()
