"""`nhc job watch`: the suspects of a job by its log and its flight records, and what must not name anybody."""

from __future__ import annotations

import json
import pickle
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.system.foreign_text import Unreadable, read_apart
from nhc.jobs import flight_record
from nhc.jobs.flight_record import BadFlightRecord, lags
from nhc.jobs.watch_judge import JobWatch
from nhc.jobs.watch_log import JobLineKind, read_line
from tests.support.run import nhc
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
MAP = {rank: f"n{rank // 2 + 1}" for rank in range(8)}
WATCHDOG = (
    "[rank{rank}]:[E1122 10:00:00.123 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for "
    "600029 milliseconds before timing out."
)
MEGATRON = (
    " iteration      100/  500000 | consumed samples: 25600 | elapsed time per iteration (ms): 1234.5 | learning rate: "
    "1.0E-04 | lm loss: 7.8E+00 | grad norm: 1.2 |"
)


def judged(lines, behind=(), nodes=MAP):
    watch = JobWatch(nodes)
    for line in lines:
        watch.line(line)
    return watch.findings(behind)


@pytest.mark.parametrize(
    ("line", "kind", "rank", "node", "value"),
    [
        (MEGATRON, JobLineKind.TIME, -1, "", 1.2345),
        ("[rank3]: step 12 loss 2.5", JobLineKind.LOSS, 3, "", 2.5),
        ("{'loss': 1.25, 'grad_norm': 0.4, 'learning_rate': 5e-05, 'epoch': 0.1}", JobLineKind.LOSS, -1, "", 1.25),
        ("5: step=9 loss=nan", JobLineKind.NAN, 5, "", 0.0),
        (WATCHDOG.format(rank=3), JobLineKind.WATCHDOG, 3, "", 57.0),
        ("n4:1484:1484 [1] NCCL INFO comm 0x55d0 rank 7 nranks 8 cudaDev 1 nvmlDev 1 busId 43000 - Init COMPLETE",
         JobLineKind.MAP, 7, "n4", 8.0),
        ("#  Rank  5 Group  0 Pid  14841 on  n3    device  1 [0000:43:00] NVIDIA H100", JobLineKind.MAP, 5, "n3", 0.0),
    ],
)  # fmt: skip
def test_lines_of_each_form(line, kind, rank, node, value):
    found = [one for one in read_line(line) if one.kind is kind]
    assert [(one.rank, one.node, one.value) for one in found] == [(rank, node, pytest.approx(value))]


@pytest.mark.parametrize(
    "line",
    ["", "loading the nanotron checkpoint", "loss function: cross entropy", "NCCL INFO Using network IB", "an Xid",
     "infinite data loader ready", "rank 3 joined", "nan_to_num is on"],
)  # fmt: skip
def test_other_lines_say_nothing(line):
    assert [one for one in read_line(line) if one.kind is not JobLineKind.STEP] == []


@given(st.text())
def test_no_line_is_too_strange(line):
    JobWatch().line(line)


def test_the_rank_that_reports_no_timeout_is_the_one_that_was_waited_for():
    found = judged([WATCHDOG.format(rank=rank) for rank in range(8) if rank != 5])
    assert [one.node for one in found.suspects] == ["n3"]
    assert "waited in vain" in found.suspects[0].why[0]


def test_a_timeout_of_all_names_nobody():
    assert judged([WATCHDOG.format(rank=rank) for rank in range(8)]).suspects == ()


def test_nan_of_one_rank_is_its_and_of_all_is_the_jobs():
    one = judged(["[rank4]: found NaN in local grad norm"])
    assert [suspect.node for suspect in one.suspects] == ["n3"]
    every = judged([f"[rank{rank}]: step 7 loss nan" for rank in range(8)])
    assert every.suspects == ()
    assert "NaN" in every.job[0]


def test_a_jump_of_the_loss_is_said_once_and_noise_is_none():
    steady = [f"step {at} loss {2.0 + 0.01 * (at % 7)}" for at in range(60)]
    assert judged(steady).job == ()
    assert judged([f"step {at} loss {10.0 / (at + 1)}" for at in range(60)]).job == (), "a loss that falls"
    (said,) = judged([*steady, "step 60 loss 9.5", "step 61 loss 9.1"]).job
    assert "jumped to 9.5 at step 60" in said


def test_a_straggler_is_slow_on_most_steps_and_not_once():
    times = [f"[rank{rank}]: step {at} step_time: {1.5 if rank == 6 else 1.0} s"
             for at in range(10) for rank in range(8)]  # fmt: skip
    (one,) = judged(times).suspects
    assert (one.node, one.ranks) == ("n4", (6,))
    once = [f"[rank{rank}]: step {at} step_time: {9.0 if (rank, at) == (6, 3) else 1.0} s"
            for at in range(10) for rank in range(8)]  # fmt: skip
    assert judged(once).suspects == ()


def test_the_strongest_evidence_comes_first():
    lines = [
        "n2:14840:14840 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<47623> with status=12",
        "[rank6]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
        *(WATCHDOG.format(rank=rank) for rank in range(8) if rank != 6),
    ]
    found = judged(lines)
    assert [one.node for one in found.suspects] == ["n4", "n2"]
    assert found.suspects[0].score > found.suspects[1].score


def test_torchruns_root_cause_names_the_first_failure():
    block = ["Root Cause (first observed failure):", "[0]:", "  time      : 2026-11-22", "  host      : n2.example",
             "  rank      : 3 (local_rank: 1)", "  exitcode  : -9 (pid: 77)"]  # fmt: skip
    (one,) = judged(block, nodes={}).suspects
    assert one.node == "n2.example"
    assert judged(["  rank      : 5 (local_rank: 1)"]).suspects == (), "others that were ended with it"


# Flight records.


def a_record(rank, number, completed=None, ranks=8, **more):
    ended = number - 1 if completed is None else completed
    entries = [
        {"frames": [{"name": "f", "filename": "t.py", "line": 1}], "record_id": at, "pg_id": 0,
         "process_group": ("0", "default_pg"), "collective_seq_id": at, "p2p_seq_id": 0,
         "profiling_name": "nccl:all_reduce", "input_sizes": [[8]], "state": "completed" if at <= ended else "started",
         "is_p2p": False, **more}
        for at in range(max(1, number - 3), number + 1)
    ]  # fmt: skip
    return {"version": "2.4", "entries": entries,
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}}  # fmt: skip


def records(numbers, form=pickle.dumps, **more):
    return [flight_record.read(form(a_record(rank, number, **more)), rank) for rank, number in numbers.items()]


def as_json(value):
    return json.dumps(value).encode()


@pytest.mark.thorough
@pytest.mark.parametrize("form", [pickle.dumps, as_json])
def test_who_has_not_come_to_the_collective_is_named(form):
    numbers = {rank: 57 if rank != 5 else 56 for rank in range(8)}
    (lag,) = lags(records(numbers, form))
    assert lag.rank == 5
    assert "nccl:all_reduce 57" in lag.why
    found = judged([], [lag])
    assert [one.node for one in found.suspects] == ["n3"]


@pytest.mark.thorough
def test_who_left_no_record_where_others_did_is_named():
    (lag,) = lags(records({rank: 57 for rank in range(8) if rank != 2}))
    assert (lag.rank, "left no flight record" in lag.why) == (2, True)


@pytest.mark.thorough
def test_records_that_agree_name_nobody():
    assert lags(records(dict.fromkeys(range(8), 57))) == []
    assert lags([]) == []


class Evil:
    def __reduce__(self):
        import os

        return (os.system, ("touch /tmp/nhc-flight-record-was-run",))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_something_is_refused(protocol):
    with pytest.raises(BadFlightRecord, match="system"):
        flight_record.read(pickle.dumps({"entries": [Evil()]}, protocol), 0)
    assert not Path("/tmp/nhc-flight-record-was-run").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # LONG_BINPUT
        b"Np2147483647\n.",
        b"\x80\x02]Nr\xff\xff\xff\x7f.",
        b"\x80\x04\x8d\xff\xff\xff\xff\x07\x00\x00\x00x.",  # BINUNICODE8 of 32 GB
        b"\x80\x04\x96\xff\xff\xff\xff\x07\x00\x00\x00x.",  # BYTEARRAY8
        b"\x80\x05\x97.",  # NEXT_BUFFER
        b"\x82\x01.",  # EXT1
        b"P1\n.",
    ],
)
def test_a_pickle_that_asks_for_memory_or_for_more_than_values_is_refused_before_it_is_loaded(content):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(BadFlightRecord, match=r"not read|cannot be read"):
        flight_record.read(content, 0)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before < 512 << 10


def test_a_number_of_a_million_digits_is_refused():
    content = pickle.dumps({"entries": [{"collective_seq_id": 1 << 4_000_000}]})
    with pytest.raises(BadFlightRecord, match="bits"):
        flight_record.read(content, 0)


def test_a_reading_is_bounded_in_memory_and_says_so():
    with pytest.raises(Unreadable, match="more than 256 MiB"):
        read_apart(lambda: len(b"x" * (1 << 30)), 20.0, 256 << 20)
    assert read_apart(lambda: len(b"x" * (16 << 20)), 20.0, 256 << 20) == 16 << 20
    with pytest.raises(Unreadable, match="within 1 s"):
        read_apart(lambda: signal.pause(), 1.0)
    with pytest.raises(Unreadable, match="KeyError"):
        read_apart(lambda: {}["x"], 20.0)


@pytest.mark.thorough
@given(st.binary(max_size=200))
def test_whatever_a_file_holds_is_one_line(content):
    with pytest.raises(BadFlightRecord):
        flight_record.read(content, 0)


def doubled(make, depth=60):
    """A value of a few hundred bytes that has 2**depth parts: each level holds the one below it twice."""
    value = make(("x", "y"))
    for _ in range(depth):
        value = make((value, value))
    return value


@pytest.mark.parametrize("make", [list, tuple])
@pytest.mark.parametrize("field", ["process_group", "pg_id", "collective_seq_id", "profiling_name"])
def test_a_list_of_shared_lists_is_refused_at_once(field, make):
    entry = {"collective_seq_id": 1, field: [doubled(make)] if field == "process_group" else doubled(make)}
    with pytest.raises(BadFlightRecord, match="where a name or a number stands"):
        flight_record.read(pickle.dumps({"entries": [entry]}), 0)


@pytest.mark.parametrize(
    "more",
    [
        {"pg_status": {"0": doubled(list)}},
        {"pg_status": {"0": {"last_enqueued_collective": doubled(list)}}},
        {"pg_config": {"0": {"ranks": [doubled(list)]}}},
        {"pg_config": {"0": {"ranks": {"x": doubled(list)}}}},
    ],
)
def test_shared_lists_in_the_other_fields_are_refused(more):
    with pytest.raises(BadFlightRecord):
        flight_record.read(pickle.dumps({"entries": [], **more}), 0)


@pytest.mark.thorough
def test_a_record_that_cannot_be_loaded_in_time_is_refused():
    """Its key is a tuple of shared tuples, whose hash has as many parts. Written by hand: pickle would hash it."""
    levels = b"".join(b"0h%ch%c\x86\x94" % (at, at) for at in range(1, 60))
    content = b"\x80\x04}(" + b"K\x01\x940h\x00h\x00\x86\x94" + levels + b"K\x01u."
    with pytest.raises(BadFlightRecord, match="within 2 s"):
        flight_record.read(content, 0, 2.0)


@pytest.mark.thorough
@given(st.integers(0, 400))
def test_a_record_that_is_cut_off_is_refused(at):
    whole = pickle.dumps(a_record(0, 57))
    with pytest.raises(BadFlightRecord):
        flight_record.read(whole[: min(at, len(whole) - 1)], 0)


# The command.


@pytest.mark.thorough
def test_the_command_reads_a_log_and_records_and_keeps_the_order(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("\n".join(["step 12 loss 2.5", *(WATCHDOG.format(rank=rank) for rank in range(8) if rank != 5)]))
    (tmp_path / "dumps").mkdir()
    for rank in range(8):
        path = tmp_path / "dumps" / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(a_record(rank, 56 if rank == 5 else 57)))
    done = nhc("job", "watch", log, "--flight-records", tmp_path / "dumps", "--nodes", "n[1-4]", "--per-node", "2",
               "--job", "17", "--store", f"sqlite:///{tmp_path}/store.db")  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert "  1. n3 (15)" in done.stdout
    assert f"test first: nhc deep sweep --job 17 --store sqlite:///{tmp_path}/store.db\n" in done.stdout
    with closing(sqlite3.connect(tmp_path / "store.db")) as store, store:
        ((what, detail),) = store.execute("select what, detail from audit")
    assert what == "job.suspects"
    assert json.loads(detail)["suspects"][0]["node"] == "n3"
    assert json.loads(detail)["nodes"] == "n[1-4]"
    printed = nhc("job", "watch", log, "--flight-records", tmp_path / "dumps", "--nodes", "n[1-4]", "--per-node", "2")
    assert "test first: nhc deep sweep -w n[1-4] --suspects n3\n" in printed.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("content", "status"),
    [("step 1 loss 2.0\nstep 2 loss 1.9\n", 0), ("hello\n", 3), ("", 3), ("step 3 loss nan\n", 1)],
)
def test_exit_status(tmp_path, content, status):
    (tmp_path / "log").write_text(content)
    assert nhc("job", "watch", tmp_path / "log").returncode == status


@pytest.mark.thorough
def test_what_is_wrong_is_one_line(tmp_path):
    for words, said in (
        ([tmp_path / "none"], "No such file"),
        (["--nodes", "n[1-"], "--nodes:"),
        (["--flight-records", tmp_path / "none"], "No such file"),
        (["--follow", "a", "b"], "--follow takes one log"),
    ):
        done = nhc("job", "watch", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert said in done.stderr
    (tmp_path / "ranks").write_text("0 n1\nx n2\n")
    assert ":2: 'x n2' is not 'RANK NODE'" in nhc("job", "watch", "--ranks", tmp_path / "ranks").stderr
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": [Evil()]}))
    refused = nhc("job", "watch", "--flight-records", tmp_path / "trace_0")
    assert refused.returncode == 3
    assert "which no flight record needs" in refused.stderr


@pytest.mark.thorough
def test_a_hang_is_seen_while_the_log_is_followed(tmp_path):
    log = tmp_path / "log"
    log.write_text("[rank0]: step 1 loss 2.0\n")
    argv = [sys.executable, "-m", "nhc", "job", "watch", str(log), "--follow", "--hang-after", "1s"]
    with (tmp_path / "err").open("w") as err:
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err, text=True, cwd=ROOT)
    try:
        for step in range(2, 5):
            with log.open("a") as file:
                file.write(f"[rank0]: step {step} loss 2.0\n")
            time.sleep(0.2)
        said = re.compile(r"no progress for \S+ s after step 4")  # a machine that stood still may have seen one before
        until(lambda: said.search((tmp_path / "err").read_text()), what="the hang")
        child.send_signal(signal.SIGTERM)
        out, _err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 1
    assert "no progress" in out
