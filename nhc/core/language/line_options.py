"""What stands between single bars: `|every 5m, timeout 20s, strikes 2, context prolog|`."""

from __future__ import annotations

from nhc.core import units
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence, Tuple

CONTEXTS = ("prolog", "epilog", "healthcheck", "agent", "prolog-slurmctld", "epilog-slurmctld", "deep")
"""The callers that a line can be limited to. `deep` is `nhc deep run`, which alone runs such a line."""

OPTIONS = ("every", "timeout", "strikes", "on-timeout", "tags", "context", "warn-only")
MOST_LOOKS = 1000
"""Runs of a line that `strikes N of M` can look back on."""


class LineOptions(NamedTuple):
    """The options of one line; durations in seconds, None where the line says nothing.

    `of` is among how many runs the strikes are counted, 0 for those in a row.
    """

    timeout: Optional[float] = None
    every: Optional[float] = None
    on_timeout: Optional[str] = None
    strikes: int = 0
    tags: Tuple[str, ...] = ()
    contexts: Tuple[str, ...] = ()
    of: int = 0
    warn_only: bool = False


def with_option(options: LineOptions, key: str, value: str) -> LineOptions:
    """The options with one more read. Raises ValueError saying what was expected."""
    if key in ("every", "timeout"):
        number = _named(key, units.seconds, value)
        if number <= 0:
            raise ValueError(f"{key}: expected a duration above 0, as in {key} 10s")
        return options._replace(every=number) if key == "every" else options._replace(timeout=number)
    if key == "strikes":
        number_of, among, looks = value.partition(" of ")
        count = _named(key, units.integer, number_of.strip())
        if count < 1:
            raise ValueError(f"strikes: expected a whole number of failures in a row, 1 or more, not {value!r}")
        of = _named(key, units.integer, looks.strip()) if among else 0
        if among and not count <= of <= MOST_LOOKS:
            raise ValueError(f"strikes: expected N of M runs, M from N to {MOST_LOOKS}, not {value!r}")
        return options._replace(strikes=int(count), of=int(of))
    if key == "warn-only":
        if value:
            raise ValueError(f"warn-only: takes no value, not {value!r}")
        return options._replace(warn_only=True)
    if key == "on-timeout":
        if value not in ("crit", "unknown"):
            raise ValueError(f"on-timeout: expected crit or unknown, not {value!r}")
        return options._replace(on_timeout=value)
    if key in ("tags", "context"):
        values = tuple(value.split())
        if not values:
            raise ValueError(f"{key}: expected one or more names")
        if key == "tags":
            return options._replace(tags=values)
        strange = [text for text in values if text not in CONTEXTS]
        if strange:
            raise ValueError(unknown_context(strange[0]))
        return options._replace(contexts=values)
    raise ValueError(unknown_option(key))


def unknown_option(key: str) -> str:
    """What to say of a word that begins no option."""
    return f"no such line option: {key!r}{near(key, OPTIONS)} (there are {', '.join(OPTIONS)})"


def unknown_context(context: str) -> str:
    """What to say of a context that there is not."""
    return f"context: expected some of {', '.join(CONTEXTS)}, not {context!r}{near(context, CONTEXTS)}"


def context_comment(names: List[str]) -> str:
    """What is wrong with a comment that begins as `# context` does, empty where it may be a comment."""
    strange = [name for name in names if name not in CONTEXTS]
    if not strange or (len(names) > 1 and not all(near(name, CONTEXTS) for name in names)):
        return ""
    return unknown_context(strange[0])


def near(name: str, known: Sequence[str]) -> str:
    """` (did you mean X?)`, empty where nothing known is like `name`."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _named(key: str, convert: Callable[[str], float], value: str) -> float:
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
