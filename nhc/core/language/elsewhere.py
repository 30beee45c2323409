"""Names that other health checks use, and nhc's own for the same thing: a name alone is not near to what it means."""

from __future__ import annotations


def meant(name: str) -> str:
    """` (here it is OURS: docs/PAGE)` for a name of another health check, empty for any other."""
    from nhc.core.data.reader import table

    asked = name.lower()
    for theirs, ours, page in table("elsewhere.tsv"):
        if theirs.lower() in (asked, f"check_{asked}"):
            return f" (here it is {ours}: docs/{page})"
    return ""
