"""Put the reports of a deep suite directly into a store, whether or not this installation can use one."""

from __future__ import annotations

from contextlib import closing
from typing import List, Sequence

from nhc.core.model import Report, printable
from nhc.core.system.service_log import failure


def to_store(reports: Sequence[Report], suite: str, url: str) -> str:
    """Store reports of a suite; returns why some could not be stored, "" if all were. One that the store does not take
    costs no other.
    """
    try:
        from nhc.store import deep
        from nhc.store.errors import StoreError
        from nhc.store.settings import fleet_store
    except ImportError as error:
        return f"the store needs the extra nodehealth[remedy]: {error}"
    try:
        problems: List[str] = []
        with closing(fleet_store(url, create=False)) as store:
            for report in reports:
                try:
                    with store.write() as connection:
                        deep.add_report(connection, report, suite)
                except Exception as error:
                    if isinstance(error, StoreError) and not error.refused:
                        raise  # the store is away: the next report could not do better
                    problems.append(f"{printable(report.host, 100)}: {failure(error)}")
    except StoreError as error:
        return f"{error}: the results are not in the store"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}: the results are not in the store" if problems else ""
