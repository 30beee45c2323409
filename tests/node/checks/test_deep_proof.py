# ruff: noqa: E501 (lines as tools print them)
"""Outputs that look whole and prove nothing: no figure, figures that contradict one another, devices without a test."""

import pytest

from nhc.core.host import Completed
from nhc.core.model import Verdict, worst
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks import deep_collective
from nhc.node.facts import tool_output
from tests.support import deep_samples as samples
from tests.support.judge import judge

RUN = {"NHC_DEEP_RUN": "r", "NHC_DEEP_SCRATCH": "/scratch", "NHC_DEEP_KIND": "hgx-h100-8"}
OK, UNKNOWN = Verdict.OK, Verdict.UNKNOWN


@pytest.fixture
def node(nvml):
    """The worst outcome of a line on eight H100 whose tools print `text`."""

    def run(line, text, status=0):
        answer = [status, text, "", False]
        tools = ("env", "all_reduce_perf", "nvbandwidth", "dcgmi", "python3", "gpu-fryer")
        found = worst(tuple(nvml.one("h100", line, settings=RUN, commands=dict.fromkeys(tools, answer))))
        return found.verdict, found.reason

    return run


SUM = samples.NCCL
IN_PLACE = "31300  274.44  480.27"


@pytest.mark.parametrize(
    "text",
    [
        SUM.replace(IN_PLACE, "31300  274.44    -nan"),
        SUM.replace(IN_PLACE, "31300     inf     inf"),
        SUM.replace(IN_PLACE, "31300    0.00  480.27"),
        SUM.replace("480.04", "980.04").replace("480.27", "980.27"),  # above twice algbw: no number of ranks gives that
        SUM.replace(IN_PLACE, "3130.0  274.44  480.27"),  # time in another unit, or a digit that another line has taken
        SUM.replace(IN_PLACE, "31300  255.59  447.28"),  # GiB/s
        SUM.replace("Rank  7", "Rank  6").replace("device  7", "device  6"),
    ],
)
def test_figures_that_contradict_one_another_prove_nothing(node, text):
    assert text != SUM
    assert node("check_deep_collective", text) == (UNKNOWN, "DeepNoProof")


def test_a_table_in_other_units_is_not_read(node):
    for mine, other in (("(GB/s)", "(MB/s)"), ("(us)", "(ms)")):
        assert node("check_deep_collective", SUM.replace(mine, other)) == (UNKNOWN, "DeepOutput")


def test_a_thousand_ranks_are_not_doubted_for_two_decimals():
    """Of 1024 ranks busbw/algbw is 1.998. Printed as 23.99 / 12.01 it looks like that of 801."""
    assert deep_collective.ranks_by_figures("all_reduce", 12.01, 23.99) == pytest.approx(801, abs=1)
    for algbw, busbw in ((12.01, 24.00), (12.01, 23.99), (12.02, 24.01)):
        assert deep_collective.could_be_ranks("all_reduce", algbw, busbw, 1024)
        assert not deep_collective.could_be_ranks("all_reduce", algbw, busbw, 16)
    assert not deep_collective.could_be_ranks("all_gather", 259.78, 487.09, 16)
    assert deep_collective.could_be_ranks("sendrecv", 24.0, 24.0, 2)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("check_deep_nvbandwidth -t host_to_device_memcpy_ce -f 1", samples.nvbandwidth().replace("55.40", "inf")),
        ("check_deep_nvbandwidth -t device_to_device_memcpy_read_ce -f 1", samples.nvbandwidth().replace("390.00", "nan", 3)),
        ("check_deep_gemm -e torch -t 60s", samples.gemm().replace("700.0", "Infinity")),
        ("check_deep_gemm -e torch -t 60s", samples.gemm(tflops=790).replace("60.1", "NaN")),
    ],
)  # fmt: skip
def test_what_is_no_number_is_no_figure(node, line, text):
    assert node(line, text) == (UNKNOWN, "DeepOutput")


def test_figures_are_finite_numbers():
    assert tool_output.figure("12.5") == 12.5
    for word in ("nan", "-nan", "inf", "1e999", "", None, True):
        with pytest.raises(ValueError, match="is no"):
            tool_output.figure(word)


def test_a_speed_of_nothing_is_not_a_slow_one():
    answer = '{"start": {"version": "iperf 3.12"}, "end": {"sum_sent": {"bits_per_second": 1}, "sum_received": {"bits_per_second": %s, "seconds": 10}}}'
    for rate in ("Infinity", "0", "NaN"):
        system = FakeHost({}, {"iperf3": Completed(0, answer % rate, ""), "sh": Completed(0, "", "")}, RUN)
        assert judge(system, "check_deep_network -t 10s -f 9").verdict is UNKNOWN


@pytest.mark.parametrize(
    "text",
    [
        samples.dcgm4(tests=("software",)).replace('"status": "Pass"', '"status": "Skip"'),
        samples.dcgm4(tests=("software",)).replace('"status": "Pass"', '"status": "Not Run"'),
        samples.dcgm4(tests=("software",), gpus=3),
    ],
)
def test_the_first_level_of_the_diagnostic_needs_a_result_of_each_gpu(node, text):
    assert node("check_deep_dcgm -r 1", text) == (UNKNOWN, "DeepNotTested")
    assert node("check_deep_dcgm -r 2", text)[0] is UNKNOWN


def test_dcgm_3_passes_the_second_level_by_its_own_names(node):
    healthy = samples.DCGM3.replace('"Warn"', '"Pass"').replace(
        '"warnings": [{"error_id": 29, "warning": "Persistence mode for GPU 1 is disabled."}]', '"info": ""'
    )
    assert node("check_deep_dcgm -r 2", healthy) == (OK, "")
    assert node("check_deep_dcgm -r memory,pcie", healthy) == (OK, "")


def test_a_verdict_that_the_status_contradicts_is_none(node):
    good = samples.FRYER.replace("51494", "750000") + "All GPUs seem healthy\n"
    assert node("check_deep_gemm -e gpu-fryer", good) == (OK, "")
    assert node("check_deep_gemm -e gpu-fryer", good, status=1) == (UNKNOWN, "DeepNoProof")


def test_a_stressor_that_worked_for_a_part_of_the_time_proves_nothing():
    """--oomable: the kernel has ended the memory stressor, and the run went on without it."""
    text = """\
stress-ng: info:  [1] dispatching hogs: 1 cpu, 1 vm
stress-ng: metrc: [1] cpu                4155      2.00      1.88      0.01      2076.99        2202.36
stress-ng: metrc: [1] vm                   12      0.31      0.20      0.05        38.71          48.00
stress-ng: info:  [1] successful run completed in 2.00s
"""
    memory = {"/proc/meminfo": "MemTotal: 9000000 kB\nMemFree: 9000000 kB\nMemAvailable: 8000000 kB\n"}
    system = FakeHost(memory, {"stress-ng": Completed(0, "", text)}, RUN)
    found = judge(system, "check_deep_cpu -t 2s -s cpu=1,vm=1")
    assert (found.verdict, found.reason) == (UNKNOWN, "DeepNoProof")
    assert "vm worked 0.31 s of 2 s" in found.message


def test_a_gpu_that_does_not_say_what_holds_its_clocks_down_is_not_well():
    from nhc.node.checks.deep_thermal import Watch, judge_devices
    from nhc.node.facts.accelerator_values import Clocks, Device

    def seen(reasons):
        watch = Watch(FakeHost())
        for _ in range(6):
            watch._device(Device("nvidia", 0, clocks=Clocks(graphics=1980, reasons=reasons)))
        [found] = judge_devices(watch)
        return found.verdict, found.reason

    assert seen(()) == (OK, "")
    assert seen(None) == (UNKNOWN, "DeepNotTested")
