"""What a run of a suite did not test, because the tool is not there, or did not judge. Pure.

A tool that is not installed is no fault of the node: its check is skipped. But a device on which no test ran has not
passed, whatever the rest of the node showed.
"""

from __future__ import annotations

from typing import Dict, List, Sequence

from nhc.core.check import find
from nhc.core.model import CheckResult, Outcome, Verdict, unknown
from nhc.node.checks.deep import UNJUDGED

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
