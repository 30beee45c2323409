"""Runs one sweep after another: idle nodes, the oldest verdict first, some nodes at a time, in a window or for ever.

Each pass is a sweep of its own over a bounded share of the fleet. The choice of the next nodes is pure. The loop around
it asks the launcher which nodes are idle, and the store when each was tested.
"""

from __future__ import annotations

import re
import time
import uuid
from typing import Callable, Collection, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.state.reports import suite_name
from nhc.core.units import seconds as seconds_of
from nhc.deep.group_test import SweepJudgement
from nhc.deep.sweep import SUITE, Surroundings, Sweeper, SweepStopped
from nhc.deep.sweep_plan import SweepPlan, read, write
from nhc.marks.policy.deep_due import LastVerdicts, newest_of, oldest_first
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.runner import Launcher
from nhc.store import deep
from nhc.store.database import Store
from nhc.store.rounds.leader import Leader

LEAST = 4
"""Nodes of a pass: a suspect needs two others that prove each other."""
AGAIN = 3600.0
"""Seconds after which a node is tried again whose test came to no result: work took it, or it was not idle."""
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


class SweepWindow(NamedTuple):
    """When tests may run: until `until` (Unix time), or each day from `begin` to `end` (minutes of local time)."""

    until: float = 0.0
    begin: int = 0
    end: int = 0

    def closes(self, now: float) -> float:
        """When it closes (Unix time); `now` or less where it is closed."""
        if self.until:
            return self.until
        if self.begin == self.end:
            return float("inf")
        local = time.localtime(now)
        minute = local.tm_hour * 60 + local.tm_min
        length = (self.end - self.begin) % 1440
        since = (minute - self.begin) % 1440
        return now + (length - since) * 60 - local.tm_sec if since < length else now


def window(text: str, now: float) -> SweepWindow:
    """`22:00-06:00` each day, or a duration from now on, as `4h`; "" for always. Raises ValueError."""
    if not text:
        return SweepWindow()
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        try:
            return SweepWindow(now + seconds_of(text))
        except ValueError:
            raise ValueError(f"{text!r} is neither HH:MM-HH:MM nor a duration, as 22:00-06:00 or 4h") from None
    begin, end = int(clock[1]) * 60 + int(clock[2]), int(clock[3]) * 60 + int(clock[4])
    if begin == end:
        raise ValueError(f"{text!r} begins when it ends")
    return SweepWindow(begin=begin, end=end)


def chosen(
    nodes: Sequence[str], idle: Collection[str], last: LastVerdicts, tried: Mapping[str, float], *,
    fresh: float, most: int, now: float, least: int = LEAST,
) -> Tuple[str, ...]:  # fmt: skip
    """The nodes of the next pass, () where none is due or too few are idle.

    A node is due that has no verdict younger than `fresh` seconds and was not `tried` within AGAIN. Where fewer than
    `least` are due, other idle nodes are tested with them as partners; of a suite (1) each is tested alone.
    """
    newest = newest_of(last)
    order = oldest_first([node for node in nodes if node in idle], last, tried)
    waiting = [
        node
        for node in order
        if newest.get(node, 0.0) <= now - fresh and tried.get(node, 0.0) <= now - min(fresh, AGAIN)
    ]
    if not waiting:
        return ()
    picked = waiting[: max(least, most)]
    picked += [node for node in order if node not in set(picked)][: max(0, least - len(picked))]
    return tuple(sorted(picked)) if len(picked) >= min(least, 2) else ()


class Endless(NamedTuple):
    """Sweep after sweep of `plan`; `fresh` in seconds; `forever`, or until no node is due or `window` closes."""

    plan: SweepPlan
    launcher: str
    by: str
    fresh: float
    window: SweepWindow
    forever: bool
    pause: float = 60.0


def run(
    wanted: Endless, store: Store, launcher: Launcher, leader: Leader, around: Surroundings,
    passed: Callable[[int, SweepJudgement], None],
) -> None:  # fmt: skip
    """Sweep after sweep. Raises StoreError, LeadershipLost, SweepStopped where somebody stopped one by hand."""
    tried: Dict[str, float] = {}
    while True:
        now = around.clock()
        closes = wanted.window.closes(now)
        # Also outside of the window: there the pass ends what a killed process has left running.
        number = _open_one(store, wanted.launcher)
        if closes > now and number is None:
            number = _next(wanted, store, launcher, around, tried, now)
        if number is None:
            if not wanted.forever:
                return
            around.sleep(min(wanted.pause, max(1.0, closes - now)) if closes > now else wanted.pause)
            continue
        with store.read() as connection:
            row = deep.sweep(connection, number)
        plan = read(row.plan if row else "")
        tried.update(dict.fromkeys(plan.nodes, now))
        try:
            judgement = Sweeper(store, number, plan, launcher, leader, around._replace(until=closes)).run()
        except SweepStopped as stopped:
            if not stopped.by_window:
                raise
            judgement = stopped.judgement
        except AdapterError as error:
            if not wanted.forever:
                raise
            around.say(f"sweep {number} could not be ended, and is looked after again: {error}")
            around.sleep(wanted.pause)
            continue
        passed(number, judgement)


def _open_one(store: Store, launcher: str) -> Optional[int]:
    """The pass that a killed process has left open: it is finished first. Those of other launchers are left alone."""
    with store.read() as connection:
        rows = deep.newest_sweeps(connection, state=deep.OPEN)
    return next((row.id for row in rows if row.launcher == launcher and read(row.plan).continuous), None)


def _next(
    wanted: Endless, store: Store, launcher: Launcher, around: Surroundings, tried: Mapping[str, float], now: float
) -> Optional[int]:
    plan = wanted.plan
    try:
        idle = launcher.idle(plan.nodes)
    except AdapterError as error:
        around.say(f"the launcher does not answer: {error}")
        return None
    with store.read() as connection:
        last = deep.last_conclusive(connection, plan.nodes, [suite_name(plan.suite) if plan.suite else SUITE])
    least = 1 if plan.suite else LEAST
    picked = chosen(plan.nodes, idle, last, tried, fresh=wanted.fresh, most=plan.at_once, now=now, least=least)
    if not picked:
        return None
    part = plan._replace(
        token=uuid.uuid4().hex[:16], nodes=picked, most=1.0, continuous=True,
        topology=plan.topology._replace(path={n: p for n, p in plan.topology.path.items() if n in set(picked)}),
        watts=tuple((node, watts) for node, watts in plan.watts if node in set(picked)),
    )  # fmt: skip
    with store.write() as connection:
        row = deep.begin_sweep(connection, write(part), launcher=wanted.launcher, by=wanted.by, now=now)
    around.say(f"sweep {row.id}: {len(picked)} of {len(idle)} idle nodes, the oldest verdicts first")
    return row.id
