"""What persons ask of the loop: a fault like any other in its bounds, and unlike others in when it ends. Pure."""

from __future__ import annotations

import pytest

from nhc.core.limits import Mode
from nhc.core.model import Action
from nhc.marks.ports.repair import LADDER, Request, Rung
from nhc.remedy.admit import NodeEpisode, admit
from nhc.remedy.ladder import Ability, NodeFault, Try, next_rung
from nhc.remedy.machine import EpisodeState
from nhc.remedy.node_requests import answers, cause_of, fault_of, kept, taken_back
from nhc.remedy.remedy_file import parse
from nhc.store.attempts import AttemptStatus

ON = dict.fromkeys(LADDER, Mode.ON)
REBOOT = Request(Rung.REBOOT, "k1", "nhc/request=reboot")
FAULT = NodeFault("n1", "check_gpu|Xid95|gpu1", "Xid95", "Xid 95", Action.RESET_DEVICE, 100.0, 100.0, "gpu1")


def rung_after(faults, *tried):
    return next_rung(faults, tried, ON, lambda rung, device: Ability()).rung


def test_what_was_asked_for_is_tried_and_nothing_after_it():
    asked = fault_of("n1", REBOOT, 100.0)
    assert rung_after([asked]) is Rung.REBOOT
    assert rung_after([asked], Try(Rung.REBOOT, "", AttemptStatus.FAILED)) is Rung.ESCALATE


def test_a_fault_beside_it_climbs_the_ladder_as_ever():
    both = [FAULT, fault_of("n1", REBOOT, 100.0)]
    assert rung_after(both) is Rung.REBOOT
    assert rung_after(both, Try(Rung.REBOOT, "", AttemptStatus.FAILED)) is Rung.POWER_CYCLE


def test_a_reset_is_for_the_device_that_was_named():
    asked = fault_of("n1", Request(Rung.RESET_DEVICE, "k", "reset-device gpu3", "gpu3"), 1.0)
    choice = next_rung([asked], (), ON, lambda rung, device: Ability())
    assert (choice.rung, choice.device) == (Rung.RESET_DEVICE, "gpu3")


@pytest.mark.parametrize(
    "state", [EpisodeState.ESCALATED, EpisodeState.WITHDRAWN, EpisodeState.ABORTED, EpisodeState.RETURNED]
)
def test_a_person_may_ask_for_a_node_that_was_left_to_a_person(state):
    settings = parse('[sources]\nadapter = "slurm"\nsettle = "1h"')
    standing = {"n1": NodeEpisode(7, state, 99.0, ("check_gpu|Xid95|gpu1",))}
    (found,) = admit([fault_of("n1", REBOOT, 100.0)], standing, settings, 100.0)
    assert (found.refused, found.joins) == ("", None)


def test_protected_nodes_are_not_touched_for_persons_either():
    settings = parse('protected = ["n*"]')
    (found,) = admit([fault_of("n1", REBOOT, 100.0)], {}, settings, 100.0)
    assert found.refused


class Row:
    id, node, cause, outcome = 7, "n1", "x", "a person must look"

    def __init__(self, state, ended):
        self.state, self.ended = state, ended


@pytest.mark.parametrize(
    ("state", "ended", "causes", "left", "returned"),
    [
        ("returned", 9.0, (cause_of(REBOOT),), 0, [True]),
        ("escalated", 9.0, (cause_of(REBOOT),), 0, [False]),
        ("draining", None, (cause_of(REBOOT),), 1, []),
        ("returned", 9.0, ("request|reboot|k0",), 1, []),
    ],
)
def test_a_request_is_answered_by_the_episode_that_had_it(state, ended, causes, left, returned):
    found, answered = answers({"n1": REBOOT}, [Row(state, ended)], {7: causes})
    assert len(found) == left
    assert [one.returned for one in answered] == returned


def test_a_newer_report_does_not_forget_what_was_asked_for():
    asked, newer = fault_of("n1", REBOOT, 1.0), FAULT._replace(cause="other")
    assert kept((FAULT, asked), (newer,)) == (newer, asked)


def test_only_what_is_all_asked_for_can_be_taken_back():
    asked = fault_of("n1", REBOOT, 1.0)
    assert not taken_back((asked,), {"n1": REBOOT}, EpisodeState.DRAINING)
    assert taken_back((asked,), {}, EpisodeState.DRAINING)
    assert taken_back((asked,), {"n1": REBOOT._replace(key="k2")}, EpisodeState.DRAINING)
    assert not taken_back((asked, FAULT), {}, EpisodeState.DRAINING)
    assert not taken_back((), {}, EpisodeState.DRAINING)
