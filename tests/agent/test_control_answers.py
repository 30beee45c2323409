"""What `nhc agent` makes of answers on the control socket: of an agent of another version, and of no agent at all."""

import json
import socket
import threading

import pytest

from nhc.agent.control_answers import AgentStatus
from tests.support.run import nhc

COMMANDS = (
    ["status", "agent"], ["release", "agent"], ["agent", "reload"], ["agent", "check"], ["agent", "check", "--no-wait"],
    ["ack", "agent", "xid/79"],
)  # fmt: skip


@pytest.fixture
def answering(tmp_path):
    """A socket that gives this answer once."""
    threads = []

    def begin(answer):
        path = tmp_path / "agent.sock"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(1)

        def serve():
            with server, server.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(answer + b"\n")

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        return str(path)

    yield begin
    for thread in threads:
        thread.join(60)


@pytest.mark.thorough
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("answer", [{"version": "0"}, [], 7, {"error": "not now"}], ids=str)
def test_an_answer_that_lacks_something_is_one_line(answering, words, answer):
    path = answering(json.dumps(answer).encode())
    done = nhc(*words, "--socket", path)

    said = {"{'version': '0'}": "is it another version?", "{'error': 'not now'}": "not now"}.get(
        str(answer), "no answer"
    )
    assert done.returncode == 3, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_whole_answer_is_shown(answering):
    log = {"live": True, "records": 5, "lost": 0, "problem": "", "journald": False, "journald_problem": ""}
    problem = {"check": "check_gpu", "verdict": "CRIT", "text": "gpu3 is lost", "reason": "GpuLost", "target": "gpu3"}
    answer: AgentStatus = {
        "version": "1", "pid": 7, "node": "n1", "uptime": 60.0, "health": "", "verdict": "CRIT", "complete": True,
        "paused_until": None, "paused_by": "", "config_problems": [], "problems": [problem], "inherited": [],
        "kernel_log": log, "sinks": {}, "log_problems": [], "history": "", "checks": [],
    }  # fmt: skip
    done = nhc("status", "agent", "--socket", answering(json.dumps(answer).encode()))

    assert done.returncode == 1
    assert "CRIT     gpu3 is lost" in done.stdout
    assert "followed live, 5 records" in done.stdout
