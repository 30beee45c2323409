"""What one line of a job's log means: the catalogue of what programs print (nhc/core/data/job_log.tsv)."""

from __future__ import annotations

import re
from functools import cache
from typing import Dict, List, Match, NamedTuple, Optional, Pattern, Tuple

from nhc.core.data import reader

PROGRAM, MEMORY, TIME, DISK, NODE, GPU, NETWORK, STORAGE, SCHEDULER, UNKNOWN = (
    "program", "memory", "time", "disk", "node", "gpu", "network", "storage", "scheduler", "unknown")  # fmt: skip
"""The classes. `gpu`: the program or the GPU, which the node's kernel log tells."""
INITIATING, CASCADE, TEARDOWN, ADVICE = "initiating", "cascade", "teardown", "advice"
"""The roles: only an initiating event can be the cause."""
LIMITS = (MEMORY, TIME, DISK)


class LogRow(NamedTuple):
    """One row. `texts` are strings one of which must occur; `pattern` None: that is enough.

    `cause` is the row's class, `restart` whether a restart helps: "no", "may" or "unknown".
    """

    kind: str
    cause: str
    role: str
    domain: str
    restart: str
    texts: Tuple[str, ...]
    pattern: Optional[Pattern[str]]
    message: str


@cache
def rows() -> Tuple[LogRow, ...]:
    """The catalogue, in the order in which its rows are tried."""
    catalogue: List[LogRow] = []
    for kind, cause, role, domain, restart, text, pattern, message in reader.table("job_log.tsv"):
        compiled = re.compile(pattern) if pattern else None
        catalogue.append(LogRow(kind, cause, role, domain, restart, tuple(text.split("||")), compiled, message))
    return tuple(catalogue)


@cache
def _by_text() -> Tuple[Tuple[str, int], ...]:
    """Each text and the first row that has it: nearly no line has any of them, and every line is asked."""
    first: Dict[str, int] = {}
    for number, row in enumerate(rows()):
        for text in row.texts:
            first.setdefault(text, number)
    return tuple(first.items())


def judge(line: str) -> Optional[Tuple[LogRow, Optional[Match[str]]]]:
    """The first row that fits a line, with its match; None for nearly every line."""
    if line.startswith("^C"):  # a terminal shows the key so, before whatever comes next
        line = f"Ctrl-C {line[2:]}"
    start = min((number for text, number in _by_text() if text in line), default=-1)
    if start < 0:
        return None
    for row in rows()[start:]:
        if not any(text in line for text in row.texts):
            continue
        if row.pattern is None:
            return row, None
        match = row.pattern.search(line)
        if match:
            return row, match
    return None
