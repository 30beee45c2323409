"""Whose fault a job's end is, by its log: real logs of torch 2.11 and torchrun on an H100 (logs/), lines of others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.timestamps import from_iso
from nhc.jobs.log_events import JobLogReader, stamp, survived
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


def read(*lines):
    reader = JobLogReader("train.log", 2026)
    return [event for event in map(reader.line, lines) if event]


def traceback(prefix, last):
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    step()", last]
    return [prefix + line for line in lines]


@pytest.mark.parametrize("prefix", ["", "[rank17]: ", "17: "])
def test_a_traceback_ends_with_its_exception_whatever_its_name(prefix):
    (event,) = read(*traceback(prefix, "mylib.errors.ShapeMismatch: (3, 4) is not (4, 3)"))

    assert (event.cause, event.role, event.message) == ("program", "initiating", "ShapeMismatch: (3, 4) is not (4, 3)")
    assert event.rank == (17 if prefix else -1)


@pytest.mark.parametrize(
    "last",
    ["torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp", "ConnectionResetError: [Errno 104] x",
     "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer", "TimeoutError: no answer",
     "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "],
)  # fmt: skip
def test_an_exception_that_passes_on_what_others_reported_is_a_cascade(last):
    assert [event.role for event in read(*traceback("", last))] == ["cascade"]


def test_a_worker_of_a_data_loader_shows_its_own_traceback_within_anothers():
    events = read(
        *traceback("", "RuntimeError: Caught KeyError in DataLoader worker process 0."),
        "Original Traceback (most recent call last):",
        '  File "loader.py", line 7, in fetch',
        "KeyError: 'pixels'",
    )

    assert [event.message for event in events][-1] == "KeyError: 'pixels'"


def test_a_group_of_exceptions_is_read_too():
    lines = ["  + Exception Group Traceback (most recent call last):", '  |   File "a.py", line 3, in <module>',
             "  | ExceptionGroup: two of them (2 sub-exceptions)"]  # fmt: skip
    assert [event.message for event in read(*lines)] == ["ExceptionGroup: two of them (2 sub-exceptions)"]


def test_an_exception_that_python_ignores_ended_nothing():
    lines = ["Exception ignored in: <function Loader.__del__ at 0x7f0>", *traceback("", "AttributeError: comm")]
    assert [event.role for event in read(*lines)] == ["cascade"]
    assert [event.role for event in read(*lines, *traceback("", "KeyError: 'lr'"))] == ["cascade", "initiating"]


def test_a_traceback_that_rich_has_drawn_is_read_too():
    lines = ["╭───────────────── Traceback (most recent call last) ─────────────────╮",
             '│ ❱ 12     raise Stop("CUDA out of memory")                           │', "╰──────────╯",
             "KeyError: 'backend'"]  # fmt: skip
    assert [event.message for event in read(*lines)] == ["KeyError: 'backend'"]


def test_the_rank_of_a_line_that_mpirun_has_tagged_is_read():
    (event,) = read(
        "Sun Jan 28 12:09:59 2018[1,279]<stderr>:[n7:16633:0:16633] Caught signal 11 (Segmentation fault: x)"
    )
    assert event.rank == 279


def test_an_exception_of_a_library_that_nobody_caught_is_a_cascade():
    events = read("terminate called after throwing an instance of 'std::runtime_error'",
                  "terminate called after throwing an instance of 'std::out_of_range'")  # fmt: skip
    assert [event.role for event in events] == ["cascade", "initiating"]


def test_source_code_that_a_traceback_shows_is_no_message():
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>',
             '    raise Stop("CUDA out of memory, or No space left on device")', "Stop: by hand"]  # fmt: skip
    assert [event.message for event in read(*lines)] == ["Stop: by hand"]


def test_ranks_that_write_between_one_anothers_lines_have_tracebacks_of_their_own():
    one, other = traceback("[rank1]: ", "KeyError: 'lr'"), traceback("[rank12]: ", "ValueError: 7")
    events = read(*(line for pair in zip(one, other) for line in pair))

    assert [(event.rank, event.message) for event in events] == [(1, "KeyError: 'lr'"), (12, "ValueError: 7")]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-11-23T02:46:12.5Z"}),
        lambda line: json.dumps({"labels": {"pod": "a"}, "line": line, "timestamp": "2026-11-23T02:46:12.5Z"}),
        lambda line: json.dumps({"timestamp": 1795401972500, "message": line}),
        lambda line: f"2026-11-23T02:46:12.5Z stderr F {line}",
    ],
    ids=["docker", "loki", "cloudwatch", "cri"],
)
def test_a_traceback_that_a_collector_kept_is_the_programs(wrap):
    (event,) = read(*map(wrap, traceback("[rank17]: ", "ValueError: 7")))

    assert (event.cause, event.rank, event.message) == ("program", 17, "ValueError: 7")
    assert event.at == from_iso("2026-11-23T02:46:12.5Z")


def test_what_a_logger_wrote_beside_its_message_still_counts():
    reader = JobLogReader()
    reader.line('{"message": "training", "step": 7, "loss": 2.0}')
    assert reader.step == 7


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("2026-11-23T02:46:12Z x", "2026-11-23T02:46:12Z"),
        ("[2026-11-23 02:46:33,500] [INFO] x", "2026-11-23 02:46:33.5"),
        ("  time      : 2026-11-23_02:45:49", "2026-11-23 02:45:49"),
        ("[rank0]:[E1123 02:46:43.100000 ProcessGroupNCCL.cpp:2057] x", "2026-11-23 02:46:43.1"),
        ("2026-11-23T02:46:12+05:30 x", "2026-11-23T02:46:12+05:30"),
        ("2026/11/23 02:46:12 x", "2026-11-23 02:46:12"),
        ("11/23/2026 02:46:12 - INFO - x", "2026-11-23 02:46:12"),
        ("23/11/2026 02:46:12 - INFO - x", "2026-11-23 02:46:12"),
        ("Nov 23 02:46:12 n1 python[7]: x", "2026-11-23 02:46:12"),
        ("Mon Nov 23 02:46:12 2025 x", "2025-11-23 02:46:12"),
        ("1795401972.250 x", "2026-11-23T02:46:12.25Z"),
        ("[rank4]:[E602 11:18:52.500000000 ProcessGroupNCCL.cpp:684] x", "2026-06-02 11:18:52.5"),
    ],
)
def test_the_time_of_a_line_is_read_in_each_form(line, at):
    assert stamp(line, 2026) == pytest.approx(from_iso(at))


@pytest.mark.parametrize(
    "line",
    [
        "step 20 | 12:30:00",
        "44/44/2026 02:46:12",
        "Nov 77 02:46:12",
        "1795401972 x",
        "E9999 99:99:99 x",
        "2026-13-45 00:00:00",
        "id 12026-11-23 01:02:03",
    ],
)
def test_what_is_no_time_is_none(line):
    assert stamp(line, 2026) is None


def test_an_event_has_the_time_of_the_last_line_that_had_one():
    (event,) = read("2026-11-23T02:46:12Z saving", "OSError: [Errno 28] No space left on device: '/x'")
    assert event.at == from_iso("2026-11-23T02:46:12Z")


def test_what_the_job_went_on_after_did_not_end_it():
    reader = JobLogReader()
    events = [reader.line(line) for line in ("step 7 | loss 2.0", "torch.OutOfMemoryError: CUDA out of memory.",
                                             "step 8 | loss 2.0", "step 9 | loss 2.0")]  # fmt: skip
    assert survived(events[1], reader.step)
    assert not survived(events[1], 8)


@given(st.text())
def test_no_line_is_too_strange(line):
    JobLogReader().line(line)
    stamp(line, 2026)


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
