"""The sources of the console: one without reports is no healthy fleet, and one broken file costs one node."""

import json
import os
import time

import pytest

from nhc.console.settings import parse
from nhc.console.snapshot import take
from nhc.console.sources import ClusterSource, ReportsSource, SourceError, StoreSource
from nhc.console.top import frame
from nhc.core.model import Report, Verdict
from nhc.core.render.json import to_dict
from nhc.core.system.bounded_read import read_text
from nhc.marks.policy.reconcile import load_reports
from nhc.marks.ports.adapter import NodeState
from tests.console.conftest import Running, report
from tests.support import browser as browsers
from tests.support.new_store import new_store
from tests.support.ports import free_ports
from tests.support.waiting import until

NOW = 0.0
"""When each test begins: reports grow old, and a long suite has collected its tests long before it runs them."""


@pytest.fixture(autouse=True)
def at_present(monkeypatch):
    monkeypatch.setitem(globals(), "NOW", time.time())


def write(path, *reports):
    path.write_text("".join(json.dumps(to_dict(one)) + "\n" for one in reports))


def many(directory, count):
    for number in range(count):
        write(directory / f"n{number:04}.json", report(f"n{number:04}", started=NOW))


def test_one_broken_file_of_two_thousand_costs_one_node(tmp_path):
    many(tmp_path, 2000)
    (tmp_path / "n0007.json").write_text('{"host": "n0007", "sta')
    snapshot = ReportsSource([str(tmp_path)], 600).snapshot()
    assert snapshot.counts()["o"] == 1999
    [note] = snapshot.notes
    assert "n0007.json" in note


def test_a_file_that_breaks_keeps_what_it_said_and_is_named(tmp_path):
    many(tmp_path, 3)
    source = ReportsSource([str(tmp_path)], 600)
    assert source.snapshot().notes == ()
    (tmp_path / "n0001.json").write_bytes(b"\xff\xfe")
    snapshot = source.snapshot()
    assert snapshot.names == ("n0000", "n0001", "n0002")
    assert ["n0001.json" in note for note in snapshot.notes] == [True]
    write(tmp_path / "n0001.json", report("n0001", Verdict.CRIT, "GpuLost", started=NOW + 1))
    mended = source.snapshot()
    assert (mended.letters, mended.notes) == ("oco", ())


@pytest.mark.parametrize("broken", [b"{", b"", b"[]x", b'{"schema": 99}', b"\x00" * 10])
def test_a_file_that_cannot_be_read_is_passed_by_and_named(tmp_path, broken):
    many(tmp_path, 2)
    (tmp_path / "bad.json").write_bytes(broken)
    read = load_reports([str(tmp_path)], read_text)
    assert [one.host for one in read.reports] == ["n0000", "n0001"]
    assert [f"{tmp_path}/bad.json: " in line for line in read.problems] == [True]


def test_a_pipe_nobody_writes_to_and_a_directory_called_so_cost_nothing_else(tmp_path):
    many(tmp_path, 2)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "inside.json").mkdir()
    read = load_reports([str(tmp_path)], read_text)
    assert (len(read.reports), len(read.problems)) == (2, 2)


def test_jsonl_is_read_and_one_broken_line_costs_one_report(tmp_path):
    write(tmp_path / "sweep.jsonl", *(report(f"n{number}", started=NOW) for number in range(5)))
    lines = (tmp_path / "sweep.jsonl").read_text().splitlines()
    lines[2] = lines[2][:40]
    (tmp_path / "sweep.jsonl").write_text("\n".join(lines))
    source = ReportsSource([str(tmp_path)], 600)
    snapshot = source.snapshot()
    assert snapshot.names == ("n0", "n1", "n3", "n4")
    assert ["line 3" in note for note in snapshot.notes] == [True]
    assert source.report("n4").host == "n4"


def test_a_list_with_one_entry_that_is_no_report_gives_the_others(tmp_path):
    good = [to_dict(report(name, started=NOW)) for name in ("a", "b")]
    (tmp_path / "list.json").write_text(json.dumps({"reports": [good[0], {"host": 1}, good[1]]}))
    read = load_reports([str(tmp_path / "list.json")], read_text)
    assert [one.host for one in read.reports] == ["a", "b"]
    assert ["report 2" in line for line in read.problems] == [True]


def test_a_file_that_is_passed_over_is_said(tmp_path):
    many(tmp_path, 1)
    (tmp_path / "n5.txt").write_text("{}")
    (tmp_path / ".hidden").write_text("")
    [note] = ReportsSource([str(tmp_path)], 600).snapshot().notes
    assert "n5.txt" in note
    assert "hidden" not in note


def test_a_path_that_was_named_and_cannot_be_read_is_an_error(tmp_path):
    for path in (tmp_path / "none", tmp_path / "bad.json"):
        (tmp_path / "bad.json").write_text("{")
        with pytest.raises(SourceError):
            ReportsSource([str(path)], 600).snapshot()


# A fleet of which nothing is known.


class Marks:
    """A scheduler that knows two nodes, one of them drained."""

    def nodes(self, names=None):
        return [NodeState("n1", "idle", True), NodeState("n2", "drained", False)]


def sources(tmp_path):
    (tmp_path / "empty").mkdir()
    old = tmp_path / "old"
    old.mkdir()
    write(old / "n1.json", report("n1", started=NOW - 9000))
    store = new_store(str(tmp_path), anchor="")
    return {
        "files": ReportsSource([str(tmp_path / "empty")], 600),
        "old": ReportsSource([str(old)], 600),
        "store": StoreSource(store, 600),
        "cluster": ClusterSource("slurm", Marks(), 600),
    }


@pytest.mark.parametrize("kind", ["files", "old", "store", "cluster"])
def test_a_source_without_reports_says_so_everywhere(tmp_path, kind):
    snapshot = sources(tmp_path)[kind].snapshot()
    said = snapshot.notes[0]
    expected = "No node has a fresh report" if kind == "old" else "No node has reported yet"
    assert said.startswith(expected)
    assert "reports come from" in said
    assert said in frame.plain(snapshot, 500)


def test_one_fresh_report_is_enough_to_say_nothing(tmp_path):
    write(tmp_path / "n1.json", Report("n1", "b", NOW, 0.1, ()), report("n2", started=NOW - 9000))
    assert ReportsSource([str(tmp_path)], 600).snapshot().notes == ()
    assert take([], [], NOW, 600).notes == ()


@pytest.mark.browser
@pytest.mark.slow
def test_no_screen_of_a_fleet_without_reports_looks_healthy(tmp_path):
    found = parse(f'listen = "127.0.0.1:{free_ports(1)[0]}"\nrefresh = "0.5s"\n')
    (tmp_path / "empty").mkdir()
    running = Running(found, ReportsSource([str(tmp_path / "empty")], 600), None)
    until(lambda: running.server.hub.snapshot, what="the first snapshot")
    browser = browsers.start()
    try:
        for screen in ("needs", "map", "problems", "checks", "nodes?text=", "health"):
            browser.get(f"http://{running.address}/view/{screen}")
            browsers.until_script(
                browser, "return document.body.dataset.ready && document.querySelector('main').dataset.screen", screen
            )
            assert "No node has reported yet" in browser.find_element("id", "state").text, screen
            main = browser.find_element("tag name", "main").text
            for healthy in ("None.", "No problem stands", "No check complains"):
                assert healthy not in main, screen
    finally:
        browser.quit()
        running.stop()


def test_one_directory_of_several_that_holds_no_reports_is_said_on_the_screen_and_by_sync(tmp_path):
    (tmp_path / "full").mkdir()
    many(tmp_path / "full", 1)
    (tmp_path / "empty").mkdir()
    paths = [str(tmp_path / "full"), str(tmp_path / "empty")]
    for notes in (ReportsSource(paths, 600).snapshot().notes, load_reports(paths, read_text).notes):
        assert [note.split(":")[0] for note in notes] == [paths[1]]
    assert [len(load_reports(paths[1:], read_text).notes), len(load_reports(paths[:1], read_text).notes)] == [1, 0]
