"""What is remembered may be damaged in every way: it is said, and the run goes on."""

import json

import pytest

from nhc.core import memory
from nhc.core.model import Verdict, crit
from nhc.core.state.earlier_runs import Strikes, StuckChecks
from nhc.core.state.store import State


@pytest.fixture
def state(tmp_path):
    return State(str(tmp_path))


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 200_000, "\0", '"text"', "7"])
def test_damage_is_set_aside_with_a_warning(state, tmp_path, content):
    (tmp_path / "strikes.json").write_text(content)
    assert state.load("strikes") == {}
    assert len(state.warnings) == 1
    assert "damaged" in state.warnings[0]
    assert (tmp_path / "strikes.json.damaged").read_text() == content
    state.save("strikes", {"row": 1})
    assert State(str(tmp_path)).load("strikes") == {"row": 1}


@pytest.mark.parametrize("count", [-999, "3", None, 1e300, 10**30, [1], {}])
def test_a_row_of_strikes_that_makes_no_sense_begins_anew(state, tmp_path, count):
    (tmp_path / "strikes.json").write_text(json.dumps({"line": count}))
    strikes = Strikes(state)
    outcome, strike = strikes.judge("line", crit("Broken", "broken"), 3)
    assert (outcome.verdict, outcome.message, strike) == (Verdict.WARN, "broken (strike 1 of 3)", 1)
    strikes.failed.add("line")
    strikes.save()
    assert state.load("strikes") == {"line": 1}


@pytest.mark.parametrize(
    "record", ["text", [], {}, {"pid": 1, "start": "x", "since": 1}, {"pid": 1, "start": 1, "since": 1e300},
               {"pid": float("inf"), "start": 1, "since": 1}, {"pid": 1, "start": 1, "since": float("nan")}],
)  # fmt: skip
def test_a_stuck_check_that_makes_no_sense_is_forgotten(state, tmp_path, record):
    (tmp_path / "stuck.json").write_text(json.dumps({"line": record}))
    stuck = StuckChecks(state)
    assert stuck.get("line") is None
    stuck.save()
    assert state.load("stuck") == {}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_that_others_can_write_to_is_not_used(tmp_path, mode):
    """What is kept there decides what the next run does."""
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(mode)
    state = State(str(directory))
    state.save("a", {"x": 1})
    state.save_bytes("plan", b"x")
    assert state.warnings == [f"{directory}: others may write to it: nothing is remembered from run to run"]
    assert list(directory.iterdir()) == []
    assert state.load_bytes("plan") == b""


def test_two_runs_that_revise_an_object_lose_nothing_of_one_another(state, tmp_path):
    other = State(state.directory)
    memory.revise(state, "wrong", lambda wrong: wrong.update(a=1))

    def meanwhile(wrong):
        wrong.update(c=3)

    memory.recall(state, "wrong")  # what this run goes by is old when it writes
    memory.revise(other, "wrong", lambda wrong: wrong.update(b=2))
    assert memory.revise(state, "wrong", meanwhile) == {"a": 1, "b": 2, "c": 3}

    state.save("wrong", {})  # the node restarts, which clears this memory and not the lasting one
    memory.revise(State(state.directory), "wrong", lambda wrong: wrong.update(d=4))
    assert memory.recall(state, "wrong") == {"a": 1, "b": 2, "c": 3, "d": 4}
