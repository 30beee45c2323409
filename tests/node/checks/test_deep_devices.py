# ruff: noqa: E501 (lines as tools print them)
"""Deep checks of accelerators and fabrics, by what their tools print: healthy, failing, and without proof."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Completed, Host
from nhc.core.model import Action, Verdict, worst
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks import deep, deep_collective, deep_dcgm, deep_gemm
from nhc.node.facts import dcgm
from nhc.node.facts.accelerator_values import Device
from tests.support import deep_samples as samples
from tests.support import rdma
from tests.support.judge import judge, judge_all

RUN = {"NHC_DEEP_RUN": "r", "NHC_DEEP_SCRATCH": "/scratch", "NHC_DEEP_KIND": "hgx-h100-8"}
OK, WARN, UNKNOWN, CRIT, SKIP = Verdict.OK, Verdict.WARN, Verdict.UNKNOWN, Verdict.CRIT, Verdict.SKIP


@pytest.fixture
def node(nvml):
    """Judge one line on eight H100, `tool` printing `text`."""

    def run(line, tool, text, status=0, stderr="", settings=RUN, **more):
        commands = {tool: [status, text, stderr, False], "env": [status, text, stderr, False], **more}
        return nvml.one("h100", line, settings=settings, commands=commands)

    return run


def told(outcomes):
    one = worst(tuple(outcomes))
    return one.verdict, one.reason


# nccl-tests


AZURE = {**RUN, "NHC_DEEP_KIND": "azure-nd96isr_h100_v5"}


def collective(busbw, text=samples.NCCL):
    """The samples' run with another bus bandwidth; rings, in place of NVLS, where `text` has none."""
    algbw, time = busbw / 1.75, 8589934592 / 1000 / (busbw / 1.75)
    for figures in ("31315  274.31  480.04", "31300  274.44  480.27"):
        text = text.replace(figures, f"{time:.0f}  {algbw:.2f}  {busbw:.2f}")
    return text


@pytest.mark.thorough
def test_a_collective_is_judged_by_its_row(node):
    [found] = node("check_deep_collective", "all_reduce_perf", samples.NCCL, settings=AZURE)
    assert found.verdict is OK
    assert found.message == (
        "collective all reduce 480.3 GB/s, expected at least 437 (Azure HPC NHC, nccl-tests with clocks locked to "
        "maximum, NVLS on), 8 ranks at 8GB"
    )
    assert [(m.name, m.value) for m in found.metrics] == [
        ("collective_all_reduce", 480.27), ("collective_all_reduce_threshold", 437.0), ("collective_all_reduce_algbw", 274.44)]  # fmt: skip


@pytest.mark.parametrize(
    ("busbw", "line", "settings", "verdict"),
    [
        (440.0, "", AZURE, OK),
        (400.0, "", AZURE, WARN),  # below the floor of another machine, above 75% of it
        (340.0, "", AZURE, CRIT),
        (20.0, "", RUN, OK),  # eight H100 that no table knows: measured, and said to be not judged
        (400.0, "-f 460", RUN, CRIT),  # the line's own floor
        (20.0, "-f none", AZURE, OK),
    ],
)
def test_a_speed_convicts_by_a_fair_comparison_only(node, busbw, line, settings, verdict):
    [found] = node(f"check_deep_collective {line}", "all_reduce_perf", collective(busbw), settings=settings)
    assert found.verdict is verdict
    if verdict is WARN:
        assert "400 GB/s, expected at least 437 (Azure HPC NHC" in found.message
        assert found.action is Action.NONE
    if verdict is OK and settings is RUN:
        assert "speed not judged" in found.message


def test_a_site_s_own_row_convicts():
    row = "hgx-h100-8\tcollective_all_reduce\tleast\t480\tGB/s\t5\t0\tmeasured here"
    for line in (row, f"{row}\t3.1"):  # with the spread that healthy machines have, and without
        host = FakeHost({"/etc/nhc/deep-expected.tsv": f"{line}\n"}, {}, RUN)
        for busbw, verdict in ((460.0, OK), (450.0, CRIT)):
            assert deep.hold(host, deep.Measured("collective_all_reduce", busbw, "GB/s"), None).verdict is verdict


def test_a_time_is_held_from_above():
    host = FakeHost({}, {}, {**RUN, "NHC_DEEP_KIND": "oci-bm.gpu.h100.8"})  # at most 5 us
    for value, verdict in ((4.0, OK), (6.0, WARN), (7.0, CRIT)):
        measured = deep.Measured("rdma_write_latency", value, "us", "mlx5_0:1", at_least=False)
        assert deep.hold(host, measured, None).verdict is verdict


def test_a_collective_without_nvls_is_a_setting_and_no_weak_gpu(node):
    rings = samples.NCCL.replace("Connected NVLS tree", "Connected all rings")
    [found] = node("check_deep_collective", "all_reduce_perf", collective(370.0, rings), settings=AZURE)
    assert (found.verdict, found.reason) == (WARN, "DeepNvlsOff")
    assert "NCCL_NVLS_ENABLE" in found.message
    [slow] = node("check_deep_collective", "all_reduce_perf", collective(300.0, rings), settings=AZURE)
    assert (slow.verdict, slow.reason) == (CRIT, "DeepSlow")


@pytest.mark.parametrize(("gib", "wanted"), [(80, 8 << 30), (40, 8 << 30), (24, 4 << 30), (16, 4 << 30), (0, 8 << 30)])
def test_a_size_that_the_memory_does_not_take_is_not_asked_for(gib, wanted):
    gpus = [Device("nvidia", number, memory_total=gib << 30) for number in range(2)]
    assert min(8 << 30, deep_collective.room(gpus)) == wanted


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        (samples.NCCL_WRONG, CRIT, "DeepWrongResult"),
        (samples.NCCL.replace("480.04       0", "480.04    -nan"), CRIT, "DeepWrongResult"),
        (samples.NCCL.replace("values : 0 OK", "values : 3 FAILED"), CRIT, "DeepWrongResult"),
        (samples.NCCL.replace("480.04       0", "480.04     N/A"), UNKNOWN, "DeepNoProof"),
        (
            samples.NCCL.replace("via P2P/CUMEM", "via SHM/direct").replace("Connected NVLS tree", "x"),
            UNKNOWN,
            "DeepWrongTransport",
        ),
        (
            samples.NCCL.replace("via P2P/CUMEM", "NET/Socket : Using [0]eth0").replace("Connected NVLS tree", "x"),
            UNKNOWN,
            "DeepWrongTransport",
        ),
        (
            "\n".join(line for line in samples.NCCL.splitlines() if "NCCL INFO" not in line),
            UNKNOWN,
            "DeepWrongTransport",
        ),
        (samples.NCCL.replace("8589934592    2147483648", "4294967296    2147483648"), UNKNOWN, "DeepNoProof"),
        (samples.NCCL.replace("#  Rank", "#  Rink"), UNKNOWN, "DeepNoProof"),
        (samples.NCCL + "# nThread 1 nGpus 1\n", UNKNOWN, "DeepNoProof"),
        (samples.NCCL.replace("# Collective test concluded: all_reduce_perf\n", ""), UNKNOWN, "DeepNoProof"),
        # The figures of two ranks: busbw equals algbw
        (samples.NCCL.replace("480.04", "274.31").replace("480.27", "274.44"), UNKNOWN, "DeepNoProof"),
        ("Invalid number of GPUs: 8 requested but only 7 were found.", UNKNOWN, "DeepToolFailed"),
        ("", UNKNOWN, "DeepOutput"),
    ],
)
def test_a_collective_without_proof_is_never_good(node, text, verdict, reason):
    assert told(node("check_deep_collective", "all_reduce_perf", text)) == (verdict, reason)


@pytest.mark.thorough
def test_a_collective_that_ended_badly_is_never_good(node):
    assert told(node("check_deep_collective", "all_reduce_perf", samples.NCCL, status=3)) == (UNKNOWN, "DeepToolFailed")
    assert told(node("check_deep_collective", "x", "")) == (SKIP, "CommandMissing")
    for name in ("all_reduce_perf", "all"):
        required = {**RUN, "NHC_DEEP_REQUIRE": f"dcgmi {name}"}
        assert told(node("check_deep_collective", "x", "", settings=required)) == (UNKNOWN, "CommandMissing")
    assert told(node("check_deep_collective", "x", "", settings={**RUN, "NHC_DEEP_REQUIRE": "dcgmi"}))[0] is SKIP


@pytest.mark.thorough
def test_outside_of_a_run_nothing_is_loaded(node):
    for line in ("check_deep_collective", "check_deep_nvbandwidth", "check_deep_gemm", "check_deep_dcgm"):
        assert told(node(line, "all_reduce_perf", samples.NCCL, settings={})) == (UNKNOWN, "DeepNotAlone")


# nvbandwidth


def bandwidths(node, text, line="", **more):
    """What is not OK: by verdict, the targets."""
    found = {}
    for one in node(f"check_deep_nvbandwidth {line}", "nvbandwidth", text, **more):
        if one.verdict is not OK:
            found.setdefault(one.verdict, set()).add(one.target)
    return found


EIGHT = {f"gpu{n}" for n in range(8)}


@pytest.mark.parametrize(
    ("h2d", "verdict"),
    [(49.5, None), (48.0, None), (46.0, WARN), (32.0, WARN), (31.0, CRIT), (27.0, CRIT)],
)
def test_copies_by_pcie_are_held_to_their_link(node, h2d, verdict):
    """Gen5 x16 carries 63 GB/s: a healthy H100 gave 49.5; a lost width or generation is below half."""
    assert bandwidths(node, samples.nvbandwidth(h2d=h2d)) == ({verdict: EIGHT} if verdict else {})


@pytest.mark.thorough
def test_a_copy_within_a_gpu_is_held_to_a_copy(node):
    """A healthy H100 gave 1,490 GB/s; DCGM's triad of 1,905 is no copy."""
    whole = samples.nvbandwidth()
    assert bandwidths(node, whole.replace("1400.00", "1490.00")) == {}
    assert bandwidths(node, whole.replace("1400.00", "1200.00")) == {WARN: EIGHT}
    assert bandwidths(node, whole.replace("1400.00", "1100.00")) == {CRIT: EIGHT}


@pytest.mark.thorough
def test_a_gpu_that_is_behind_its_peers_is_named(node):
    whole = json.loads(samples.nvbandwidth())
    for case in whole["nvbandwidth"]["testcases"]:
        if case["name"] == "device_local_copy":
            case["bandwidth_matrix"][0][5] = "466.00"  # a third
    assert bandwidths(node, json.dumps(whole)) == {CRIT: {"gpu5"}}
    assert bandwidths(node, json.dumps(whole), "-f none") == {}


def peer_copies(gpus, slow):
    """Copies between GPUs at 390 GB/s, those for which `slow` is true at 12."""
    whole = json.loads(samples.nvbandwidth(gpus))
    for case in whole["nvbandwidth"]["testcases"]:
        if case["name"] == "device_to_device_memcpy_read_ce":
            case["bandwidth_matrix"] = [
                ["N/A" if row == column else "12.00" if slow(row, column) else "390.00" for column in range(gpus)]
                for row in range(gpus)
            ]
    return json.dumps(whole)


@pytest.mark.thorough
def test_of_slow_copies_between_gpus_the_common_one_is_named(node):
    assert bandwidths(node, peer_copies(8, lambda row, column: 3 in (row, column)), settings=AZURE) == {CRIT: {"gpu3"}}
    assert bandwidths(node, peer_copies(8, lambda row, column: row == 3), settings=AZURE) == {CRIT: {"gpu3"}}
    two = peer_copies(8, lambda row, column: {row, column} & {3, 6})
    assert bandwidths(node, two, settings=AZURE) == {CRIT: {"gpu3", "gpu6"}}
    pair = peer_copies(8, lambda row, column: {row, column} == {2, 5})
    assert bandwidths(node, pair, settings=AZURE) == {CRIT: {"gpu2-gpu5"}}
    assert bandwidths(node, pair) == {WARN: {"gpu2-gpu5"}}  # nothing but the other pairs to compare with


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (samples.nvbandwidth(host_to_device_memcpy_ce="Error"), "DeepNoProof"),
        (samples.nvbandwidth(host_to_device_memcpy_ce="Running"), "DeepNoProof"),
        (samples.nvbandwidth(host_to_device_memcpy_ce="Waived"), "DeepNotTested"),
        (samples.nvbandwidth(7), "DeepNoProof"),
        (samples.nvbandwidth()[:-400], "DeepOutput"),
        ('{"nvbandwidth": {"testcases": []}}', "DeepNoProof"),
        ('{"nvbandwidth": {"error": "no CUDA"}}', "DeepToolFailed"),
        (samples.NVBANDWIDTH_TEXT, "DeepNoProof"),  # of two GPUs
    ],
)
def test_a_bandwidth_without_proof_is_never_good(node, text, reason):
    found = node("check_deep_nvbandwidth -t host_to_device_memcpy_ce -f 1", "nvbandwidth", text)
    assert told(found) == (UNKNOWN, reason)
    assert all(one.verdict is not OK for one in found)


PATTERN = " Invalid value when checking the pattern at 0x7f2a40000010\n Current offset [ 16 / 536870912 ]\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text",
    [
        PATTERN + samples.nvbandwidth(device_local_copy="Error"),
        samples.nvbandwidth(device_local_copy="Error") + PATTERN,
        PATTERN + samples.nvbandwidth(),  # one that goes on and calls the test passed
        samples.NVBANDWIDTH_TEXT.replace("SUM device_to_device", f"{PATTERN}SUM device_to_device"),
        samples.nvbandwidth()[:-400] + PATTERN,  # and then broke off
    ],
)
def test_copied_data_that_is_wrong_is_critical_at_once(node, text):
    for streams in ((text, ""), ("", text)):
        found = node("check_deep_nvbandwidth", "nvbandwidth", streams[0], stderr=streams[1])
        assert told(found) == (CRIT, "DeepWrongResult")
    assert "Invalid value when checking the pattern at 0x7f2a40000010" in found[-1].message
    assert "device_local_copy" in node("check_deep_nvbandwidth", "nvbandwidth", PATTERN + samples.nvbandwidth(
        device_local_copy="Error"))[-1].message  # fmt: skip


# dcgmi diag


@pytest.mark.thorough
def test_diagnostics_of_each_version(node):
    [found] = node("check_deep_dcgm -r 2", "dcgmi", samples.dcgm4())
    assert (found.verdict, found.message) == (OK, "DCGM 4.6.0: software, memory, pcie passed on 8 GPUs")
    older = node("check_deep_dcgm -r 1", "dcgmi", samples.DCGM3)
    assert [(one.verdict, one.reason, one.target) for one in older] == [(WARN, "DeepGpuDiagWarning", "gpu1")]
    assert told(node("check_deep_dcgm -r 1", "dcgmi", samples.DCGM2, status=226)) == (CRIT, "DeepGpuDiagTriage")


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        ((52, 2), CRIT, "DeepGpuDiag"), ((85, 6), CRIT, "DeepGpuDiagReset"), ((29, 5), WARN, "DeepGpuConfig"),
        ((30, 4), CRIT, "DeepGpuDiagTriage"), ((25, 6), UNKNOWN, "DeepNotTested"), ((56, 4), UNKNOWN, "DeepNotTested"),
    ],
)  # fmt: skip
def test_errors_of_diagnostics_by_severity(node, error, verdict, reason):
    text = samples.dcgm4(failing=[("memory", 5, *error, "words")])
    [found] = node("check_deep_dcgm", "dcgmi", text, status=226)
    assert (found.verdict, found.reason, found.target) == (verdict, reason, "gpu5")


def test_an_xid_during_the_diagnostic_is_no_chance():
    """Tried again the test passes, and the GPU has failed all the same."""
    host, argv = Retried({}, {}, RUN), ["dcgmi", "diag", "-r", "2", "-j"]
    for error, verdict in ((101, CRIT), (30, WARN)):
        text = samples.dcgm4(failing=[("memory", 5, error, 4, "words")])
        first = dcgm.parse(text)
        found = deep_dcgm.judge("2", range(8), Completed(226, text), first)
        assert told(deep_dcgm._again(host, argv, "2", first, found))[0] is verdict


class Retried(FakeHost):
    """dcgmi, which finds nothing when it is asked again."""

    def which(self, command):
        return f"/usr/bin/{command}"

    def run(self, argv, timeout=5.0, stdin="", during=None):
        return Completed(0, samples.dcgm4())


def test_tools_that_are_in_nobody_s_path_are_found():
    here = FakeHost({}, {"/opt/rocm/bin/rvs": "met", "/opt/aws/neuron/bin/nccom-test": ""}, RUN)
    assert deep.located(here, "rvs") == "/opt/rocm/bin/rvs"
    assert deep.located(here, "nccom-test") == "/opt/aws/neuron/bin/nccom-test"
    assert deep.located(here, "dcgmi") == ""
    assert deep.attempt(here, ["rvs", "-c", "x"], 5.0).stdout == "met"


def test_gpu_burn_is_given_its_own_kernel(tmp_path):
    folder = tmp_path / "gpu-burn"
    folder.mkdir()
    (folder / "gpu_burn").write_text("#!/bin/sh\n")
    (folder / "gpu_burn").chmod(0o755)
    host = Host().with_settings({**RUN, "PATH": str(folder)})
    assert deep_gemm._compared(host) == []
    (folder / "compare.fatbin").write_text("")
    assert deep_gemm._compared(host) == ["-c", f"{folder}/compare.fatbin"]


def test_the_eighth_gpu_is_seen_too(node):
    """gcm reads the first result alone."""
    found = node("check_deep_dcgm", "dcgmi", samples.dcgm4(failing=[("pcie", 7, 36, 2, "words")]), status=205)
    assert [(one.verdict, one.target) for one in found] == [(CRIT, "gpu7")]


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (samples.dcgm4(tests=("software",)), 0, "DeepNotTested"),
        (samples.dcgm4(tests=("memory", "pcie")), 0, "DeepNoProof"),
        (samples.dcgm4(gpus=7), 0, "DeepNotTested"),
        (samples.dcgm4().replace("Pass", "Skip"), 0, "DeepNotTested"),
        (samples.dcgm4(), 226, "DeepNoProof"),
        (samples.dcgm4(), 217, "DeepToolFailed"),
        ("", 235, "DeepToolFailed"),
        (samples.dcgm4()[:-30], 0, "DeepOutput"),
        ('{"DCGM Diagnostic":{"runtime_error":"busy","version":"4.6.0"}}', 226, "DeepToolFailed"),
    ],
)
def test_a_diagnostic_without_proof_is_never_good(node, text, status, reason):
    found = node("check_deep_dcgm -r 2", "dcgmi", text, status=status)
    assert told(found) == (UNKNOWN, reason)
    assert all(one.verdict is not OK for one in found)


# Burns


def burnt(node, text, line="check_deep_gemm -e torch -t 60s", **more):
    return node(line, "python3", text, **more)


@pytest.mark.thorough
def test_a_burn_finds_the_gpu_that_computes_wrongly(node):
    assert told(burnt(node, samples.gemm(tflops=724))) == (OK, "")
    for bad in ({"wrong": 2}, {"changed": 1}, {"nan": 9}, {"hash": "bb"}):
        found = burnt(node, samples.gemm(tflops=724, g3=bad))
        assert [(one.verdict, one.reason, one.target) for one in found if one.verdict is CRIT] == [
            (CRIT, "DeepWrongResult", "gpu3")
        ]
    half = burnt(node, samples.gemm(tflops=724, **{f"g{n}": {"hash": "bb"} for n in range(4)}))
    assert len([one for one in half if one.verdict is CRIT]) == 8


@pytest.mark.thorough
def test_a_burn_holds_a_gpu_to_the_median_of_its_peers(node):
    def worst_of(**more):
        found = burnt(node, samples.gemm(tflops=724, **more))
        return {one.target: one.verdict for one in found if one.verdict is not OK}

    assert worst_of(g6={"tflops": 640.0}) == {"gpu6": CRIT}  # 11.6% behind
    assert worst_of(g6={"tflops": 660.0}) == {}
    assert worst_of(g2={"tflops": 830.0}) == {}  # one that is faster than all convicts nobody
    assert {one.verdict for one in burnt(node, samples.gemm(tflops=600))} == {WARN}  # all, by a figure from elsewhere
    assert {one.verdict for one in burnt(node, samples.gemm(tflops=500))} == {CRIT}


def gpu_burn(*speeds):
    figures = " - ".join(f"9044 ({speed * 1000:g} Gflop/s)" for speed in speeds)
    zeros = " - ".join("0" for _ in speeds)
    verdicts = "".join(f"\tGPU {number}: OK\n" for number in range(len(speeds)))
    return (f"100.0%  proc'd: {figures}   errors: {zeros}   temps: {zeros.replace('0', '58 C')} \n"
            f"done\n\nTested {len(speeds)} GPUs:\n{verdicts}")  # fmt: skip


def test_a_gpu_at_a_third_of_its_peers_does_not_pass_gpu_burn(node):
    found = node("check_deep_gemm -e gpu-burn", "gpu_burn", gpu_burn(*[354] * 5, 110, 354, 354))
    assert [(one.reason, one.target) for one in found if one.verdict is CRIT] == [("DeepSlow", "gpu5")]
    alike = node("check_deep_gemm -e gpu-burn", "gpu_burn", gpu_burn(*[354] * 8))
    assert {one.verdict for one in alike} == {OK}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (samples.gemm(end=False), "DeepNoProof"), (samples.gemm(7), "DeepNoProof"), (samples.gemm()[:-8], "DeepOutput"),
        (samples.gemm(g1={"seconds": 20.0}), "DeepNoProof"), ("Traceback", "DeepOutput"),
        ('{"kind": "trouble", "message": "torch sees no GPU"}', "DeepToolFailed"),
    ],
)  # fmt: skip
def test_a_burn_without_proof_is_never_good(node, text, reason):
    assert told(burnt(node, text, line="check_deep_gemm -e torch -t 60s -f none")) == (UNKNOWN, reason)


@pytest.mark.thorough
def test_without_torch_another_burn_is_used_or_the_reason_said(node):
    text = samples.GPU_BURN.format(errors=0, verdict="OK")
    found = node("check_deep_gemm -t 60s -f none", "gpu_burn", text, python3=[1, "", "No module named torch", False])
    assert told(found) == (UNKNOWN, "DeepNoProof")  # of two GPUs of eight
    faulty = samples.GPU_BURN.format(errors=1043, verdict="FAULTY")
    assert ("DeepWrongResult", "gpu1") in {
        (one.reason, one.target) for one in node("check_deep_gemm -e gpu-burn", "gpu_burn", faulty)
    }
    none = node("check_deep_gemm -t 60s", "python3", "", status=1)
    assert {(one.verdict, one.reason) for one in none} == {(SKIP, "CommandMissing")}
    assert "gpu_burn" in none[0].message
    wanted = node("check_deep_gemm -t 60s", "python3", "", status=1, settings={**RUN, "NHC_DEEP_REQUIRE": "torch"})
    assert {one.verdict for one in wanted} == {UNKNOWN, SKIP}
    fry = node(
        "check_deep_gemm -e gpu-fryer",
        "gpu-fryer",
        samples.FRYER + "Some GPUs are not healthy. Reasons:\n  - GPU 3 - throttled\n",
        status=1,
    )
    assert told(fry) == (CRIT, "DeepSlow")  # 51 TFLOPS of 730
    assert told(node("check_deep_gemm -e gpu-fryer", "gpu-fryer", samples.FRYER)) == (UNKNOWN, "DeepNoProof")
    assert told(node("check_deep_gemm -e rvs", "rvs", samples.RVS)) == (CRIT, "DeepSlow")


# RDMA


def fabric(text, status=0, lat=samples.PERFTEST_LAT, kind="azure-nd96isr_h100_v5", **more):
    return FakeHost(
        rdma.device("mlx5_0"), {"ib_write_bw": completed(text, status), "ib_write_lat": lat, "sh": "", "sleep": "", **more},
        {**RUN, "NHC_DEEP_KIND": kind},
    )  # fmt: skip


def completed(text, status):
    from nhc.core.host import Completed

    return Completed(status, text)


def test_rdma_loopback():
    good = samples.PERFTEST.format(device="mlx5_0", rate=390.4)
    assert judge(fabric(good), "check_deep_rdma -l").verdict is OK
    outcome = judge(fabric(good.replace("390.4", "196.1")), "check_deep_rdma")
    assert (outcome.verdict, outcome.reason, outcome.target) == (CRIT, "DeepSlow", "mlx5_0:1")
    assert judge(fabric(good, kind=""), "check_deep_rdma").verdict is OK
    late = samples.PERFTEST_LAT.replace(" 2.01 ", " 9.9 ")
    assert judge(fabric(good, lat=late), "check_deep_rdma -l -F 5").reason == "DeepSlow"


@pytest.mark.parametrize(
    ("text", "status", "verdict", "reason"),
    [
        (samples.PERFTEST_NONE, 1, UNKNOWN, "DeepToolFailed"),
        (samples.PERFTEST.format(device="mlx5_0", rate=390.4).rpartition(" 65536")[0], 0, UNKNOWN, "DeepNoProof"),
        (samples.PERFTEST.format(device="mlx5_3", rate=390.4), 0, UNKNOWN, "DeepNoProof"),
        (samples.PERFTEST_MIB, 0, UNKNOWN, "DeepNoProof"),  # another size
        (samples.PERFTEST_MIB * 2, 0, UNKNOWN, "DeepOutput"),
        (samples.PERFTEST.format(device="mlx5_0", rate=0), 0, UNKNOWN, "DeepNoProof"),
        (
            samples.PERFTEST.format(device="mlx5_0", rate=390)
            + " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n",
            1,
            CRIT,
            "DeepLinkErrors",
        ),
        (
            samples.PERFTEST.format(device="mlx5_0", rate=390) + "VALIDATION: FAILED - 3 chunks\n",
            1,
            CRIT,
            "DeepWrongData",
        ),
    ],
)
def test_rdma_without_proof_is_never_good(text, status, verdict, reason):
    outcome = judge(fabric(text, status), "check_deep_rdma -f 1")
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


def efa(**commands):
    return FakeHost(rdma.device("rdmap0s29", driver="efa", layer="Unknown"), {"sh": "", "sleep": "", **commands}, RUN)


def test_efa_loopback_by_perftest_or_pingpong():
    [found] = judge_all(efa(ib_write_bw=samples.EFA_BW, ib_write_lat=samples.EFA_LAT), "check_deep_efa -f 20")
    assert (found.verdict, found.target) == (OK, "rdmap0s29")
    seen = {metric.name: metric.value for metric in found.metrics}
    assert (seen["efa_write"], seen["efa_latency"], seen["efa_latency_max"]) == (pytest.approx(57.8), 21.08, 30.08)
    assert (
        judge(efa(ib_write_bw=samples.EFA_BW, ib_write_lat=samples.EFA_LAT), "check_deep_efa -f 90").reason
        == "DeepSlow"
    )
    assert judge(efa(ib_write_bw=samples.EFA_BW, ib_write_lat=""), "check_deep_efa").verdict is UNKNOWN
    assert judge(efa(fi_pingpong=samples.PINGPONG), "check_deep_efa").verdict is OK
    assert judge(efa(fi_pingpong=samples.PINGPONG.replace("=20", "19", 1)), "check_deep_efa").reason == "DeepLinkErrors"
    assert (
        judge(efa(fi_pingpong="fi_getinfo(): ret=-61 (No data available)"), "check_deep_efa").reason == "DeepToolFailed"
    )


# Whatever is cut off, mixed or missing, it is never good.

WHOLE = {
    "check_deep_rdma -f 1": ("ib_write_bw", samples.PERFTEST.format(device="mlx5_0", rate=390.4), "rdma"),
    "check_deep_efa": ("fi_pingpong", samples.PINGPONG, "efa"),
}


@given(st.data())
def test_an_output_that_is_cut_off_is_never_good(data):
    line = data.draw(st.sampled_from(sorted(WHOLE)))
    tool, text, kind = WHOLE[line]
    cut = text[: data.draw(st.integers(0, text.rindex("\n", 0, len(text) - 200) if kind == "rdma" else len(text) // 2))]
    host = fabric(cut) if kind == "rdma" else efa(**{tool: cut})
    assert judge(host, line).verdict is not OK


@given(st.integers(0, len(samples.NCCL) - 40))
def test_a_collective_that_is_cut_off_is_never_good(at):
    from nhc.core.host import Completed
    from nhc.node.checks import deep_collective
    from nhc.node.checks.deep_collective import judge as judge_collective

    text = samples.NCCL[:at]
    try:
        found = deep_collective.parse_collective(text)
    except ValueError:
        return
    outcome = judge_collective(FakeHost(settings=RUN), "all_reduce", 8 << 30, 8, "all", Completed(0, text), found,
                               deep_collective.transport(text), 1.0)  # fmt: skip
    assert outcome.verdict is UNKNOWN


@given(st.permutations(samples.NCCL.splitlines()), st.integers(0, 20))
def test_interleaved_lines_of_a_collective_never_invent_a_result(lines, dropped):
    """Lines in any order, one of them missing: good only if every proof is there."""
    from nhc.core.host import Completed
    from nhc.node.checks import deep_collective
    from nhc.node.checks.deep_collective import judge as judge_collective

    kept = [line for number, line in enumerate(lines) if number != dropped]
    lost = lines[dropped]
    text = "\n".join(kept)
    try:
        found = deep_collective.parse_collective(text)
    except ValueError:
        return
    outcome = judge_collective(FakeHost(settings=RUN), "all_reduce", 8 << 30, 8, "all", Completed(0, text), found,
                               deep_collective.transport(text), 1.0)  # fmt: skip
    if any(mark in lost for mark in ("Rank", "8589934592", "Out of bounds", "concluded", "nThread")):
        assert outcome.verdict is not OK
    if outcome.verdict is OK:
        assert outcome.metrics[0].value == 480.27
