"""What each screen shows, as JSON values: read from the shared snapshot, and from the store for details.

Every list is bounded and says how much was left out. Texts are data: the page puts them only into text nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.console import acts
from nhc.console.fleet_nodes import LETTERS, NEVER, STALE, WORST, letter_of
from nhc.console.snapshot import (
    SEARCHED,
    FleetProblem,
    NodeWork,
    NotFound,
    ProblemRow,
    Snapshot,
    check_matrix,
    find,
    fold_causes,
)
from nhc.console.sources import count_accelerators
from nhc.core.json_values import object_from
from nhc.core.matching.node_ranges import expand, fold
from nhc.core.model import Report
from nhc.core.render.json import to_dict
from nhc.marks.ports.job_control import JobName
from nhc.remedy import detail as details
from nhc.remedy.cases import next_repair, standing_cause
from nhc.remedy.machine import REPAIRING as REPAIRING_STATES
from nhc.store import (
    attempts,
    audit,
    coverage,
    deep,
    ended_episodes,
    episodes,
    evidence,
    fleet_rates,
    holds,
    job_restarts,
    node_work,
    nodes,
    problems,
    spares,
    trains,
)  # fmt: skip
from nhc.store.coverage import ReportSpan
from nhc.store.database import Store
from nhc.store.history import lost_capacity, of_fleet, out_spans
from nhc.store.problems import RANK

ROWS = 1000
"""Rows of a table in one answer; the page sorts, filters and turns them."""
NAMES = 200
"""Names in a folded set, rows of a picture."""
HOUR, DAY = 3600.0, 86400.0
HOURS = (1, 6, 24, 168, 720, 2160)
"""Hours that the history of the fleet may have."""
PARTS = 48
"""Parts of that history."""
COUNTED = 2000
"""Nodes that are in service again whose accelerators it counts, those that were out the longest; half a millisecond
each."""
STRIP = 48
"""Parts of a node's last day, half an hour each."""
REPORTS = 200
"""Reports of a node that are read for how its values went."""
SERIES = 400
"""Values of a node that are plotted at most."""

Value = Dict[str, object]


def left_out(rows: Sequence[object]) -> int:
    """How many rows are more than one answer has."""
    return max(0, len(rows) - ROWS)


# From the snapshot alone.


def layout(snapshot: Snapshot) -> Value:
    """The names and the groups, for the map: asked for once a layout. Groups are numbers into a list of values."""
    facts = sorted({fact for row in snapshot.nodes.values() for fact in row.groups})
    values: Dict[str, List[str]] = {}
    places: Dict[str, List[int]] = {}
    for fact in facts:
        seen: Dict[str, int] = {}
        places[fact] = [
            seen.setdefault(snapshot.nodes[name].groups.get(fact, ""), len(seen)) for name in snapshot.names
        ]
        values[fact] = list(seen)
    return {"layout": snapshot.layout, "names": snapshot.names, "facts": facts, "values": values, "places": places}


def fleet(snapshot: Snapshot) -> Value:
    """A letter for each node, and the counts."""
    return {**counts(snapshot), "letters": snapshot.letters}


def counts(snapshot: Snapshot) -> Value:
    """The counts alone: what a screen that shows no map needs of the fleet."""
    return {"at": snapshot.at, "layout": snapshot.layout, "counts": snapshot.counts(), "notes": snapshot.notes,
            "needs": len(snapshot.needing())}  # fmt: skip


def silent(snapshot: Snapshot) -> Value:
    """The nodes without a fresh report: how many, and the first of them."""
    names = [name for name, letter in zip(snapshot.names, snapshot.letters) if letter in STALE + NEVER]
    return {"count": len(names), "nodes": fold(names[:NAMES])}


def letters_of_check(snapshot: Snapshot, check: str) -> Value:
    """The map recoloured by one check: nodes without a problem of it are as fresh or stale as they are."""
    worst: Dict[str, str] = {}
    rank = "cuw"
    for problem in snapshot.problems:
        letter = {"CRIT": "c", "UNKNOWN": "u", "WARN": "w"}.get(problem.verdict)
        if problem.check == check and problem.ended is None and letter:
            worst[problem.node] = min(worst.get(problem.node, letter), letter, key=rank.index)
    letters = "".join(
        letter if letter in "sn" else worst.get(name, "o") for name, letter in zip(snapshot.names, snapshot.letters)
    )
    return {"layout": snapshot.layout, "at": snapshot.at, "letters": letters, "check": check}


def causes(snapshot: Snapshot) -> Value:
    """Problems folded by cause."""
    folded = fold_causes(snapshot)
    return {
        "at": snapshot.at,
        "causes": [cause_row(problem) for problem in folded[:ROWS]],
        "left_out": left_out(folded),
    }


def cause_row(problem: FleetProblem) -> Value:
    """A cause as rows show it."""
    return {**problem._asdict(), "plans": [plan._asdict() for plan in problem.plans]}


def cause(snapshot: Snapshot, check: str, reason: str) -> Value:
    """All nodes of one cause, folded whole, with their messages."""
    rows = [row for row in snapshot.problems if row.check == check and row.reason == reason and row.ended is None]
    names = sorted({row.node for row in rows})
    first = [problem_row(snapshot, row) for row in sorted(rows, key=lambda row: row.node)[:ROWS]]
    return {"check": check, "reason": reason, "nodes": fold(names), "count": len(names), "rows": first,
            "left_out": left_out(rows)}  # fmt: skip


def checks(snapshot: Snapshot, fact: str) -> Value:
    """Checks by the groups of a fact."""
    rows = check_matrix(snapshot, fact)
    facts = sorted({each for row in snapshot.nodes.values() for each in row.groups})
    return {"fact": fact, "facts": facts, "rows": [row._asdict() for row in rows[: 2 * ROWS]]}


def groups(snapshot: Snapshot, fact: str) -> Value:
    """The groups of a fact with their counts by letter, the worst first."""
    counts: Dict[str, Counter[str]] = {}
    for name, letter in zip(snapshot.names, snapshot.letters):
        counts.setdefault(snapshot.nodes[name].groups.get(fact, ""), Counter())[letter] += 1
    rows = [
        {"group": group, "nodes": sum(letters.values()), "counts": dict(letters)} for group, letters in counts.items()
    ]
    rows.sort(key=lambda row: (-counts[str(row["group"])]["c"], str(row["group"])))
    return {"fact": fact, "rows": rows[: 2 * ROWS], "sizes": len(snapshot.sizes)}


class NodeQuery(NamedTuple):
    """Which nodes: `find` leads to them from `text`, they are in the set `names`, of a group, of these letters, out.

    Empty is all; `out` is any text for those that are out of service.
    """

    text: str = ""
    names: str = ""
    fact: str = ""
    group: str = ""
    letters: str = ""
    out: str = ""


def list_nodes(snapshot: Snapshot, wanted: NodeQuery) -> Value:
    """Nodes with their worst problem and what is done about them, the worst first. Raises BadRange."""
    some = frozenset(expand(wanted.names)) if wanted.names else None
    found = find(snapshot, wanted.text)
    chosen = [
        (WORST.index(letter), row)
        for letter, row in zip(snapshot.letters, (snapshot.nodes[name] for name in snapshot.names))
        if row.node in found.nodes and (some is None or row.node in some) and letter in (wanted.letters or WORST)
        and (not wanted.out or snapshot.out(row.node))
        and (not wanted.fact or row.groups.get(wanted.fact, "") == wanted.group)
    ]  # fmt: skip
    chosen.sort(key=lambda entry: entry[0])
    worst: Dict[str, ProblemRow] = {}
    for problem in snapshot.problems:
        known = worst.get(problem.node)
        if problem.ended is None and (known is None or RANK.get(problem.verdict, 0) > RANK.get(known.verdict, 0)):
            worst[problem.node] = problem
    rows: List[Value] = []
    for place, row in chosen[:ROWS]:
        bad = worst.get(row.node)
        about = snapshot.standing_about(bad) if bad else next(iter(snapshot.standing.get(row.node, ())), None)
        rows.append({
            "node": row.node, "letter": WORST[place], "reported_at": row.reported_at, "groups": row.groups,
            "reason": bad.reason or bad.check if bad else "", "check": bad.check if bad else "",
            "message": bad.message if bad else "", **_follows(about), "out": snapshot.out(row.node),
        })  # fmt: skip
    facts = sorted({fact for _place, row in chosen[:ROWS] for fact in row.groups})
    return {"at": snapshot.at, "rows": rows, "facts": facts, "count": len(chosen), "left_out": left_out(chosen),
            "searched": SEARCHED, "found": found.by}  # fmt: skip


def problem_row(snapshot: Snapshot, problem: ProblemRow) -> Value:
    """A problem with its next step, and whether its node is out of service."""
    return {**problem._asdict(), **_follows(snapshot.standing_about(problem)), "out": snapshot.out(problem.node)}


def _follows(about: Optional[NodeWork]) -> Value:
    if about is None:
        return {"next": "", "waits": ""}
    return {"next": about.next, "waits": about.waits, "episode": about.episode, "person": about.person}


# A node.


def node(snapshot: Snapshot, name: str, report: Optional[Report], links: Mapping[str, str], stale: float) -> Value:
    """One node: facts, age, problems, its latest report."""
    row = snapshot.nodes.get(name)
    if row is None:
        raise NotFound(f"no node is called {name}")
    return {
        **row._asdict(), "letter": letter_of(row, snapshot.at, stale), "at": snapshot.at,
        "layout": snapshot.layout, "place": bisect_left(snapshot.names, name),
        "problems": [problem_row(snapshot, problem) for problem in snapshot.problems if problem.node == name],
        "report": to_dict(report) if report else None,
        "links": {title: address.replace("{node}", name) for title, address in links.items()},
    }  # fmt: skip


def timeline(store: Store, name: str, window: ReportSpan, gap: float) -> Value:
    """A node's problems, verdicts, repairs and gaps in a span of time."""
    with store.read() as connection:
        rows = problems.newest_of(connection, name, window.began, window.ended, NAMES + 1)
        past = nodes.verdicts(connection, name, window.began, window.ended, NAMES)
        gaps = coverage.gaps(connection, name, window.began, window.ended, gap)
        entries = audit.entries(connection, node=name, limit=NAMES, newest=True)
        out = out_spans(connection, window.began, window.ended, [name]).get(name, [])
        if not (rows or past or entries or nodes.list_nodes(connection, [name])):
            raise NotFound(f"no node is called {name}")
    return {
        "node": name, "began": window.began, "ended": window.ended,
        "problems": [row._asdict() for row in rows[:NAMES]], "more": len(rows) > NAMES,
        "verdicts": [verdict._asdict() for verdict in past],
        "gaps": [span._asdict() for span in gaps], "out": [span._asdict() for span in out],
        "events": [_entry(entry) for entry in entries if window.began <= entry.at <= window.ended],
    }  # fmt: skip


# Episodes, holds, the audit.


def list_episodes(store: Store, now: float, is_open: Optional[bool] = None, page: int = 0) -> Value:
    """Episodes by pages: those that wait for a person first, the longest-waiting before the others, then the newest."""
    with store.read() as connection:
        rows = episodes.by_need(connection, is_open=is_open, limit=ROWS, offset=page * ROWS)
        total = episodes.count(connection, is_open)
    return {"at": now, "page": page, "pages": -(-total // ROWS), "count": total,
            "episodes": [episode_row(row) for row in rows]}  # fmt: skip


def episodes_of(store: Store, name: str) -> List[Value]:
    """A node's episodes, the newest first."""
    with store.read() as connection:
        rows = episodes.list_episodes(connection, node=name, limit=NAMES)
    return [episode_row(row) for row in reversed(rows)]


def episode(store: Store, number: int) -> Value:
    """One episode: its attempts, decisions, evidence and history."""
    with store.read() as connection:
        row = episodes.get(connection, number)
        if row is None:
            raise NotFound(f"there is no episode {number}")
        return {
            **episode_row(row),
            "attempts": [entry._asdict() for entry in attempts.attempts_of(connection, number)],
            "decisions": [entry._asdict() for entry in attempts.decisions(connection, number)],
            "evidence": [entry._asdict() for entry in evidence.of_episode(connection, number)],
            "events": [_entry(entry) for entry in audit.entries(connection, episode=number, limit=NAMES, newest=True)],
        }  # fmt: skip


def episode_row(row: episodes.Episode) -> Value:
    """An episode as rows show it."""
    detail = details.read_or_empty(row.detail)
    return {
        **{key: value for key, value in row._asdict().items() if key != "detail"},
        "cause": standing_cause(row), "rung": next_repair(row),
        "waiting": detail.waiting, "because": detail.because, "device": detail.device, "about": str(detail.about),
        "asked": detail.asked, "skipped": detail.skipped,
    }  # fmt: skip


def held_back(store: Store, now: float) -> Value:
    """What does not go on and why, folded by reason; holds and breakers, those that end soon first."""
    with store.read() as connection:
        standing = episodes.list_episodes(connection, is_open=True)
        held = holds.in_force(connection, now)
        breakers = holds.breakers(connection)
    by_reason: Dict[str, List[str]] = {}
    for row in standing:
        why = details.read_or_empty(row.detail).waiting
        if why:
            by_reason.setdefault(why, []).append(row.node)
    rows = [{"why": why, "count": len(names), "nodes": fold(sorted(names))} for why, names in by_reason.items()]
    rows.sort(key=lambda row: -len(by_reason[str(row["why"])]))
    soon = sorted(held, key=lambda row: (row.until is None, row.until or 0.0))
    return {
        "at": now, "waiting": rows[:ROWS], "holds": [row._asdict() for row in soon[:ROWS]],
        "breakers": [row._asdict() for row in breakers.values()],
    }  # fmt: skip


def offenders(store: Store, now: float) -> Value:
    """Nodes with several episodes in thirty days, and how long repairs take from fault to mark, repair and return."""
    since = now - 30 * DAY
    with store.read() as connection:
        outcomes = ended_episodes.outcomes(connection, since)
        repeated = ended_episodes.repeated(connection, since, ROWS)
        median, p90 = ended_episodes.durations(connection, since, "returned", (0.5, 0.9))
    return {
        "at": now, "days": 30, "episodes": sum(outcomes.values()), "outcomes": outcomes,
        "repeat": [{"node": name, "episodes": times} for name, times in repeated],
        "median_seconds_to_return": median, "p90_seconds_to_return": p90,
    }  # fmt: skip


def rates(store: Store, now: float, fact: str, days: int, date: float, gap: float) -> Value:
    """How often nodes failed in so many days, by a fact ("" for the fleet as one). With a `date` (0.0 for none): the
    time from then on against as long before. Raises ValueError for no fact.
    """
    span = min(days * DAY, now - date) if date else days * DAY
    began, ended = (date - span, date + span) if date else (now - span, now)
    with store.read() as connection:
        rows = fleet_rates.rates(connection, began, ended, [fact], date=date or None, gap=gap)[fact]
    return {"at": now, "began": began, "date": date, "ended": ended, "by": fact, "facts": fleet_rates.FACTS,
            "rows": [row.value_of() for row in rows[:ROWS]], "left_out": left_out(rows)}  # fmt: skip


def history(store: Store, now: float, hours: int, devices: Mapping[str, int], fresh: float) -> Value:
    """How the fleet was in so many hours: what stood, what was repaired, and what it cost, in PARTS parts.

    `devices` are the accelerators of nodes that are out now; those of nodes that came back are counted here.
    `watched` is how many nodes had a report of the last `fresh` seconds in a part: where it is 0, nothing is known of
    the fleet's health then.
    """
    began, width = now - hours * HOUR, hours * HOUR / PARTS
    with store.read() as connection:
        parts = of_fleet(connection, began, width, PARTS)
        reported = coverage.watched(connection, began, width, PARTS, fresh)
        out = out_spans(connection, began, now)
        longest = sorted(out.keys() - devices.keys(), key=lambda name: (_seconds(out[name]), name), reverse=True)
        counted = {**devices, **count_accelerators(connection, longest[:COUNTED])}
    lost = lost_capacity(out, counted, began, width, PARTS)
    rows = [
        {**part._asdict(), **cost._asdict(), "watched": seen} for part, cost, seen in zip(parts, lost, reported)
    ]  # fmt: skip
    return {"at": now, "hours": hours, "spans": HOURS, "width": width, "parts": rows}


def strips(store: Store, now: float, names: Sequence[str], gap: float) -> Value:
    """The last day of some nodes: a letter for each part, the worst that stood; when each was out; in service how long.

    A part without a report is stale, even if a problem was open: no report does not mean healthy.
    """
    began, width = now - DAY, DAY / STRIP
    with store.read() as connection:
        covered = coverage.spans_of(connection, names, began, now, gap)
        stood = problems.list_problems(connection, nodes=names, is_open=None, since=began)
        out = out_spans(connection, began, now, names)
    letters = {name: ["s"] * STRIP for name in names}

    def parts(start: float, end: float) -> range:
        return range(max(0, int((start - began) // width)), min(STRIP, int((end - began) // width) + 1))

    for name, spans in covered.items():
        for span in spans:
            for place in parts(span.began, span.ended):
                letters[name][place] = "o"
    for problem in stood:
        letter, mine = LETTERS.get(problem.verdict, "u"), letters[problem.node]
        for place in parts(problem.began, now if problem.ended is None else problem.ended):
            if mine[place] != "s":
                mine[place] = min(mine[place], letter, key=WORST.index)
    return {"at": now, "began": began, "strips": {
        name: {
            "letters": "".join(mine), "out": [(span.began, span.ended) for span in out.get(name, ())],
            "service": 1 - _seconds(out.get(name, ())) / DAY,
        } for name, mine in letters.items()
    }}  # fmt: skip


def _seconds(spans: Sequence[ReportSpan]) -> float:
    return sum(span.ended - span.began for span in spans)


def measured(store: Store, name: str, window: ReportSpan) -> Value:
    """How a node's values went, as its kept reports have them: by check, name and target, the oldest first."""
    with store.read() as connection:
        past = [(row.started, row.report) for row in nodes.history(connection, name, *window, REPORTS)]
        latest = nodes.latest(connection, [name]).get(name)
    if latest is not None and window.began <= latest.started <= window.ended:
        past.append((latest.started, latest))
    series: Dict[Tuple[str, str, str, str], Dict[float, float]] = {}
    for at, report in past:
        for result in report.results:
            for metric in result.outcome.metrics:
                key = (result.check, metric.name, metric.unit, result.outcome.target)
                if math.isfinite(metric.value) and (key in series or len(series) < SERIES):
                    series.setdefault(key, {})[at] = metric.value
    return {"began": window.began, "ended": window.ended, "series": [
        {"check": check, "name": metric, "unit": unit, "target": target, "points": sorted(points.items())}
        for (check, metric, unit, target), points in sorted(series.items())
    ]}  # fmt: skip


def maintenance(store: Store, now: float) -> Value:
    """The maintenance trains, those that are under way first, with how many of their nodes are in which state."""
    with store.read() as connection:
        rows, states = trains.list_trains(connection), trains.progress(connection)
    rows.sort(key=lambda row: (row.ended is not None, -row.updated))
    shown = ("name", "state", "by", "why", "made", "updated", "ended")
    return {"at": now, "trains": [
        {**{key: value for key, value in row._asdict().items() if key in shown}, "nodes": states.get(row.id, {})}
        for row in rows
    ]}  # fmt: skip


def audit_page(store: Store, after: int, name: str) -> Value:
    """Rows of the audit log, the newest first, or those above a number."""
    with store.read() as connection:
        rows = audit.entries(connection, node=name, after=after, limit=ROWS, newest=not after)
    return {"entries": [_entry(row) for row in reversed(rows)]}


def _entry(row: audit.Entry) -> Value:
    return {**row._asdict(), "detail": object_from(row.detail)}


# What needs a person now: from the shared snapshot and the store's episodes.


REPAIRING = frozenset(state.value for state in REPAIRING_STATES)


def needs(snapshot: Snapshot, store: Optional[Store]) -> Value:
    """What waits for a person, in the order in which it is looked at.

    `approvals` are episodes that wait for agreement, the longest-waiting first; `alike` are those of them that have
    cause and repair in common, each with what its page shows (`acts.decide_repairs`). `left` are those that the loop
    gave up (or a person aborted), and on whose nodes nothing is done. `unplanned` are causes that are CRIT on nodes
    without work or a hold. `silent` are nodes without a fresh report.
    """
    approvals: List[episodes.Episode] = []
    left: List[episodes.Episode] = []
    alike: List[Value] = []
    if store is not None:
        with store.read() as connection:
            standing = episodes.list_episodes(connection, is_open=True)
            left = [
                episode for episode in ended_episodes.left_to_operators(connection) if episode.node in snapshot.nodes
            ]
            approvals = [episode for episode in standing if episode.state == episodes.AWAITING]
            alike = _alike(connection, approvals)
    unplanned = fold_causes(snapshot.unplanned())
    wrong = {(row.node, f"{row.check}|{row.reason}"): row.message for row in snapshot.problems}

    def row_of(episode: episodes.Episode) -> Value:
        row = episode_row(episode)
        return {**row, "message": wrong.get((episode.node, str(row["cause"]).rpartition("|")[0]), ""),
                "out": snapshot.out(episode.node), "jobs": len(snapshot.jobs.get(episode.node, ()))}  # fmt: skip

    return {
        "at": snapshot.at, "alike": alike, "tiles": tiles(snapshot, store),
        "approvals": [row_of(episode) for episode in approvals[:ROWS]], "approvals_left_out": left_out(approvals),
        "left": [row_of(episode) for episode in left[:ROWS]], "left_left_out": left_out(left),
        "unplanned": [cause_row(episode) for episode in unplanned[:ROWS]], "unplanned_left_out": left_out(unplanned),
        "silent": silent(snapshot),
    }  # fmt: skip


def tiles(snapshot: Snapshot, store: Optional[Store]) -> Value:
    """The fleet in a few numbers; `returned` and `median_seconds_to_return` are those of the last day."""
    out = [name for name in snapshot.standing if snapshot.out(name)]
    value: Value = {
        "needs": len(snapshot.needing()), "crit": snapshot.letters.count("c"), "out": len(out),
        "devices_out": sum(snapshot.devices.get(name, 0) for name in out),
        "repairing": sum(any(work.state in REPAIRING for work in works) for works in snapshot.standing.values()),
    }  # fmt: skip
    if store is not None:
        since = snapshot.at - DAY
        with store.read() as connection:
            value["returned"] = ended_episodes.outcomes(connection, since).get("returned", 0)
            (value["median_seconds_to_return"],) = ended_episodes.durations(connection, since, "returned", (0.5,))
    return value


def _alike(connection: Connection, approvals: Sequence[episodes.Episode]) -> List[Value]:
    """The approvals that one decision may settle, in sets of two or more, at most ALIKE of each."""
    sets: Dict[Tuple[str, str, str], List[episodes.Episode]] = {}
    for episode in approvals:
        check, reason, _target = (*standing_cause(episode).split("|"), "", "")[:3]
        sets.setdefault((check, reason, episode.rung), []).append(episode)
    return [
        {
            "check": check, "reason": reason, "rung": rung, "nodes": fold(sorted({episode.node for episode in alike})),
            "count": len(alike),
            "episodes": " ".join(f"{episode.id}:{acts.digest(connection, episode)}" for episode in alike),
        }
        for (check, reason, rung), every in sets.items()
        for alike in [every[: acts.ALIKE]]
        if len(alike) > 1
    ]  # fmt: skip


# What the node's screen shows of the work on it: deep verdicts, jobs, trains, spares. And a job's own screen.


MEASURED = 2000
"""Results of a node that are read for how its values went: of eight GPUs with a dozen values each, the last 20 runs."""
SHOWN = 20
"""Values of each that the page draws."""


def work_on_node(store: Store, name: str, now: float) -> Value:
    """The work on one node, as texts with who and why. Raises StoreError."""
    with store.read() as connection:
        verdicts = deep.last_verdicts(connection, name)
        measured = deep.rates(deep.history(connection, name, MEASURED))
        running = node_work.running_jobs(connection, name)
        failed = node_work.failed_jobs(connection, name)
        trains = node_work.trains_of(connection, name)
        standing_in = spares.of_node(connection, name)
    return {
        "deep": [{**row._asdict(), "age": row.age(now)} for row in verdicts],
        "rates": [{**row._asdict(), "values": row.values[-SHOWN:], "runs": len(row.values), "change": row.change,
                   "lowest": min(value for _at, value in row.values), "median": row.middle, "last": row.last}
                  for row in measured[:ROWS]],
        "running": [{"id": row.id, "job": row.text(), "user": row.user, "phase": row.phase, "run": row.run}
                    for row in running],
        "failed": [{**row._asdict(), "job": JobName(row.kind, row.namespace, row.name).text(),
                    "id": row.job} for row in failed],
        "trains": [{key: value for key, value in row._asdict().items() if key != "detail"} for row in trains],
        "spares": [row._asdict() for row in standing_in],
    }  # fmt: skip


def watched_jobs(store: Store, name: str) -> Dict[str, int]:
    """The jobs on one node that nhc watches, their numbers by their names. Raises StoreError."""
    with store.read() as connection:
        return {row.text(): row.id for row in node_work.running_jobs(connection, name)}


def find_jobs(store: Store, text: str) -> Value:
    """The watched jobs that a person names so. Raises StoreError."""
    with store.read() as connection:
        rows = job_restarts.find(connection, text)[:ROWS] if text else []
    return {"rows": [{"id": row.id, "job": row.text(), "user": row.user, "phase": row.phase, "ended": row.ended}
                     for row in rows]}  # fmt: skip


def job(store: Store, number: int) -> Value:
    """One watched job: why its runs failed, its restarts, and where. Raises NotFound, StoreError."""
    with store.read() as connection:
        watched = job_restarts.get(connection, number)
        if watched is None:
            raise NotFound(f"there is no job {number}")
        restarts = job_restarts.restarts(connection, number)
        pairs = job_restarts.pairs(connection, number)
        ends = job_restarts.ends(connection, number)
    return {
        **watched._asdict(), "job": watched.text(), "nodes": list(watched.node_names)[:ROWS],
        "restarts": [{**row._asdict(), "nodes": row.nodes.split()[:ROWS]} for row in restarts[-ROWS:]],
        "ends": [row._asdict() for row in ends[-ROWS:]],
        "pairs": [row._asdict() for row in pairs[:ROWS]], "left_out": left_out(pairs),
    }  # fmt: skip
