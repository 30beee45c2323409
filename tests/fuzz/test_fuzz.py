"""The fixed part of the fuzzing: what once failed, and the same few inputs each time. `make fuzz` has the rest."""

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.run import CORPUS, attempt
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


@pytest.mark.thorough
def test_a_failure_is_found_and_made_small(monkeypatch):
    """The kit itself: a target that refuses a digit is told by one digit, the same for the same seed."""

    def refuses(value):
        assert "25d" not in value

    monkeypatch.setitem(TARGETS, "units", TARGETS["units"]._replace(holds=refuses))
    first, again = attempt("units", 1, 2000), attempt("units", 1, 2000)
    assert first is not None
    assert first[0] == again[0] == "25d"
