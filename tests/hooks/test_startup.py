"""What a hook loads: a prolog runs before every job, and an adapter on a node has the standard library alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.startup import settle

ROOT = Path(__file__).resolve().parents[2]
BANNED = {
    "argparse", "asyncio", "contextlib", "dataclasses", "datetime", "decimal", "http.client", "importlib.metadata",
    "inspect", "logging", "pathlib", "shlex", "sqlite3", "ssl", "subprocess", "tempfile", "tomllib", "urllib.parse",
    "yaml", "click",
}  # fmt: skip
ONLY_WHEN_SICK = {
    "nhc.marks.ports.adapter",
    "nhc.marks.policy.mark_decision",
    "nhc.marks.policy.ledger",
    "nhc.core.plugins",
    "nhc_adapters",
    "json",
    "syslog",
}

#: All that a healthy prolog loads of ours while it waits for its checks. A module more is 60 to 300 us before each job:
#: what only a failure, a profile or a deadline needs is imported there.
PROLOG = {
    "nhc", "nhc.core", "nhc.core.host", "nhc.core.language", "nhc.core.language.site_settings",
    "nhc.core.language.trust", "nhc.core.light", "nhc.core.memory", "nhc.core.model", "nhc.core.plan",
    "nhc.core.render", "nhc.core.render.plain", "nhc.core.state", "nhc.core.state.store", "nhc.core.state.earlier_runs",
    "nhc.core.system", "nhc.core.system.children", "nhc.core.system.ending_signals",
    "nhc.core.system.machine", "nhc.core.system.node_name", "nhc.core.system.process",
    "nhc.core.system.written_files", "nhc.hooks",
    "nhc.hooks.after_report", "nhc.hooks.commands", "nhc.hooks.commands.hook", "nhc.hooks.commands.prolog",
    "nhc.hooks.job_environment", "nhc.hooks.job_hook", "nhc.node", "nhc.node.checks", "nhc.node.planning",
    "nhc.node.planning.cache", "nhc.node.planning.local", "nhc.node.run", "nhc.node.run.engine",
    "nhc.node.run.supervisor", "nhc.node.run.worker",
}  # fmt: skip

LOAD = """
import sys
from nhc.hooks.commands.prolog import main
status = main(["-D", sys.argv[1]])
sys.__stdout__.write(" ".join([str(status), *sys.modules]))
"""


def prolog(directory):
    env = {"PYTHONPATH": f"{ROOT}:{ROOT}/adapters", "NHC_STATE_DIR": str(directory / "state"), "NHC_RM": "slurm",
           "NHC_MUTES": "/no/such/file",
           "SLURMD_NODENAME": "n1", "SLURM_CONF": "/nonexistent/slurm.conf",
           "NHC_LEDGER_DIR": str(directory / "ledger")}  # fmt: skip
    argv = [sys.executable, "-S", "-c", LOAD, str(directory)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    status, *modules = done.stdout.split()
    return int(status), set(modules)


@pytest.mark.thorough
def test_a_healthy_prolog_loads_nothing_that_acts(tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_file_test -d /\n")
    settle(tmp_path / "nhc.conf")
    prolog(tmp_path)
    status, modules = prolog(tmp_path)  # the plan kept by the first
    assert status == 0
    assert not modules & (BANNED | ONLY_WHEN_SICK)
    assert {name for name in modules if name.partition(".")[0] in ("nhc", "nhc_adapters")} == PROLOG


@pytest.mark.thorough
def test_a_prolog_that_fails_says_which_machine_the_node_is(tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_file_test -d /no/such/directory\n")
    assert "nhc.node.facts.machine_identity" in prolog(tmp_path)[1]


@pytest.mark.parametrize("name", ["slurm", "pbs", "lsf", "sge", "flux"])
def test_a_nodes_adapter_needs_the_standard_library_alone_and_little_of_that(name):
    code = (
        f"import sys, nhc_adapters.{name}, nhc.hooks.marking, nhc.hooks.prolog, nhc.hooks.epilog; print(*sys.modules)"
    )
    env = {"PYTHONPATH": f"{ROOT}:{ROOT}/adapters"}
    argv = [sys.executable, "-S", "-c", code]
    modules = set(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.split())
    assert not modules & (BANNED - {"contextlib"})  # which typing brings
