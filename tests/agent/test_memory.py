"""The agent's memory does not grow with what it is asked and how long it runs. bench/memory.py has the long run."""

import gc
import json
import socket
from pathlib import Path

import pytest

from nhc.agent.event_loop import Loop
from nhc.core.render import json as wire

REPORT = Path(__file__).parents[1] / "nodes" / "h100-xid79" / "report.json"


def resident(pid):
    """Bytes."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


def test_a_report_leaves_nothing_to_collect():
    report = wire.parse(REPORT.read_text())
    gc.collect()
    text = wire.render(report)
    assert gc.collect() == 0
    assert json.loads(text) == wire.to_dict(report)
    assert text == json.dumps(wire.to_dict(report), indent=2, ensure_ascii=False) + "\n"


def test_timers_that_were_cancelled_are_let_go_before_their_time():
    """Each connection sets one, and cancels it when it has its answer."""
    loop = Loop()
    kept = [loop.after(3600, lambda: None) for _ in range(10)]
    for _ in range(10_000):
        loop.after(3600, lambda: None).cancel()
    assert len(loop._timers) < 200
    fired = []
    loop.after(0, lambda: fired.append(1))
    for timer in kept:
        timer.cancel()
        timer.cancel()
    loop.once(0.01)
    assert fired == [1]


@pytest.mark.thorough
def test_requests_leave_nothing_behind(agent):
    """3 MB for these 2000 before: a cycle for each report, and none collected."""
    agent.configure("".join(f"* || check_file_test -e /etc/passwd /proc/{number}\n" for number in range(30)))
    agent.start()

    def ask(times):
        for _ in range(times):
            with socket.create_connection(("127.0.0.1", agent.port), 10) as connection:
                connection.sendall(b"GET /report HTTP/1.1\r\nHost: x\r\n\r\n")
                while connection.recv(1 << 16):
                    pass

    ask(300)
    before = resident(agent.process.pid)
    ask(2000)
    assert resident(agent.process.pid) - before < 1 << 20


@pytest.mark.thorough
def test_a_round_that_could_not_begin_is_a_round_that_failed(agent):
    """Else `done`, which is the others, goes below nothing."""
    import resource
    import time

    from tests.support.waiting import until

    agent.configure("* |every 1s| check_file_test -e /etc/passwd\n")
    agent.start()

    def rounds():
        lines = agent.get("/metrics")[1].splitlines()
        return {line.partition('"')[2].partition('"')[0]: float(line.split()[-1]) for line in lines
                if line.startswith("nhc_agent_rounds_total{")}  # fmt: skip

    until(lambda: rounds()["done"] >= 1)
    limits = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path(f"/proc/{agent.process.pid}/fd").iterdir())
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (used + 1, limits[1]))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and b"cannot be started" not in (agent.directory / "log").read_bytes():
        time.sleep(0.05)
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, limits)
    seen = until(lambda: (found := rounds())["failed"] >= 1 and found)
    assert seen["done"] >= 1
