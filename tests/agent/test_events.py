import json
import sqlite3
from pathlib import Path

import jsonschema
import pytest

from nhc.agent import events
from nhc.agent.events import EventStream, of_change, shape
from nhc.agent.history import EventHistory, read
from nhc.agent.main import LocalSink
from nhc.agent.problems import Board, too_early
from nhc.core.model import Action, CheckResult, Report, crit, ok, unknown
from nhc.marks.ports.sinks import Delivery, NotYetDelivered


def event(kind, when, host, boot_id, **details):
    return events.event(kind, when, host, boot_id, details)


SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/event.schema.json").read_text())
LABELS = {"region": "us-east-2", "instance_type": "p5.48xlarge"}


def changes():
    board = Board(recover=1)
    bad = CheckResult("check_gpu_count", crit("GpuCountMismatch", "7 of 8 GPUs", target="gpu3", action=Action.REPLACE))
    return [*board.judge("k", [bad], 1.7e9), *board.judge("k", [CheckResult("check_gpu_count", ok())], 1.7e9 + 60)]


def pieces():
    return [of_change(change, "n1", "b") for change in changes()]


def delivery(news):
    return Delivery(Report("n1", "b", 0.0, 0.0, ()), True, tuple(news))


def test_events_keep_to_their_schema():
    every = [*pieces(), event("agent.started", 1.7e9, "n1", "b", version="1", checks=3),
             event("condition.changed", 1.7e9, "n1", "b", type="T", status="True", reason="R", message="m", source="s"),
             event("log.event", 1.7e9, "n1", "b", type="s", reason="R", severity="warn", message="m")]  # fmt: skip
    for piece in every:
        jsonschema.validate(piece, SCHEMA)


def test_a_fault_s_end_is_told_with_its_beginning():
    began, ended = pieces()
    assert (began["event"], began["verdict"], began["action"]) == ("problem.began", "CRIT", "replace")
    assert (ended["event"], ended["verdict"], ended["since"]) == ("problem.ended", "OK", began["time"])


def test_hyperpod_s_agent_shape():
    line = json.loads(shape(pieces()[0], "hyperpod", {}))
    assert list(line) == ["level", "ts", "msg", "condition type: ", "with condition details ",
                          "HealthMonitoringAgentDetectionEvent"]  # fmt: skip
    assert line["msg"] == "NPD caught "
    assert line["HealthMonitoringAgentDetectionEvent"] == "HealthEvent"
    assert set(line["with condition details "]) == {"type", "status", "transition", "reason", "message"}
    assert line["with condition details "]["status"] == "True"
    passing = event(
        "log.event", 1.7e9, "n1", "b", type="kernel-monitor", reason="OOMKilling", severity="warn", message="m"
    )
    assert json.loads(shape(passing, "hyperpod", {}))["details: "]["reason"] == "OOMKilling"
    assert shape(event("agent.started", 1.7e9, "n1", "b"), "hyperpod", {}) == ""


def test_hyperpod_s_deep_check_shape():
    line = json.loads(shape(pieces()[0], "hyperpod-deep", LABELS))
    assert line == {
        "level": "error",
        "ts": "2023-11-14T22:13:20Z",
        "msg": "Encountered FaultyInstance. Replace the Instance. Region: us-east-2, InstanceType: p5.48xlarge. "
        "ERROR:7 of 8 GPUs",
    }
    assert shape(pieces()[1], "hyperpod-deep", LABELS) == ""


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (crit("Xid79", "off the bus", action=Action.REBOOT), "Encountered FaultyInstance. Reboot the Instance. "),
        (crit("BandwidthLow", "30 < 80"), "Encountered FaultyInstance. Replace the Instance. "),
        (unknown("DcgmCrashed", "Crash detected in dcgm test"), "Encountered Unknownerror. Region: "),
    ],
)
def test_only_a_failure_asks_for_a_repair_in_hyperpod_s_deep_check_shape(outcome, said):
    (change,) = Board(recover=1).judge("k", [CheckResult("check_x", outcome)], 1.7e9)
    assert json.loads(shape(of_change(change, "n1", "b"), "hyperpod-deep", LABELS))["msg"].startswith(said)


def test_what_is_too_early_to_tell_is_no_line_of_a_deep_check():
    lost = too_early(CheckResult("check_gpu_count", crit("GpuCountMismatch", "7 of 8")), 30.0)
    (change,) = Board(recover=1).judge("k", [lost], 1.7e9)
    assert shape(of_change(change, "n1", "b"), "hyperpod-deep", LABELS) == ""
    assert "too early to tell" in shape(of_change(change, "n1", "b"), "json", LABELS)


def test_a_stream_that_cannot_be_written_is_written_later_in_order(tmp_path):
    path = tmp_path / "missing" / "events.jsonl"
    said = []
    recorder = LocalSink(EventStream(str(path), said.append), "json", {}, None)
    for number in range(3):
        with pytest.raises(NotYetDelivered):
            recorder.deliver(delivery([{"event": "problem.began", "n": number}]))
    assert len(said) == 1
    path.parent.mkdir()
    recorder.deliver(delivery([{"event": "problem.began", "n": 3}]))
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [0, 1, 2, 3]
    assert "written again" in said[-1]


def test_a_stream_is_renamed_where_it_has_grown_long(tmp_path):
    path = tmp_path / "e"
    stream = EventStream(str(path), print, limit=100)
    for _ in range(3):
        stream.add("x" * 99)
        assert stream.flush()
    assert (tmp_path / "e.1").exists()
    assert path.stat().st_size == 100


def test_history_keeps_to_its_age_and_its_size(tmp_path):
    now = [1.7e9]
    history = EventHistory(str(tmp_path / "h"), keep=100.0, rows=5, log=print, clock=lambda: now[0])
    history.add({"event": "old"})
    assert history.flush()
    now[0] += 200
    for number in range(10):
        history.add({"event": "new", "n": number})
    history._purged = None
    assert history.flush()
    history.close()
    assert [piece["n"] for piece in read(str(tmp_path / "h"), 100)] == [5, 6, 7, 8, 9]
    assert [piece["n"] for piece in read(str(tmp_path / "h"), 2)] == [8, 9]


def test_a_damaged_history_is_set_aside(tmp_path):
    path = tmp_path / "h"
    path.write_bytes(b"no database at all " * 100)
    said = []
    history = EventHistory(str(path), 1e6, 100, said.append)
    history.add({"event": "e"})
    assert not history.flush()
    assert history.flush()
    history.close()
    assert [piece["event"] for piece in read(str(path))] == ["e"]
    assert (tmp_path / "h.damaged").exists()


def test_no_history_is_one_clear_line(tmp_path):
    with pytest.raises(OSError, match="no history"):
        read(str(tmp_path / "none"))
    (tmp_path / "junk").write_text("junk" * 500)
    with pytest.raises(OSError, match="not a database"):
        read(str(tmp_path / "junk"))
    assert sqlite3.sqlite_version
