"""The next step of one node's gate. Pure: observations in, one decision out.

A gate is open if a suite has passed on this very node, in this boot if boots count, with these drivers, kernel and
configuration; or if a person or the policy has opened it. Everything else keeps the node out, and says why.
"""

from __future__ import annotations

from enum import Enum
from typing import Mapping, NamedTuple, Optional

from nhc.core.state.gate_record import GateRecord, GateState
from nhc.core.units import show_seconds
from nhc.marks.ports.gates import GateStanding
from nhc.remedy.gates.identity import changed, is_another
from nhc.remedy.gates.settings import GateRules, Trigger

AHEAD = 86400.0
"""Seconds by which the clock may have been ahead at the verdict: a verdict dated later would stay young until then."""
ADOPTION = 7 * 86400.0
"""Seconds for which an order to adopt a node holds: a machine that comes later under its name is new."""
NEW = "no verdict: a new node"
"""Why the suite runs on a node that has no record."""
ADOPTED = "adopted as it is: a person asked"
SHOWN = 2
"""Changes that are named in a line."""


class GateStep(str, Enum):
    """What is to be done now."""

    NOTHING = "nothing"
    ADOPT = "adopt"
    HOLD = "hold"
    TEST = "test"
    WAIT = "wait"
    KEEP = "keep"
    RELEASE = "release"
    GIVE_WAY = "open"


class GateView(NamedTuple):
    """What was read of the node. `standing` is None if the scheduler cannot be asked; `scheduler` says whether there is
    one.
    """

    now: float
    boot: str
    marks: Mapping[str, str]
    record: Optional[GateRecord]
    standing: Optional[GateStanding]
    scheduler: bool
    running: bool = False


class GateDecision(NamedTuple):
    """One step and one line why. `due` is the reason for a new test, "" if the step belongs to the current one."""

    step: GateStep
    why: str
    due: str = ""


def due(rules: GateRules, seen: GateView) -> str:
    """Why the suite has to run although there is a record, "" if the record is valid."""
    record = seen.record
    if record is None:
        return NEW if Trigger.NEW in rules.on and not adopted(seen) else ""
    if Trigger.NEW in rules.on and is_another(record.marks, seen.marks):
        return "another machine than the one that was tested"
    if Trigger.START in rules.on and record.boot != seen.boot:
        return "the node has started anew"
    differs = changed(record.marks, seen.marks) if Trigger.UPDATE in rules.on else []
    if differs:
        more = f" and {len(differs) - SHOWN} more" if len(differs) > SHOWN else ""
        return f"updated: {', '.join(differs[:SHOWN])}{more}"
    closed = seen.standing is not None and not seen.standing.opened and not seen.standing.adopted
    asked = seen.standing.asked if seen.standing is not None and closed else 0.0
    if Trigger.DEMAND in rules.on and asked > record.asked:
        return "a person asked for it"
    if record.suite != rules.suite and Trigger.UPDATE in rules.on:
        return f"the suite is {rules.suite} now, not {record.suite}"
    if rules.max_age and record.state.lets_in and seen.now - record.at > rules.max_age:
        return f"the verdict is older than {show_seconds(rules.max_age)}"
    if rules.max_age and record.state.lets_in and record.at > seen.now + AHEAD:
        return "the verdict is dated days from now: the clock was wrong, and its age is not known"
    return ""


def may_wait(rules: GateRules, seen: GateView) -> bool:
    """Whether a gate that has to close may do so later: its machine was tested, in this boot if boots count, and only
    its software has changed since, or its verdict is old.
    """
    others = rules._replace(on=rules.on - {Trigger.UPDATE}, max_age=0.0)
    return seen.record is not None and seen.record.state.lets_in and not due(others, seen)


def adopted(seen: GateView) -> bool:
    """Whether a person has lately asked to accept a node without a verdict as it is."""
    standing = seen.standing
    return standing is not None and standing.adopted and 0 <= seen.now - standing.asked < ADOPTION


def decide(rules: GateRules, seen: GateView) -> GateDecision:
    """The next step."""
    if seen.running:
        return GateDecision(GateStep.WAIT, "the suite is under way")
    why = due(rules, seen)
    if why:
        return _test(seen, why, why)
    record = seen.record
    if record is None:
        group = f"group {rules.name} asks for no suite on new nodes"
        return GateDecision(GateStep.ADOPT, ADOPTED if adopted(seen) else group)
    if record.state is GateState.HELD and record.due == NEW and adopted(seen):
        return GateDecision(GateStep.GIVE_WAY, ADOPTED)
    opened = seen.standing is not None and seen.standing.opened and seen.standing.asked > record.asked
    if opened and not record.state.lets_in:
        return GateDecision(GateStep.GIVE_WAY, "a person opened it")
    if record.state.lets_in:
        held = seen.standing is not None and seen.standing.held
        return GateDecision(GateStep.RELEASE if held else GateStep.NOTHING, record.why)
    if record.state is GateState.FAILED:
        return _keep(seen, record.why)
    return _again(rules, seen, record)


def _again(rules: GateRules, seen: GateView, record: GateRecord) -> GateDecision:
    """The suite has given no verdict: it was never begun, was cut off, or could not tell."""
    if record.state is GateState.HELD:
        return _test(seen, record.due or record.why, "")
    tries = record.tries + (1 if record.state is GateState.TESTING else 0)
    if tries >= rules.tries:
        undecided = f"the suite could not tell in {tries} runs: {record.why}"
        if rules.closed:
            return _keep(seen, f"{undecided}; held by policy (closed) until a person looks")
        return GateDecision(GateStep.GIVE_WAY, f"{undecided}; opened by policy (open)")
    left = rules.pause - (seen.now - record.at)
    if record.state is GateState.UNTOLD and 0 < left <= rules.pause:  # more is left where the clock was set back
        return _wait(seen, f"run {tries + 1} of {rules.tries} in {left:.0f} s: {record.why}")
    return _test(seen, f"run {tries + 1} of {rules.tries}: {record.why}", "")


def _test(seen: GateView, why: str, new: str) -> GateDecision:
    if seen.scheduler and seen.standing is None:
        return GateDecision(GateStep.HOLD, f"{why}; the scheduler does not answer", new)
    if seen.standing is not None and seen.standing.busy:
        return GateDecision(GateStep.HOLD, f"{why}; work still runs here", new)
    return GateDecision(GateStep.TEST, why, new)


def _keep(seen: GateView, why: str) -> GateDecision:
    return GateDecision(GateStep.KEEP if _out(seen) else GateStep.HOLD, why)


def _wait(seen: GateView, why: str) -> GateDecision:
    return GateDecision(GateStep.WAIT if _out(seen) else GateStep.HOLD, why)


def _out(seen: GateView) -> bool:
    """Whether no new work comes, because of the gate's mark or somebody else's."""
    return not seen.scheduler or (seen.standing is not None and (seen.standing.held or bool(seen.standing.other)))


def after(record: GateRecord, verdict: str, why: str, now: float, report: str = "") -> GateRecord:
    """The record after a run that ended with a verdict: OK, WARN, CRIT, UNKNOWN or BUSY.

    BUSY is a run that did not begin because the devices were in use or the boot was too recent: it does not count as a
    try.
    """
    if verdict == "BUSY":
        return record._replace(state=GateState.HELD, why=why, at=now)
    if verdict in ("OK", "WARN"):
        return record._replace(state=GateState.PASSED, why=why, at=now, tries=0, report=report)
    if verdict == "CRIT":
        return record._replace(state=GateState.FAILED, why=why, at=now, report=report)
    return record._replace(state=GateState.UNTOLD, why=why, at=now, tries=record.tries + 1, report=report)
