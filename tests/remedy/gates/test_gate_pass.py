"""One pass of a gate whose scheduler goes away in the midst of it. Whole gates on real schedulers: tests/adapters."""

import os
import time

import pytest

from nhc.core.host import Host
from nhc.core.limits import Limit
from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import GateRecord, GateState
from nhc.marks.ports.adapter import AdapterError, Applied, Effect, Mark, NodeState
from nhc.marks.ports.gates import GateStanding
from nhc.remedy.gates import identity
from nhc.remedy.gates.gate import Gate, GateWorld
from nhc.remedy.gates.gate_decision import GateStep
from nhc.remedy.gates.settings import GateRules, Trigger


class Keeper:
    """Answers so many questions, and is gone."""

    def __init__(self, answers, gone):
        self.answers, self.gone = answers, gone

    def standing(self, node):
        return self._said(GateStanding(False, False, "", 0.0, False, "idle"))

    def hold(self, node, why):
        return self._said(Applied(node, Effect.CHANGED))

    def release(self, node):
        return self._said(Applied(node, Effect.CHANGED))

    def publish(self, node, news):
        self._said(None)

    def _said(self, answer):
        self.answers -= 1
        if self.answers < 0:
            raise self.gone
        return answer


@pytest.mark.parametrize("gone", [AdapterError("connection refused"), KeyError("state")], ids=["said", "unforeseen"])
@pytest.mark.parametrize("answers", [0, 1, 2, 3])
def test_no_suite_begins_while_nobody_knows_whether_the_node_is_held(tmp_path, answers, gone):
    suite = tmp_path / "own.conf"
    suite.write_text("# context deep\n* || check_file_test -e /etc/passwd\n")
    environ = {"PATH": os.environ["PATH"], "NHC_DEEP_DIR": str(tmp_path / "deep"), "NHC_STATE_DIR": str(tmp_path)}
    said = []
    world = GateWorld(
        "n1", GateRules("all", ("*",), str(suite)), Host(), Keeper(answers, gone), None, suite.read_text(),
        str(tmp_path / "gate.json"), "none", environ, said.append,
    )  # fmt: skip
    outcome = Gate(world).once(apply=True)
    assert (outcome.decision.step, outcome.lets_in) == (GateStep.HOLD, False)
    assert record.read(world.record_path).state is GateState.HELD
    assert any("does not answer" in line for line in said)


class Fleet(Keeper):
    """Ten nodes, of which some are held by their gates, each since another second."""

    def __init__(self, held, together=()):
        super().__init__(1000, None)
        self.held, self.together, self.done = {name: since for since, name in enumerate(held)}, together, []

    def nodes(self):
        def state(name):
            since = self.held.get(name)
            return NodeState(
                name, "idle", since is None, mark=None if since is None else Mark("NHC-GATE: x", since=since)
            )

        return [state(f"n{number}") for number in range(10)]

    def standing(self, node):
        return GateStanding(node in self.held, True)  # work still runs there

    def hold(self, node, why):
        self.held.update(dict.fromkeys((*self.together, node), 100))
        self.done.append("hold")
        return Applied(node, Effect.CHANGED)

    def release(self, node):
        del self.held[node]
        self.done.append("release")
        return Applied(node, Effect.CHANGED)


def pass_of(tmp_path, keeper, on=(), node="n5", **known):
    """One pass of an open gate whose suite is another by now (`known`: what else its record says)."""
    world = GateWorld(
        node, GateRules("all", ("*",), "quick", frozenset({Trigger.UPDATE, *on}), out=Limit(2)), Host(), keeper, None,
        "", str(tmp_path / "gate.json"), "none", {}, lambda _line: None,
    )  # fmt: skip
    host = Host()
    kept = GateRecord(GateState.PASSED, "older", "all", time.time(), host.boot_id(), identity.marks(host, ""), "passed")
    record.write(world.record_path, kept._replace(**known))
    return Gate(world).once(apply=True), record.read(world.record_path).state, keeper.done


@pytest.mark.parametrize(("keeper", "lets_in", "state", "done"), [
    (Fleet(["n1"]), False, GateState.HELD, ["hold", "hold"]),
    (Fleet(["n1", "n2"]), True, GateState.PASSED, []),
    (Fleet(["n1"], together=["n2", "n3"]), True, GateState.PASSED, ["hold", "release"]),
])  # fmt: skip
def test_an_update_of_all_nodes_closes_no_more_gates_than_may_be(tmp_path, keeper, lets_in, state, done):
    found, now, did = pass_of(tmp_path, keeper)
    assert (found.lets_in, now, did) == (lets_in, state, done)


def test_a_node_of_another_boot_is_closed_whatever_room_there_is(tmp_path):
    found, now, _ = pass_of(tmp_path, Fleet(["n1", "n2"]), on=(Trigger.START,), boot="another")
    assert (found.lets_in, now) == (False, GateState.HELD)
