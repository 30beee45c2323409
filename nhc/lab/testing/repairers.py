"""The contract of repairers as tests: every repairer passes them, ours and a site's own.

    from nhc.lab.testing.repairers import RepairerContract, RepairerWorld

    class TestMine(RepairerContract):
        @pytest.fixture
        def world(self):
            return MyWorld()

A world is one repairer in front of one machine that can be repaired in one way, and the ways in which the other side
goes wrong. Each test gets a world of its own. The other side counts what reaches it that changes a machine: a repairer
that repeats by itself, or that sends before it has compared the machine's identity, is found by that count.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable, List, Optional, Sequence, Tuple

from nhc.lab.testing.adapters import error_of
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import (
    Answer,
    Claim,
    Completes,
    EvidenceBudget,
    EvidenceSource,
    Machine,
    Order,
    OtherActors,
    Progress,
    Repairer,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)

KEY = "6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a"

HOSTILE = 'it\'s "quoted" $(touch /nope) `id`; --option <b>&\n second line \x07 故障 ' + "x" * 3000


class RepairerWorld:
    """What a test of a repairer needs around it. Override all of it that has no default."""

    repairer: Repairer
    machine: Machine
    rung: Rung
    """The repair that is tried. A repairer of several has a world for each."""
    made_by: Optional[Callable[..., Any]] = None
    """What stands under the repairer's name, where it is not its class."""
    secrets: Sequence[str] = ()
    """Texts that may stand in no message: passwords, tokens, keys."""
    sees_effect = True
    """Whether the other side shows that the repair happened. Where it does not, `progress` stays WORKING."""
    sees_lost = True
    """Whether it shows that, too, of an order whose answer was lost."""
    names_replacement = True
    """Whether the other side tells which machine stands in for a replaced one."""
    throttled = Answer.REFUSED
    """What "ask me later" proves here: REFUSED where nothing can have been begun, else AMBIGUOUS."""
    takes_key = False
    """Whether the other side takes an idempotency key; then `keys_seen` names those it saw."""

    def calls(self) -> List[str]:
        """What has reached the other side that changes a machine, in order."""
        raise NotImplementedError

    def keys_seen(self) -> List[str]:
        """The idempotency keys of `calls`."""
        return []

    def lose_next_answer(self) -> None:
        """The next call that changes a machine takes effect, and its answer never arrives."""
        raise NotImplementedError

    def fail_next_call(self) -> None:
        """The next call that changes a machine is answered with an error of the other side's own (HTTP 500)."""
        raise NotImplementedError

    def throttle_next_call(self) -> None:
        """The next call that changes a machine is answered with "too many requests", or "unavailable"."""
        raise NotImplementedError

    def deny(self) -> None:
        """From now on, calls that change a machine are not allowed to us."""
        raise NotImplementedError

    def vanish(self) -> None:
        """From now on, nobody listens where the other side was."""
        raise NotImplementedError

    def stranger(self) -> Machine:
        """The machine as a cluster describes it that has not noticed that another stands under this node's name."""
        raise NotImplementedError

    def take_effect(self) -> None:
        """Let what was begun go on until the other side shows its end, or waits for the next call."""
        raise NotImplementedError

    def effect_fails(self) -> bool:
        """Let what was begun fail, where the other side can say so. False where it cannot."""
        return False


class RepairerContract:
    """Subclass it with a `world` fixture; pytest runs every test below on that world."""

    def order(self, world: RepairerWorld, **changes: Any) -> Order:
        order = Order(KEY, "17", 1, world.machine, world.rung, "GpuFallenOffBus: gpu3 does not answer")
        return order._replace(**changes)

    def said(self, world: RepairerWorld, *values: Any) -> None:
        """Every message is one line, and none holds a secret."""
        for value in values:
            for text in [getattr(value, "message", str(value)), getattr(value, "request_id", "")]:
                assert "\n" not in text
                assert "Traceback" not in text
                assert len(text) <= 1000
                assert not [secret for secret in world.secrets if secret in text]

    def cannot(self, world: RepairerWorld) -> str:
        """The reason that `can` gives, "" where it gives none."""
        try:
            return world.repairer.can(world.machine, world.rung)
        except AdapterError as error:
            self.said(world, error)
            return ""

    # Making, asking.

    def test_it_is_made_as_nhc_makes_one(self, world: RepairerWorld) -> None:
        """`nhc.marks.ports.repair.MakeRepairer`: settings, environment, timeout, each with a default."""
        signature = inspect.signature(world.made_by or type(world.repairer))
        signature.bind({}, {}, 5.0)
        signature.bind()

    def test_a_setting_that_it_does_not_know_is_named(self, world: RepairerWorld) -> None:
        make: Callable[..., Any] = world.made_by or type(world.repairer)
        message = error_of(lambda: make({"no-such-setting": "1"}, {}, 5.0))
        assert message is not None
        assert "no-such-setting" in message
        self.said(world, message)

    def test_it_says_which_repairs_it_can_do(self, world: RepairerWorld) -> None:
        assert world.repairer.can(world.machine, world.rung) == ""
        whys = {rung: world.repairer.can(world.machine, rung) for rung in Rung}
        assert any(whys.values()), "no repairer can do everything"
        self.said(world, *whys.values())
        assert world.calls() == []

    def test_an_unknown_machine_is_refused_with_a_reason(self, world: RepairerWorld) -> None:
        nobody = Machine("n0")
        assert world.repairer.can(nobody, world.rung)
        sent = world.repairer.send(self.order(world, machine=nobody))
        assert sent.answer is Answer.REFUSED
        self.said(world, sent)
        assert world.calls() == []

    def test_looking_changes_nothing(self, world: RepairerWorld) -> None:
        seen = world.repairer.look(world.machine)
        assert seen.instance
        assert world.repairer.look(world.machine)._replace(at=0) == seen._replace(at=0)
        assert world.calls() == []

    # Sending.

    def test_an_order_is_sent_once(self, world: RepairerWorld) -> None:
        sent = world.repairer.send(self.order(world))
        assert (sent.answer, len(world.calls())) == (Answer.ACCEPTED, 1), sent
        self.said(world, sent)

    def test_the_orders_key_is_the_providers_idempotency_key(self, world: RepairerWorld) -> None:
        world.repairer.send(self.order(world))
        if world.takes_key:
            assert [KEY in key for key in world.keys_seen()] == [True]

    def test_a_lost_answer_is_ambiguous_and_nothing_is_sent_again(self, world: RepairerWorld) -> None:
        world.lose_next_answer()
        sent = world.repairer.send(self.order(world))
        assert (sent.answer, len(world.calls())) == (Answer.AMBIGUOUS, 1), sent
        assert sent.retry_after == 0
        self.said(world, sent)

    def test_an_error_of_the_other_sides_own_proves_nothing(self, world: RepairerWorld) -> None:
        world.fail_next_call()
        sent = world.repairer.send(self.order(world))
        assert (sent.answer, len(world.calls())) == (Answer.AMBIGUOUS, 1), sent
        self.said(world, sent)

    def test_being_asked_to_wait_is_told_and_nothing_is_sent_again(self, world: RepairerWorld) -> None:
        world.throttle_next_call()
        sent = world.repairer.send(self.order(world))
        assert (sent.answer, len(world.calls())) == (world.throttled, 1), sent
        assert (sent.retry_after > 0) == (world.throttled is Answer.REFUSED)
        self.said(world, sent)

    def test_what_is_not_allowed_is_refused_for_good(self, world: RepairerWorld) -> None:
        world.deny()
        sent = world.repairer.send(self.order(world))
        assert (sent.answer, sent.retry_after) == (Answer.REFUSED, 0), sent
        assert sent.right, "a person must be told which permission is missing"
        assert len(world.calls()) <= 1
        self.said(world, sent)

    def test_nobody_there_is_refused_and_may_be_asked_later(self, world: RepairerWorld) -> None:
        world.vanish()
        sent = world.repairer.send(self.order(world))
        assert sent.answer is Answer.REFUSED, sent
        assert sent.retry_after > 0
        self.said(world, sent)
        assert self.cannot(world) == "", "that nobody answers is no fact about the machine"
        assert world.calls() == []

    def test_another_machine_under_the_name_is_refused_and_nothing_is_sent(self, world: RepairerWorld) -> None:
        sent = world.repairer.send(self.order(world, machine=world.stranger()))
        assert (sent.answer, world.calls()) == (Answer.REFUSED, []), sent
        self.said(world, sent)

    def test_no_reason_can_do_harm(self, world: RepairerWorld) -> None:
        sent = world.repairer.send(self.order(world, because=HOSTILE))
        assert (sent.answer, len(world.calls())) == (Answer.ACCEPTED, 1), sent
        self.said(world, sent)

    # Watching.

    def test_an_order_is_not_done_because_it_was_accepted(self, world: RepairerWorld) -> None:
        before = world.repairer.look(world.machine)
        order = self.order(world)
        sent = world.repairer.send(order)
        calls = len(world.calls())
        seen = world.repairer.progress(order, sent, before)
        assert seen.stage in (Stage.WORKING, Stage.HALFWAY), seen
        assert len(world.calls()) == calls, "progress asks only"
        self.said(world, seen)

    def test_it_is_done_where_the_effect_is_proved(self, world: RepairerWorld) -> None:
        before = world.repairer.look(world.machine)
        order = self.order(world)
        seen, _sent = self.finish(world, order, world.repairer.send(order), before)
        assert seen.stage is (Stage.DONE if world.sees_effect else Stage.WORKING), seen
        if world.rung is Rung.REPLACE and world.sees_effect and world.names_replacement:
            assert seen.replacement
        self.said(world, seen)

    def test_an_ambiguous_order_is_told_by_its_effect(self, world: RepairerWorld) -> None:
        before = world.repairer.look(world.machine)
        order = self.order(world)
        world.lose_next_answer()
        sent = world.repairer.send(order)
        assert sent.answer is Answer.AMBIGUOUS
        seen, _sent = self.finish(world, order, sent, before)
        assert seen.stage is (Stage.DONE if world.sees_effect and world.sees_lost else Stage.WORKING), seen

    def test_an_order_that_never_arrived_is_not_done(self, world: RepairerWorld) -> None:
        before = world.repairer.look(world.machine)
        seen = world.repairer.progress(self.order(world), Sent(Answer.AMBIGUOUS, "the answer was lost"), before)
        assert seen.stage is not Stage.DONE
        assert world.calls() == []

    def test_an_effect_that_failed_is_no_success(self, world: RepairerWorld) -> None:
        before = world.repairer.look(world.machine)
        order = self.order(world)
        sent = world.repairer.send(order)
        if world.effect_fails():
            seen = world.repairer.progress(order, sent, before)
            assert seen.stage is Stage.FAILED, seen
            assert seen.message
            self.said(world, seen)

    def test_an_unreachable_other_side_is_no_failure_of_the_repair(self, world: RepairerWorld) -> None:
        before = world.repairer.look(world.machine)
        order = self.order(world)
        sent = world.repairer.send(order)
        world.vanish()
        if world.sees_effect:
            message = error_of(lambda: world.repairer.progress(order, sent, before))
            assert message
            self.said(world, message)
        message = error_of(lambda: world.repairer.look(world.machine))
        assert message
        self.said(world, message)

    # Rights, others, evidence.

    def test_rights_are_tried_without_effect(self, world: RepairerWorld) -> None:
        rights = world.repairer.rights()
        assert rights
        assert all(re.fullmatch(r"\S[^\n]*", right.name) for right in rights)
        assert not [right for right in rights if right.granted is False], rights
        assert world.calls() == []
        self.said(world, *rights)

    def test_rights_say_where_nobody_can_be_asked(self, world: RepairerWorld) -> None:
        world.vanish()
        try:
            rights: Sequence[Right] = world.repairer.rights()
        except AdapterError as error:
            self.said(world, error)
            return
        assert not [right for right in rights if right.granted], rights
        self.said(world, *rights)

    def test_other_actors_are_named_with_their_source(self, world: RepairerWorld) -> None:
        if isinstance(world.repairer, OtherActors):
            claims: Sequence[Claim] = world.repairer.claims(world.machine)
            assert all(claim.actor and claim.doing and claim.source for claim in claims)
            assert world.calls() == []

    def test_evidence_keeps_to_its_budget(self, world: RepairerWorld) -> None:
        if isinstance(world.repairer, EvidenceSource):
            budget = EvidenceBudget(size=2000, seconds=20.0)
            try:
                pieces = list(world.repairer.evidence(world.machine, budget))
            except AdapterError as error:
                self.said(world, error)
                return
            assert sum(len(piece.content) for piece in pieces) <= budget.size
            assert all("/" not in piece.name and "/" in piece.kind for piece in pieces)
            assert world.calls() == []

    # How a repair of several calls is brought to its end.

    def finish(self, world: RepairerWorld, order: Order, sent: Sent, before: Sighting) -> Tuple[Progress, Sent]:
        """Let the effect of an order happen, with the calls that it takes; the last progress and answer."""
        for _call in range(4):
            world.take_effect()
            seen = world.repairer.progress(order, sent, before)
            if seen.stage is not Stage.HALFWAY:
                return seen, sent
            assert isinstance(world.repairer, Completes), "HALFWAY is for those that can complete"
            answer = world.repairer.complete(order, sent)
            assert answer.answer is Answer.ACCEPTED, answer
            self.said(world, seen, answer)
            sent = answer
        raise AssertionError("more than four calls, and no end")
