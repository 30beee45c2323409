"""Who may import whom: the one-way flow of docs/architecture.md, held by walking the syntax trees."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.checks import FAMILIES
from nhc.plan_cache import _RACY

ROOT = Path(__file__).resolve().parents[1]
NHC = ROOT / "nhc"

# A layer may import itself and what is listed. `plan` and `process` are values and the command runner of the core.
LAYERS = {
    "model": set(),
    "units": set(),
    "process": set(),
    "plan": set(),
    "data": set(),
    "state": {"stale_files"},
    "memory": set(),
    "host": {"process", "guarded", "ring", "signalling", "memory"},
    "check": {"model", "host", "checks"},  # the families it finds by name
    "facts": {"host", "units", "data", "process", "plain_http", "metadata"},
    "plain_http": set(),
    "metadata": {"plain_http"},
    "checks": {"model", "host", "check", "facts", "units", "nodeset", "kernlog", "process", "data", "plain_http"},
    "render": {"model", "units"},
    "ports": {"model", "mark_cause"},
    "mark_cause": set(),
    "policy": {"model", "ports"},
    "survivors": set(),
    "worker": {"process", "order"},
    "custody": {"process", "survivors", "worker"},
    "ending": set(),
    "order": set(),
    "tokens": {"worker"},
    "watchdog": {"survivors", "worker", "custody", "tokens", "ending", "order"},
}

# Where a process may be started and a file opened outside Host.
MAY_OPEN = {
    "bash", "guarded", "host", "lbnl", "ledger", "lines", "output_file", "policy_file", "process", "pyz", "recording",
    "redaction", "scripts", "shell", "state", "survivors", "testing", "watchdog",
}  # fmt: skip
MAY_OPEN_PACKAGES = {"fleet", "agent", "cli", "hooks"}


def modules():
    return sorted(NHC.rglob("*.py"))


def layer(path):
    parts = path.relative_to(NHC).with_suffix("").parts
    return parts[0]


def imports(path, top_level_only=False):
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "nhc":
                yield from (f"nhc.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(NHC)))
def test_data_flows_one_way(path):
    allowed = LAYERS.get(layer(path))
    if allowed is None:
        return
    for name in imports(path):
        if name.startswith("nhc."):
            other = name.split(".")[1]
            assert other == layer(path) or other in allowed | {"__version__", "values"}, f"{path} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(NHC)))
def test_nhc_never_names_an_adapter(path):
    assert not [name for name in imports(path) if name.split(".")[0] == "nhc_adapters"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(NHC)))
def test_only_the_doors_open_files_and_start_processes(path):
    if layer(path) in MAY_OPEN or layer(path) in MAY_OPEN_PACKAGES:
        return
    tree = ast.parse(path.read_text())
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    opened = [call for call in calls if isinstance(call, ast.Name) and call.id == "open"]
    assert not opened, f"{path}:{opened[0].lineno if opened else 0} opens a file itself: use Host"
    assert "subprocess" not in set(imports(path)), f"{path} imports subprocess: use Host.run"


LOCAL_PATH_BANNED = {
    "argparse", "asyncio", "click", "dataclasses", "datetime", "decimal", "email", "http", "importlib.metadata",
    "inspect", "logging", "paramiko", "pathlib", "pynvml", "shlex", "socket", "sqlite3", "ssl", "subprocess",
    "tempfile", "threading", "tomllib", "typing", "urllib.parse", "yaml", "zipfile",
}  # fmt: skip

# Not in the process that waits: the second run has its plan, and the checks are the workers'.
SUPERVISOR_BANNED = LOCAL_PATH_BANNED | {
    "contextlib", "fnmatch", "glob", "json", "re", "signal", "warnings", "nhc.check", "nhc.config", "nhc.nodeset",
    "nhc.words",
}  # fmt: skip


def settle(path):
    """Wait until the file is old enough for a plan made of it to be kept."""
    while time.time_ns() < path.stat().st_ctime_ns + 2 * _RACY:
        time.sleep(0.005)


def loaded_modules(code, *arguments):
    script = f"import sys\n{code}\nprint(chr(10).join(sys.modules), file=sys.stderr)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "NHC_STATE_DIR": str(arguments[0]),
           "NHC_MUTES": "/no/such/file"}  # fmt: skip  # what this machine has muted is not the test's
    # -S: what a site's own .pth files import is not ours.
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, env=env, timeout=60)
    return set(done.stderr.split()), done.stdout


def test_check_local_loads_only_cheap_modules(tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_hw_mem_free 1k\n* || check_fs_mount /\n* || check_ps_loadavg 99999 99999 99999\n")
    settle(config)
    run = f"from nhc.cli import main\nmain(['check', 'local', '-c', {str(config)!r}, '--all'])"
    for banned in (LOCAL_PATH_BANNED, SUPERVISOR_BANNED):
        loaded, said = loaded_modules(run, tmp_path / "state")
        assert "3 results" in said
        assert not banned & loaded
        # The first run reads the configuration, and so the checks' declarations; the second leaves both alone.
        assert ("nhc.checks.hw_mem" in loaded) == (banned is LOCAL_PATH_BANNED)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_check_family_loads_only_cheap_modules(family, tmp_path):
    """Each worker that claims one of its checks imports it."""
    loaded, _said = loaded_modules(f"import nhc.checks.{family}", tmp_path)
    assert not LOCAL_PATH_BANNED & loaded


def test_the_version_costs_nothing(tmp_path):
    loaded, said = loaded_modules("from nhc.cli import main\nmain(['--version'])", tmp_path)
    assert said.startswith("nhc ")
    assert not (LOCAL_PATH_BANNED | {"re", "typing", "json"}) & loaded


@pytest.mark.parametrize("path", sorted((ROOT / "nhc").rglob("*.py")), ids=lambda path: str(path.relative_to(NHC)))
def test_no_module_outgrows_one_idea(path):
    assert len(path.read_text().splitlines()) <= 400, "split it: see docs/architecture.md"
