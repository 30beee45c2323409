"""What a hook loads: a prolog runs before every job, and an adapter on a node has the standard library alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BANNED = {
    "argparse", "asyncio", "contextlib", "dataclasses", "datetime", "decimal", "http.client", "importlib.metadata",
    "inspect", "logging", "pathlib", "shlex", "sqlite3", "ssl", "subprocess", "tempfile", "tomllib", "urllib.parse",
    "yaml", "click",
}  # fmt: skip
ONLY_WHEN_SICK = {
    "nhc.ports.adapter",
    "nhc.policy.decide",
    "nhc.policy.ledger",
    "nhc.plugins",
    "nhc_adapters",
    "json",
    "syslog",
}

LOAD = """
import sys
from nhc.cli.prolog import main
status = main(["-D", sys.argv[1]])
sys.__stdout__.write(" ".join([str(status), *sys.modules]))
"""


def prolog(directory, line):
    (directory / "nhc.conf").write_text(line + "\n")
    env = {"PYTHONPATH": f"{ROOT}:{ROOT}/adapters", "NHC_STATE_DIR": str(directory / "state"), "NHC_RM": "slurm",
           "NHC_MUTES": "/no/such/file",
           "SLURMD_NODENAME": "n1", "SLURM_CONF": "/nonexistent/slurm.conf",
           "NHC_LEDGER_DIR": str(directory / "ledger")}  # fmt: skip
    argv = [sys.executable, "-S", "-c", LOAD, str(directory)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    status, *modules = done.stdout.split()
    return int(status), set(modules)


def test_a_healthy_prolog_loads_nothing_that_acts(tmp_path):
    prolog(tmp_path, "* || check_file_test -d /")
    status, modules = prolog(tmp_path, "* || check_file_test -d /")  # the plan kept by the first
    assert status == 0
    assert not modules & (BANNED | ONLY_WHEN_SICK)
    assert not {name for name in modules if name.startswith("nhc_adapters")}


@pytest.mark.parametrize("name", ["slurm", "pbs", "lsf", "sge", "flux"])
def test_a_nodes_adapter_needs_the_standard_library_alone_and_little_of_that(name):
    code = (
        f"import sys, nhc_adapters.{name}, nhc.hooks.marking, nhc.hooks.prolog, nhc.hooks.epilog; print(*sys.modules)"
    )
    env = {"PYTHONPATH": f"{ROOT}:{ROOT}/adapters"}
    argv = [sys.executable, "-S", "-c", code]
    modules = set(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.split())
    assert not modules & (BANNED - {"contextlib"})  # which typing brings
