"""The bounds on the loop's actions, at one time and within a time. Pure: returns the bound that holds, from counts.

Every bound is counted from a ledger (`nhc.marks.policy.ledger.CountsActions`), so a restart does not reset what was
spent. A level says how many nodes may be out (or under repair) at one time, a rate how many actions may begin within a
time; each for the whole fleet and for every blast radius: a rack, an NVLink domain, a leaf switch, a zone, a pool, an
instance group. A share of a radius is at least one node: 20 % of three nodes is none, and one must still be repairable.

Bounds hold at all times or within hours of the week (`Hours`), read in the site's zone, so that a window keeps its
local time when the clocks change. `tzinfo` objects do not compare by name, so a policy stores both.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right, insort
from fnmatch import fnmatchcase
from typing import (
    TYPE_CHECKING,
    Callable,
    Collection,
    Container,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from nhc.core.limits import Limit, Rate, read_limit, read_rate
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.core.units import show_seconds
from nhc.marks.ports.adapter import NodeState, Operation
from nhc.marks.ports.repair import LADDER, Rung

if TYPE_CHECKING:
    from datetime import tzinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = 24 * 60
_WEEK = 7 * _DAY
_SPAN = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?|daily)\s+(?P<begin>\d{2}:\d{2})\s*-\s*"
    r"(?:(?P<day>[a-z]{3})\s+)?(?P<end>\d{2}:\d{2})",
    re.IGNORECASE,
)


class Hours(NamedTuple):
    """Spans of the week, as minutes from Monday 00:00; a span that goes past Sunday is two."""

    text: str
    spans: Tuple[Tuple[int, int], ...]

    def holds(self, at: float, zone: Optional[tzinfo] = None) -> bool:
        """Whether a moment (Unix time) lies in it, in this zone; None is UTC."""
        if zone is None:
            local = time.gmtime(at)
        else:
            from datetime import datetime  # a hook that marks is there before a job ends: most sites have no zone

            local = datetime.fromtimestamp(at, zone).timetuple()
        minute = local.tm_wday * _DAY + local.tm_hour * 60 + local.tm_min
        return any(begin <= minute < end for begin, end in self.spans)


def read_hours(text: str) -> Hours:
    """The hours that a text names. Raises ValueError."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} are no hours such as 'Mon-Fri 08:00-18:00', 'Sat 22:00-Sun 06:00', 'daily 01:00-05:00'"
        )
    begin, end = _minutes(match["begin"], text), _minutes(match["end"], text)
    first = 0 if match["first"] is None else _day(match["first"], text)
    last = 6 if match["first"] is None else _day(match["last"] or match["first"], text)
    if match["day"] is not None:
        if match["first"] is None or match["last"] is not None:
            raise ValueError(f"{text!r}: one day, or 'daily', stands before a span that ends on another day")
        return Hours(text, _split(first * _DAY + begin, _day(match["day"], text) * _DAY + end))
    spans: List[Tuple[int, int]] = []
    for offset in range((last - first) % 7 + 1):
        day = (first + offset) % 7 * _DAY
        spans += _split(day + begin, day + end + (_DAY if end <= begin else 0))
    return Hours(text, tuple(spans))


def any_holds(hours: Sequence[Hours], at: float, zone: Optional[tzinfo]) -> str:
    """The first of the hours that a moment lies in, as it was written; "" for none."""
    return next((span.text for span in hours if span.holds(at, zone)), "")


def _split(begin: int, end: int) -> Tuple[Tuple[int, int], ...]:
    if end <= begin:
        end += _WEEK
    return ((begin, end),) if end <= _WEEK else ((begin, _WEEK), (0, end - _WEEK))


def _day(day: str, text: str) -> int:
    try:
        return DAYS.index(day.lower())
    except ValueError:
        raise ValueError(f"{text!r}: {day!r} is no day: expected one of {', '.join(DAYS)}") from None


def _minutes(moment: str, text: str) -> int:
    hour, _, minute = moment.partition(":")
    if int(hour) > 24 or int(minute) > 59 or (int(hour) == 24 and int(minute)):
        raise ValueError(f"{text!r}: {moment!r} is no time of day")
    return int(hour) * 60 + int(minute)


class Zone(NamedTuple):
    """A zone and its name, as `Europe/Zurich`; None is UTC."""

    name: str
    info: Optional[tzinfo]


UTC = Zone("UTC", None)


def read_zone(name: str) -> Zone:
    """The zone of that name. Raises ValueError."""
    from zoneinfo import ZoneInfo

    if name.upper() == "UTC":
        return UTC
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone that this system knows, such as Europe/Zurich or UTC") from None


MARK = "mark"
"""The action of marking, next to the rungs, in a bound that names actions."""

REPAIRS: Tuple[Rung, ...] = LADDER[: LADDER.index(Rung.ESCALATE)]
"""The rungs that do something to a node."""

RUNGS: Mapping[str, Rung] = {rung.value: rung for rung in REPAIRS}

EVERY_REPAIR: FrozenSet[str] = frozenset(rung.value for rung in REPAIRS)

ACTIONS: Mapping[str, str] = {MARK: MARK, **{rung.value: rung.value for rung in REPAIRS}}
"""Every action by its name in the settings."""

FLEET = "fleet"
"""The kind of the one radius that every node is in."""

PARTITION = "partition"
"""The kind of what a scheduler groups nodes in: partitions, queues, pools."""

RATES: Mapping[str, str] = {**ACTIONS, Operation.CLEAR.value: Operation.CLEAR.value, "repair": "repair"}
"""What a rate can be given for; `repair` is all repairs together."""

OWN = ("protected", "zone", "bounds", "quiet-hours", "maintenance-windows")
"""The keys of a file that `read_bounds` reads, besides `attempts` and `window` of `[limits]`."""

AT_FIRST = ("first_run", "first_run_for", "approvals")
"""The bounds that only the repair loop has."""

Radius = Tuple[str, str]
"""A blast radius: its kind and its name, as ("rack", "r17"); the fleet is ("fleet", "")."""


def _limit(text: str) -> Optional[Limit]:
    """A bound of a radius, None for `none`. Raises ValueError."""
    limit = read_limit(text)
    return None if limit == Limit() else limit


@declared.settings
class RadiusBounds(NamedTuple):
    """The bounds of one kind of radius. None, and a rate that is not named: no bound.

    `out` bounds the nodes that nhc took out, `repairing` those under repair now. `rates` are by action: `mark`, a rung,
    or `repair` for all rungs together.
    """

    out: Optional[Limit] = declared.converted("out", _limit, None, "nodes out at one time", show=Limit.written)
    repairing: Optional[Limit] = declared.converted(
        "repairing", _limit, None, "nodes under repair at one time", show=Limit.written
    )
    rates: Mapping[str, Rate] = declared.by_word(
        "rate", RATES, declared.converted("", read_rate, None, show=Rate.written), {}
    )


def radii_of(state: NodeState) -> Tuple[Radius, ...]:
    """The radii that a node is in by its scheduler or cluster, without the fleet."""
    return (*((PARTITION, group) for group in state.groups), *state.placed)


@declared.settings
class Timed(NamedTuple):
    """Hours of the week and the actions that they are for."""

    hours: Tuple[Hours, ...] = declared.texts(
        "hours", (), '"Mon-Fri 08:00-18:00", "Sat 22:00-Sun 06:00"', each=read_hours
    )
    actions: FrozenSet[str] = declared.choices("actions", ACTIONS, EVERY_REPAIR, made=frozenset)


def _radii(file: Table, key: str, usual: Mapping[str, RadiusBounds]) -> Mapping[str, RadiusBounds]:
    radii = dict(usual)
    for kind, table in file.table(key).tables().items():
        if kind != "named":
            if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
                raise file.table(key).error(kind, "a kind of blast radius is written as rack or nvlink_domain")
            radii[kind] = declared.read(RadiusBounds, table, usual.get(kind, RadiusBounds()))
    return radii


def _show_radii(radii: Mapping[str, RadiusBounds]) -> str:
    lines: List[str] = []
    for kind, radius in radii.items():
        lines += ["", f"[bounds.{kind}]"]
        for key, limit in (("out", radius.out), ("repairing", radius.repairing)):
            lines += [] if limit is None else [f'# {key} = "{limit.written()}"']
        rates = [f'# {action} = "{rate.written()}"' for action, rate in radius.rates.items()]
        lines += ["", f"[bounds.{kind}.rate]", *rates] if rates else []
    return "\n".join(lines[1:])


def _named(table: Table, name: str) -> Limit:
    if name == "*":
        raise table.error("*", "every partition is bounded as [bounds.partition] out")
    return table.converted(name, read_limit, Limit())


@declared.settings
class Bounds(NamedTuple):
    """All that a policy bounds.

    `radii` are by kind, `fleet` among them. `named` bounds the nodes out in single partitions, queues or pools, by name
    or shell pattern, in place of what `radii` says of every partition. `first_run` bounds the nodes out for the first
    `first_run_for` seconds after marking was first enabled on a store. `attempts` is how many repairs a node may have
    within `window` seconds, across episodes. `protected` are patterns of nodes that are never touched. In `quiet` hours
    the actions named do not begin; if `windows` are given, the actions named begin only in them. `approvals` is how
    many persons must agree. `asked` are the kinds of radii whose bounds the site has set: some node must be in one of
    each.
    """

    radii: Mapping[str, RadiusBounds] = declared.own(
        "bounds", {
            FLEET: RadiusBounds(
                Limit(share=0.05, least=2), Limit(share=0.02), {MARK: Rate(10, 3600.0), "repair": Rate(10, 3600.0)}
            ),
            "rack": RadiusBounds(Limit(share=0.25)),
            "nvlink_domain": RadiusBounds(Limit(share=0.25)),
            "leaf": RadiusBounds(Limit(share=0.25)),
        }, _radii,
        "How many nodes may be out, or under repair, at one time; how many actions may begin within a time: mark, a "
        "rung (reboot = '5 per 1h'), clear, or repair for all repairs together. Each for the fleet and for every kind "
        "of blast radius that nodes have a group of: partition, rack, nvlink_domain, leaf, zone, pool, instance_group, "
        "or one of your own. docs/remedy.md says how a limit is written.",
        form="tables of out, repairing, rate", within="KIND", show=_show_radii, live=True,
    )  # fmt: skip
    named: Mapping[str, Limit] = declared.entries(
        "bounds.named", _named,
        "Single partitions, queues or pools, by name or shell pattern, in place of [bounds.partition].", form="limit",
        shown='gpu = "4 25%"',
    )  # fmt: skip
    first_run: Limit = declared.converted(
        "limits.first-run", read_limit, Limit(1), "nodes out during the first time after marking was enabled",
        show=Limit.written,
    )  # fmt: skip
    first_run_for: float = declared.seconds("limits.first-run-for", 86400.0, "how long that time is")
    attempts: int = declared.count(
        "limits.attempts", 3, "repairs of one node, across episodes; then a person must look", least=1
    )
    window: float = declared.seconds("limits.window", 7 * 86400.0, "how far back such repairs count", least=60.0)
    protected: Tuple[str, ...] = declared.texts(
        "protected", (), "nodes that are never touched, as shell patterns", shown='["login*", "head*"]'
    )
    quiet: Timed = declared.part("quiet-hours", Timed, "In these hours the actions do not begin.")
    windows: Timed = declared.part(
        "maintenance-windows", Timed, "Where there are hours, the actions begin in them alone.",
        default=Timed((), frozenset()),
    )  # fmt: skip
    approvals: Mapping[Rung, int] = declared.by_word(
        "approval", RUNGS, declared.count("", 0, most=2), {Rung.REPLACE: 1},
        "How many persons must agree (`nhc approve episode`) before a repair: 0, 1 or 2.",
    )  # fmt: skip
    zone: Zone = declared.converted(
        "zone", read_zone, UTC, "the time zone of the hours below", show=lambda zone: zone.name
    )
    asked: FrozenSet[str] = frozenset()

    def out(self, radius: Radius) -> Optional[Limit]:
        """How many nodes of a radius may be out, None for any number. An exact name counts before a pattern."""
        kind, name = radius
        if self.named and kind == PARTITION:
            pattern = name if name in self.named else next((key for key in self.named if fnmatchcase(name, key)), None)
            if pattern is not None:
                return self.named[pattern]
        return self.radii.get(kind, RadiusBounds()).out

    def repairing(self, radius: Radius) -> Optional[Limit]:
        """How many nodes of a radius may be under repair, None for any number."""
        return self.radii.get(radius[0], RadiusBounds()).repairing

    def unmatched(self, sizes: Mapping[Radius, int]) -> List[str]:
        """The kinds of radii that the site has bounded and that no node is in: their bounds would have no effect."""
        return sorted(self.asked - {kind for kind, _name in sizes} - {FLEET})

    def without_nodes(self, sizes: Mapping[Radius, int]) -> List[str]:
        """A line for each bound on a group that no node is in."""
        kinds = ", ".join(sorted({kind for kind, _name in sizes} - {FLEET})) or "none"
        there = [name for kind, name in sizes if kind == PARTITION]
        named = sorted(pattern for pattern in self.named if not any(fnmatchcase(name, pattern) for name in there))
        bounds = [*(f"bounds.{kind}" for kind in self.unmatched(sizes)), *(f"bounds.named.{name}" for name in named)]
        return [
            f"{bound}: no node is in such a group: the nodes' groups are of these kinds: {kinds}" for bound in bounds
        ]


def read_bounds(file: Table, default: Bounds, only: Collection[str] = ()) -> Bounds:
    """The bounds in a file's tables, those of `only` if it names some; what the file does not say is as in `default`.
    Raises SettingsError.
    """
    found = declared.read(Bounds, file, default, only=only)
    asked = frozenset(kind for kind, radius in found.radii.items() if radius != default.radii.get(kind))
    return found._replace(asked=asked or found.asked)


class BegunAction(NamedTuple):
    """An action that was begun: `mark`, `clear`, or a rung; when, as Unix time. `planned`: it is maintenance, no repair
    of a sick node: it counts for rates, and not against what one node may have.
    """

    when: float
    node: str
    action: str
    planned: bool = False


class Held(NamedTuple):
    """A bound that has no room. `bound` names it as the settings do (`rack.out`), `why` is one line for a person."""

    bound: str
    why: str


class Usage:
    """What is out and what was begun, by radius; updated while a round decides.

    `groups` are the radii of each node without the fleet; a node that is not in it counts for the fleet alone.
    `machines_since` says since when a different machine has a node's name: its repairs are counted from then on.
    Replacements are counted from before as well: otherwise a name on which no machine stays healthy would ask for them
    without end.
    """

    def __init__(
        self, groups: Mapping[str, Sequence[Radius]], sizes: Mapping[Radius, int],
        machines_since: Mapping[str, float] = {},
    ) -> None:  # fmt: skip
        self.groups = groups
        self.sizes = sizes
        self._machines_since = machines_since
        self._unmatched: Optional[Tuple[Bounds, List[str]]] = None
        self.out: Dict[Radius, int] = {}
        self.repairing: Dict[Radius, int] = {}
        self.under_repair: Set[str] = set()
        self._begun: Dict[Tuple[Radius, str], List[float]] = {}
        self._repairs: Dict[str, List[float]] = {}

    def radii(self, node: str) -> Iterator[Radius]:
        yield FLEET, ""
        yield from self.groups.get(node, ())

    def size(self, radius: Radius) -> int:
        return self.sizes.get(radius, 1)

    def unmatched(self, bounds: Bounds) -> List[str]:
        """`Bounds.unmatched` for these radii, looked up once: every decision asks for it."""
        if self._unmatched is None or self._unmatched[0] is not bounds:
            self._unmatched = bounds, bounds.unmatched(self.sizes)
        return self._unmatched[1]

    def count_out(self, node: str, change: int = 1) -> None:
        for radius in self.radii(node):
            self.out[radius] = self.out.get(radius, 0) + change

    def count_repairing(self, node: str) -> None:
        self.under_repair.add(node)
        for radius in self.radii(node):
            self.repairing[radius] = self.repairing.get(radius, 0) + 1

    def begin(self, done: BegunAction) -> None:
        """An action that was begun, now or in the history."""
        repair = done.action in EVERY_REPAIR
        kinds = (done.action, "repair") if repair else (done.action,)
        for radius in self.radii(done.node):
            for kind in kinds:
                insort(self._begun.setdefault((radius, kind), []), done.when)
        here = done.action == Rung.REPLACE.value or done.when >= self._machines_since.get(done.node, 0.0)
        if repair and not done.planned and here:
            insort(self._repairs.setdefault(done.node, []), done.when)

    def begun(self, radius: Radius, action: str, since: float) -> int:
        times = self._begun.get((radius, action), [])
        return len(times) - bisect_right(times, since)

    def repairs_of(self, node: str, since: float) -> int:
        """How many repairs the node has had since then, in whichever episode."""
        times = self._repairs.get(node, [])
        return len(times) - bisect_right(times, since)


def usage_of(states: Sequence[NodeState], out: Iterable[str] = ()) -> Usage:
    """Nodes in their radii, with these out and nothing begun."""
    groups = {state.name: radii_of(state) for state in states}
    usage = Usage(groups, sizes(groups, {state.name for state in states if state.absent}))
    for node in out:
        usage.count_out(node)
    return usage


def sizes(groups: Mapping[str, Sequence[Radius]], absent: Container[str] = ()) -> Dict[Radius, int]:
    """How many nodes each radius has, without those that are `absent`; a radius of such nodes alone has none."""
    counts: Dict[Radius, int] = {(FLEET, ""): 0}
    for node, radii in groups.items():
        for radius in ((FLEET, ""), *radii):
            counts[radius] = counts.get(radius, 0) + (node not in absent)
    return counts


def may_mark(
    bounds: Bounds, usage: Usage, node: str, now: float, enabled_at: Optional[float], again: bool = False
) -> Optional[Held]:
    """The bound that prevents a node from being marked now, None if every bound has room.

    `enabled_at` is when marking was first enabled on this store, None for never until now. `again`: it was marked
    within the time of a rate, and does not count twice.
    """
    held = never_now(bounds, MARK, node, now) or no_such_kind(bounds, usage)
    if held:
        return held
    if enabled_at is None or now - enabled_at < bounds.first_run_for:
        limit, out = bounds.first_run.of(usage.size((FLEET, ""))), usage.out.get((FLEET, ""), 0)
        if out >= limit:
            return Held(
                "first-run", f"{out} nodes are out and this is the first run: at most {bounds.first_run.show()}"
            )
    return room(bounds, usage, node) or (None if again else rate(bounds, usage, node, (MARK,), now))


def may_repair(bounds: Bounds, usage: Usage, node: str, rung: Rung, now: float) -> Optional[Held]:
    """The bound that prevents a repair from beginning now, None if every bound has room."""
    return (
        never_now(bounds, rung.value, node, now)
        or no_such_kind(bounds, usage)
        or _held(_full(usage, node, bounds.repairing, usage.repairing), "repairing", "under repair")
        or rate(bounds, usage, node, (rung.value, "repair"), now)
    )


def no_such_kind(bounds: Bounds, usage: Usage) -> Optional[Held]:
    """A bound that the site has set and that matches no node blocks everything: it was meant to block something."""
    missing = usage.unmatched(bounds)
    return Held(f"{missing[0]}.unmatched", f"bounds.{missing[0]}: no node is in such a group") if missing else None


def never_now(bounds: Bounds, action: str, node: str, now: float) -> Optional[Held]:
    """The bound that blocks an action on a node now even if there is room: the node is protected, or the hour."""
    return protected(bounds, node) or _timed(bounds, action, now)


def protected(bounds: Bounds, node: str) -> Optional[Held]:
    pattern = next((pattern for pattern in bounds.protected if fnmatchcase(node, pattern)), None)
    return None if pattern is None else Held("protected", f"protected by the policy ({pattern})")


def spent(bounds: Bounds, usage: Usage, node: str, now: float) -> str:
    """Why a node may have no further repair and is left to a person; "" if it may."""
    count = usage.repairs_of(node, now - bounds.window)
    if count < bounds.attempts:
        return ""
    return f"{count} repairs within {show_seconds(bounds.window)} did not keep it healthy, at most {bounds.attempts}"


def _timed(bounds: Bounds, action: str, now: float) -> Optional[Held]:
    quiet = any_holds(bounds.quiet.hours, now, bounds.zone.info) if action in bounds.quiet.actions else ""
    if quiet:
        return Held("quiet-hours", f"no {action} in the quiet hours {quiet}")
    bound = action in bounds.windows.actions and bounds.windows.hours
    if bound and not any_holds(bounds.windows.hours, now, bounds.zone.info):
        return Held("maintenance-windows", f"{action} only in {', '.join(span.text for span in bounds.windows.hours)}")
    return None


def room(bounds: Bounds, usage: Usage, node: str) -> Optional[Held]:
    """The bound on the nodes out that has no room for one more, None if each has."""
    return _held(full_radius(bounds, usage, node), "out", "out")


class FullRadius(NamedTuple):
    """A radius that has no room: how many of its nodes are out (or under repair), of how many, and the limit."""

    radius: Radius
    out: int
    size: int
    limit: Limit

    def has(self, state: NodeState) -> bool:
        """Whether a node is in it."""
        return self.radius[0] == FLEET or self.radius in radii_of(state)


def full_radius(bounds: Bounds, usage: Usage, node: str) -> Optional[FullRadius]:
    """The first radius of a node that has reached its limit of nodes out, None if each has room."""
    return _full(usage, node, bounds.out, usage.out)


def _full(
    usage: Usage, node: str, limit_of: Callable[[Radius], Optional[Limit]], counts: Mapping[Radius, int]
) -> Optional[FullRadius]:
    for radius in usage.radii(node):
        limit, count, size = limit_of(radius), counts.get(radius, 0), usage.size(radius)
        if limit is not None and count >= limit.of(size):
            return FullRadius(radius, count, size, limit)
    return None


def _held(full: Optional[FullRadius], name: str, what: str) -> Optional[Held]:
    if full is None:
        return None
    nodes = f"{full.out} of {full.size} nodes {_where(full.radius)} are {what}"
    return Held(f"{full.radius[0]}.{name}", f"{nodes}, at most {full.limit.show()}")


def rate(bounds: Bounds, usage: Usage, node: str, actions: Tuple[str, ...], now: float) -> Optional[Held]:
    """The rate that is used up, None if one more action fits each."""
    for radius in usage.radii(node):
        rates = bounds.radii.get(radius[0], RadiusBounds()).rates
        for action in actions:
            limit = rates.get(action)
            if limit is None:
                continue
            count = usage.begun(radius, action, now - limit.seconds)
            if count >= limit.operations:
                why = f"{count} {action}s {_where(radius)} within {limit.seconds:g} s, at most {limit.operations}"
                return Held(f"{radius[0]}.rate.{action}", why)
    return None


def _where(radius: Radius) -> str:
    kind, name = radius
    return "in the fleet" if kind == FLEET else f"in {name}" if "=" in name else f"in {kind} {name}"
