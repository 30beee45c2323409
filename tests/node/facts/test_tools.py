# ruff: noqa: E501 (lines as tools print them)
"""What the tools of deep checks print, every format and version. The texts' sources are in tests/support/deep_samples.py."""

import contextlib
import json
import math

import pytest

from nhc.node.checks import deep_collective, deep_cpu, deep_disk, deep_gemm, deep_network, deep_nvbandwidth, deep_rdma
from nhc.node.checks.deep_collective import parse_nccom
from nhc.node.checks.deep_gemm import parse_gpu_burn, parse_gpu_fryer, parse_rvs
from nhc.node.checks.deep_rdma import parse_pingpong
from nhc.node.facts import dcgm, memory_tests, tool_output
from nhc.node.facts.memory_tests import parse_triad
from tests.support import deep_samples as samples


def test_progress_and_prefixes_leave_no_trace():
    assert tool_output.lines("[1,0]<stdout>:row\n12: row\n50%\r100%\nStuck : \b\b\bok\n") == [
        "row",
        "row",
        "100%",
        "Stuckok ",
        "",
    ]


def test_json_is_found_behind_notes_and_before_complaints():
    assert tool_output.json_object('fio: {note}\n{"a": {"b": 1}}\ntrailing') == {"a": {"b": 1}}
    for text in ("", "no object", '{"a": {"b"', "[1, 2]"):
        with pytest.raises(ValueError, match="JSON"):
            tool_output.json_object(text)


def test_nccl_tests_of_today():
    found = deep_collective.parse_collective(samples.NCCL)
    row = found.row(8 << 30)

    assert (found.name, found.version, found.headers, len(found.ranks)) == ("all_reduce_perf", "2.19.6", 1, 8)
    assert (found.bounds, found.average, found.concluded) == ((0, True), 480.155, True)
    assert (row.busbw, row.out_of_place.wrong, row.redop) == (480.27, 0, "sum")
    assert deep_collective.ranks_by_figures("all_reduce", row.in_place.algbw, row.in_place.busbw) == pytest.approx(
        8, abs=0.05
    )


def test_nccl_tests_under_srun_tell_sixteen_ranks_by_their_figures():
    found = deep_collective.parse_collective(samples.NCCL_SRUN)
    row = found.row(16 << 30)

    assert [one.size for one in found.rows] == [8 << 30, 16 << 30]
    assert deep_collective.ranks_by_figures(
        "all_reduce", row.out_of_place.algbw, row.out_of_place.busbw
    ) == pytest.approx(16, abs=0.1)
    assert found.concluded  # versions before 2.17 have no last line: the average is it


def test_nccl_tests_of_2_9_have_no_root_and_check_nothing():
    found = deep_collective.parse_collective(samples.NCCL_29)

    assert found.rows[0].out_of_place == (63896, 134.44, 235.26, None)
    assert len(found.ranks) == 1


def test_other_forms_of_rows():
    head = samples.NCCL.splitlines()
    at = next(number for number, line in enumerate(head) if line.startswith("  8589934592"))

    def row(text):
        return deep_collective.parse_collective("\n".join([*head[:at], text, *head[at + 1 :]])).rows[0]

    wrong = row(
        "   536870912     134217728     float     sum      -1    72488    7.41    7.41  2.68435e+08    73092    7.35    7.35  2.68435e+08"
    )
    assert wrong.in_place.wrong == 2.68435e08
    tagged = row(
        "[1,0]<stdout>:  8589934592    2147483648     float    none      -1    20299  423.16  834.57       0    20006  429.37  846.82    N/A"
    )
    assert (tagged.busbw, tagged.in_place.wrong) == (846.82, None)
    assert math.isnan(
        row("  8589934592  2147483648 float sum -1 31315 -nan -nan 0 31300 274.44 480.27 0").out_of_place.busbw
    )


def test_a_row_that_is_cut_off_or_shared_by_two_is_no_row():
    whole = next(line for line in samples.NCCL.splitlines() if line.startswith("  8589934592"))
    for broken in (whole[:-9], whole + whole, whole.replace("float", "")):
        with pytest.raises(ValueError, match="columns"):
            deep_collective.parse_collective(samples.NCCL.replace(whole, broken))


def test_failures_of_nccl_tests_are_kept():
    for line in (
        "HCA-14: Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '",
        "node-b: Test CUDA failure common.cu:941 'out of memory'",
        "node-c: Test timeout (300s) common.cu:560",
        "Invalid number of GPUs: 8 requested but only 7 were found.",
    ):
        assert deep_collective.parse_collective(line).failures == (line,)
    assert (
        deep_collective.parse_collective(
            samples.NCCL + "# Reducing maxBytes to 27951912277 due to memory limitation\n"
        ).reduced
        == 27951912277
    )


def test_transports():
    said = deep_collective.transport
    assert said(samples.NCCL).names == {"P2P", "NVLS"}
    info = "n:1:2 [0] NCCL INFO "
    assert said(info + "NET/IB : Using [0]mlx5_0:1/IB\n" + info + "Channel 0 via NET/IB/0/GDRDMA").names == {"IB"}
    assert said(info + "NET/OFI Selected Provider is efa").names == {"efa"}
    assert said(info + "NET/Socket : Using [0]eth0").names == {"Socket"}
    assert said("Using network Socket").names == frozenset()  # not a line of NCCL's


def test_nvbandwidth():
    found = deep_nvbandwidth.parse_json(samples.nvbandwidth(2))
    assert [case.status for case in found.cases] == ["passed"] * 4
    assert found.cases[2].matrix == ((None, 390.0), (390.0, None))

    text = deep_nvbandwidth.parse_text(samples.NVBANDWIDTH_TEXT)
    assert [(case.name, case.status) for case in text.cases] == [
        ("host_to_device_memcpy_ce", "passed"), ("device_to_device_memcpy_write_ce", "passed")]  # fmt: skip
    assert text.cases[1].matrix == ((None, 276.07), (276.19, None))
    assert len(text.devices) == 2


def test_an_nvbandwidth_test_that_broke_is_listed_twice():
    found = deep_nvbandwidth.parse_json('{"nvbandwidth": {"testcases": [{"name": "a", "status": "Running"}, {"name": "a", "status": '
                              '"Error"}, {"name": "b", "status": "Waived"}]}}')  # fmt: skip
    assert [(case.name, case.status) for case in found.cases] == [("a", "failed"), ("b", "waived")]
    cut = samples.NVBANDWIDTH_TEXT.rpartition("SUM")[0]
    assert deep_nvbandwidth.parse_text(cut).cases[1].status == "failed"


def test_dcgm_4():
    error = ("memory", 3, 52, 2, "Found 3 faulty memory elements on GPU 3")
    found = dcgm.parse(samples.dcgm4(failing=[error]))

    assert (found.generation, found.version, found.driver) == (4, "4.6.0", "580.95.05")
    assert found.gpus == tuple(range(8))
    assert found.device_ids == ("2330",)
    [bad] = [result for result in found.results if result.status == "fail"]
    assert (bad.test, bad.entity, bad.errors) == ("memory", "GPU 3", ((52, 2, error[4]),))


def test_dcgm_3_and_older():
    found = dcgm.parse(samples.DCGM3)
    assert (found.generation, found.version, len(found.results)) == (3, "3.3.7", 8 + 1 + 8 + 8)
    [warns] = [result for result in found.results if result.status == "warn"]
    assert warns.errors[0][:2] == (29, dcgm.CONFIG)  # its severity by its number
    old = dcgm.parse(samples.DCGM2).results[0]
    assert (old.test, old.entity, old.status, old.errors[0].id) == ("blacklist", "", "fail", None)


def test_dcgm_that_could_not_run_and_iterations():
    assert dcgm.parse('{"DCGM Diagnostic":{"runtime_error":"no engine","version":"4.6.0"}}').trouble == "no engine"
    wrapped = '{"iterations": [' + samples.dcgm4() + "," + samples.dcgm4() + '], "Overall Result": "Pass"}'
    assert len(dcgm.parse(wrapped).results) == 48
    for text in ("{}", '{"DCGM Diagnostic": {}}', samples.dcgm4().replace("Pass", "Great")):
        with pytest.raises(ValueError):  # noqa: PT011 (each names its own)
            dcgm.parse(text)


def test_every_error_of_dcgm_has_a_severity():
    assert len(dcgm.SEVERITY_OF) == 133 - 4  # 0, 1, 2 and 21 are of unknown severity


def test_gpu_burn_tells_faulty_gpus_at_the_end():
    found = parse_gpu_burn(samples.GPU_BURN.format(errors=1043, verdict="FAULTY"))
    assert (found.verdicts, found.progress, found.errors) == ({0: True, 1: False}, 100.0, (0, 1043))
    assert found.gflops == (7150.0, 7148.0)


def test_gpu_fryer_and_rvs():
    assert parse_gpu_fryer(samples.FRYER).healthy is None
    found = parse_gpu_fryer(samples.FRYER + "Some GPUs are not healthy. Reasons:\n  - GPU 3 - throttled\n")
    assert (found.healthy, found.reasons, found.gflops[0]) == (False, ("GPU 3 - throttled",), 51494)
    rvs = parse_rvs(samples.RVS)
    assert (rvs.met, rvs.gflops[42583]) == ({42583: True, 42584: False}, 1063560)


def test_nccom_is_in_gib():
    found = parse_nccom(samples.NCCOM)
    assert found.rows[0].busbw == pytest.approx(43.69, abs=0.01)
    assert found.average is not None
    assert parse_nccom("Neuron DKMS Driver is not running!").failures
    with pytest.raises(ValueError, match="unit"):
        parse_nccom(samples.NCCOM.replace("40.6901GB/s", "40.6901MB/s"))


def test_perftest_takes_the_unit_from_the_header():
    assert deep_rdma.parse_perftest(samples.PERFTEST.format(device="mlx5_0", rate=390.4)).rows[0].average == 390.4
    found = deep_rdma.parse_perftest(samples.PERFTEST_MIB)
    assert found.rows[0].average == pytest.approx(201.8, abs=0.05)
    assert deep_rdma.parse_perftest(samples.PERFTEST_LAT).rows[0].latency_typical == 2.01
    assert deep_rdma.parse_perftest(samples.PERFTEST_NONE).failures
    with pytest.raises(ValueError, match="two tests"):
        deep_rdma.parse_perftest(samples.PERFTEST_MIB * 2)
    with pytest.raises(ValueError, match="units"):
        deep_rdma.parse_perftest(samples.PERFTEST_MIB.replace("[MB/sec]", "[XB/sec]"))


def test_fi_pingpong():
    found = parse_pingpong(samples.PINGPONG)
    assert [row.size for row in found.rows] == [64, 256, 1024, 4096, 65536, 1 << 20]
    assert found.rows[2].latency == 5.57
    assert parse_pingpong(samples.PINGPONG.replace("=20", "19", 1)).rows[0].acked == 19


def test_stress_ng_times_of_all_lengths():
    base = "stress-ng: info:  [1] dispatching hogs: 1 cpu\nstress-ng: info:  [1] successful run completed in "
    for said, seconds in (("2.00s", 2.0), ("1 min, 2.05 secs", 62.05), ("1 hour, 0 mins, 1.5 secs", 3601.5)):
        assert deep_cpu.parse_stress_ng(base + said).completed == seconds


def test_memory_tests():
    bad = memory_tests.parse_memtester("memtester version 4.6.0 (64-bit)\ngot  8MB (8388608 bytes), trying mlock ...locked.\nLoop 1/1:\n"
                                       "  Stuck Address       : \b\btesting\b\b\b\b\b\b\bok\n"
                                       "  Random Value        : FAILURE: 0xff != 0xfe at offset 0x10.\nDone.\n")  # fmt: skip
    assert (bad.results["Random Value"], len(bad.failures), bad.locked, bad.done) == (False, 1, True, True)
    sat = memory_tests.parse_stressapptest(
        "Stats: SAT revision 1.0.6\nStats: Completed: 152514.00M in 5.00s 30499.55MB/s, with 2 hardware incidents, 1 errors\n"
        "\nStatus: FAIL - test discovered HW problems\n"
    )
    assert (sat.incidents, sat.errors, sat.passed, sat.procedural) == (2, 1, False, False)
    assert memory_tests.parse_stressapptest(
        "Stats: SAT revision\nStatus: FAIL - test encountered procedural errors"
    ).procedural


def test_fio_of_before_3_0_tells_kib():
    job = {"jobname": "a", "error": 84, "read": {"io_bytes": 1, "bw": 10, "iops": 1, "runtime": 5},
           "write": {"io_bytes": 1, "bw_bytes": 7, "iops": 1, "runtime": 5}}  # fmt: skip
    import json

    found = deep_disk.parse_fio("note: {}\n" + json.dumps({"fio version": "fio-2.9", "jobs": [job]}))
    assert (found.jobs[0].error, found.jobs[0].read.rate, found.jobs[0].write.rate) == (84, 10240, 7)
    with pytest.raises(ValueError, match="error is"):
        deep_disk.parse_fio(json.dumps({"fio version": "x", "jobs": [{"jobname": "a"}]}))


def test_iperf3_says_errors_in_its_answer():
    assert (
        deep_network.parse_iperf3(
            '{"start": {"version": "iperf 3.12"}, "end": {}, "error": "the server is busy"}'
        ).trouble
        == "the server is busy"
    )
    with pytest.raises(ValueError, match="sum_sent"):
        deep_network.parse_iperf3('{"start": {}, "end": {}}')


def test_our_own_programs():
    found = parse_triad("array 64 bytes 2 threads\nrate triad 84.595 GB/s\nvalidated no\nend\n")
    assert (found.rates, found.validated, found.ended) == ({"triad": 84.595}, False, True)
    with pytest.raises(ValueError, match="rate"):
        parse_triad("array 64 bytes 2 threads\nrate triad 84.595 MB/s\n")
    burn = deep_gemm.parse_burn(samples.gemm(2))
    assert (len(burn.devices), burn.ended, burn.devices[1].tflops) == (2, True, 700.0)
    assert not deep_gemm.parse_burn(samples.gemm(2, end=False)).ended
    for broken in (samples.gemm(2) + samples.gemm(2), samples.gemm(2)[:-20], "x"):
        with pytest.raises(ValueError):  # noqa: PT011 (each names its own)
            deep_gemm.parse_burn(broken)


SHAPES = [True, 0, 1.5, "x", {}, {"a": 1}, [None], [1], ["x"], [[]], 10**400]


def test_a_diagnostic_of_another_shape_is_a_value_error_or_read():
    """Every value of a real output in turn has every other shape."""

    def places(value, at=()):
        yield at
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, one in inner:
            yield from places(one, (*at, key))

    whole = samples.dcgm4(failing=("memory",))
    for at in list(places(json.loads(whole)))[1:]:
        for shape in SHAPES:
            changed = json.loads(whole)
            inside = changed
            for key in at[:-1]:
                inside = inside[key]
            inside[at[-1]] = shape
            with contextlib.suppress(ValueError):
                dcgm.parse(json.dumps(changed))
