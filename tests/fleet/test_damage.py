"""A history that is damaged, or that somebody else wrote: one line each, and nothing of it moves a terminal."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import zlib
from contextlib import closing

import pytest

from nhc.core.model import CheckResult, Report, crit, ok
from nhc.fleet import history
from nhc.fleet.node_result import NodeResult, line
from nhc.fleet.transport import Node
from tests.fleet.conftest import over
from tests.fleet.test_hostile_names import quiet
from tests.support.run import nhc


@pytest.fixture
def kept(tmp_path):
    """A history with two sweeps of 300 nodes."""
    path = tmp_path / "fleet.sqlite"
    made = history.SweepHistory(str(path))
    for sweep in range(2):
        number = made.begin("nhc fleet check", "0.1.0", 1000.0 + sweep, 300)
        for index in range(300):
            outcome = crit("Bad", f"bad {index}") if index % 50 == sweep else ok("fine")
            report = Report(f"n{index:03}", "b", 1000.0, 0.1, (CheckResult("check_x", outcome),))
            text = line(NodeResult(Node(report.host), report, 0.1))
            made.add(number, report.host, int(report.verdict), 0.1, zlib.compress(text.encode()))
        made.end(number)
    made.db.execute("pragma wal_checkpoint(truncate)")
    made.close()
    return path


def one_line_or_well(done, path):
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert quiet(done.stdout)
    if done.returncode == 2:
        (said,) = done.stderr.splitlines()
        assert said.startswith(("nhc fleet report: ", "nhc fleet diff: "))
        assert str(path) in said or "sweep" in said


def commands(fleet, path):
    for words in (["report"], ["report", "--list"], ["diff"], ["report", "last-1", "-f", "html", "-o", f"{path}.html"]):
        yield fleet(*words, "--history", path)


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_rot_are_one_line(fleet, kept, seed):
    rng = random.Random(seed)
    data = bytearray(kept.read_bytes())
    for _ in range(40):
        at = rng.randrange(100, len(data))  # what has no header is no database: that is the next test's
        data[at] = rng.randrange(256)
    kept.write_bytes(data)
    for done in commands(fleet, kept):
        one_line_or_well(done, kept)


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": 1}', "not JSON", '{"schema":1,"host":"n","results":7}'])
def test_a_report_that_is_none_is_one_line(fleet, kept, text):
    with closing(sqlite3.connect(kept)) as db, db:
        db.execute("update result set line = ? where node = 'n007'", (zlib.compress(text.encode()),))
    done = fleet("report", "--history", kept)
    one_line_or_well(done, kept)
    assert done.returncode == 2
    assert "damaged" in done.stderr
    with closing(sqlite3.connect(kept)) as db, db:
        db.execute("update result set line = 'no bytes' where node = 'n007'")
    assert "damaged" in fleet("report", "--history", kept).stderr


def test_a_sweep_goes_on_when_its_history_cannot_be_used(fleet, few, tmp_path):
    path = tmp_path / "rotten.sqlite"
    path.write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    done = fleet.check(*over(few), "-w", "gpu[01-02]", "-c", tmp_path / "nhc.conf", "--set", f"history={path}")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
    assert "this sweep is not kept" in done.stderr
    assert done.stdout.startswith("OK 2 nodes gpu[01-02]")


def test_what_somebody_wrote_into_it_moves_no_terminal(fleet, kept):
    result = {
        "check": "c\x1b[31m",
        "verdict": "CRIT",
        "reason": "R",
        "message": "m\x1b]0;owned\x07",
        "target": "\u202e",
    }
    extra = {"groups": ["g\x1b"], "facts": {"rack\x1b": "\x1b[5m"}, "seconds": 1, "attempts": 1, "nhc": "pushed",
             "hostname": "h\x1b", "python": "3"}  # fmt: skip
    report = {"schema": 1, "host": "n\x1b[2J\udc80", "version": "\x1b[31m", "started": 1000.0, "elapsed": 0.1,
              "notes": ["\x07"], "labels": {"profile\x1b": "\x1b"}, "results": [result], "fleet": extra}  # fmt: skip
    with closing(sqlite3.connect(kept)) as db, db:
        db.execute("update result set node = ?, line = ? where node = 'n007' and sweep = 2",
                   ("n\x1b[2J", zlib.compress(json.dumps(report).encode())))  # fmt: skip
        db.execute("update sweep set command = ?", ("nhc \x1b[2J",))
    for done in commands(fleet, kept):
        assert done.returncode in (0, 1), done.stderr
        assert quiet(done.stdout + done.stderr)
    assert "\x1b" not in (kept.parent / f"{kept.name}.html").read_text()


def test_arguments_that_are_no_text_are_one_line(fleet):
    done = fleet.check("-w", b"gpu\xff[1", "-i", b"/no/\x1b[2J\xff")
    assert done.returncode == 2
    assert quiet(done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [
    ["log", "classify", b"/no/\x1b[2J\xff"], ["sync", "slurm", "-r", b"/no/\x1b[2J\xff"],
    ["fleet", "report", "-o", b"/no/\x1b[2J\xff"], ["fleet", "report", "--history", b"/no/\x1b[2J\xff"],
    ["check", "local", "-c", "/dev/null", "-o", b"/no/\x1b[2J\xff"],
])  # fmt: skip
def test_names_of_files_move_no_terminal(fleet, kept, words):
    done = nhc(*words, env={"NHC_FLEET_HISTORY": str(kept)})
    assert done.returncode in (2, 3)
    assert quiet(done.stderr)
    assert "Traceback" not in done.stderr


def test_an_interrupted_sweep_is_kept_as_one(fleet, kept):
    with closing(sqlite3.connect(kept)) as db, db:
        db.execute("delete from result where sweep = 2 and node > 'n250'")
        db.execute("update sweep set interrupted = 1 where id = 2")
    assert "interrupted: 49 of 300 not judged" in fleet("report", "--list", "--history", kept).stdout
    assert "not in the new sweep (it was interrupted) (49): n[251-299]" in fleet("diff", "--history", kept).stdout
    assert "49 not judged (interrupted)" in fleet("report", "--history", kept).stdout


def test_a_history_of_an_earlier_nhc_is_read(fleet, kept):
    with closing(sqlite3.connect(kept)) as db, db:
        for name in ("asked", "interrupted"):
            db.execute(f"alter table sweep drop column {name}")
    assert "300 nodes" in fleet("report", "--history", kept).stdout
