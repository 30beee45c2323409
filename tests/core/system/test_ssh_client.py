"""Every ssh that nhc starts, with an ssh_config that shares the operator's agent and runs commands for every host."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from nhc.core.system.process import Completed
from nhc.fleet.ssh.transport_openssh import OpenSSH
from nhc.fleet.transport import Node
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import NodeRun, RunLimits
from nhc_adapters.node.reach import LoginSettings, Reach, login_of
from nhc_adapters.node.runner import SshRunner
from tests.support.ssh import agent, sshd

MACHINE = Machine("n1", address="127.0.0.1")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.trust(["127.0.0.1"])
        yield running


def fleet_argv(config):
    session = OpenSSH(["-F", str(config), "-A"]).connect(Node("127.0.0.1", arguments=("-A",)), 0.0)
    return [*session.argv, "--", "127.0.0.1"]


def captured(ask):
    """The argument vector that an adapter runs, without the command for the node."""
    seen = []

    def run(argv, timeout, env):
        seen.append(argv)
        return Completed(255, "", "Permission denied", timed_out=False)

    with contextlib.suppress(AdapterError):
        ask(run)
    return seen[0][:-1]


def reach_argv(config):
    login = login_of(LoginSettings(config=str(config)), {})
    return captured(lambda run: Reach(login, False, "python3", (), run).ask(MACHINE, ["look"], 30.0))


def runner_argv(config):
    settings = {"config": str(config), "user": "root"}
    program = NodeRun("key", (MACHINE,), ("true",), RunLimits(60.0))
    return captured(lambda run: SshRunner(settings, {}, run=run).start(program))


@pytest.mark.slow
@pytest.mark.parametrize("argv_of", [fleet_argv, reach_argv, runner_argv])
def test_a_node_gets_no_agent_and_ssh_runs_no_command_here(server, tmp_path, argv_of):
    run_here = tmp_path / "run-here"
    config = tmp_path / "config"
    config.write_text(
        f"ForwardAgent yes\nPermitLocalCommand yes\nLocalCommand touch {run_here}\nRemoteForward 0 127.0.0.1:1\n"
        f"RemoteCommand echo other\n{server.config.read_text()}"
    )
    with agent(tmp_path / "agent", server.identity) as held:
        argv = [*argv_of(config), 'echo "agent=$SSH_AUTH_SOCK"']
        env = {**os.environ, "SSH_AUTH_SOCK": str(held)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "agent=\n", "")
    assert not run_here.exists()
