"""Whether a suite can end before something gives up its node: autoscalers, cloud hooks, power saving. Pure.

The adapter knows how long each of them waits (`nhc.marks.ports.gates.GateLimit`); here it is compared with the time
that the suite takes with all its tries.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

from nhc.core.units import show_seconds
from nhc.marks.ports.gates import GateLimit
from nhc.remedy.gates.settings import GateRules


class LimitFinding(NamedTuple):
    """One line of the doctor: `word` is ok, warn or problem."""

    word: str
    topic: str
    message: str
    remedy: str = ""


def needs(rules: GateRules, expected: float) -> float:
    """Seconds from closed to open at the worst: every try takes its limit, with the pauses between them.

    `expected` is how long the suite is expected to take; it counts if it is longer than the limit of a run.
    """
    run = max(rules.limit, expected)
    return rules.tries * run + (rules.tries - 1) * rules.pause


def judge(rules: GateRules, expected: float, limits: Sequence[GateLimit]) -> List[LimitFinding]:
    """The limits that a gate would exceed."""
    whole = needs(rules, expected)
    findings: List[LimitFinding] = []
    topic = f"group {rules.name}"
    if expected > rules.limit:
        findings.append(LimitFinding(
            "problem", topic, f"the suite {rules.suite} takes about {show_seconds(round(expected))}, "
            f"and a run is ended after {show_seconds(rules.limit)}", "a longer limit, or a shorter suite",
        ))  # fmt: skip
    for limit in limits:
        if limit.seconds is None:
            findings.append(LimitFinding("problem", limit.who, limit.problem, limit.remedy))
        elif limit.who.endswith(": heartbeats"):
            every = rules.hook.every if rules.hook else 0.0
            late = every * 2 > limit.seconds  # one lost heartbeat must not cost the instance
            grade = "problem" if late else "ok"
            findings.append(LimitFinding(
                grade, limit.who, f"one is sent every {show_seconds(every)}, the hook waits "
                f"{show_seconds(limit.seconds)} for it: {limit.problem if late else 'fits'}",
                limit.remedy if late else "",
            ))  # fmt: skip
        elif limit.seconds < expected:
            findings.append(
                LimitFinding("problem", limit.who, _waits(limit, f"{rules.suite} takes about", expected), limit.remedy)
            )
        elif limit.seconds < whole:
            findings.append(
                LimitFinding("warn", limit.who, _waits(limit, f"{rules.tries} runs take up to", whole), limit.remedy)
            )
        else:
            waits = f"waits {show_seconds(limit.seconds)}, the gate needs at most {show_seconds(round(whole))}"
            findings.append(LimitFinding("ok", limit.who, waits))
    if rules.closed and rules.hook is not None and any("untested" in limit.problem for limit in limits):
        state = "the policy is closed, and the lifecycle hook's DefaultResult is CONTINUE"
        findings.append(LimitFinding("problem", topic, state, "DefaultResult ABANDON"))
    return findings


def _waits(limit: GateLimit, what: str, seconds: float) -> str:
    return f"waits {show_seconds(limit.seconds or 0)}, {what} {show_seconds(round(seconds))}: {limit.problem}"
