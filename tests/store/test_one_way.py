"""Every command opens the store in one way: the anchor and syslog of store.toml hold whichever command writes."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.store import audit
from nhc.store.settings import fleet_store, load, opened
from tests.support.new_store import new_store

ROOT = Path(__file__).resolve().parents[2]
ITS_OWN = {"nhc/lab/demo/play.py", "nhc/lab/drills/play.py", "nhc/lab/commands/remedy_simulate.py"}
"""Who opens a store that nobody else has: made up, in a directory of its own."""


@pytest.mark.thorough
def test_nobody_opens_a_store_past_its_settings():
    found = set()
    for path in (*ROOT.glob("nhc/**/*.py"), *ROOT.glob("adapters/**/*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith("nhc/store/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "nhc.store.connect":
                found.add(name)
    assert found == ITS_OWN


class Site:
    """A store, a store.toml that anchors it elsewhere, and settings of other commands that name the store."""

    def __init__(self, base, monkeypatch):
        self.base = base
        self.url = f"sqlite:///{base}/store.db"
        self.anchor = base / "elsewhere" / "anchor"
        new_store(str(base), anchor=str(self.anchor)).close()
        (base / "store.toml").write_text(f'url = "{self.url}"\naudit-anchor = "{self.anchor}"\n')
        (base / "remedy.toml").write_text(
            f'store = "{self.url}"\n[sources]\nadapter = "slurm"\n[bounds.fleet]\nout = 2\n'
        )
        (base / "jobs.toml").write_text(f'store = "{self.url}"\n')
        self.env = {**os.environ, "NHC_STORE_SETTINGS": str(base / "store.toml"), "NHC_STORE": ""}
        monkeypatch.setenv("NHC_STORE_SETTINGS", self.env["NHC_STORE_SETTINGS"])
        monkeypatch.delenv("NHC_STORE", raising=False)

    def nhc(self, *words):
        return subprocess.run(
            [sys.executable, "-m", "nhc", *words], env=self.env, capture_output=True, text=True, timeout=120, cwd=ROOT
        )  # fmt: skip

    def heads(self):
        return self.anchor.read_text().splitlines() if self.anchor.exists() else []


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


COMMANDS = {
    "hold remedy": ("hold", "remedy", "n1", "--why", "a drill", "-s", "remedy.toml"),
    "remedy hold, the store of store.toml": ("hold", "remedy", "n1", "--why", "a drill", "-s", "none.toml"),
    "job watch": ("job", "watch", "log", "--job", "17", "--store", "URL"),
    "token node": ("token", "node", "n1"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_does_is_anchored_where_the_settings_say(site, name):
    (site.base / "none.toml").write_text('[sources]\nadapter = "slurm"\n[bounds.fleet]\nout = 2\n')
    (site.base / "log").write_text("step 1 loss 2.0\n")
    words = [
        site.url if word == "URL" else str(site.base / word) if (site.base / word).exists() else word
        for word in COMMANDS[name]
    ]
    done = site.nhc(*words)
    assert done.returncode in (0, 1), done.stderr
    assert len(site.heads()) == 1, done.stderr
    assert not (site.base / "store.db.anchor").exists()
    seen = site.nhc("store", "verify")
    assert (seen.returncode, "anchored to 1" in seen.stdout) == (0, True), seen.stdout + seen.stderr


@pytest.mark.thorough
def test_rows_that_were_cut_show_whoever_wrote_them(site):
    for number in range(3):
        assert (
            site.nhc("hold", "remedy", f"n{number}", "--why", "x", "-s", str(site.base / "remedy.toml")).returncode == 0
        )
    store = fleet_store(site.url)
    with store.write() as connection:
        for trigger in ("audit_no_delete", "audit_no_update"):
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
        connection.exec_driver_sql("DELETE FROM audit")
    store.close()
    seen = site.nhc("store", "verify")
    assert (seen.returncode, "its tail was cut" in seen.stdout) == (1, True), seen.stdout


@pytest.mark.thorough
def test_another_store_has_an_anchor_of_its_own(site, tmp_path):
    """Else its heads would stand among those of the store that the file names, and neither would verify."""
    other = tmp_path / "other"
    other.mkdir()
    store = fleet_store(f"sqlite:///{other}/store.db")
    assert store.anchor.path == f"{other}/store.db.anchor"
    store.close()


def test_another_address_of_the_same_store_has_its_anchor(site, tmp_path):
    """As a host's short name does: what the file holds says whose it is."""
    store = fleet_store(site.url)
    with store.write() as connection:
        audit.append(connection, 1.0, "ada", "hold.set")
    store.close()
    named = load(url=site.url)._replace(anchor_of="postgresql://db/nhc")
    again = opened(named)
    assert again.anchor.path == str(site.anchor)
    again.close()


def test_a_link_to_the_file_is_the_same_store(site, tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    store = fleet_store(f"sqlite:///{tmp_path}/link.db")
    assert store.anchor.path == str(site.anchor)
    store.close()
