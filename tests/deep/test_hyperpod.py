# ruff: noqa: E501 (lines as HyperPod writes them)
"""HyperPod's words: the lines of AWS's guide, from results like those of its examples."""

import json

from nhc.core.model import Action, CheckResult, Metric, Report, crit, ok, unknown
from nhc.deep import hyperpod

WHEN = 1724190838.0  # 2024-08-20T21:53:58Z


def report(*results):
    return Report(
        "n1",
        "b",
        WHEN,
        1.0,
        tuple(CheckResult(check, outcome, elapsed, "", line) for check, outcome, elapsed, line in results),
    )


STRESS = ("check_deep_cpu", ok("well"), 60.0, "check_deep_cpu -t 60s -s cpu=32,vm=2,hdd=1,fork=8,switch=4")
DCGM = (
    "check_deep_dcgm",
    ok("x")._replace(evidence=("dcgmVersion: 3.3.7", "gpuDriverVersion: 535.183.01", "gpuDeviceIds: [2237]")),
    0.0,
    "",
)
EFA = ("check_deep_efa", ok("x", target="rdmap0s29", metrics=(
    Metric("efa_write", 58.59, "Gb/s"), Metric("efa_write_average", 32.42, "Gb/s"), Metric("efa_latency", 20.08, "us"),
    Metric("efa_latency_max", 30.87, "us"), Metric("efa_latency_average", 21.63, "us"))), 0.0, "")  # fmt: skip
NCCL = ("check_deep_collective", ok("collective all reduce, 2 ranks at 8GB", metrics=(
    Metric("collective_all_reduce", 1.19, "GB/s"), Metric("collective_all_reduce_threshold", 1.18, "GB/s"),
    Metric("collective_all_reduce_algbw", 1.19, "GB/s"))), 0.0, "")  # fmt: skip
SLOW = ("check_deep_collective", crit("DeepSlow", "slow", metrics=(
    Metric("collective_all_reduce", 30, "GB/s"), Metric("collective_all_reduce_threshold", 80, "GB/s"))), 1.0, "")  # fmt: skip
CRASH = ("check_deep_dcgm", unknown("DeepToolFailed", "x"), 1.0, "")


def test_the_lines_of_a_cluster():
    assert hyperpod.lines(
        report(STRESS, ("check_gpu_lost", ok(), 0.0, ""), DCGM, EFA, NCCL), "ml.g5.48xlarge", "us-west-2"
    ) == [
        "2024-08-20T21:53:58Z info Executing Hardware stress check with command: stress-ng, and args: [--cpu 32 --vm 2 --hdd 1 --fork 8 --switch 4 --timeout 60 --metrics]",
        "2024-08-20T21:54:58Z info stress-ng success",
        "2024-08-20T21:54:58Z    info    GpuPci Count check success",
        "2024-08-20T21:54:58Z    info    DCGM diagnostic health summary: dcgmCheckLevel: 0 dcgmVersion: 3.3.7 gpuDriverVersion: 535.183.01, gpuDeviceIds: [2237] replacementRequired: false rebootRequired:false",
        "2024-08-20T21:54:58Z    info    EFA Loopback check passed for device: rdmap0s29 . Output summary is MaxBw: 58.590000, AvgBw: 32.420000, MaxTypicalLat: 30.870000, MinTypicalLat: 20.080000, AvgLat: 21.630000",
        "2024-08-20T21:54:58Z    info    Nccl test successful. Summary: NcclMaxAlgoBw: 1.190000, NcclAvgAlgoBw: 1.190000, NcclThresholdAlgoBw: 1.180000, NcclOutOfBoundError: OK, NcclOperations: all_reduce_perf, NcclTotalDevices: 2, NcclNodes: 1, NcclClusterMessage:",
    ]


def test_faults_are_lines_of_json():
    slow, crash = (json.loads(line) for line in hyperpod.lines(report(SLOW, CRASH), "T", "R"))
    assert slow["level"] == "error"
    assert slow["msg"] == (
        "Encountered FaultyInstance. Replace the Instance. Region: R, InstanceType: T. ERROR:Bandwidth has less than threshold: "
        "Expected minimum threshold :80,NCCL Test output Bw: 30"
    )
    assert crash["msg"].endswith("ERROR:Crash detected in dcgm test")
    assert crash["msg"].startswith("Encountered Unknownerror.")
    assert crash["ts"] == "2024-08-20T21:54:00Z"


def test_a_busy_node_is_skipped_as_hyperpod_does():
    held = ("nhc_deep_run", unknown("DeepNodeBusy", "the node is not free: process 17 (train)"), 0.0, "")
    assert hyperpod.labels(report(held)) == {}
    assert hyperpod.lines(report(held), "T", "R") == []


def test_only_a_slow_result_below_the_hard_floor_asks_for_another_instance():
    def at(value):
        metrics = (Metric("collective_all_reduce", value, "GB/s"), Metric("collective_all_reduce_threshold", 400, "GB/s"),
                   Metric("collective_all_reduce_algbw", value / 1.75, "GB/s"))  # fmt: skip
        return hyperpod.labels(report(("check_deep_collective", crit("DeepSlow", "slow", metrics=metrics), 1.0, "")))

    assert at(310)[hyperpod.HEALTH] == "Unschedulable"
    assert at(310)[hyperpod.STATUS] == "Failed"
    assert at(290)[hyperpod.HEALTH] == "UnschedulablePendingReplacement"
    wrong = ("check_deep_collective", crit("DeepWrongResult", "3 wrong values"), 1.0, "")
    assert hyperpod.labels(report(wrong))[hyperpod.HEALTH] == "UnschedulablePendingReplacement"


def test_labels():
    status, health = hyperpod.STATUS, hyperpod.HEALTH
    assert hyperpod.labels(report(STRESS)) == {status: "Passed", health: "Schedulable"}
    assert hyperpod.labels(report(STRESS, SLOW))[health] == "UnschedulablePendingReplacement"
    assert hyperpod.labels(report(SLOW))["sagemaker.amazonaws.com/fault-reasons"] == "DeepSlow"
    reset = ("check_deep_dcgm", crit("DeepGpuDiagReset", "x", action=Action.RESET_DEVICE), 0.0, "")
    assert hyperpod.labels(report(reset))[health] == "UnschedulablePendingReboot"
    assert hyperpod.labels(report(CRASH)) == {status: "Failed", health: "Unschedulable"}  # asks for no repair
