"""The bounds on what nhc does by itself, as policy.toml and remedy.toml write them (docs/remedy.md).

protected = ["login*"]
[bounds.fleet]
out = "20 10%"
[bounds.fleet.rate]
mark = "20 per 1h"
[bounds.named]
gpu = "4 25%"
[quiet-hours]
hours = ["Mon-Fri 08:00-18:00"]
"""

from __future__ import annotations

import re
from typing import FrozenSet, List, Optional

from nhc.core.limits import Limit, read_limit, read_rate
from nhc.core.settings.settings_file import Table
from nhc.marks.policy.bounds import ACTIONS, EVERY_REPAIR, Bounds, RadiusBounds, Timed
from nhc.marks.policy.hours import Hours, read_hours, read_zone
from nhc.marks.ports.adapter import Operation

RATES = (*ACTIONS, Operation.CLEAR.value, "repair")
"""What a rate can be given for; `repair` is all repairs together."""

NAMED = "named"
OWN = ("protected", "zone", "bounds", "quiet-hours", "maintenance-windows")
"""The keys of a file that are read here, besides `attempts` and `window` of `[limits]`."""


def read_bounds(file: Table, default: Bounds) -> Bounds:
    """The bounds in a file's tables; what the file does not say is as in `default`. Raises SettingsError."""
    bounds, limits = file.table("bounds"), file.table("limits")
    radii, named = dict(default.radii), bounds.table(NAMED)
    for kind, table in bounds.tables().items():
        if kind != NAMED:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
                raise bounds.error(kind, "a kind of blast radius is written as rack or nvlink_domain")
            radii[kind] = _radius(table, default.radii.get(kind, RadiusBounds()))
    if "*" in named:
        raise named.error("*", "every partition is bounded as [bounds.partition] out")
    return default._replace(
        radii=radii,
        named={name: named.converted(name, read_limit, Limit()) for name in named.names()},
        attempts=limits.count("attempts", default.attempts, least=1),
        window=limits.seconds("window", default.window, least=60.0),
        protected=file.texts("protected"),
        quiet=_timed(file.table("quiet-hours"), EVERY_REPAIR),
        windows=_timed(file.table("maintenance-windows"), frozenset()),
        zone=file.converted("zone", read_zone, default.zone),
        asked=frozenset(kind for kind, radius in radii.items() if radius != default.radii.get(kind)),
    )


def _radius(table: Table, before: RadiusBounds) -> RadiusBounds:
    rates = table.table("rate")
    given = {action: rates.converted(action, read_rate, None) for action in RATES if action in rates}
    return RadiusBounds(
        _limit(table, "out", before.out),
        _limit(table, "repairing", before.repairing),
        {**before.rates, **{action: rate for action, rate in given.items() if rate is not None}},
    )


def _limit(table: Table, key: str, default: Optional[Limit]) -> Optional[Limit]:
    """A bound of a radius, None for `none`."""
    limit = table.converted(key, read_limit, default)
    return None if limit == Limit() else limit


def _timed(table: Table, actions: FrozenSet[str]) -> Timed:
    hours: List[Hours] = []
    for text in table.texts("hours"):
        try:
            hours.append(read_hours(text))
        except ValueError as error:
            raise table.error("hours", str(error)) from None
    return Timed(tuple(hours), frozenset(table.choices("actions", ACTIONS, sorted(actions))))
