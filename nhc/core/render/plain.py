"""Outcomes as plain values, which marshal and JSON carry from a worker to its supervisor and into recordings."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, DeviceId, Metric, Outcome, Scope, Verdict, named

if TYPE_CHECKING:
    from typing import Any, Sequence, Tuple

EVIDENCE_LINES = 50
"""Lines of a command's output kept as evidence, the last ones."""
EVIDENCE_WIDTH = 1000
"""Characters kept of one line of evidence or of a message."""


def encode(outcome: Outcome) -> Tuple[Any, ...]:
    """An outcome as plain values that marshal carries from a worker to the supervisor.

    Its reason may come from a rule file or a plugin: that costs no verdict (`model.named`).
    """
    outcome = named(outcome)
    return (
        int(Verdict(outcome.verdict)),
        outcome.reason,
        _bounded(outcome.message),
        _bounded(outcome.target),
        tuple(
            (_bounded(name), _plain(value), *map(str, rest)) for name, value, *rest in outcome.metrics if _finite(value)
        ),
        Action(outcome.action).value,
        tuple(_bounded(line) for line in _tail(outcome.evidence)),
        *((Scope(outcome.scope).value, *map(_bounded, outcome.device)) if outcome.scope is not Scope.NODE else ()),
    )


def decode(value: Sequence[Any]) -> Outcome:
    """The outcome that `encode` made plain."""
    verdict, reason, message, target, metrics, action, evidence, *about = value
    return Outcome(
        Verdict(verdict),
        reason,
        message,
        target,
        tuple(Metric(*metric) for metric in metrics),
        Action(action),
        evidence,
        *((Scope(about[0]), DeviceId(*about[1:])) if about else ()),
    )


def _bounded(text: Any) -> str:
    return str(text)[:EVIDENCE_WIDTH]


def _finite(value: Any) -> bool:
    """JSON has no other numbers, and a division of nothing by nothing has measured none."""
    return abs(float(value)) < float("inf")


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, int) else float(value)


def _tail(lines: Sequence[str]) -> Sequence[str]:
    return lines if len(lines) <= EVIDENCE_LINES else lines[-EVIDENCE_LINES:]
