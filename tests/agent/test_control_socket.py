"""The agent's side of its control socket."""

import json
import socket
from types import SimpleNamespace

import pytest

from nhc.agent.agent_plan import Checks
from nhc.agent.check_round import Finished
from nhc.agent.control_socket import Control, _Waiter
from nhc.agent.event_loop import Loop
from nhc.agent.pause import PauseTimer
from nhc.agent.problems import Board
from nhc.agent.schedule import CheckTimes, Schedule
from nhc.core.model import CheckResult, ok
from nhc.lab.testing.fake_host import FakeHost


@pytest.mark.parametrize("question", [b"[" * 60000, b'{"do": "pause", "seconds": 1%s}' % (b"0" * 400)],
                         ids=["nested", "large"])  # fmt: skip
def test_a_question_that_no_value_can_hold_is_answered_with_an_error(tmp_path, question):
    complaints = []
    loop = Loop(complain=complaints.append)
    control = Control(loop, None, str(tmp_path / "agent.sock"))
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(60)
        peer.connect(control.path)
        peer.sendall(question + b"\n")
        loop.once()  # it connects
        while control.server.connections and not complaints:
            loop.once()
        assert complaints == []
        assert "not understood" in json.loads(peer.recv(65536))["error"]
    control.close()


def test_who_waits_for_checks_does_not_wait_for_one_that_a_reload_dropped():
    host, answers, waiters = FakeHost({}), [], []
    schedule, board = Schedule("n1"), Board()
    schedule.set({key: CheckTimes(key, 60.0, 1.0) for key in ("kept", "dropped")}, host.monotonic())
    checks = Checks(schedule, board)
    checks.items = {"kept": None}
    node = SimpleNamespace(
        runtime=SimpleNamespace(host=host), checks=checks, pause=PauseTimer(host),
        rounds=SimpleNamespace(call_each=waiters.append, call_no_more=waiters.remove),
    )  # fmt: skip
    waiter = _Waiter(node, SimpleNamespace(fd=0, answer=answers.append), {"kept", "dropped"})
    board.judge("kept", [CheckResult("kept", ok())], host.time())
    waiter(Finished(("kept",), {}, 0.0))
    assert [result["check"] for result in json.loads(answers[0])["results"]] == ["kept"]
    assert waiters == []
