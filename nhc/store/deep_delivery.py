"""Put the reports of a deep suite straight into a store, whether or not this installation can use one."""

from __future__ import annotations

from contextlib import closing
from typing import Sequence

from nhc.core.model import Report


def to_store(reports: Sequence[Report], suite: str, url: str) -> str:
    """Keep reports of a suite in a store; why they could not be, "" where they were."""
    try:
        from nhc.store import deep
        from nhc.store.errors import StoreError
        from nhc.store.settings import fleet_store
    except ImportError as error:
        return f"the store needs the extra nodehealth[remedy]: {error}"
    try:
        with closing(fleet_store(url, create=False)) as store, store.write() as connection:
            for report in reports:
                deep.add_report(connection, report, suite)
    except StoreError as error:
        return f"{error}: the results are not in the store"
    return ""
