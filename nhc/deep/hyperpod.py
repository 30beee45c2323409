"""SageMaker HyperPod's deep health checks in its own words: log lines, error messages, labels. Pure.

Source: AWS's HyperPod guide (deep health check logs of a Slurm cluster, and of EKS as JSON), whose lines have one blank
or four around the level. Tools that read those logs and labels go on working with nhc's suites of the same names.
"""

from __future__ import annotations

import json
from typing import Dict, List, Mapping, Sequence, Tuple

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict, printable
from nhc.core.timestamps import utc
from nhc.node.checks.deep import SLOW

SUITES = ("instancestress", "instanceconnectivity")
LOG = "/var/log/aws/clusters/sagemaker-deep-health-check.log"
PREFIX = "sagemaker.amazonaws.com/"
STATUS, HEALTH, TYPES, REASONS = (
    f"{PREFIX}deep-health-check-status", f"{PREFIX}node-health-status", f"{PREFIX}fault-types",
    f"{PREFIX}fault-reasons",
)  # fmt: skip

_NAMES = {
    "check_deep_dcgm": "dcgm test", "check_deep_efa": "EFA loopback test", "check_deep_collective": "nccl test",
    "check_deep_nccom": "nccom test", "check_deep_cpu": "hardware stress test",
}  # fmt: skip

HARD_FLOOR = 0.75
"""Share of a threshold below which a confirmed slow result asks for another instance; above it a person looks."""


def busy(report: Report) -> bool:
    """Whether the run did not begin since the node was in use: HyperPod skips such nodes."""
    return any(result.outcome.reason == "DeepNodeBusy" for result in report.results)


def labels(report: Report) -> Dict[str, str]:
    """The node's labels after a run, none for one that did not begin on a busy node.

    A check that is UNKNOWN has not passed, and asks for no repair. Nor does a result that is slow, measured again and
    slow again, above the hard floor.
    """
    if busy(report):
        return {}
    if report.verdict in (Verdict.OK, Verdict.WARN):
        return {STATUS: "Passed", HEALTH: "Schedulable"}
    if report.verdict is not Verdict.CRIT:
        return {STATUS: "Failed", HEALTH: "Unschedulable"}
    bad = [result.outcome for result in report.failures()]
    reboots = all(outcome.action in (Action.REBOOT, Action.RESET_DEVICE) for outcome in bad)
    pending = "PendingReboot" if reboots else "PendingReplacement"
    first = report.failures()[0]
    return {
        STATUS: "Failed",
        HEALTH: "Unschedulable" if all(_may_be_right(outcome) for outcome in bad) else f"Unschedulable{pending}",
        TYPES: "DeepHealthCheckFailed",
        REASONS: first.outcome.reason,
    }


def _may_be_right(outcome: Outcome) -> bool:
    """Whether a result is only slow, and not below the hard floor of what it is held to."""
    if outcome.reason != SLOW:
        return False
    seen = _figures(outcome)
    pairs = [(value, seen[f"{name}_threshold"]) for name, value in seen.items() if f"{name}_threshold" in seen]
    return not any(value < HARD_FLOOR * threshold for value, threshold in pairs)


def _line(when: float, text: str, gap: str = "    ") -> str:
    return f"{utc(when)}{gap}info{gap}{text}"


def begin_line(when: float, arguments: str) -> str:
    """The line before the stress test."""
    return _line(when, f"Executing Hardware stress check with command: stress-ng, and args: [{arguments}]", " ")


def lines(report: Report, instance_type: str, region: str) -> List[str]:
    """What HyperPod's log would have of this run, in its order; a JSON line for each fault. Times are the run's."""
    written: List[str] = []
    if busy(report):
        return written
    when = report.started
    for result in report.results:
        if result.check == "check_deep_cpu":
            written.append(begin_line(when, _stress_arguments(result)))
        when += result.elapsed
        if result.verdict in (Verdict.OK, Verdict.WARN):
            written += _passed(when, result)
        elif result.verdict in (Verdict.CRIT, Verdict.UNKNOWN):
            written.append(error(when, result, instance_type, region))
    return written


def _stress_arguments(result: CheckResult) -> str:
    """The stressors of the line, as stress-ng takes them."""
    arguments = result.line.split()
    chosen = arguments[arguments.index("-s") + 1] if "-s" in arguments[:-1] else "cpu=0"
    length = arguments[arguments.index("-t") + 1].rstrip("s") if "-t" in arguments[:-1] else "60"
    stressors = " ".join(f"--{part.replace('=', ' ')}" for part in chosen.split(","))
    return f"{stressors} --timeout {length} --metrics"


def _passed(when: float, result: CheckResult) -> List[str]:
    outcome = result.outcome
    if result.check == "check_deep_cpu":
        return [_line(when, "stress-ng success", " ")]
    if result.check in ("check_gpu_lost", "check_gpu_count"):
        return [_line(when, "GpuPci Count check success")]
    if result.check == "check_deep_dcgm":
        return [_line(when, _dcgm(outcome))]
    if result.check == "check_deep_efa" and outcome.metrics:
        return [_line(when, _efa(outcome))]
    if result.check == "check_deep_collective" and outcome.metrics:
        return [_line(when, f"Nccl test successful. Summary: {_nccl_summary(outcome)}")]
    if result.check == "check_deep_nccom" and outcome.metrics:
        return [_line(when, f"Nccom test successful. {printable(outcome.message)}")]
    return []


def _dcgm(outcome: Outcome) -> str:
    facts = dict(line.split(": ", 1) for line in outcome.evidence if ": " in line)
    return (
        f"DCGM diagnostic health summary: dcgmCheckLevel: 0 dcgmVersion: {facts.get('dcgmVersion', '')} "
        f"gpuDriverVersion: {facts.get('gpuDriverVersion', '')}, gpuDeviceIds: {facts.get('gpuDeviceIds', '[]')} "
        "replacementRequired: false rebootRequired:false"
    )


def _figures(outcome: Outcome) -> Mapping[str, float]:
    return {metric.name: metric.value for metric in outcome.metrics}


def _efa(outcome: Outcome) -> str:
    """MaxTypicalLat and MinTypicalLat are the highest and lowest typical latency over the sizes, in microseconds."""
    seen = _figures(outcome)
    values: Sequence[Tuple[str, str]] = (
        ("MaxBw", "efa_write"), ("AvgBw", "efa_write_average"), ("MaxTypicalLat", "efa_latency_max"),
        ("MinTypicalLat", "efa_latency"), ("AvgLat", "efa_latency_average"),
    )  # fmt: skip
    summary = ", ".join(f"{name}: {seen.get(metric, 0.0):.6f}" for name, metric in values)
    return f"EFA Loopback check passed for device: {outcome.target} . Output summary is {summary}"


def _ranks(outcome: Outcome) -> int:
    fields = outcome.message.split()
    before = fields[fields.index("ranks") - 1] if "ranks" in fields[1:] else ""
    return int(before) if before.isdigit() else 0


def _nccl_summary(outcome: Outcome) -> str:
    """The summary of a collective on one node. NcclAvgAlgoBw is of the sizes that were run: here the named one."""
    seen = _figures(outcome)
    algbw = next((value for name, value in seen.items() if name.endswith("_algbw")), 0.0)
    busbw = next((value for name, value in seen.items() if not name.endswith(("_algbw", "_threshold"))), 0.0)
    floor = next((value for name, value in seen.items() if name.endswith("_threshold")), 0.0)
    threshold = floor * algbw / busbw if busbw else 0.0  # HyperPod's is of algbw, ours of busbw
    return (
        f"NcclMaxAlgoBw: {algbw:.6f}, NcclAvgAlgoBw: {algbw:.6f}, NcclThresholdAlgoBw: {threshold:.6f}, "
        f"NcclOutOfBoundError: OK, NcclOperations: all_reduce_perf, NcclTotalDevices: {_ranks(outcome)}, "
        "NcclNodes: 1, NcclClusterMessage:"
    )


def error(when: float, result: CheckResult, instance_type: str, region: str) -> str:
    """A fault as HyperPod's JSON stream has it; UNKNOWN is its "Unknownerror"."""
    outcome = result.outcome
    seen = _figures(outcome)
    floor = next((value for name, value in seen.items() if name.endswith("_threshold")), None)
    where = f"Region: {region}, InstanceType: {instance_type}."
    if result.verdict is Verdict.UNKNOWN:
        name = _NAMES.get(result.check, result.check)
        message = f"Encountered Unknownerror. Replace the Instance. {where} ERROR:Crash detected in {name}"
    elif outcome.reason == SLOW and floor is not None:
        figure = next((value for name, value in seen.items() if not name.endswith("_threshold")), 0.0)
        tool = "NCCL Test" if result.check == "check_deep_collective" else _NAMES.get(result.check, result.check)
        message = (
            f"Encountered FaultyInstance. Replace the Instance. {where} ERROR:Bandwidth has less than threshold: "
            f"Expected minimum threshold :{floor:g},{tool} output Bw: {figure:g}"
        )
    else:
        message = f"Encountered FaultyInstance. Replace the Instance. {where} ERROR:{printable(outcome.message, 500)}"
    return json.dumps({"level": "error", "ts": utc(when), "msg": message}, ensure_ascii=False)
