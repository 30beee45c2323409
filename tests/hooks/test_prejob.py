"""A suite of seconds in the prolog: its budget, what it lets in, and what it refuses. The suite's process is real."""

import time

import pytest

from nhc.core.model import CheckResult, Report, Verdict, crit, ok
from nhc.core.render.json import parse
from nhc.core.state import reports
from nhc.core.state.store import State
from nhc.hooks import prejob
from tests.adapters.test_slurm_gate import TOOL

GOOD = Report("n1", "b", 1.0, 0.1, (CheckResult("check_x", ok("fine")),))


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "triad").write_text(TOOL.format(place=tmp_path))
    (tmp_path / "triad").chmod(0o755)
    (tmp_path / "suite.conf").write_text(
        f"# context deep\n* || check_deep_triad -t 1s -s 8M --binary {tmp_path}/triad --floor 10\n"
    )
    return tmp_path


def judged(place, report=GOOD, **settings):
    environ = {"NHC_DEEP_DIR": f"{place}/deep", "NHC_STATE_DIR": f"{place}/state"}
    state = State(environ["NHC_STATE_DIR"])
    return prejob.with_suite(report, {"NHC_PROLOG_SUITE": f"{place}/suite.conf", **settings}, environ, state)


def runs(place):
    return (place / "runs").exists()


@pytest.mark.thorough
def test_a_node_that_passes_lets_the_job_in(suite):
    found = judged(suite)
    assert found.verdict is Verdict.OK
    assert [one.check for one in found.results] == ["check_x", "check_deep_triad"]
    [result] = parse(reports.stored_suite(State(f"{suite}/state")).decode()).results  # for the agent
    assert result.outcome.metrics[0].name == "host_triad"


@pytest.mark.thorough
def test_a_slow_node_is_refused(suite):
    (suite / "slow").touch()
    assert judged(suite).verdict is Verdict.CRIT


@pytest.mark.thorough
@pytest.mark.parametrize(("choice", "verdict"), [("admit", Verdict.UNKNOWN), ("refuse", Verdict.CRIT)])
def test_a_suite_past_its_budget_could_not_tell_and_the_policy_decides(suite, choice, verdict):
    (suite / "hold").touch()
    began = time.monotonic()
    found = judged(suite, NHC_PROLOG_SUITE_TIME="3s", NHC_PROLOG_SUITE_UNKNOWN=choice)
    assert found.verdict is verdict
    assert time.monotonic() - began < 3 + prejob.ENDING + 30
    assert runs(suite)


def test_a_prolog_that_refuses_already_runs_no_suite(suite):
    bad = GOOD._replace(results=(CheckResult("check_x", crit("Bad", "sick")),))
    assert judged(suite, bad) is bad
    assert not runs(suite)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [{"NHC_PROLOG_SUITE": "nowhere"}, {"NHC_PROLOG_SUITE_TIME": "soon"}, {"NHC_PROLOG_SUITE_TIME": "10m"},
     {"NHC_PROLOG_SUITE_UNKNOWN": "maybe"}],
)  # fmt: skip
def test_settings_that_make_no_sense_keep_no_job_out_and_are_said(suite, settings):
    found = judged(suite, **settings)
    assert found.verdict is Verdict.UNKNOWN
    assert found.results[-1].outcome.reason == "PrejobNotRun"
    assert not runs(suite)


def test_without_the_setting_nothing_runs(suite):
    assert prejob.with_suite(GOOD, {}, {}, State(f"{suite}/state")) is GOOD
