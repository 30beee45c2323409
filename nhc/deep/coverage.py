"""What a run of a suite did not test, because the tool is not there, or did not judge. Pure.

A tool that is not installed is no fault of the node: its check is skipped. But a device on which no test ran has not
passed, whatever the rest of the node showed.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set, Tuple

from nhc.core.check import find
from nhc.core.model import Action, CheckResult, Outcome, Verdict, unknown
from nhc.node.checks.deep import SLOW, UNJUDGED

# What a second measurement makes of a slow result. Pure: the results of both, the results to report out.
#
# A speed differs between runs: a result that is slow once is a warning. It convicts when it is measured again and is
# slow again. Wrong data convicts at once, in whichever measurement it shows.


Key = Tuple[str, str, str, str]


def slow(result: CheckResult) -> bool:
    """Whether a result convicts by its speed."""
    return result.verdict is Verdict.CRIT and result.outcome.reason == SLOW


def lines_again(results: Sequence[CheckResult]) -> Set[Tuple[str, str]]:
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


MISSING = "CommandMissing"
"""The reason of results of tools that are not installed."""
UNTESTED = "DeepNothingTested"
JUDGED = (Verdict.OK, Verdict.WARN, Verdict.CRIT)


def _of_devices(check: str) -> bool:
    """Whether a check tests accelerators under load; one that only reads what they say tests nothing."""
    known = find(check) if check.startswith(("check_deep_", "check_gpu_proof")) else None
    return known is not None and "gpu" in known.tags


def missing(results: Sequence[CheckResult]) -> List[str]:
    """What was skipped because it is not installed, one line each."""
    skipped = (result.outcome for result in results if result.verdict is Verdict.SKIP)
    return list(dict.fromkeys(outcome.message for outcome in skipped if outcome.reason == MISSING))


def unjudged(results: Sequence[CheckResult]) -> List[str]:
    """The metrics that were measured and held to nothing, with their devices: `hbm copy (gpu0, gpu1)`."""
    devices: Dict[str, List[str]] = {}
    for result in results:
        outcome = result.outcome
        if outcome.verdict is Verdict.OK and UNJUDGED in outcome.message and outcome.metrics:
            name = outcome.metrics[0].name.replace("_", " ")
            devices.setdefault(name, []).extend([outcome.target] if outcome.target else [])
    return [f"{name} ({', '.join(targets)})" if targets else name for name, targets in devices.items()]


def unproved(results: Sequence[CheckResult], devices: Sequence[str]) -> List[str]:
    """The devices for which no test under load came to a result, where the suite has such tests.

    A result that names no device counts for all of them.
    """
    load = [result for result in results if _of_devices(result.check)]
    tested = {result.outcome.target for result in load if result.verdict in JUDGED}
    if not load or "" in tested:
        return []
    return [device for device in devices if not any(_is_of(target, device) for target in tested)]


def untested(results: Sequence[CheckResult], devices: Sequence[str]) -> List[Outcome]:
    """UNKNOWN for each device on which no test of the suite ran because tools are missing."""
    skipped = missing([result for result in results if _of_devices(result.check)])
    return [
        unknown(UNTESTED, f"{device}: no test ran on it: {'; '.join(skipped)}", target=device)
        for device in (unproved(results, devices) if skipped else ())
    ]


def _is_of(target: str, device: str) -> bool:
    """Whether a result is of a device or of an instance of it: `gpu1` and `gpu1 MIG 1g.10gb`, not `gpu11`."""
    return target.startswith(device) and not target[len(device) :][:1].isdigit()


def notes(results: Sequence[CheckResult]) -> List[str]:
    """What a reader of the report has to know beside its verdict."""
    skipped, figures = "; ".join(missing(results)), "; ".join(unjudged(results))
    lines = [f"not tested: {skipped}"] if skipped else []
    return lines + ([f"measured and not judged: {figures} (nhc deep calibrate)"] if figures else [])
