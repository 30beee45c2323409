"""What cannot be asked now is waited for: no throttle, lost read, missing right or death of the loop makes a repair
harder. And a repair needs a report that is young at that moment.
"""

import pytest

from nhc.core.model import Action
from nhc.marks.ports.repair import AskLater, Machine, RightMissing, Rung
from nhc.remedy.operators import decide
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.settings import RepairerSettings
from tests.remedy.test_controller import last, tried
from tests.remedy.test_once import dies
from tests.support.remedy_world import Sickness


@pytest.mark.thorough
def test_a_repair_that_is_throttled_again_and_again_stays_the_same_repair(world):
    world.fall_sick("n1")
    world.lose = ["throttled"] * 7
    controller = world.controller()
    world.run(controller, 1)
    assert (last(world).state, world.sent) == ("recheck", [])
    held = controller.round().waiting
    assert [one.why for one in held] == ["not-now: too many requests"]
    world.run(controller, 80)
    assert tried(world, last(world).id) == [("reboot", "refused")] * 7 + [("reboot", "succeeded")]
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


@pytest.mark.thorough
def test_the_other_sides_pause_is_kept(world):
    world.fall_sick("n1")
    world.lose = ["throttled"]
    world.run(world.controller(), 1)
    begun = world.now
    while not world.sent:
        world.run(world.controller(), 1, 5)
    assert world.sent[0].at - begun >= 60.0 - 30.0  # the round's own 30 s have passed since the refusal


@pytest.mark.thorough
def test_after_its_own_deadline_it_is_for_a_person_and_nothing_harder_follows(world):
    world.fall_sick("n1")
    world.lose = ["throttled"] * 1000
    world.run(world.controller('[limits]\nfirst-run = "100%"\nattempts = 20\nnot-now = "20m"'), 60)
    assert (last(world).state, world.sent) == ("escalated", [])
    assert last(world).outcome == "nobody could be asked for reboot for 20m: too many requests"


@pytest.mark.parametrize("at", ["marked", "recheck"])
@pytest.mark.thorough
def test_whether_it_is_possible_is_asked_again_where_nobody_could_say(world, at):
    world.fall_sick("n1")
    raised = []

    def can(node, rung, device):
        if last(world).state == at and len(raised) < 2:
            raised.append(rung)
            raise AskLater("DescribeInstances: RequestLimitExceeded", 45.0)
        return ""

    world.can = can
    controller = world.controller()
    world.run(controller, 1)
    assert (last(world).state, world.sent) == (at, [])
    held = controller.round().waiting
    assert held[0].why.startswith("not-now: ")
    assert "RequestLimitExceeded" in held[0].why
    world.run(controller, 20)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


@pytest.mark.thorough
def test_a_missing_right_is_for_a_person_by_its_name(world):
    world.fall_sick("n1")

    def can(node, rung, device):
        raise RightMissing("UnauthorizedOperation", "ec2:DescribeInstances")

    world.can = can
    world.run(world.controller(), 3)
    assert (last(world).state, world.sent) == ("escalated", [])
    assert "the right ec2:DescribeInstances is missing" in last(world).outcome


@pytest.mark.thorough
def test_a_repair_that_we_may_not_send_is_not_followed_by_a_harder_one(world):
    world.fall_sick("n1")
    world.lose = ["denied"]
    world.run(world.controller(), 10)
    assert tried(world, last(world).id) == [("reboot", "refused")]
    assert (last(world).state, world.sent) == ("escalated", [])
    assert "the right ec2:RebootInstances is missing" in last(world).outcome


def test_another_repairer_of_the_same_repair_is_asked_meanwhile():
    class Says:
        def __init__(self, answer):
            self.answer = answer

        def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    def repairers(*answers):
        return Repairers([RepairerEntry(RepairerSettings(f"r{n}", "fake"), Says(one)) for n, one in enumerate(answers)])

    throttled = AskLater("throttled", 45.0)
    assert repairers(throttled, "").can("n1", Rung.REBOOT, "").by == "r1"
    ability = repairers("no such machine", throttled, "no").can("n1", Rung.REBOOT, "")
    assert (ability.again, ability.why) == (45.0, "r0: no such machine; r1: throttled; r2: no")


@pytest.mark.thorough
def test_who_agreed_to_a_throttled_repair_is_not_asked_again(world):
    world.fall_sick("n1")
    world.lose = ["throttled", "throttled"]
    controller = world.controller("[approval]\nreboot = 1")
    world.run(controller, 2)
    decide(world, last(world).id, by="ann", agree=True, why="", now=world.now)
    world.run(controller, 20)
    assert tried(world, last(world).id) == [("reboot", "refused")] * 2 + [("reboot", "succeeded")]
    assert last(world).state == "returned"


@pytest.mark.thorough
@pytest.mark.parametrize("shows_orders", [True, False])
def test_a_loop_that_died_right_before_its_call_makes_the_repair_no_harder(world, shows_orders):
    world.shows_orders = shows_orders
    world.fall_sick("n1")
    dies(world, "before a repair is sent")
    assert (last(world).state, world.sent) == ("acting", [])
    world.run(world.controller(), 120)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")
    assert tried(world, last(world).id) == [("reboot", "refused"), ("reboot", "succeeded")]


@pytest.mark.thorough
@pytest.mark.parametrize("shows_orders", [True, False])
def test_a_loop_that_died_right_after_its_call_sends_nothing_more(world, shows_orders):
    world.shows_orders = shows_orders
    world.fall_sick("n1")
    dies(world, "after a repair is sent")
    world.run(world.controller(), 120)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


@pytest.mark.thorough
def test_a_report_that_has_grown_old_by_then_repairs_nothing(world):
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller()  # max-age is 5 min
    world.run(controller, 2)
    assert last(world).state == "draining"
    world.nodes["n1"].silent = True
    world.run(controller, 12)
    world.nodes["n1"].busy = False
    found = world.run(controller, 5)[-1].waiting
    assert (last(world).state, world.sent) == ("recheck", [])
    assert [one.why for one in found if one.episode] == [
        "report: its newest report is too old (sources.max-age is 300 s)"
    ]
    world.nodes["n1"].silent = False
    world.run(controller, 12)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


@pytest.mark.thorough
def test_a_device_that_stays_in_use_is_reached_by_a_reboot(world):
    """The machine itself stands in the way: that is a fact about it, from which the harder repair follows."""
    from nhc.marks.ports.repair import Answer, Sent

    world.fall_sick("n1", Sickness(Action.RESET_DEVICE, Rung.RESET_DEVICE, target="gpu1"))
    controller = world.controller()
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    send = repairer.send

    def held(order):
        if order.rung is Rung.RESET_DEVICE:
            return Sent(Answer.REFUSED, "gpu1 is held by python", retry_after=30.0, by_machine=True)
        return send(order)

    repairer.send = held
    world.run(controller, 40)
    assert [rung for rung, _ in tried(world, last(world).id)] == ["reset-device"] * 3 + ["reload-driver"]
