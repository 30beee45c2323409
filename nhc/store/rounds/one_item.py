"""One item of a round fails, whatever the reason: the others go on, and the log says where it failed."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, List

from nhc.core.model import printable
from nhc.marks.ports.adapter import AdapterError
from nhc.store.errors import Conflict, StoreError


def failure(error: Exception) -> str:
    """What an exception says, in one line; of one that nobody promised its type and its place as well."""
    text = printable(str(error), 300)
    if isinstance(error, (AdapterError, StoreError, OSError)):
        return text
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"internal error: {type(error).__name__}: {text}{place}"


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
