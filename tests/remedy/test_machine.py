"""The tables of states: every way ends, nothing leads out of an end, and the page shows what the code does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.remedy import machine
from nhc.remedy.machine import ENDS, TRANSITIONS, BadTransition, EpisodeEvent, EpisodeState, after

ROOT = Path(__file__).resolve().parents[2]


def reachable(start):
    found, todo = {start}, [start]
    while todo:
        one = todo.pop()
        for (state, _event), following in TRANSITIONS.items():
            if state is one and following not in found:
                found.add(following)
                todo.append(following)
    return found


def test_every_state_is_reached_from_the_first():
    repair, maintenance = reachable(EpisodeState.DETECTED), reachable(EpisodeState.PLANNED)
    assert repair | maintenance == set(EpisodeState)
    assert maintenance >= set(EpisodeState) - {EpisodeState.DETECTED}


@pytest.mark.parametrize("state", list(EpisodeState))
def test_every_state_has_a_way_to_an_end_and_an_end_has_none_out(state):
    assert reachable(state) & ENDS
    assert not (state in ENDS and reachable(state) != {state})


@pytest.mark.parametrize("state", sorted(set(EpisodeState) - ENDS))
def test_a_person_can_stop_an_episode_anywhere(state):
    assert after(state, EpisodeEvent.ABORT) is EpisodeState.ABORTED


def test_only_a_recheck_leads_to_a_repair():
    """Nothing destructive is sent on what was read earlier: complaints 13 and 16 of the field's loops."""
    assert {state for (state, _), following in TRANSITIONS.items() if following is EpisodeState.ACTING} == {
        EpisodeState.RECHECK
    }


def test_what_was_sent_is_never_sent_again():
    assert {following for (state, _), following in TRANSITIONS.items() if state is EpisodeState.WATCHING} == {
        EpisodeState.VERIFYING, EpisodeState.MARKED, EpisodeState.ESCALATED, EpisodeState.ABORTED, EpisodeState.RECHECK
    }  # fmt: skip


def test_only_a_proved_node_is_put_back():
    assert {
        (state, event) for (state, event), following in TRANSITIONS.items() if following is EpisodeState.RETURNING
    } == {(EpisodeState.VERIFYING, EpisodeEvent.PROVED_HEALTHY)} | {
        (state, EpisodeEvent.PUT_BACK)  # maintenance, before anything was done
        for state in (EpisodeState.MARKING, EpisodeState.MARKED, EpisodeState.DRAINING, EpisodeState.RECHECK)
    }
    assert {state for (state, _), following in TRANSITIONS.items() if following is EpisodeState.RETURNED} == {
        EpisodeState.RETURNING
    }


def test_an_unknown_event_is_a_mistake_that_names_both():
    with pytest.raises(BadTransition, match="returned knows no sent"):
        after(EpisodeState.RETURNED, EpisodeEvent.SENT)


@given(st.sampled_from(sorted(machine.NOT_BEGUN)), st.lists(st.sampled_from(list(EpisodeEvent))))
def test_no_history_of_events_leaves_an_end(first, events):
    state, ended = first, None
    for event in events:
        try:
            state = after(state, event)
        except BadTransition:
            continue
        ended = ended or (state if state in ENDS else None)
    assert ended in (None, state)


def test_everything_is_explained():
    assert set(machine.MEANING) == set(EpisodeState)
    assert set(machine.CAUSE) == set(EpisodeEvent)
    assert set(machine.ATTEMPT_MEANING) == set(machine.AttemptStatus)
    assert {event for _, event in TRANSITIONS} == set(EpisodeEvent)


def test_the_page_shows_these_tables():
    page = (ROOT / "docs/remedy.md").read_text()
    shown = page.partition("<!-- tables: nhc.remedy.machine -->\n")[2].partition("<!-- end of tables -->")[0]
    assert shown == machine.tables(), "write the output of `python -m nhc.remedy.machine` there"
