"""Whose fault a job's end is, by its log: real logs of torch 2.11 and torchrun on an H100 (logs/), lines of others."""

import subprocess
import sys
from pathlib import Path

import pytest

from nhc.jobs.program_faults import LIMIT, PROGRAM, SCHEDULER, UNKNOWN, ProgramFaults
from nhc.jobs.watch_judge import JobWatch

LOGS = Path(__file__).parent / "logs"


def watched(lines):
    watch = JobWatch()
    for line in lines:
        watch.line(line)
    return watch.findings()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("oom", "the program ended it, no node: out of the GPU's memory"),
        ("assertf", "the program ended it, no node: an assertion in a GPU kernel failed"),
        ("ill", "the program ended it, no node: a GPU kernel used an address that it may not"),
        ("segv", "the program ended it, no node: the program crashed (SIGSEGV)"),
        ("kill", "who ended it is not known: it was killed by SIGKILL: a memory limit, the scheduler or a person"),
        ("gloo", "1 rank waited for others in vain: Timed out waiting 6000ms for recv operation"),
        ("nccl2", "the program ended it, no node: two ranks use one GPU"),
        ("nan", "NaN at step 20"),
    ],
)
def test_no_real_log_of_a_programs_fault_names_a_node(name, said):
    found = watched((LOGS / f"{name}.log").read_text().splitlines())

    assert found.suspects == ()
    assert any(one.startswith(said) for one in found.job), found.job


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.",
            LIMIT,
        ),
        ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-23T02:46:12 DUE TO TIME LIMIT ***", LIMIT),
        ("slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-23T02:46:12 DUE TO PREEMPTION ***", SCHEDULER),
        ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-23T02:46:12 ***", SCHEDULER),
        ("OSError: [Errno 122] Disk quota exceeded: '/scratch/ckpt'", LIMIT),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes",
            PROGRAM,
        ),
        ("E1123 api.py:986] failed (exitcode: -9) local_rank: 0 (pid: 1) of binary: python", UNKNOWN),
    ],
)
def test_who_ended_a_job_is_said(line, owner):
    assert ProgramFaults().line(line).owner == owner


@pytest.mark.parametrize(
    "line",
    [
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",  # advice
        "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-23T02:46:12 DUE TO NODE FAILURE ***",
        "torch.AcceleratorError: CUDA error: unspecified launch failure",
        "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)",
        "Killed",
        "step 20 | loss 2.31 | grad norm 0.7",
    ],
)
def test_what_is_not_the_programs_is_not_called_so(line):
    assert ProgramFaults().line(line) is None


def traceback(prefix, last):
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    step()", last]
    return [prefix + line for line in lines]


@pytest.mark.parametrize("prefix", ["", "[rank17]: ", "17: "])
def test_a_traceback_ends_with_its_exception_whatever_its_name(prefix):
    reader = ProgramFaults()

    found = [reader.line(line) for line in traceback(prefix, "mylib.errors.ShapeMismatch: (3, 4) is not (4, 3)")]

    assert found[:3] == [None] * 3
    assert (found[3].owner, found[3].what) == (PROGRAM, "ShapeMismatch: (3, 4) is not (4, 3)")


@pytest.mark.parametrize(
    "last",
    ["torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp", "ConnectionResetError: [Errno 104] x",
     "RuntimeError: CUDA error: unspecified launch failure", "OSError: [Errno 116] Stale file handle",
     "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"],
)  # fmt: skip
def test_an_exception_that_passes_on_what_others_said_is_not_the_programs(last):
    reader = ProgramFaults()
    assert [reader.line(line) for line in traceback("", last)] == [None] * 4


def test_ranks_that_write_between_one_anothers_lines_have_tracebacks_of_their_own():
    reader = ProgramFaults()
    one, other = traceback("[rank1]: ", "KeyError: 'lr'"), traceback("[rank12]: ", "ValueError: 7")
    found = [reader.line(line) for pair in zip(one, other) for line in pair]

    assert [fault.what for fault in found if fault] == ["KeyError: 'lr'", "ValueError: 7"]


def test_a_device_that_fails_in_the_same_log_is_named_all_the_same():
    lines = [*traceback("[rank3]: ", "KeyError: 'lr'"), "[rank5]: CUDA error: uncorrectable ECC error encountered"]

    found = watched(lines)

    assert [one.node for one in found.suspects] == ["rank 5"]
    assert found.job == ("the program ended it, no node: KeyError: 'lr'",)


def test_the_rank_that_failed_first_is_named_where_the_log_has_no_better_cause():
    block = ["Root Cause (first observed failure):", "[0]:", "  time      : x", "  host      : n7",
             "  rank      : 5 (local_rank: 1)"]  # fmt: skip

    assert [one.node for one in watched(block).suspects] == ["n7"]
    assert watched([*traceback("[rank5]: ", "KeyError: 'lr'"), *block]).suspects == ()


@pytest.mark.thorough
def test_a_log_is_read_without_the_stores_libraries():
    code = "import sys; sys.modules['sqlalchemy'] = None; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "job", "watch", str(LOGS / "oom.log")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=LOGS.parents[2])

    assert (done.returncode, done.stderr) == (1, "")
    assert "out of the GPU's memory" in done.stdout
