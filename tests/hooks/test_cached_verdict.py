"""The prolog's wrapper takes a kept healthy verdict without starting Python, and anything odd goes the full way."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.core.language.loader import load
from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.state.store import State
from nhc.hooks.healthcheck import remember_mark
from nhc.node.planning.cached_verdict import FILE, SETTLED, store_verdict
from tests.support.require import need
from tests.support.run import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.thorough

WRAPPER = (ROOT / "adapters/slurm/prolog.sh").read_text()


class Node:
    """A node whose prolog is the wrapper, and whose nhc-prolog leaves a trace when it is started."""

    def __init__(self, place):
        self.place, self.state, self.calls = place, place / "state", place / "calls"
        (place / "etc" / "scripts").mkdir(parents=True)
        self.conf = place / "etc" / "nhc.conf"
        self.well = place / "well"
        self.well.touch()
        self.write(f"* || NHC_PROLOG_MAX_AGE=300\n* || check_file_test -f {self.well}\n* || check_file_test -d /\n")
        program = place / "nhc-prolog"
        program.write_text(
            f"#!/bin/sh\necho x >> {self.calls}\n"
            f"exec {sys.executable} {ROOT}/nhc/core/launch/nhc-prolog -D {place}/etc MARK_OFFLINE=0\n"
        )
        program.chmod(0o755)
        self.wrapper = place / "prolog.sh"
        self.wrapper.write_text(WRAPPER.replace("program=/usr/bin/nhc-prolog\n", f"program={program}\n"))
        self.wrapper.chmod(0o755)
        self.env = {
            "NHC_STATE_DIR": str(self.state),
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_ID": "1",
            "PYTHONPATH": str(ROOT),
            "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
            "NHC_MUTES": "/no/such",
            "PATH": os.environ["PATH"],
        }

    def write(self, text):
        self.conf.write_text(text)
        while time.time() < self.conf.stat().st_ctime + SETTLED + 0.02:
            time.sleep(0.02)

    def prolog(self, **environ):
        """Whether Python was started."""
        before = self.calls.read_text() if self.calls.exists() else ""
        done = subprocess.run(
            [str(self.wrapper)], env={**self.env, **environ}, timeout=60, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return (self.calls.read_text() if self.calls.exists() else "") != before

    def healthcheck(self, *words):
        argv = [sys.executable, str(ROOT / "nhc/core/launch/nhc-healthcheck"), "-D", str(self.place / "etc"), "-l",
                str(self.place / "log"), *words, "MARK_OFFLINE=0"]  # fmt: skip
        return subprocess.run(argv, env=self.env, timeout=60, capture_output=True, text=True).returncode

    @property
    def kept(self):
        return self.state / FILE


@pytest.fixture
def node(tmp_path):
    need("root", os.geteuid() == 0, "the file counts where root owns it")
    return Node(tmp_path)


@pytest.fixture
def fresh(node):
    """A node whose verdict is kept, and is taken."""
    assert node.healthcheck() == 0
    assert node.kept.stat().st_mode & 0o777 == 0o600
    assert not node.prolog()
    return node


def test_a_prolog_keeps_its_own_verdict(node):
    assert node.prolog()
    assert not node.prolog()


def test_without_the_setting_nothing_is_kept(node):
    node.write("* || check_file_test -d /\n")
    assert node.healthcheck() == 0
    assert node.prolog()
    assert node.prolog()
    assert not node.kept.exists()


def change(node, line, text):
    lines = node.kept.read_text().splitlines()
    lines[line] = text
    node.kept.write_text("\n".join(lines) + "\n")


def same_times(path, text):
    """Other content under the old time and size, as `rsync -t` or `cp -p` can leave it."""
    before = path.stat()
    path.write_text(text.ljust(before.st_size, "\n")[: before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


ODD = {
    "another form": lambda n: change(n, 0, "nhc-prolog-healthy 2"),
    "another boot": lambda n: change(n, 1, "00000000-0000-0000-0000-000000000000"),
    "another node": lambda n: change(n, 2, "n2"),
    "stale": lambda n: change(n, 3, "1"),
    "no time": lambda n: change(n, 3, "soon"),
    "no paths": lambda n: change(n, 4, "0"),
    "too many paths": lambda n: change(n, 4, "500"),
    "empty": lambda n: n.kept.write_text(""),
    "cut short": lambda n: n.kept.write_text(n.kept.read_text()[:-20]),
    "binary": lambda n: n.kept.write_bytes(os.urandom(4000)),
    "a directory": lambda n: (n.kept.unlink(), n.kept.mkdir()),
    "a user's": lambda n: os.chown(n.kept, 1000, 1000),
    "in a user's directory": lambda n: os.chown(n.state, 1000, 1000),
    "a link": lambda n: (n.kept.rename(n.place / "moved"), n.kept.symlink_to(n.place / "moved")),
    "a changed configuration": lambda n: same_times(n.conf, "* || NHC_PROLOG_MAX_AGE=300\n"),
    "a configuration of the prolog's own": lambda n: (n.place / "etc/nhc-prolog.conf").write_text("\n"),
    "a new script": lambda n: (n.place / "etc/scripts/x.nhc").write_text("\n"),
    "the configuration is gone": lambda n: n.conf.unlink(),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_odd_goes_the_full_way(fresh, what):
    ODD[what](fresh)
    assert fresh.prolog()


@pytest.mark.parametrize("environ", [{"SLURMD_NODENAME": "n2"}, {"SLURM_SCRIPT_CONTEXT": "prolog_slurmctld"}])
def test_another_node_and_the_controller_go_the_full_way(fresh, environ):
    assert fresh.prolog(**environ)


def test_a_wrapper_that_gives_arguments_says_no(fresh):
    fresh.wrapper.write_text(fresh.wrapper.read_text().replace("kept=yes\n", "kept=no\n"))
    assert fresh.prolog()


@pytest.mark.parametrize(
    "line",
    [
        "* || check_file_test -e /no/such\n",
        "* || no_such_program\n",
        "* |strikes 3| check_file_test -e /no/such\n",
        "* |context prolog| true\n",
    ],
)
def test_a_verdict_that_is_not_plainly_healthy_is_not_kept(fresh, line):
    fresh.write(fresh.conf.read_text() + line)
    fresh.healthcheck()
    assert not fresh.kept.exists()
    assert fresh.prolog()


def test_a_node_that_fell_sick_loses_the_kept_verdict(fresh):
    fresh.well.unlink()
    assert not fresh.prolog()  # within the time that NHC_PROLOG_MAX_AGE allows
    assert fresh.healthcheck() == 1
    assert not fresh.kept.exists()
    assert fresh.prolog()


def test_a_health_check_of_another_configuration_keeps_nothing(node):
    other = node.place / "other.conf"
    other.write_text(node.conf.read_text())
    time.sleep(SETTLED + 0.02)  # as old as its content must be
    assert node.healthcheck("-c", str(other)) == 0
    assert not node.kept.exists()


@pytest.mark.parametrize(("began", "there"), [(SETTLED / 2, False), (SETTLED + 1, True)])
def test_a_configuration_changed_as_the_run_began_is_not_kept(node, began, there):
    """`began` seconds after the change."""
    plan, state = load([str(node.conf)], "n1"), State(str(node.state))
    ok = CheckResult("check_x", Outcome(Verdict.OK), 0.0)
    report = Report("n1", "a boot", node.conf.stat().st_ctime + began, 0.0, (ok,))
    store_verdict(state, plan, report, {"CONFDIR": str(node.conf.parent)}, 60.0, "prolog")
    assert node.kept.exists() == there


def marked(node):
    """The node with a check that leaves a trace, and a healthy report that the prolog takes the full way."""
    node.trace = node.place / "trace"
    node.write(f"* || NHC_PROLOG_MAX_AGE=300\n* || check_cmd_status -t 5 -r 0 touch {node.trace}\n")
    assert node.prolog()
    node.kept.unlink()  # the full way
    node.trace.unlink()
    assert node.prolog()
    assert not node.trace.exists(), "the recent report was not taken"
    return node


CHANGES = {
    "a line more": lambda n: n.write(n.conf.read_text() + "* || check_file_test -d /\n"),
    "a line that only the prolog runs": lambda n: n.write(
        n.conf.read_text() + "* |context prolog| check_file_test -d /\n"
    ),
    "a comment, under the old time": lambda n: same_times(n.conf, n.conf.read_text()),
    "a setting": lambda n: n.write(n.conf.read_text().replace("=300", "=299")),
    "a configuration of the prolog's own": lambda n: (n.place / "etc/nhc-prolog.conf").write_text(n.conf.read_text()),
    "a new script": lambda n: (n.place / "etc/scripts/x.nhc").write_text("true\n"),
    "a removed directory of scripts": lambda n: (n.place / "etc/scripts").rmdir(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_full_way_takes_no_report_of_another_configuration(node, what):
    marked(node)
    CHANGES[what](node)
    assert node.prolog()
    assert node.trace.exists()


class Watched:
    """A node with an agent, whose health check is the wrapper."""

    def __init__(self, place):
        self.place, self.state, self.calls, self.well = place, place / "state", place / "calls", place / "well"
        (place / "etc" / "scripts").mkdir(parents=True)
        self.well.touch()
        self.conf = place / "etc" / "nhc.conf"
        self.conf.write_text(f"* || NHC_HEALTHCHECK_MAX_AGE=300\n* |every 1s| check_file_test -f {self.well}\n")
        program = place / "nhc-healthcheck"
        program.write_text(
            f"#!/bin/sh\necho x >> {self.calls}\n"
            f"exec {sys.executable} {ROOT}/nhc/core/launch/nhc-healthcheck -D {place}/etc -l {place}/log NHC_RM=none\n"
        )
        program.chmod(0o755)
        self.wrapper = place / "healthcheck.sh"
        wrapper = (ROOT / "adapters/slurm/healthcheck.sh").read_text()
        self.wrapper.write_text(wrapper.replace("program=/usr/bin/nhc-healthcheck\n", f"program={program}\n"))
        self.wrapper.chmod(0o755)
        self.env = {"NHC_STATE_DIR": str(self.state), "SLURMD_NODENAME": "n1", "PYTHONPATH": str(ROOT),
                    "NHC_MUTES": "/no/such", "PATH": os.environ["PATH"]}  # fmt: skip
        settings = place / "agent.toml"
        settings.write_text(
            f'[agent]\nnode = "n1"\nconfig = ["{self.conf}"]\nscripts = ["{place}/etc/scripts"]\n'
            f'state = "{self.state}"\n'
            f'listen = []\nsocket = "{place}/agent.sock"\nkernel-log = false\nboot-window = "0s"\n'
        )
        self.agent = subprocess.Popen(
            [sys.executable, "-m", "nhc", "serve", "agent", "-s", str(settings)], env=self.env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def unmarked(self):
        """As after a health check that asked the scheduler: the node carries no mark of ours."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        State(str(self.state)).save("mark", {"n1": {"ours": False, "read": time.time(), "boot": boot}})

    def healthcheck(self, **environ):
        """Whether Python was started."""
        before = self.calls.read_text() if self.calls.exists() else ""
        subprocess.run([str(self.wrapper)], env={**self.env, **environ}, timeout=60, check=True)
        return (self.calls.read_text() if self.calls.exists() else "") != before


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    need("root", os.geteuid() == 0, "the file counts where root owns it")
    node = Watched(tmp_path_factory.mktemp("agent"))
    yield node
    node.agent.terminate()
    node.agent.wait(30)


@pytest.fixture
def watched(agents):
    """A node whose wrapper answers by itself."""
    agents.well.touch()
    agents.unmarked()

    def by_itself():
        return not agents.healthcheck()

    until(by_itself, every=0.3, what="the agent to vouch for the health check's lines")
    return agents


def replaced(node, name, line, text):
    path = node.state / name
    lines = path.read_text().splitlines()
    lines[line] = text
    path.write_text("\n".join(lines) + "\n")


UNLIKE = {
    "another boot": lambda n: replaced(n, "healthcheck-healthy", 1, "00000000-0000-0000-0000-000000000000"),
    "another boot of the agent's": lambda n: replaced(n, "agent-healthy", 1, "0"),
    "the mark is to be read": lambda n: replaced(n, "healthcheck-healthy", 3, "1"),
    "too old a result": lambda n: replaced(n, "healthcheck-healthy", 4, "0"),
    "an agent of other lines": lambda n: replaced(n, "healthcheck-healthy", 5, "0"),
    "no age": lambda n: replaced(n, "healthcheck-healthy", 4, "young"),
    "no agent": lambda n: (n.state / "agent-healthy").unlink(),
    "a user's": lambda n: os.chown(n.state / "healthcheck-healthy", 1000, 1000),
    "a changed configuration": lambda n: same_times(n.conf, n.conf.read_text()),
    "a hook that was broken": lambda n: (n.state / "broken/n1/healthcheck").mkdir(parents=True),
    "a mark that a prolog set": lambda n: remember_mark(State(str(n.state)), Report("n1", "b", 0.0, 0.0, ()), True),
}  # fmt: skip


@pytest.mark.parametrize("what", UNLIKE)
def test_a_health_check_beside_an_agent_is_answered_by_the_wrapper_unless_something_is_odd(watched, what):
    watched.agent.send_signal(signal.SIGSTOP)  # else it writes its file again
    try:
        UNLIKE[what](watched)
        assert watched.healthcheck()
    finally:
        watched.agent.send_signal(signal.SIGCONT)
        shutil.rmtree(watched.state / "broken", ignore_errors=True)


def test_the_agent_vouches_for_its_own_node(watched):
    assert watched.healthcheck(SLURMD_NODENAME="n2")


def test_what_the_agent_finds_counts_at_once(watched):
    watched.well.unlink()
    until(lambda: not (watched.state / "agent-healthy").exists(), what="the agent to see it")
    assert watched.healthcheck()
    assert not (watched.state / "healthcheck-healthy").exists()


def test_an_agent_that_does_not_judge_every_line_vouches_for_none(watched):
    before = watched.conf.read_text()
    watched.conf.write_text(before + "* |context healthcheck| check_file_test -d /\n")
    for _ in range(3):
        assert watched.healthcheck()
    watched.conf.write_text(before)
