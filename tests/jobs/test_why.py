"""Why a job ended: which event is the cause, by the witnesses that there are; and what must blame no node."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.timestamps import utc
from nhc.jobs.log_catalogue import CASCADE, INITIATING
from nhc.jobs.why import CGROUP, CHECKS, KERNEL, LOG, RECORD, Clue, judge_end
from nhc.jobs.why_logs import JobLogs, RankPlace, places, record_clues
from nhc.jobs.why_nodes import kernel_clues, memory_clues, shared
from nhc.marks.ports.job_control import JobEndRecord, JobLoss, JobName, LossCause
from nhc.node.facts.jobs_here import MemoryEvents
from nhc.store import deep, reports
from nhc.store.deep import DeepResult
from nhc.store.intake import Incoming
from tests.support.new_store import new_store
from tests.support.run import nhc

ROOT = Path(__file__).resolve().parents[2]
LOGS = Path(__file__).parent / "logs"
AT = 1_790_000_000.0


def logged(cause, at=0.0, kind="x", node="", where="train.log:1", role=INITIATING, order=0, rank=-1):
    return Clue(LOG, cause, role, kind, kind, AT + at, order, where, node, rank)


def kernel(cause, at=0.0, node="n1"):
    return Clue(KERNEL, cause, INITIATING, "xid/79", "Xid 79", AT + at, 0, node, node)


def recorded(cause, at=0.0, node=""):
    return Clue(RECORD, cause, INITIATING, "FAILED", cause, AT + at, 0, "batch/17", node)


@pytest.mark.parametrize(
    ("clues", "cause", "sure"),
    [
        # the first initiating event, never a cascade, wherever it stands
        ([logged("program", 9, rank=17), logged("unknown", 0, role=CASCADE)], "program", "supported"),
        # "unspecified launch failure" seconds from Xid 79 on that node, and without it
        ([logged("gpu", 0, node="n1"), kernel("node", -3)], "node", "established"),
        ([logged("gpu", 0, node="n1"), kernel("node", -30, "n2")], "node", "established"),
        ([logged("gpu", 0, node="n1"), kernel("node", 1, "n2")], "unknown", "unknown"),
        ([logged("gpu", 0, node="n1"), kernel("node", -4000)], "unknown", "unknown"),
        # Xid 31 beside an illegal access is the program's; Xid 79 is the node's
        ([logged("program", 0, "cuda-illegal-address", "n1"), kernel("program")], "program", "established"),
        ([logged("program", 0, "cuda-illegal-address", "n1"), kernel("node")], "node", "established"),
        # a program's own exception and a broken node: the earlier; at once: both are shown
        ([logged("program", 0, node="n1"), kernel("node", 30)], "program", "supported"),
        ([logged("program", 0, node="n1"), kernel("node", -30, "n2")], "node", "established"),
        ([logged("program", 0, node="n1"), kernel("node", 2)], "unknown", "unknown"),
        # SIGKILL beside a kernel's record of that cgroup, and a bare one
        ([logged("unknown", 0, node="n1"), kernel("memory")], "memory", "established"),
        ([logged("unknown", 0, node="n1"), kernel("memory", 0, "n2")], "unknown", "unknown"),
        ([logged("unknown", 0, node="n1")], "unknown", "unknown"),
        # another job's OOM on the same node is no cause of a traceback
        ([logged("program", 0, node="n1"), kernel("memory")], "program", "supported"),
        ([logged("unknown"), recorded("memory")], "memory", "established"),
        ([logged("program", -60), recorded("memory")], "program", "supported"),
        # the time limit that ends a job which hangs since a rank's traceback is not the cause; an old one is
        ([logged("program", -1200), recorded("time")], "program", "supported"),
        ([logged("program", -8000), recorded("time")], "time", "established"),
        ([recorded("scheduler")], "scheduler", "established"),
        ([recorded("node", node="n1"), logged("program")], "node", "established"),
        ([kernel("node", -5)], "node", "supported"),
        ([logged("network"), kernel("network")], "network", "established"),
        ([logged("storage")], "storage", "supported"),
        ([], "unknown", "unknown"),
    ],
)
def test_the_first_initiating_event_is_the_cause(clues, cause, sure):
    verdict = judge_end(clues, AT)
    assert (verdict.cause if verdict.cause != "gpu" else "unknown", verdict.sure) == (cause, sure)


def test_two_ranks_of_two_logs_that_fail_at_once_for_different_reasons_are_both_shown():
    one, other = logged("program", where="a.log:3"), logged("node", 2, where="b.log:7")

    verdict = judge_end([one, other], AT)

    assert (verdict.cause, set(verdict.against)) == ("unknown", {one, other})
    assert judge_end([one, other._replace(at=AT + 20)], AT).cause == "program"
    assert judge_end([one, other._replace(where="a.log:9")], AT).cause == "program", "one log has an order"


def test_a_check_that_fails_on_another_node_after_the_end_blames_nobody():
    after = Clue(CHECKS, "node", INITIATING, "check_gpu/GpuLost", "GpuLost", AT + 30, 0, "n2", "n2")
    assert judge_end([logged("program", node="n1"), after], AT).cause == "program"


def test_what_a_node_shows_without_a_time_decides_nothing():
    assert judge_end([kernel("node")._replace(at=None), logged("gpu")], AT).cause == "unknown"


@pytest.mark.parametrize(
    ("events", "others", "cause"),
    [
        (MemoryEvents("g", 31, 2), [logged("unknown", kind="killed")], "memory"),
        (MemoryEvents("g", 31, 2), [logged("unknown", kind="killed")._replace(at=None)], "memory"),
        (MemoryEvents("g", 31, 2), [recorded("unknown")._replace(text="it was ended by signal 9")], "memory"),
        # what the kernel killed is not what a traceback speaks of; a limit that was reached kills nobody
        (MemoryEvents("g", 31, 2), [logged("program")], "program"),
        (MemoryEvents("g", 31, 0), [logged("unknown", kind="killed")], "unknown"),
        (MemoryEvents("g", 0, 0), [logged("unknown", kind="killed")], "unknown"),
    ],
)
def test_what_the_kernel_counts_of_the_jobs_memory_decides_a_bare_kill(events, others, cause):
    found = memory_clues("", events)
    assert len(found) == bool(events.at_limit)
    assert judge_end([*others, *found], AT).cause == cause


CLUES = st.lists(st.builds(
    Clue, st.sampled_from([LOG, RECORD, KERNEL, CHECKS, CGROUP]),
    st.sampled_from(["program", "memory", "time", "disk", "node", "gpu", "network", "storage", "scheduler", "unknown"]),
    st.sampled_from([INITIATING, CASCADE]), st.just("k"), st.just("t"), st.none() | st.floats(AT - 9000, AT + 9000),
    st.integers(0, 9), st.sampled_from(["a:1", "b:2"]), st.sampled_from(["", "n1", "n2"]),
), max_size=6)  # fmt: skip


@pytest.mark.thorough
@given(CLUES)
def test_no_node_is_blamed_without_a_clue_that_names_one_and_no_cascade_is_a_cause(clues):
    verdict = judge_end(clues, AT)
    if verdict.cause == "node":
        assert any(clue.cause == "node" and clue.role == INITIATING for clue in verdict.clues)
    if verdict.sure != "unknown":
        assert all(clue.role == INITIATING for clue in verdict.clues)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("oom", 0, "your program (supported): out of the GPU's memory"),
        ("assertf", 0, "your program (supported): an assertion in a GPU kernel failed"),
        ("ill", 0, "your program (supported): a GPU kernel used an address that it may not"),
        ("segv", 0, "your program (supported): the program crashed (SIGSEGV)"),
        ("kill", 3, "not known: it was killed by SIGKILL"),
        ("gloo", 3, "not known: the log has consequences only: a rank waited for others in vain"),
        ("nccl2", 0, "your program (supported): two ranks use one GPU"),
        ("nan", 3, "not known: the loss is not a number"),
    ],
)
@pytest.mark.thorough
def test_the_recorded_logs_of_an_h100(name, status, said):
    done = nhc("job", "why", str(LOGS / f"{name}.log"))

    assert done.returncode == status
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(said)
    assert lines[1].startswith("by: log ")
    assert "not read: scheduler, kernel log, checks" in lines[1]


def stamped(line, at):
    return f"{utc(at)} n1 kernel: {line}\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("xid", "answer", "sure", "status"),
    [
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "the node", "established", 1),
        ("31, pid=7, name=python, Ch 00000008, intr 00000000. MMU Fault", "your program", "established", 0),
    ],
)
def test_the_kernels_log_decides_what_a_launch_failure_was(tmp_path, xid, answer, sure, status):
    now = time.time() - 60
    log, kern = tmp_path / "train.log", tmp_path / "n1.kern"
    log.write_text(
        f"{utc(now)} step 7 | loss 2.0\n[rank3]: torch.AcceleratorError: CUDA error: unspecified launch failure\n"
    )
    kern.write_text(stamped(f"NVRM: Xid (PCI:0000:3b:00): {xid}", now + 2))

    done = nhc("job", "why", "-f", "json", "--nodes", "n1", "--kernel-log", f"n1={kern}", str(log))

    said = json.loads(done.stdout)
    jsonschema.validate(said, json.loads((ROOT / "docs/why.schema.json").read_text()))
    assert (done.returncode, said["answer"], said["sure"], said["node"]) == (status, answer, sure, "n1")
    assert [one["name"] for one in said["witnesses"] if not one["read"]] == ["scheduler", "checks"]


@pytest.mark.thorough
def test_a_rank_that_was_killed_beside_the_kernels_record_of_its_cgroup_is_the_memory_limits(tmp_path):
    now = time.time() - 60
    log, kern = tmp_path / "train.log", tmp_path / "n1.kern"
    log.write_text(f"{utc(now)} api.py:986] failed (exitcode: -9) local_rank: 0 (pid: 688) of binary: python\n")
    kern.write_text(stamped("Memory cgroup out of memory: Killed process 688 (python) total-vm:1kB", now - 1))

    done = nhc("job", "why", "--nodes", "n1", "--kernel-log", f"n1={kern}", str(log))

    assert done.returncode == 0
    assert done.stdout.startswith("your limits (memory) (established): ContainerOom")


@pytest.mark.thorough
def test_a_kernel_log_may_come_on_standard_input(tmp_path):
    now = time.time() - 60
    (tmp_path / "train.log").write_text(f"{utc(now)} api.py:986] failed (exitcode: -9) local_rank: 0 (pid: 688)\n")
    line = stamped("Memory cgroup out of memory: Killed process 688 (python) total-vm:1kB", now - 1)

    done = subprocess.run(
        [sys.executable, "-m", "nhc", "job", "why", "--nodes=n1", "--kernel-log=n1=-", str(tmp_path / "train.log")],
        input=line, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip

    assert done.stdout.startswith("your limits (memory) (established)")


def test_ranks_are_put_on_nodes_and_gpus_by_what_the_log_says():
    logs = JobLogs(("gpu1.site", "gpu2.site"))
    logs.read("a.log", [
        "gpu2:1484:1484 [1] NCCL INFO comm 0x55d0 rank 9 nranks 16 cudaDev 1 nvmlDev 1 busId 43000 - Init COMPLETE",
        "Root Cause (first observed failure):", "  time      : 2026-11-23_02:45:49", "  host      : gpu1",
        "  rank      : 3 (local_rank: 2)",
    ])  # fmt: skip

    assert logs.places == {9: RankPlace("gpu2.site", 1), 3: RankPlace("gpu1.site", 2)}


def test_localhost_is_the_node_that_the_job_ran_on():
    assert JobLogs(("n7",)).node("localhost") == "n7"
    assert JobLogs(("n7", "n8")).node("localhost") == ""


def test_what_the_job_went_on_after_is_not_its_end():
    logs = JobLogs()
    logs.read("a.log", ["step 7 | loss 2.0", "torch.OutOfMemoryError: CUDA out of memory.", "step 8 | loss 2.0",
                        "step 12 | loss 1.9"])  # fmt: skip
    assert judge_end(logs.clues()).cause == "unknown"


def record(cause, detail, **more):
    return JobEndRecord(JobName("batch", "", "17"), "FAILED", ("n1", "n2"), AT - 60, AT,
                        (JobLoss("", cause, detail, AT),), **more)  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "detail", "expected"),
    [
        (LossCause.LIMIT, "it reached its time limit", "time"),
        (LossCause.LIMIT, "it used more memory than it asked for", "memory"),
        (LossCause.LIMIT, "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi", "disk"),
        (LossCause.EXIT, "it was ended by signal 11", "program"),
        (LossCause.EXIT, "it ended with exit status 139", "program"),
        (LossCause.EXIT, "it ended with exit status 137", "unknown"),
        (LossCause.EXIT, "it ended with exit status 1", "unknown"),
        (LossCause.PREEMPTED, "it was preempted", "scheduler"),
        (LossCause.EVICTED, "DeletionByTaintManager: x", "scheduler"),
        (LossCause.NODE, "its node failed", "node"),
    ],
)
def test_what_a_scheduler_records_has_its_class(cause, detail, expected):
    assert [clue.cause for clue in record_clues(record(cause, detail))] == [expected]


def test_ranks_are_in_blocks_where_every_node_has_as_many():
    assert places(record(LossCause.EXIT, "", tasks=4))[3] == RankPlace("n2", 1)
    assert places(record(LossCause.EXIT, "", tasks=3)) == {}


def test_findings_of_storage_that_several_nodes_share_are_said():
    line = (
        "LustreError: 167-0: scratch-OST0003: This client was evicted by scratch-OST0003; "
        "in progress operations using this service will fail."
    )
    clues = [clue for node in ("n1", "n2") for clue in kernel_clues(node, [(line, AT)])]
    (said,) = shared(clues)
    assert said.endswith("on 2 nodes: n1, n2")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["no.log"], "no.log: No such file or directory"),
        (["17", "18"], "18: there is no such file, and one job at a time is asked for"),
        (["--nodes", "n[1-", str(LOGS / "oom.log")], "--nodes: "),
        (["--controller", "pbs", "17"], "there is no job controller called 'pbs'"),
    ],
)
def test_bad_input_is_one_line(words, complaint):
    done = nhc("job", "why", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.thorough
def test_a_log_that_is_a_fifo_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "fifo.log")
    done = nhc("job", "why", str(tmp_path / "fifo.log"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.thorough
def test_of_a_large_log_the_begin_and_the_end_are_read(tmp_path):
    log = tmp_path / "train.log"
    begin = "gpu2:1:1 [1] NCCL INFO comm 0x5 rank 9 nranks 16 cudaDev 1 nvmlDev 1 busId 43000 - Init COMPLETE\n"
    filler = ("x" * 2047 + "\n") * (5 << 10)
    log.write_text(begin + filler + "[rank9]: torch.OutOfMemoryError: CUDA out of memory.\n")

    done = nhc("job", "why", str(log))

    assert done.returncode == 0
    assert "out of the GPU's memory, rank 9, gpu2, GPU 1" in done.stdout
    assert "by: log train.log (begin and end):" in done.stdout, "its lines are not counted from the log's begin"


@pytest.mark.thorough
def test_a_log_is_read_without_the_stores_libraries():
    code = "import sys; sys.modules['sqlalchemy'] = None; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "job", "why", str(LOGS / "oom.log")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
def test_the_store_is_a_witness_of_the_nodes_and_says_what_was_done(tmp_path):
    """A real store: a GPU that is lost as the log says "unspecified launch failure", and a proof that failed later."""
    store = new_store(str(tmp_path))
    lost = CheckResult("check_gpu_lost", Outcome(Verdict.CRIT, "GpuLost", "GPU 3 has fallen off the bus", "gpu3"))
    with store.write() as connection:
        reports.receive(connection, [Incoming(Report("n1", "b", AT - 20, 1.0, (lost,)), "agent", AT - 20)])
        reports.receive(connection, [Incoming(Report("n2", "b", AT - 20, 1.0, ()), "agent", AT - 20)])
        deep.add(connection, [DeepResult("n1", "quick", "gemm", "", None, "", "CRIT", "wrong", AT + 900)])
    store.close()
    log = tmp_path / "train.log"
    log.write_text(f"{utc(AT)} [rank3]: torch.AcceleratorError: CUDA error: unspecified launch failure\n")
    words = ("job", "why", "-f", "json", str(log), "--nodes", "n[1-2]")

    alone, seen = nhc(*words), nhc(*words, "--store", f"sqlite:///{tmp_path}/store.db")
    nowhere = nhc(*words, "--store", f"sqlite:///{tmp_path}/none.db")

    assert json.loads(alone.stdout)["cause"] == "unknown"
    found = json.loads(seen.stdout)
    assert (seen.returncode, found["cause"], found["sure"], found["node"]) == (1, "node", "established", "n1")
    assert "GpuLost" in found["what"]
    assert any("quick was CRIT after the end" in line for line in found["done"])
    assert [one["read"] for one in json.loads(nowhere.stdout)["witnesses"] if one["name"] == "checks"] == [False]


def test_an_outage_that_fell_into_the_job_is_named_though_the_link_came_back():
    line = "mlx5_core 0000:1a:00.0 ibp26s0: Link {}"
    found = [c for c in kernel_clues("n1", [(line.format("down"), AT), (line.format("up"), AT + 60)])
             if c.kind == "link/Outage"]  # fmt: skip
    assert [(c.cause, c.node, c.at) for c in found] == [("network", "n1", AT)]
    assert "ibp26s0 was away for 1m" in found[0].text
    short = [(line.format("down"), AT), (line.format("up"), AT + 3)]
    assert not [c for c in kernel_clues("n1", short) if c.kind == "link/Outage"]
