"""The contract of repairers finds what it is there to find: a correct repairer passes it, each spoilt one does not."""

from __future__ import annotations

import pytest

from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Progress, Right, Rung, Sent, Sighting, Stage


class Rack:
    """The other side, in memory: one machine with a serial number that counts its boots."""

    def __init__(self):
        self.serial, self.boots, self.begun, self.calls, self.next, self.there = "S1", 1, False, [], "", True

    def reboot(self, key):
        if not self.there:
            raise ConnectionRefusedError
        fault, self.next = self.next, "denied" if self.next == "denied" else ""
        self.calls.append(key)
        if fault not in ("", "lost"):
            return fault
        self.begun = True
        if fault == "lost":
            raise TimeoutError
        return "ok"


ANSWERS = {
    "ok": Sent(Answer.ACCEPTED, "accepted"),
    "throttled": Sent(Answer.REFUSED, "too many requests", retry_after=5),
    "denied": Sent(Answer.REFUSED, "not allowed", right="node:reboot"),
    "error": Sent(Answer.AMBIGUOUS, "HTTP 500"),
}


class Correct:
    rack = None

    def __init__(self, settings=None, environ=None, timeout=30.0):
        for name in settings or {}:
            raise AdapterError(f"rack.{name}: no such setting")

    def can(self, machine, rung, device=""):
        return "" if rung is Rung.REBOOT and machine.provider_id else f"{rung.value}: not of this rack"

    def look(self, machine):
        if not self.rack.there:
            raise AdapterError("the rack does not answer")
        return Sighting(1.0, self.rack.serial, str(self.rack.boots))

    def send(self, order):
        try:
            if self.look(order.machine).instance != order.machine.provider_id:
                return Sent(Answer.REFUSED, "another machine")
            return ANSWERS[self.rack.reboot(order.key)]
        except AdapterError as error:
            return Sent(Answer.REFUSED, str(error), retry_after=30)
        except TimeoutError:
            return Sent(Answer.AMBIGUOUS, "no answer in 30 s")

    def progress(self, order, sent, before):
        changed = self.look(order.machine).boot != before.boot
        return Progress(Stage.DONE if changed else Stage.WORKING, "boots seen")

    def rights(self):
        return [Right("reboot", True if self.rack.there else None)]


class RackWorld(RepairerWorld):
    rung, machine, takes_key = Rung.REBOOT, Machine("n1", "S1"), True

    def __init__(self, repairer=Correct):
        self.rack = Rack()
        self.repairer = repairer()
        self.repairer.rack = self.rack

    def calls(self):
        return self.rack.calls

    keys_seen = calls

    def lose_next_answer(self):
        self.rack.next = "lost"

    def fail_next_call(self):
        self.rack.next = "error"

    def throttle_next_call(self):
        self.rack.next = "throttled"

    def deny(self):
        self.rack.next = "denied"

    def vanish(self):
        self.rack.there = False

    def stranger(self):
        return self.machine._replace(provider_id="S0")

    def take_effect(self):
        self.rack.boots += self.rack.begun


class TestACorrectRepairer(RepairerContract):
    @pytest.fixture
    def world(self):
        return RackWorld()


class Repeats(Correct):
    def send(self, order):
        sent = super().send(order)
        return super().send(order) if sent.answer is Answer.AMBIGUOUS else sent


class ComparesNothing(Correct):
    def look(self, machine):
        return super().look(machine)._replace(instance=machine.provider_id or "?")


class TakesAcceptanceForSuccess(Correct):
    def progress(self, order, sent, before):
        return Progress(Stage.DONE, "done")


class TakesATimeOutForAFailure(Correct):
    def send(self, order):
        sent = super().send(order)
        return Sent(Answer.REFUSED, "failed", retry_after=1) if sent.answer is Answer.AMBIGUOUS else sent


class TriesItsRightsForReal(Correct):
    def rights(self):
        return [Right("reboot", self.rack.reboot("a try") == "ok")]


class Raises(Correct):
    def send(self, order):
        return ANSWERS[self.rack.reboot(order.key)]


SPOILT = [
    (Repeats, "test_a_lost_answer_is_ambiguous_and_nothing_is_sent_again"),
    (Repeats, "test_an_error_of_the_other_sides_own_proves_nothing"),
    (ComparesNothing, "test_another_machine_under_the_name_is_refused_and_nothing_is_sent"),
    (TakesAcceptanceForSuccess, "test_an_order_is_not_done_because_it_was_accepted"),
    (TakesAcceptanceForSuccess, "test_an_order_that_never_arrived_is_not_done"),
    (TakesATimeOutForAFailure, "test_a_lost_answer_is_ambiguous_and_nothing_is_sent_again"),
    (TriesItsRightsForReal, "test_rights_are_tried_without_effect"),
    (Raises, "test_nobody_there_is_refused_and_may_be_asked_later"),
]


@pytest.mark.parametrize(("repairer", "test"), SPOILT, ids=lambda value: getattr(value, "__name__", value))
def test_the_contract_finds_a_spoilt_repairer(repairer, test):
    with pytest.raises((AssertionError, TimeoutError, ConnectionRefusedError)):
        getattr(RepairerContract(), test)(RackWorld(repairer))
