"""examples/nhc-example-plugin, installed with pip beside nhc in a fresh virtual environment: each part is used."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "nhc-example-plugin"
pytestmark = pytest.mark.slow


class Installed:
    """A virtual environment that has nhc, what it needs, and the example."""

    def __init__(self, base):
        self.base = base
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", base / "venv"], check=True, timeout=120)
        self.python = base / "venv" / "bin" / "python"
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        site = base / "venv" / "lib" / version / "site-packages"
        # nhc and what it needs lie where the suite has them; only the example is installed here.
        there = [ROOT, ROOT / "adapters", sysconfig.get_paths()["purelib"]]
        (site / "beside.pth").write_text("".join(f"{path}\n" for path in there))
        shutil.copytree(EXAMPLE, base / "example")
        pip = [self.python, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
        done = subprocess.run([*pip, base / "example"], capture_output=True, text=True, timeout=300, env=self.env())
        assert done.returncode == 0, done.stderr
        assert (site / "nhc_example").is_dir()

    def env(self):
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.base),
            "NHC_STATE_DIR": str(self.base / "state"),
            "NHC_MUTES": "/no/such",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def run(self, *words, module="nhc", **env):
        return subprocess.run(
            [self.python, "-m", module, *map(str, words)], capture_output=True, text=True, timeout=120,
            env={**self.env(), **env}, cwd=self.base,
        )  # fmt: skip


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("plugin"))


def test_its_own_tests_pass(plugin):
    """Among them nhc's contract for adapters."""
    done = plugin.run("-q", "-p", "no:cacheprovider", plugin.base / "example" / "tests", module="pytest")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_its_check_judges_and_its_format_prints(plugin):
    config = plugin.base / "nhc.conf"
    config.write_text("* || check_pressure memory 100\n* || check_pressure tape\n")
    done = plugin.run("check", "local", "-c", config, "--profile", "none", "--all", "-n", "n1", "-f", "tsv")
    first, second = (line.split("\t") for line in done.stdout.splitlines())
    assert first[:2] == ["n1", "check_pressure"]
    assert first[2] in ("OK", "SKIP")  # as this kernel has it
    assert second[2:4] == ["UNKNOWN", "BadArguments"]
    assert "[nhc-example-plugin 1.0]" in plugin.run("list").stdout
    assert "'tape' is none of cpu, memory, io" in plugin.run("config", "check", config).stderr


def test_its_adapter_marks(plugin):
    place = plugin.base / "outfiles"
    place.mkdir()
    (place / "nodes").write_text("n1\nn2\n")
    kept = json.loads((ROOT / "tests" / "nodes" / "h100-xid79" / "report.json").read_text())
    reports = plugin.base / "reports.json"
    reports.write_text(json.dumps({**kept, "host": "n1", "started": time.time()}))
    done = plugin.run("sync", "--adapter", "outfiles", "-r", reports, "--ledger", plugin.base, "--max-drained", "none",
                      "--apply", NHC_OUTFILES=str(place))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (place / "n1.out").read_text().startswith("NHC: ")
    assert not (place / "n2.out").exists()


def test_its_sink_is_told_by_the_agent(plugin):
    base, status = plugin.base, plugin.base / "status"
    (base / "agent.conf").write_text("* || check_pressure memory 100\n* || check_file_test -e /no/such/file\n")
    (base / "agent.toml").write_text(
        f'[agent]\nnode = "n1"\nconfig = ["{base}/agent.conf"]\nstate = "{base}/agent"\nkernel-log = false\n'
        f'listen = []\nsocket = "{base}/agent.sock"\n[sinks.statusfile]\npath = "{status}"\n'
    )
    with open(base / "agent.log", "wb") as log:
        agent = subprocess.Popen(
            [plugin.python, "-m", "nhc", "serve", "agent", "-s", base / "agent.toml"], env=plugin.env(), cwd=base,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not (status.exists() and "CRIT" in status.read_text()):
            assert agent.poll() is None, (base / "agent.log").read_text()
            assert time.monotonic() < deadline, (base / "agent.log").read_text()
            time.sleep(0.05)
        assert status.read_text().startswith("n1 CRIT check_file_test: ")
    finally:
        agent.terminate()
        agent.wait(60)
