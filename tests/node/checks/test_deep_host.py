# ruff: noqa: E501 (lines as tools print them)
"""Deep checks of the host, with the real tools at tiny sizes: healthy, killed midway, on a full disk."""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks import deep_disk as fio_output
from tests.support.judge import judge, judge_all
from tests.support.require import need
from tests.support.waiting import until

OK, WARN, UNKNOWN, CRIT = Verdict.OK, Verdict.WARN, Verdict.UNKNOWN, Verdict.CRIT


@pytest.fixture
def host(tmp_path):
    """This machine, as a run of `nhc deep` sees it."""
    return Host(settings={"NHC_DEEP_RUN": "test", "NHC_DEEP_SCRATCH": str(tmp_path), "NHC_DEEP_KIND": "test-machine"})


def tool(name):
    need(name, shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"))


def fake(answer, name, line, **files):
    settings = {"NHC_DEEP_RUN": "r", "NHC_DEEP_SCRATCH": "/scratch"}
    system = FakeHost({"/proc/meminfo": "MemTotal: 9000000 kB\nMemFree: 9000000 kB\nMemAvailable: 8000000 kB\n", **files},
                      {name: answer}, settings)  # fmt: skip
    return judge(system, line)


def comm(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:  # it is gone meanwhile
        return ""


def killer(name, mark, after=0.0):
    """End the command whose arguments hold `mark`, once it is there."""

    def run():
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = subprocess.run(["pgrep", "-f", "--", mark], capture_output=True, text=True).stdout.split()
            mine = [int(pid) for pid in found if name in comm(pid)]
            if mine:
                time.sleep(after)
                os.kill(min(mine), 15)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.thorough
def test_processors(host):
    tool("stress-ng")
    outcome = judge(host, "check_deep_cpu -t 1s -s cpu=1,hdd=1")
    assert (outcome.verdict, outcome.reason) == (OK, "")
    assert {metric.name for metric in outcome.metrics} == {"stress_cpu_ops", "stress_hdd_ops"}
    assert judge(host, "check_deep_cpu -t 1s -s nosuch=1").reason == "DeepToolFailed"


@pytest.mark.thorough
def test_a_disk_stressor_on_a_full_disk_proves_nothing(host, small):
    """stress-ng 0.15 counts each refused write as an operation, and calls the run successful."""
    tool("stress-ng")
    (small / "full").write_bytes(b"x" * (os.statvfs(small).f_bavail * os.statvfs(small).f_frsize))
    full = host.with_settings({**host.settings, "NHC_DEEP_SCRATCH": str(small)})
    outcome = judge(full, "check_deep_cpu -t 1s -s cpu=1,hdd=1")
    assert (outcome.verdict, outcome.reason) == (UNKNOWN, "DeepNoRoom")


@pytest.mark.thorough
def test_processors_that_were_not_loaded_long_enough(host):
    """stress-ng ended by SIGTERM says that its run was successful, with status 0."""
    tool("stress-ng")
    thread = killer("stress-ng", "--timeout 37s", after=1.0)
    outcome = judge(host, "check_deep_cpu -t 37s -s cpu=1")
    thread.join()
    assert (outcome.verdict, outcome.reason) == (UNKNOWN, "DeepNoProof")
    assert "of 37 s" in outcome.message


STRESS = """\
stress-ng: info:  [1] dispatching hogs: 1 cpu
stress-ng: metrc: [1] cpu                4155      2.00      1.88      0.01      2076.99        2202.36
stress-ng: info:  [1] successful run completed in 2.00s
"""


@pytest.mark.parametrize(
    ("text", "status", "verdict", "reason"),
    [
        (STRESS, 0, OK, ""),
        (STRESS, 2, CRIT, "DeepWrongResult"),
        (STRESS + "stress-ng: fail:  [2] cpu: matrix product wrong\n", 0, CRIT, "DeepWrongResult"),
        (STRESS, 3, UNKNOWN, "DeepToolFailed"),
        (STRESS, 7, UNKNOWN, "DeepToolFailed"),
        (STRESS.replace("4155", "0"), 0, UNKNOWN, "DeepNoProof"),
        (STRESS.rpartition("stress-ng: info")[0], 0, UNKNOWN, "DeepNoProof"),
        ("", 0, UNKNOWN, "DeepOutput"),
    ],
)
def test_processors_by_what_stress_ng_says(text, status, verdict, reason):
    from nhc.core.host import Completed

    outcome = fake(Completed(status, "", text), "stress-ng", "check_deep_cpu -t 2s")
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


@pytest.mark.thorough
def test_cores_compute_alike(host):
    tool("cc")
    outcome = judge(host, "check_deep_cpu_gemm -t 500ms")
    assert outcome.verdict is OK
    assert "compute rightly and alike" in outcome.message


@pytest.mark.thorough
def test_a_core_that_computes_wrongly_is_named(tmp_path, host):
    """The same program with one bit of one core's product turned, as a faulty core would."""
    tool("cc")
    from nhc.core.data.reader import read

    source = read("gemm_cpu.c")
    whole = "        me->wrong += wrong_rows("
    bits = "        found = hash(hash("
    assert source.count(whole) == source.count(bits) == 1
    for name, line, said in (("whole", whole, "rows that are wrong"), ("bits", bits, "other bits than the first")):
        turned = "whole[2 * N * N] ^= 1;" if name == "whole" else "real[2 * N * N] += (double)(round & 8) * 1e-9;"
        (tmp_path / f"{name}.c").write_text(source.replace(line, f"        if (me->cpu == 0) {turned}\n{line}"))
        subprocess.run(["cc", "-O1", "-pthread", "-o", tmp_path / name, tmp_path / f"{name}.c", "-lm"], check=True)
        found = judge_all(host, f"check_deep_cpu_gemm -t 500ms -b {tmp_path / name}")
        assert [(one.reason, one.target) for one in found if one.verdict is CRIT] == [("DeepWrongResult", "cpu0")]
        assert said in found[0].message


@pytest.mark.slow
def test_memory_bandwidth(host, tmp_path):
    tool("cc")
    line = "check_deep_triad -t 200ms -s 8M"
    unjudged = judge(host, line)
    assert (unjudged.verdict, "speed not judged" in unjudged.message) == (Verdict.OK, True)
    assert judge(host, f"{line} -f 0.001").verdict is OK
    outcome = judge(host, f"{line} -f 100000")
    assert (outcome.verdict, outcome.reason) == (CRIT, "DeepSlow")
    table = tmp_path / "own.tsv"
    table.write_text("test-machine\thost_triad\tleast\t0.002\tGB/s\t5\t0\tmeasured here\n")
    known = host.with_settings({**host.settings, "NHC_DEEP_EXPECTED": str(table)})
    known.forget()
    outcome = judge(known, line)
    assert outcome.verdict is OK
    assert "expected at least 0.0019 (measured here)" in outcome.message
    table.write_text("test-machine\thost_triad\tleast\tmuch\tGB/s\t5\t0\tx\n")
    known.forget()
    outcome = judge(known, line)
    assert (outcome.reason, outcome.message) == ("DeepTable", f"{table}:1: expected: expected a number, not 'much'")


@pytest.mark.thorough
def test_arrays_that_do_not_hold_what_they_must(host, tmp_path):
    tool("cc")
    from nhc.core.data.reader import read

    source = read("triad.c")
    line = '    printf("array '
    assert source.count(line) == 1
    (tmp_path / "t.c").write_text(source.replace(line, f"    a[length / 2] *= 1.0000001;\n{line}"))
    subprocess.run(["cc", "-O1", "-pthread", "-o", tmp_path / "t", tmp_path / "t.c", "-lm"], check=True)
    outcome = judge(host, f"check_deep_triad -t 100ms -s 1M -f none -b {tmp_path / 't'}")
    assert (outcome.verdict, outcome.reason) == (CRIT, "DeepWrongResult")


def test_a_node_without_a_compiler(host):
    bare = FakeHost({"/proc/meminfo": "MemTotal: 9000000 kB\nMemFree: 9000000 kB\n"}, {}, dict(host.settings))
    outcome = judge(bare, "check_deep_triad")
    assert (outcome.verdict, outcome.reason) == (Verdict.SKIP, "CommandMissing")
    needed = bare.with_settings({**bare.settings, "NHC_DEEP_REQUIRE": "gcc"})
    assert judge(needed, "check_deep_triad").verdict is Verdict.UNKNOWN


@pytest.mark.slow
def test_memory(host):
    tool("stressapptest")
    outcome = judge(host, "check_deep_memory -t 2s -s 32M")
    assert (outcome.verdict, outcome.reason) == (OK, "")
    tool("memtester")
    outcome = judge(host, "check_deep_memory -e memtester -s 2M")
    assert (outcome.verdict, outcome.reason) == (OK, "")
    assert "passed" in outcome.message


@pytest.mark.slow
def test_memory_tests_that_were_ended(host):
    tool("memtester")
    thread = killer("memtester", "memtester 61M 1", after=0.3)
    outcome = judge(host, "check_deep_memory -e memtester -s 61M")
    thread.join()
    assert outcome.verdict is UNKNOWN
    tool("stressapptest")
    thread = killer("stressapptest", "stressapptest -s 31", after=1.0)
    outcome = judge(host, "check_deep_memory -t 31s -s 16M")
    thread.join()
    assert outcome.verdict is UNKNOWN


SAT = "Stats: SAT revision 1.0.6\nStats: Completed: 9.00M in {s}s 3.55MB/s, with {h} hardware incidents, {e} errors\n\nStatus: {status}\n"
PASS, FAIL = "PASS - please verify no corrected errors", "FAIL - test discovered HW problems"


@pytest.mark.parametrize(
    ("text", "status", "verdict"),
    [
        (SAT.format(s=5.0, h=0, e=0, status=PASS), 0, OK),
        (SAT.format(s=5.0, h=1, e=0, status=FAIL), 1, CRIT),
        (SAT.format(s=5.0, h=0, e=3, status=PASS), 0, CRIT),
        (SAT.format(s=1.0, h=0, e=0, status=PASS), 0, UNKNOWN),
        (SAT.format(s=5.0, h=0, e=0, status="FAIL - test encountered procedural errors"), 1, UNKNOWN),
        ("Stats: SAT revision 1.0.6\nStatus: " + PASS, 0, UNKNOWN),
    ],
)
def test_memory_by_what_stressapptest_says(text, status, verdict):
    from nhc.core.host import Completed

    assert fake(Completed(status, text), "stressapptest", "check_deep_memory -t 5s -s 8M").verdict is verdict


def test_what_the_memory_controllers_count_meanwhile_counts():
    from nhc.core.host import Completed

    base = "/sys/devices/system/edac/mc/mc0"
    system = FakeHost({"/proc/meminfo": "MemTotal: 9000000 kB\nMemFree: 9000000 kB\n", f"{base}/ce_count": "1\n", f"{base}/ue_count": "0\n"},
                      settings={"NHC_DEEP_RUN": "r"})  # fmt: skip

    def test(argv, stdin):
        system.write(f"{base}/ue_count", "2\n")
        return Completed(0, SAT.format(s=5.0, h=0, e=0, status=PASS))

    system.system.commands[("stressapptest",)] = test
    found = judge_all(system, "check_deep_memory -t 5s -s 8M")
    assert [(one.verdict, one.reason) for one in found] == [(OK, ""), (CRIT, "DeepMemoryErrors")]


@pytest.mark.slow
def test_disk(host):
    tool("fio")
    outcome = judge(host, "check_deep_disk -s 8M -b")
    assert (outcome.verdict, outcome.reason) == (OK, "")
    assert {"disk_write", "disk_read"} <= {metric.name for metric in outcome.metrics}
    outcome = judge(host, "check_deep_disk -s 8M -b -w 1000")
    assert (outcome.verdict, outcome.reason) == (CRIT, "DeepSlow")


@pytest.fixture
def small(tmp_path):
    """A file system of 6 MB."""
    need("root", os.geteuid() == 0, "to mount a file system")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_without_room(host, small):
    tool("fio")
    outcome = judge(host, f"check_deep_disk -d {small} -s 8M")
    assert (outcome.verdict, outcome.reason) == (UNKNOWN, "DeepNoRoom")


@pytest.mark.thorough
def test_a_disk_that_fills_up_meanwhile(host, small):
    """Somebody else writes as well: fio's own error says so."""
    tool("fio")
    (small / "other").write_bytes(b"x" * (4 << 20))
    real = host.statvfs
    host.statvfs = lambda path: real("/")
    outcome = judge(host, f"check_deep_disk -d {small} -s 4M -b")
    assert (outcome.verdict, outcome.reason) == (UNKNOWN, "DeepNoRoom")
    assert "filled up" in outcome.message


@pytest.mark.thorough
def test_a_block_that_changed_on_the_disk(host, tmp_path):
    """A real verification failure: fio wrote, another program turned a byte, fio reads it back."""
    tool("fio")
    from nhc.node.checks.deep_disk import judge as judge_disk

    common = ["fio", "--name=v", f"--filename={tmp_path}/v", "--size=1M", "--bs=4k", "--verify=crc32c", "--rw=write",
              f"--aux-path={tmp_path}", "--output-format=json"]  # fmt: skip
    subprocess.run([*common, "--do_verify=0"], check=True, capture_output=True, cwd=tmp_path)
    with open(tmp_path / "v", "r+b") as file:
        file.seek(5000)
        file.write(b"\xff\x00\xff")
    done = subprocess.run([*common, "--verify_only"], capture_output=True, text=True, cwd=tmp_path)
    from nhc.core.host import Completed

    outcome = judge_disk(host, "/x", 1 << 20, Completed(done.returncode, done.stdout, done.stderr),
                         fio_output.parse_fio(done.stdout), None, None)  # fmt: skip
    assert (outcome.verdict, outcome.reason) == (CRIT, "DeepWrongData")


@pytest.mark.thorough
def test_network_over_loopback(host):
    tool("iperf3")
    outcome = judge(host, "check_deep_network -t 1s")
    assert (outcome.verdict, outcome.reason) == (OK, "")
    assert outcome.metrics[0].name == "net_loopback"
    refused = judge(host, "check_deep_network -t 1s -H 127.0.0.1 -p 1")
    assert (refused.verdict, refused.reason) == (UNKNOWN, "DeepToolFailed")
    assert "refused" in refused.message


@pytest.mark.thorough
def test_pingpong_of_libfabric_over_tcp(host):
    """The two ends as check_deep_efa runs them, with another provider: EFA is Amazon's own."""
    tool("fi_pingpong")
    from nhc.node.checks.deep_rdma import judge_pingpong, ping

    done = ping(host, ["fi_pingpong", "-p", "tcp", "-e", "msg", "-I", "5"], 47321)
    outcome = judge_pingpong(done, "lo")
    assert (outcome.verdict, outcome.reason) == (OK, ""), done


def test_perftest_without_an_adapter(host):
    tool("ib_write_bw")
    from nhc.node.checks import deep_rdma
    from nhc.node.facts.infiniband import Port

    done = deep_rdma._both(host, ["ib_write_bw", "-d", "mlx5_0", "-F"], 47421, 20.0)
    outcome = deep_rdma._bandwidth(
        host, Port("mlx5_0", 1, "ACTIVE", "LinkUp", 400.0, "InfiniBand", "", ""), 65536, done, None
    )
    assert (outcome.verdict, outcome.reason) == (UNKNOWN, "DeepToolFailed")


@pytest.mark.thorough
def test_heat_and_clocks_under_load(host):
    tool("stress-ng")
    [outcome] = judge_all(host, "check_deep_thermal -t 1s")
    assert outcome.verdict in (OK, Verdict.SKIP, WARN)


def test_thermal_events_of_processors_are_told():
    from nhc.core.host import Completed

    path = "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    system = FakeHost({path: "7\n"}, settings={"NHC_DEEP_RUN": "r"})

    def load(argv, stdin):
        system.write(path, "9\n")
        return Completed(0, "", STRESS)

    system.system.commands[("stress-ng",)] = load
    outcome = judge(system, "check_deep_thermal -t 2s")
    assert (outcome.verdict, outcome.reason) == (WARN, "DeepThrottled")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the real tools print of a run that is good, by the line of the check that judges it."""
    place = tmp_path_factory.mktemp("printed")
    host = Host(settings={"NHC_DEEP_RUN": "test", "NHC_DEEP_SCRATCH": str(place)})
    found = {}
    for name, line in (
        ("stress-ng", "check_deep_cpu -t 1s -s cpu=1"), ("stressapptest", "check_deep_memory -t 2s -s 8M"),
        ("memtester", "check_deep_memory -e memtester -s 1M"), ("fio", "check_deep_disk -s 2M -b"),
        ("iperf3", "check_deep_network -t 1s"),
    ):  # fmt: skip
        tool(name)
        kept = {}

        class Keeping(Host):
            def run(self, argv, timeout=5.0, stdin="", during=None, kept=kept, name=name):
                done = super().run(argv, timeout, stdin, during)
                if argv[0] == name:
                    kept["done"] = done
                return done

        seen = Keeping(settings=host.settings)
        # A machine that is busy enough cuts a test short, which is UNKNOWN.
        until(lambda seen=seen, line=line: judge(seen, line).verdict is OK, 120, what=name)
        found[line] = (name, kept["done"])
    return found


@pytest.mark.slow
@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_an_output_that_is_cut_off_is_neither_good_nor_bad(printed, data):
    line = data.draw(st.sampled_from(sorted(printed)))
    name, done = printed[line]
    text = done.stdout or done.stderr
    last = text.rstrip().rfind("\n") if name not in ("fio", "iperf3") else len(text.rstrip()) - 1
    cut = text[: data.draw(st.integers(0, last - 1))]
    short = done._replace(stdout=cut if done.stdout else "", stderr=cut if done.stderr else "")
    node = FakeHost({"/proc/meminfo": "MemTotal: 9000000 kB\nMemFree: 9000000 kB\n", "/proc/mounts": ""},
                    {name: short, "sh": "", "sleep": ""}, {"NHC_DEEP_RUN": "r", "NHC_DEEP_SCRATCH": "/"})  # fmt: skip
    node.system.filesystems["/"] = Host().statvfs("/")
    node.system.monotonic = iter(range(0, 10_000, 60)).__next__
    assert judge(node, line).verdict is UNKNOWN
