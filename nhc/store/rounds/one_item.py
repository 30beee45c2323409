"""One item of a round fails, whatever the reason: the others go on, and the log says where it failed."""

from __future__ import annotations

import contextlib
from typing import Iterator, List

from nhc.core.system.service_log import failure
from nhc.store.errors import Conflict, StoreError


@contextlib.contextmanager
def one_item(name: str, problems: List[str]) -> Iterator[None]:
    """What is done for one item of a round. What it raises becomes a line of `problems`.

    Raises StoreError where the store or the lead is gone: then the next item could not do better. A row that somebody
    else has changed, and data that the database never takes, are the item's own.
    """
    try:
        yield
    except StoreError as error:
        if not isinstance(error, Conflict) and not error.refused:
            raise
        problems.append(f"{name}: {failure(error)}")
    except Exception as error:
        problems.append(f"{name}: {failure(error)}")
