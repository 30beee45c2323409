"""The next step of one node's gate. Pure: what is seen in, one decision out.

A gate is open where a suite has passed on this very node, in this boot where boots count, with these drivers, kernel
and configuration; or where a person or the policy has opened it. Everything else keeps the node out, and says why.
"""

from __future__ import annotations

from enum import Enum
from typing import Mapping, NamedTuple, Optional, Tuple

from nhc.gate_ports import Standing
from nhc.gates.identity import another_machine, changed
from nhc.gates.record import GateRecord, GateState
from nhc.gates.settings import Rules, Trigger
from nhc.units import show_seconds

SHOWN = 2
"""Changes that are named in a line."""


class Step(str, Enum):
    """What is to be done now."""

    NOTHING = "nothing"
    ADOPT = "adopt"
    HOLD = "hold"
    TEST = "test"
    WAIT = "wait"
    KEEP = "keep"
    RELEASE = "release"
    GIVE_WAY = "open"


class Seen(NamedTuple):
    """What is seen of the node. `standing` is None where nobody can be asked; `scheduler` says whether there is one."""

    now: float
    boot: str
    marks: Mapping[str, str]
    record: Optional[GateRecord]
    standing: Optional[Standing]
    scheduler: bool
    running: bool = False


class Decision(NamedTuple):
    """One step and one line why. `due` is the reason for a new test, "" where the step belongs to the standing one."""

    step: Step
    why: str
    due: str = ""


def due(rules: Rules, seen: Seen) -> str:
    """Why the suite has to run although a record is there, "" where the record stands."""
    record = seen.record
    if record is None:
        return "no verdict: a new node" if Trigger.NEW in rules.on else ""
    if Trigger.NEW in rules.on and another_machine(record.marks, seen.marks):
        return "another machine than the one that was tested"
    if Trigger.START in rules.on and record.boot != seen.boot:
        return "the node has started anew"
    differs = changed(record.marks, seen.marks) if Trigger.UPDATE in rules.on else []
    if differs:
        more = f" and {len(differs) - SHOWN} more" if len(differs) > SHOWN else ""
        return f"updated: {', '.join(differs[:SHOWN])}{more}"
    asked = seen.standing.asked if seen.standing is not None and not seen.standing.opened else 0.0
    if Trigger.DEMAND in rules.on and asked > record.asked:
        return "a person asked for it"
    if record.suite != rules.suite and Trigger.UPDATE in rules.on:
        return f"the suite is {rules.suite} now, not {record.suite}"
    if rules.max_age and record.state.lets_in and seen.now - record.at > rules.max_age:
        return f"the verdict is older than {show_seconds(rules.max_age)}"
    return ""


def decide(rules: Rules, seen: Seen) -> Decision:
    """The next step."""
    if seen.running:
        return Decision(Step.WAIT, "the suite is under way")
    why = due(rules, seen)
    if why:
        return _test(seen, why, why)
    record = seen.record
    if record is None:
        return Decision(Step.ADOPT, f"group {rules.name} asks for no suite on new nodes")
    opened = seen.standing is not None and seen.standing.opened and seen.standing.asked > record.asked
    if opened and not record.state.lets_in:
        return Decision(Step.GIVE_WAY, "a person opened it")
    if record.state.lets_in:
        held = seen.standing is not None and seen.standing.held
        return Decision(Step.RELEASE if held else Step.NOTHING, record.why)
    if record.state is GateState.FAILED:
        return _keep(seen, record.why)
    return _again(rules, seen, record)


def _again(rules: Rules, seen: Seen, record: GateRecord) -> Decision:
    """The suite has not given a verdict: it was never begun, was cut off, or could not tell."""
    if record.state is GateState.HELD:
        return _test(seen, record.due or record.why, "")
    tries = record.tries + (1 if record.state is GateState.TESTING else 0)
    if tries >= rules.tries:
        told = f"the suite could not tell in {tries} runs: {record.why}"
        if rules.closed:
            return _keep(seen, f"{told}; held by policy (closed) until a person looks")
        return Decision(Step.GIVE_WAY, f"{told}; opened by policy (open)")
    if record.state is GateState.UNTOLD and seen.now - record.at < rules.pause:
        left = rules.pause - (seen.now - record.at)
        return _wait(seen, f"run {tries + 1} of {rules.tries} in {left:.0f} s: {record.why}")
    return _test(seen, f"run {tries + 1} of {rules.tries}: {record.why}", "")


def _test(seen: Seen, why: str, new: str) -> Decision:
    if seen.scheduler and seen.standing is None:
        return Decision(Step.HOLD, f"{why}; the scheduler does not answer", new)
    if seen.standing is not None and seen.standing.busy:
        return Decision(Step.HOLD, f"{why}; work still runs here", new)
    return Decision(Step.TEST, why, new)


def _keep(seen: Seen, why: str) -> Decision:
    return Decision(Step.KEEP if _out(seen) else Step.HOLD, why)


def _wait(seen: Seen, why: str) -> Decision:
    return Decision(Step.WAIT if _out(seen) else Step.HOLD, why)


def _out(seen: Seen) -> bool:
    """Whether no new work comes, by the gate's mark or by somebody else's."""
    return not seen.scheduler or (seen.standing is not None and (seen.standing.held or bool(seen.standing.other)))


def after(
    record: GateRecord, rules: Rules, verdict: str, why: str, now: float, report: str = ""
) -> Tuple[GateRecord, bool]:
    """The record after a run that ended with a verdict (OK, WARN, CRIT, UNKNOWN, BUSY), and whether work may come.

    BUSY is a run that did not begin since somebody used the devices: it is no try.
    """
    if verdict == "BUSY":
        return record._replace(state=GateState.HELD, why=why, at=now), False
    if verdict in ("OK", "WARN"):
        done = record._replace(state=GateState.PASSED, why=why, at=now, tries=0, report=report)
        return done, True
    if verdict == "CRIT":
        return record._replace(state=GateState.FAILED, why=why, at=now, report=report), False
    return record._replace(state=GateState.UNTOLD, why=why, at=now, tries=record.tries + 1, report=report), False
