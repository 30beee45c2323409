"""A person agrees to one repair of one thing, as it was asked: to no other, and to no later one."""

import pytest

from nhc.core.model import Action
from nhc.marks.ports.repair import Rung
from nhc.remedy.operators import decide
from nhc.store import audit, episodes
from nhc.store.errors import Conflict
from tests.support.remedy_world import Sickness

ASKS = "[approval]\nreset-device = 1\nreplace = 0"


def last(world):
    with world.read() as connection:
        return episodes.list_episodes(connection, node="n1")[-1]


def agree(world, by):
    return decide(world.plain, last(world).id, by=by, agree=True, why="", now=world.now)


def asked_for_another_device(world, controller):
    """Alice agrees to a reset of gpu0. Before it is sent that one is well again, and gpu5 falls sick."""
    world.nodes["n1"].busy = False
    world.fall_sick("n1", Sickness(Action.RESET_DEVICE, Rung.RESET_DEVICE, target="gpu0"))
    world.run(controller, 1)
    assert last(world).state == "awaiting-approval"
    agree(world, "alice")
    world.nodes["n1"].busy = True
    world.run(controller, 1)
    world.nodes["n1"].sick.clear()
    world.report(["n1"])
    world.tick(1.0)
    world.run(controller, 1)
    world.fall_sick("n1", Sickness(Action.RESET_DEVICE, Rung.RESET_DEVICE, target="gpu5"))
    world.nodes["n1"].busy = False


@pytest.mark.thorough
def test_consent_to_one_device_is_none_to_another(world):
    controller = world.controller(ASKS)
    asked_for_another_device(world, controller)
    world.run(controller, 4)
    assert (world.sent, last(world).state) == ([], "awaiting-approval")


@pytest.mark.thorough
def test_who_agreed_before_may_answer_the_new_question(world):
    controller = world.controller(ASKS)
    asked_for_another_device(world, controller)
    world.run(controller, 4)
    assert agree(world, "alice") == f"alice agreed to reset-device of n1 (episode {last(world).id})"
    world.run(controller, 12)
    assert ([one.device for one in world.sent], last(world).state) == (["gpu5"], "returned")
    with world.read() as connection:  # the log has both
        assert len(audit.entries(connection, what="approval.approved")) == 2


@pytest.mark.thorough
def test_one_person_is_not_two(world):
    controller = world.controller("[approval]\nreboot = 2\nreplace = 0")
    world.fall_sick("n1")
    world.run(controller, 1)
    agree(world, "alice")
    with pytest.raises(Conflict, match="alice has decided on attempt 1"):
        agree(world, "alice")
    world.run(controller, 2)
    assert world.sent == []
    agree(world, "bob")
    world.run(controller, 12)
    assert world.sendings("n1") == [Rung.REBOOT]
