"""How often nodes fail: faults, failed proofs and days out of service a node-day, by what nodes are made of, before and
after a date, and how sure that is.

A node-day is a day in which the node reported or was out of service: nothing is known of a silent node. A fault is a
CRIT problem, counted once a day for each reason of a node; a failed proof is a CRIT run of a deep suite.

Faults are not independent events: one sick node has many, and one outage makes a thousand in an hour. So the interval
of a ratio (95 %) is as wide as the nodes, or the days, differ from one another (the ratio estimator with these as
clusters: Cochran, Sampling Techniques, chapter 6), and never narrower than for independent events (Poisson).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import product
from typing import DefaultDict, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import Verdict
from nhc.store import coverage, history, machines, nodes
from nhc.store.coverage import ReportSpan, joined
from nhc.store.machines import MADE_OF
from nhc.store.schema import deep_results, of_nodes, problems

DAY = 86400.0
FACTS = (*MADE_OF, *nodes.GROUPS)
"""The facts by which nodes can be grouped."""
FAULTS, PROOFS, OUT = MEASURES = ("faults", "failed_proofs", "days_out")
Z = 1.959964
"""So many standard deviations to both sides hold 95 per cent of the normal distribution."""
FEW = 5
"""With fewer nodes or days on a side, nothing is compared: how much they differ cannot be estimated."""

K = TypeVar("K")


class RateRatio(NamedTuple):
    """How many times as often, with the ends of its interval."""

    ratio: float
    low: float
    high: float

    @property
    def shown(self) -> str:
        """Whether that is "less" or "more": if the whole interval is on one side of 1; "" shows no difference."""
        return "less" if self.high < 1 else "more" if self.low > 1 else ""


class FleetRate(NamedTuple):
    """What some nodes were like in a time: counts, and days out of service."""

    nodes: int = 0
    node_days: float = 0.0
    faults: int = 0
    failed_proofs: int = 0
    days_out: float = 0.0

    def per_node_day(self, measure: str) -> Optional[float]:
        """One of MEASURES per node-day; None for less than one node-day: a minute with a fault gives no daily rate."""
        return float(getattr(self, measure)) / self.node_days if self.node_days >= 1 else None


class RateRow(NamedTuple):
    """The nodes of one `value` of a fact, "" if that is not known.

    `rate` is compared with `other`: the same nodes before the date if one was named, otherwise the other nodes.
    `ratios` are by measure, None if there is too little to compare.
    """

    value: str
    rate: FleetRate
    other: FleetRate
    ratios: Mapping[str, Optional[RateRatio]]

    def value_of(self) -> Dict[str, object]:
        """As JSON: counts, rates a node-day, and the ratios with the ends of their intervals."""
        sides = {
            name: {**side._asdict(), "per_node_day": {measure: side.per_node_day(measure) for measure in MEASURES}}
            for name, side in (("rate", self.rate), ("other", self.other))
        }
        ratios = {
            name: {**ratio._asdict(), "shown": ratio.shown} if ratio else None for name, ratio in self.ratios.items()
        }
        return {"value": self.value, **sides, "ratios": ratios}  # fmt: skip


class Tally:
    """Some nodes in one time: how long each was watched (seconds), and what happened, by node and by day."""

    def __init__(self) -> None:
        self.node_time: DefaultDict[str, float] = defaultdict(float)
        self.by_node: Dict[str, DefaultDict[str, float]] = {measure: defaultdict(float) for measure in MEASURES}
        self.by_day: Dict[str, DefaultDict[int, float]] = {measure: defaultdict(float) for measure in MEASURES}
        self.events: Counter[str] = Counter()
        self._day_time: DefaultDict[int, float] = defaultdict(float)
        self._whole_days: Counter[int] = Counter()

    def watch(self, node: str, span: ReportSpan) -> None:
        """A time in which the node counts. Of whole days, only the first and the last are stored: a fleet has
        millions.
        """
        self.node_time[node] += span.ended - span.began
        first, last = int(span.began // DAY), int(span.ended // DAY)
        self._day_time[first] += min(span.ended, (first + 1) * DAY) - span.began
        if last > first:
            self._day_time[last] += span.ended - last * DAY
            self._whole_days[first + 1] += 1
            self._whole_days[last] -= 1

    def happened(self, measure: str, node: str, at: float, amount: float = 1.0) -> None:
        """Something that counts, at a time."""
        self.by_node[measure][node] += amount
        self.by_day[measure][int(at // DAY)] += amount
        self.events[measure] += measure != OUT

    def out(self, node: str, span: ReportSpan) -> None:
        """A time out of service, on the days in which it was: one event, however long."""
        self.events[OUT] += 1
        for day in range(int(span.began // DAY), int(span.ended // DAY) + 1):
            part = min(span.ended, (day + 1) * DAY) - max(span.began, day * DAY)
            self.happened(OUT, node, day * DAY, part / DAY)

    def moments(self) -> Moments:
        """What the rates and their intervals are computed from."""
        days, whole = defaultdict(float, self._day_time), 0
        for day in range(min(self._whole_days, default=0), max(self._whole_days, default=0)):
            whole += self._whole_days[day]
            days[day] += whole * DAY
        times = self.node_time
        sums = {"nodes": float(len(times)), "time": sum(times.values()), "time2": sum(t * t for t in times.values())}
        for measure, amounts in self.by_node.items():
            sums[f"{measure} events"] = float(self.events[measure])
            sums[measure] = sum(amounts.values())
            sums[f"{measure}2"] = sum(amount * amount for amount in amounts.values())
            sums[f"{measure} time"] = sum(amount * times.get(node, 0.0) for node, amount in amounts.items())
        return Moments(sums, {"": days, **self.by_day})


class Moments(NamedTuple):
    """Sums over nodes, and by day the time ("") and each measure: the sums of all nodes minus those of some nodes are
    the sums of the rest, so that each of a thousand racks is compared with the rest of the fleet at no cost.
    """

    sums: Mapping[str, float]
    days: Mapping[str, Mapping[int, float]]

    def plus(self, other: Moments, sign: int = 1) -> Moments:
        """The same with more nodes; with the sign -1 without some of them."""
        days = {name: _plus(self.days[name], other.days[name], sign) for name in self.days}
        return Moments(_plus(self.sums, other.sums, sign), days)

    def rate(self) -> FleetRate:
        faults, proofs, out = (float(self.sums[measure]) for measure in MEASURES)
        return FleetRate(
            round(self.sums["nodes"]), max(self.sums["time"], 0.0) / DAY, round(faults), round(proofs), max(out, 0.0)
        )

    def watched_days(self) -> List[int]:
        """The days of which there is at least a minute of one node."""
        return [day for day, seconds in self.days[""].items() if seconds >= 60]

    def variance(self, measure: str) -> float:
        """The square of the standard error of a rate, as a part of the rate's square."""
        sums, total, time = self.sums, self.sums[measure], self.sums["time"]
        independent = 1 / (sums[f"{measure} events"] + 0.5)
        if not total:
            return independent
        rate = total / time
        nodes = sums[f"{measure}2"] - 2 * rate * sums[f"{measure} time"] + rate * rate * sums["time2"]
        days = sum(
            (self.days[measure].get(day, 0.0) - rate * self.days[""][day]) ** 2 for day in self.watched_days()
        )  # fmt: skip
        clusters = ((nodes, sums["nodes"]), (days, len(self.watched_days())))
        return max(independent, *(squares * count / (count - 1) / total**2 for squares, count in clusters))


def _plus(one: Mapping[K, float], other: Mapping[K, float], sign: int) -> Dict[K, float]:
    return {key: one.get(key, 0.0) + sign * other.get(key, 0.0) for key in {**one, **other}}


NOBODY = Tally().moments()


def compared(one: Moments, other: Moments, measure: str) -> Optional[RateRatio]:
    """The ratio of two rates; zero events count as half an event. None if there are FEW nodes or days, or no event."""
    if any(side.sums["nodes"] < FEW or len(side.watched_days()) < FEW for side in (one, other)):
        return None
    events = one.sums[f"{measure} events"] + other.sums[f"{measure} events"]
    if not events:
        return None
    half = (one.sums[measure] + other.sums[measure]) / events / 2
    rates = [
        (side.sums[measure] if side.sums[f"{measure} events"] else half) / side.sums["time"] for side in (one, other)
    ]
    ratio, error = rates[0] / rates[1], math.sqrt(one.variance(measure) + other.variance(measure))
    return RateRatio(ratio, ratio * math.exp(-Z * error), ratio * math.exp(Z * error))


Values = Mapping[str, Sequence[Tuple[str, ReportSpan]]]
"""By node, what its fact was in which time."""


class FleetTime(NamedTuple):
    """What happened to nodes from `began` to `ended`: when each was watched and out of service, and what it counts by
    measure and node.
    """

    began: float
    ended: float
    watched: Mapping[str, Sequence[ReportSpan]]
    out: Mapping[str, Sequence[ReportSpan]]
    events: Sequence[Tuple[str, str, float]]


def rates(
    connection: Connection, began: float, ended: float, facts: Sequence[str] = ("",), *, date: Optional[float] = None,
    names: Optional[Sequence[str]] = None, gap: float = 600.0,
) -> Dict[str, List[RateRow]]:  # fmt: skip
    """How often nodes (None: all) failed from `began` to `ended` (Unix seconds), by each of these facts: a row for each
    value, those of the most node-days first; for the fact "" one row for all.

    With a `date` between the two, each row is of the time from then on, compared with the time before. `gap`: reports
    further apart than this leave a gap. Raises ValueError for a fact that is not in FACTS.
    """
    out = history.out_spans(connection, began, ended, names)
    known = sorted(nodes.groups(connection)) if names is None else names
    reported = coverage.spans_of(connection, known, began, ended, gap)
    watched = {node: joined([*spans, *out.get(node, ())], began, ended) for node, spans in reported.items()}
    seen = FleetTime(began, ended, watched, out, list(_events(connection, began, ended, names)))
    return {fact: _rows(seen, _values(connection, fact, began, ended, names), date) for fact in facts}


def _tallied(seen: FleetTime, values: Values, date: Optional[float]) -> Dict[Tuple[str, bool], Moments]:
    """By value, and whether it was before the date."""
    tallies: DefaultDict[Tuple[str, bool], Tally] = defaultdict(Tally)
    whole = ReportSpan(seen.began, seen.ended)
    middle = seen.began if date is None else date
    sides = ((False, ReportSpan(middle, seen.ended)), (True, ReportSpan(seen.began, middle)))

    def parts(node: str, spans: Sequence[ReportSpan]) -> Iterator[Tuple[Tally, ReportSpan]]:
        for span, (value, of_value), (is_before, of_side) in product(spans, values.get(node, (("", whole),)), sides):
            first = max(span.began, of_value.began, of_side.began)
            last = min(span.ended, of_value.ended, of_side.ended)
            if last > first:
                yield tallies[value, is_before], ReportSpan(first, last)

    for node, spans in seen.watched.items():
        for tally, part in parts(node, spans):
            tally.watch(node, part)
    for node, spans in seen.out.items():
        for tally, part in parts(node, spans):
            tally.out(node, part)
    for measure, node, at in seen.events:
        for tally, _part in parts(node, [ReportSpan(at, math.nextafter(at, seen.ended))]):
            tally.happened(measure, node, at)
    return {key: tally.moments() for key, tally in tallies.items()}


def _rows(seen: FleetTime, values: Values, date: Optional[float]) -> List[RateRow]:
    moments = _tallied(seen, values, date)
    everything = NOBODY
    for some in moments.values() if date is None else ():
        everything = everything.plus(some)
    rows = []
    for value in {value for value, _is_before in moments}:
        one = moments.get((value, False), NOBODY)
        other = everything.plus(one, -1) if date is None else moments.get((value, True), NOBODY)
        ratios = {measure: compared(one, other, measure) for measure in MEASURES}
        rows.append(RateRow(value, one.rate(), other.rate(), ratios))
    return sorted(rows, key=lambda row: (-row.rate.node_days, row.value))


def _values(
    connection: Connection, fact: str, began: float, ended: float, names: Optional[Sequence[str]]
) -> Values:  # fmt: skip
    if not fact:
        return {}
    if fact in MADE_OF:
        return machines.spans(connection, fact, began, ended, names)
    if fact not in FACTS:
        raise ValueError(f"{fact!r} is none of {', '.join(FACTS)}")
    always = ReportSpan(began, ended)
    return {node: [(named.get(fact, ""), always)] for node, named in nodes.groups(connection, names).items()}


def _events(
    connection: Connection, began: float, ended: float, names: Optional[Sequence[str]]
) -> Iterator[Tuple[str, str, float]]:
    """Faults and failed proofs: measure, node, when."""
    known = set()
    crit = Verdict.CRIT.name
    for still in (problems.c.ended.is_(None), problems.c.ended >= began):  # an index each
        columns = (problems.c.node, problems.c.check, problems.c.reason, problems.c.began)
        of_time = sa.and_(still, problems.c.began >= began, problems.c.began < ended, problems.c.verdict == crit)
        for asked in of_nodes(sa.select(*columns).where(of_time), problems, names):
            for row in connection.execute(asked):
                fault = (row.node, row.check, row.reason, row.began // DAY)
                if fault not in known:
                    known.add(fault)
                    yield FAULTS, row.node, row.began
    runs = sa.select(deep_results.c.node, deep_results.c.suite, deep_results.c.at).distinct()
    failed = runs.where(deep_results.c.verdict == crit, deep_results.c.at >= began, deep_results.c.at < ended)
    for asked in of_nodes(failed, deep_results, names):
        for row in connection.execute(asked):
            yield PROOFS, row.node, row.at
