"""`nhc train run`: what its log says to persons."""

from types import SimpleNamespace

import pytest

from nhc.remedy.commands import train_run
from nhc.remedy.episode_flow import EpisodeRound
from nhc.remedy.trains.machine import TrainState
from tests.support.run import nhc


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (TrainState.PLANNED, "nhc approve train kernel"),
        (TrainState.HELD, "nhc release train kernel"),
        (TrainState.STOPPED, "nhc release train kernel"),
    ],
)
def test_a_train_that_waits_for_a_person_names_the_command_that_there_is(state, command, monkeypatch, capsys):
    monkeypatch.setattr(train_run, "StopSignals", SimpleNamespace)  # the handlers of this process stay
    monkeypatch.setattr(train_run, "Leader", lambda *_given, **_named: None)
    service = train_run.TrainService(SimpleNamespace(store=None), SimpleNamespace(name="kernel"), {})
    assert service._after(EpisodeRound(0.0, 0, (), (), (), (), 0, 0.0), state)
    assert capsys.readouterr().err == f"nhc train run: train kernel is {state.value}: {command}\n"
    _nhc, verb, what, _name = command.split()
    assert nhc(verb, what, "--help").stdout.startswith(f"Usage: nhc {verb} {what} ")
