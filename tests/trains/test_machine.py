"""The tables of a train: every way ends, the steps keep to them, and the page shows them."""

from pathlib import Path

import pytest

from nhc.trains import machine
from nhc.trains.machine import STOP_ENDS, TRANSITIONS, Stop

ROOT = Path(__file__).resolve().parents[2]


def reachable(start):
    found, todo = {start}, [start]
    while todo:
        one = todo.pop()
        for before, following in TRANSITIONS:
            if before is one and following not in found:
                found.add(following)
                todo.append(following)
    return found


def test_every_state_is_reached_and_has_a_way_to_an_end():
    assert reachable(Stop.WAITING) == set(Stop)
    for state in Stop:
        assert reachable(state) & STOP_ENDS
        assert state not in STOP_ENDS or reachable(state) == {state}


def test_work_begins_only_from_draining_where_everything_was_read_again():
    assert [before for before, following in TRANSITIONS if following is Stop.ACTING] == [Stop.DRAINING]


@pytest.mark.parametrize("words", [(machine.STOP_MEANING, Stop), (machine.TRAIN_MEANING, machine.TrainState)])
def test_every_state_is_explained(words):
    assert set(words[0]) == set(words[1])


def test_the_page_shows_the_tables():
    page = (ROOT / "docs" / "maintenance.md").read_text()
    shown = page.partition("<!-- tables: nhc.trains.machine -->\n")[2].partition("<!-- end of tables -->")[0]
    assert shown == machine.tables()
