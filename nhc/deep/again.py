"""What a second measurement makes of a slow result. Pure: the results of both, the results to report out.

A speed differs between runs: a result that is slow once is a warning. It convicts when it is measured again and is slow
again. Wrong data convicts at once, in whichever measurement it shows.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set, Tuple

from nhc.core.model import Action, CheckResult, Verdict
from nhc.node.checks.deep import SLOW

Key = Tuple[str, str, str, str]


def slow(result: CheckResult) -> bool:
    """Whether a result convicts by its speed."""
    return result.verdict is Verdict.CRIT and result.outcome.reason == SLOW


def lines(results: Sequence[CheckResult]) -> Set[Tuple[str, str]]:
    """The lines, by their source and text, that are to be run again."""
    return {(result.source, result.line) for result in results if slow(result)}


def merge(first: Sequence[CheckResult], second: Sequence[CheckResult], why_not: str = "") -> List[CheckResult]:
    """The first results, each slow one judged by its second measurement too.

    `why_not` says why there was no second measurement. Other faults that the second measurement shows are added.
    """
    seen: Dict[Key, CheckResult] = {_key(result): result for result in second}
    unsure = {
        (result.source, result.line): result.outcome.message or result.outcome.reason
        for result in second
        if result.verdict is Verdict.UNKNOWN
    }
    confirmed = [
        _confirmed(result, seen.get(_key(result)), unsure.get((result.source, result.line), why_not))
        if slow(result) else result
        for result in first
    ]  # fmt: skip
    return confirmed + [result for result in second if result.verdict is Verdict.CRIT and not slow(result)]


def _confirmed(first: CheckResult, second: Optional[CheckResult], why_not: str) -> CheckResult:
    message = first.outcome.message
    if second is not None and slow(second):
        return first._replace(outcome=first.outcome._replace(message=f"{message}; measured again: {_figure(second)}"))
    if second is not None and second.verdict in (Verdict.OK, Verdict.WARN):
        message = f"{message}; measured again it was {_figure(second)}"
    elif second is None and not why_not:
        message = f"{message}; measured again it was not slow"
    else:
        message = f"{message}; it could not be measured again: {why_not or (second.outcome.message if second else '')}"
    doubted = first.outcome._replace(verdict=Verdict.WARN, message=message, action=Action.NONE)
    return first._replace(outcome=doubted)


def _key(result: CheckResult) -> Key:
    metric = result.outcome.metrics[0].name if result.outcome.metrics else ""
    return result.source, result.line, result.outcome.target, metric


def _figure(result: CheckResult) -> str:
    metric = result.outcome.metrics[0] if result.outcome.metrics else None
    return f"{metric.value:.4g} {metric.unit}" if metric else "slow"
