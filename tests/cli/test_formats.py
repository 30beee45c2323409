"""`--format text|json`: every command that prints takes it, and what it prints then is JSON of one shape."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List

import click
import pytest

from nhc.cli.click_app import application
from nhc.cli.command_table import COMMANDS, PLAIN
from nhc.cli.main import main
from nhc.core.command_line.printing import ResultStream, formatted, print_result
from tests.cli.test_command_tree import leaves
from tests.faults.doors import CONFIG, DOORS, KEPT, LOG, SUITE, Place

NOT_HERE = ("fleet check", "demo", "drill", "deep run", "deep restore", "gate run", "gate boot", "inject", "replay")
"""What takes long, or acts on this machine; their tests are elsewhere."""


def plain(table: Any = COMMANDS, words: str = "nhc") -> Iterator[str]:
    """The commands without `--format`."""
    for name, (place, inner, *_example) in table.items():
        if isinstance(inner, dict):
            yield from plain(inner, f"{words} {name}")
        elif place in PLAIN:
            yield f"{words} {name}"


def test_every_command_that_prints_takes_a_format():
    without = {
        words for words, command in leaves(application) if all("--format" not in one.opts for one in command.params)
    }
    assert without == set(plain())
    for words, command in leaves(application):
        for option in command.params:
            if "--format" in option.opts and words != "nhc check local":
                assert {"text", "json"} <= set(option.type.choices), words  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    base = tmp_path_factory.mktemp("formats")
    (base / "nhc.conf").write_text(CONFIG)
    (base / "messages").write_text(LOG)
    (base / "suite.conf").write_text(SUITE)
    (base / "train.log").write_text("step 1 loss 2.0\n")
    shutil.copytree(KEPT, base / "kept")
    report = {**json.loads((KEPT / "report.json").read_text()), "host": "n1", "started": time.time()}
    (base / "report.json").write_text(json.dumps(report))
    assert main(["store", "import", str(base / "report.json"), "--store", str(base / "store.db")]) == 0
    state = base / "cells" / "one"
    state.mkdir(parents=True)
    return Place(base, state, "http://127.0.0.1:9")


SHOWN = [
    name for name, door in DOORS.items()
    if door.launcher == "nhc" and name != "nhc" and not (door.waits or door.peer) and name not in NOT_HERE
    and f"nhc {name}" not in set(plain())
]  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_command_prints_as_json_is_json(name, place, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("NHC_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("NHC_MUTES", str(tmp_path / "mutes.json"))
    monkeypatch.setenv("NHC_FLEET_HISTORY", str(tmp_path / "history"))
    words = [str(word) for word in DOORS[name].words(place)]
    at = words.index("--") if "--" in words else len(words)
    status = main([*words[:at], "-f", "json", *words[at:]])
    out = capsys.readouterr().out
    documents = parsed(out)
    assert status in (0, 1, 2, 3)
    for found in documents:
        if isinstance(found, dict) and set(found) == {"command", "status", "results"}:
            assert (found["command"], found["status"]) == (name, status) or name.startswith(found["command"])
            assert all(isinstance(one["message"], str) for one in found["results"])


def parsed(out: str) -> List[Any]:
    """One document, or one a line of a stream."""
    try:
        return [json.loads(out)] if out else []
    except json.JSONDecodeError:
        return [json.loads(line) for line in out.splitlines()]


def command(run: Any) -> click.Command:
    return formatted(click.Command("x", callback=run))


def test_lines_and_what_is_told_of_them_become_results_in_their_order(capsys):
    def run() -> int:
        print("a line")
        print_result("n1: on hold", node="n1")
        click.echo("another")
        sys.stdout.write("without an end")
        return 1

    assert command(run).main(["-f", "json"], "x", standalone_mode=False) == 1
    assert json.loads(capsys.readouterr().out) == {"command": "", "status": 1, "results": [
        {"message": "a line"}, {"message": "n1: on hold", "node": "n1"}, {"message": "another"},
        {"message": "without an end"},
    ]}  # fmt: skip
    assert command(run).main([], "x", standalone_mode=False) == 1
    assert capsys.readouterr().out == "a line\nn1: on hold\nanother\nwithout an end"


@pytest.mark.parametrize(
    ("ends", "status"), [(lambda: None, 0), (lambda: sys.exit(3), 3), (lambda: click.get_current_context().exit(2), 2)]
)
def test_however_a_command_ends_its_document_says_so(ends, status, capsys):
    assert command(ends).main(["-f", "json"], "x", standalone_mode=False) == status
    assert json.loads(capsys.readouterr().out)["status"] == status


def test_the_overview_names_what_runs_here_and_what_cannot_be_used(tmp_path, monkeypatch, capsys):
    from nhc.cli import overview

    monkeypatch.setattr(overview, "DIRECTORY", str(tmp_path))
    (tmp_path / "agent.toml").write_text('[agent]\nretry = "soon"\n')
    (tmp_path / "store.toml").write_text("audit-syslog = true\n")
    state = Path(tmp_path, "state")
    state.mkdir()
    (state / "report-prolog.json").write_text(json.dumps({"started": time.time() - 5, "verdict": "CRIT"}))
    monkeypatch.setenv("NHC_STATE_DIR", str(state))
    assert main(["status", "-f", "json"]) == 2
    parts = {(row["part"], row["name"]): row for row in json.loads(capsys.readouterr().out)["parts"]}
    assert parts["report", "prolog"]["state"] == "CRIT"
    assert "agent.retry" in parts["settings", "agent.toml"]["detail"]
    assert (parts["settings", "agent.toml"]["state"], parts["settings", "store.toml"]["state"]) == (
        "unusable",
        "usable",
    )
    (tmp_path / "agent.toml").unlink()
    assert main(["status"]) == 0


def test_a_stream_of_results_is_a_text_stream():
    stream = ResultStream()
    stream.write("a\nb")
    assert stream.end_lines() == [{"message": "a"}, {"message": "b"}]
    assert stream.getvalue() == ""
