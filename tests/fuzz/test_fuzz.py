"""The fixed part of the fuzzing: what once failed, and the same few inputs each time. `make fuzz` has the rest."""

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz import foreign
from tests.fuzz.run import CORPUS, attempt, try_reader
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_what_once_failed_holds(path):
    kept = json.loads(path.read_text())
    TARGETS[kept["target"]].holds(kept["input"])


@pytest.mark.thorough
@pytest.mark.parametrize("name", TARGETS)
def test_generated_inputs_hold(name):
    target = TARGETS[name]

    @settings(
        max_examples=target.examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def holds(value):
        target.holds(value)

    holds()


@pytest.mark.parametrize("name", foreign.READERS)
def test_a_true_answer_is_read(name):
    """Else every refusal below would be worth nothing."""
    reader = foreign.READERS[name]
    for answer in reader.answers:
        reader.read(answer if isinstance(answer, str) else json.dumps(answer))


@pytest.mark.thorough
@pytest.mark.parametrize("name", foreign.READERS)
def test_an_answer_of_another_shape_raises_what_is_promised(name):
    assert try_reader(name, 0, 500) == (name, {})


@pytest.mark.thorough
def test_a_failure_is_found_and_made_small(monkeypatch):
    """The kit itself: a target that refuses a digit is told by one digit, the same for the same seed."""

    def refuses(value):
        assert "25d" not in value

    monkeypatch.setitem(TARGETS, "units", TARGETS["units"]._replace(holds=refuses))
    first, again = attempt("units", 1, 2000), attempt("units", 1, 2000)
    assert first is not None
    assert first[0] == again[0] == "25d"
