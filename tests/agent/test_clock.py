"""Clock steps, the boot window's end and failed rounds, on an agent whose clock the test moves."""

import time

import pytest

from nhc.agent import check_round, node_view
from nhc.agent.configuration import ConfigFiles
from nhc.agent.event_loop import Loop
from nhc.agent.runtime import runtime
from nhc.agent.service import Agent
from nhc.agent.settings import AgentSettings
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost

pytestmark = pytest.mark.thorough

YEAR = 365 * 86400


@pytest.fixture
def made(tmp_path):
    """An agent in this process, with a host of the test's own."""
    config = tmp_path / "nhc.conf"
    config.write_text("* |every 60s| check_file_test -e /good\n")
    host = FakeHost({"/proc/sys/kernel/random/boot_id": "b\n", "/good": ""})
    logged = []
    loop = Loop(complain=logged.append)
    loop.signals({})
    agents = []

    def make(**settings):
        given = AgentSettings(node="n1", config=(str(config),), kernel_log=False, boot_window=300.0, **settings)
        here = runtime(given, host, State(str(tmp_path / "state")), loop, logged.append)
        agent = Agent(here, ConfigFiles(lambda: given, given, here))
        agent.logged = logged
        agents.append(agent)
        return agent

    yield make
    for agent in agents:
        agent.stop()


def settle(agent):
    """Until no round is under way."""
    deadline = time.monotonic() + 60
    agent.tick()
    while agent.node.rounds.running:
        assert time.monotonic() < deadline
        agent.node.runtime.loop.once(0.02)


def rounds_of(agent):
    return agent.node.publisher.counts.get("rounds", 0)


def verdict(agent):
    return node_view.report(agent.node).results[0].verdict.name


@pytest.mark.slow
@pytest.mark.parametrize("step", [YEAR, -YEAR, 61, -61])
def test_a_step_of_the_clock_runs_nothing_and_stops_nothing(made, step):
    agent = made()
    agent.start()
    settle(agent)
    assert rounds_of(agent) == 1
    agent.node.runtime.host.system.now += step
    settle(agent)
    assert rounds_of(agent) == 1
    assert node_view.health(agent.node) == ""
    assert (
        agent.node.runtime.host.time() - node_view.report(agent.node).started < 5
    )  # and the report is as fresh as it was
    agent.node.runtime.host.system.uptime += 64
    settle(agent)
    assert rounds_of(agent) == 2


def test_a_pause_is_as_long_as_it_was_to_be_whatever_the_clock_says(made):
    agent = made()
    agent.start()
    settle(agent)
    agent.pause(600.0, "me", "")
    agent.node.runtime.host.system.now += YEAR
    agent.node.runtime.host.system.uptime += 100
    settle(agent)
    assert agent.node.pause.current
    agent.node.runtime.host.system.uptime += 501
    settle(agent)
    assert agent.node.pause.current is None
    assert rounds_of(agent) == 2


def test_what_fails_within_the_boot_window_is_judged_when_it_ends(made):
    agent = made()
    agent.node.runtime.host.system.uptime = 20.0
    agent.node.runtime.host.remove("/good")
    agent.start()
    settle(agent)
    assert node_view.report(agent.node).results[0].outcome.reason == "BootWindow"
    for uptime in (100.0, 200.0, 299.0):
        agent.node.runtime.host.system.uptime = uptime
        settle(agent)
        assert verdict(agent) == "UNKNOWN"
    agent.node.runtime.host.system.uptime = 300.5
    settle(agent)
    assert verdict(agent) == "CRIT"


def test_another_boot_forgets_what_checks_said_and_a_restart_does_not(made):
    agent = made()
    agent.node.runtime.host.remove("/good")
    agent.start()
    settle(agent)
    agent.stop()
    again = made()
    again.start()
    assert verdict(again) == "CRIT"  # before anything has run
    again.stop()
    again.node.runtime.host.write("/proc/sys/kernel/random/boot_id", "c\n")
    third = made()
    third.start()
    assert node_view.report(third.node).results == ()


def test_a_round_that_cannot_be_started_is_said_once_and_tried_again(made, monkeypatch):
    agent = made()
    agent.start()
    settle(agent)

    def refuse(*_words):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(check_round, "_fork", refuse)
    for _ in range(3):
        agent.node.runtime.host.system.uptime += 64
        settle(agent)
    assert verdict(agent) == "OK"
    assert len([line for line in agent.logged if "Resource temporarily unavailable" in line]) == 1
    agent.node.runtime.host.system.uptime += 64
    assert "overdue" in node_view.health(agent.node)
    monkeypatch.undo()
    agent.node.runtime.host.system.uptime += 64
    settle(agent)
    assert node_view.health(agent.node) == ""


def test_a_round_whose_process_is_killed_is_run_again(made):
    agent = made()
    agent.start()
    settle(agent)
    agent.node.runtime.host.system.uptime += 64
    agent.tick()
    (under_way,) = agent.node.rounds.running
    import os
    import signal

    os.kill(under_way.pid, signal.SIGKILL)
    settle(agent)
    assert verdict(agent) == "OK"
    agent.node.runtime.host.system.uptime += 16
    settle(agent)
    assert node_view.health(agent.node) == ""
    assert rounds_of(agent) == 3
