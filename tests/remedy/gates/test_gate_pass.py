"""One pass of a gate whose scheduler goes away in the midst of it. Whole gates on real schedulers: tests/adapters."""

import os

import pytest

from nhc.core.host import Host
from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import GateState
from nhc.marks.ports.adapter import AdapterError, Applied, Effect
from nhc.marks.ports.gates import GateStanding
from nhc.remedy.gates.decide import GateStep
from nhc.remedy.gates.gate import Gate, GateWorld
from nhc.remedy.gates.settings import GateRules


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
