"""The collection nhc.nhc: as Ansible's own tools judge it, and as somebody installs it who has no checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.ansible.conftest import ROOT, Ansible
from tests.support.require import need

COLLECTION = ROOT / "playbooks/collections/ansible_collections/nhc/nhc"
PLUGINS = {
    "module": ["nhc_check", "nhc_mark", "nhc_preflight", "nhc_report", "nhc_snapshot"],
    "lookup": ["archive", "source"],
    "callback": ["nhc_fold"],
}
OFFLINE = (
    "action-plugin-docs", "compile", "empty-init", "ignores", "line-endings", "no-assert",
    "no-get-exception", "no-illegal-filenames", "no-smart-quotes", "replace-urlopen", "shebang", "symlinks",
    "use-argspec-type-path", "use-compat-six",
)  # fmt: skip
"""Of ansible-test's sanity tests, those that install nothing; `playbooks/collection.sh sanity` runs all."""


@pytest.fixture(scope="module")
def environ(controller: Ansible) -> dict[str, str]:
    return {**controller.environ, "PYTHON": sys.executable}


def test_ansible_lint_has_nothing_to_say(environ: dict[str, str]) -> None:
    need("ansible-lint", (Path(sys.executable).parent / "ansible-lint").exists())
    ended = subprocess.run(
        ["ansible-lint", "--nocolor", "--strict"], cwd=ROOT / "playbooks", capture_output=True, text=True,
        env={**environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "playbooks/collections")},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_ansible_tests_sanity(environ: dict[str, str]) -> None:
    tests = [word for name in OFFLINE for word in ("--test", name)]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    ended = subprocess.run(
        [ROOT / "playbooks/collection.sh", "sanity", "--python", version, *tests],
        capture_output=True,
        text=True,
        env=environ,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


HOOKS = ROOT / "playbooks/roles/nhc_slurm_hooks"


def test_every_variable_of_the_playbooks_is_documented() -> None:
    playbooks = "".join(path.read_text() for path in (COLLECTION / "playbooks").rglob("*.yml"))
    asked = set(re.findall(r"\b(nhc_\w+)\s*\|\s*default\(", playbooks)) - {"nhc_to_repair"}  # a group
    assert len(asked) > 30
    assert not asked - set(re.findall(r"nhc_\w+", (ROOT / "docs/fleet.md").read_text()))


def test_every_plugin_and_role_is_documented(environ: dict[str, str]) -> None:
    def documented(kind: str, *names: str) -> dict[str, object]:
        ended = subprocess.run(
            ["ansible-doc", "--playbook-dir", "playbooks", "-t", kind, "--json", *names],  # as docs/fleet.md says
            cwd=ROOT, capture_output=True, text=True, env=environ,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        found: dict[str, object] = json.loads(ended.stdout)
        return found

    for kind, names in PLUGINS.items():
        folder = {"module": "modules"}.get(kind, kind)
        assert sorted(path.stem for path in (COLLECTION / "plugins" / folder).glob("*.py")) == names
        assert len(documented(kind, *(f"nhc.nhc.{name}" for name in names))) == len(names)
    for role, home in (("nhc.nhc.nhc", COLLECTION / "roles/nhc"), ("nhc_slurm_hooks", HOOKS)):
        described = documented("role", role)[role]["entry_points"]["main"]["options"]  # type: ignore[index]
        defaults = {line.partition(":")[0] for line in (home / "defaults/main.yml").read_text().splitlines()}
        assert set(described) == {name for name in defaults if name.startswith("nhc_")}


def test_the_published_collection_needs_no_checkout(environ: dict[str, str], tmp_path: Path) -> None:
    built = subprocess.run(
        [ROOT / "playbooks/collection.sh", "build", str(tmp_path)], capture_output=True, text=True, env=environ
    )
    assert built.returncode == 0, built.stdout + built.stderr
    [package] = tmp_path.glob("nhc-nhc-*.tar.gz")
    with tarfile.open(package) as archive:
        names = archive.getnames()
    assert {"files/nhc.pyz", "roles/nhc_slurm_hooks/files/prolog.sh", "playbooks/fleet_check.yml"} <= set(names)
    # nhc beside Ansible, as pip would have put it there.
    site = tmp_path / "site"
    for source in (ROOT / "nhc", ROOT / "adapters/nhc_adapters"):
        shutil.copytree(source, site / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    environ = {**environ, "PYTHONPATH": str(site), "ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "PWD": str(tmp_path)}
    environ["HOME"] = str(tmp_path)
    subprocess.run(
        ["ansible-galaxy", "collection", "install", "--offline", "-p", str(tmp_path), str(package)],
        env=environ, check=True, capture_output=True,
    )  # fmt: skip
    variables = {"nhc_checks": ["check_hw_mem_free"], "ansible_connection": "local", "nhc_engine": "archive",
                 "ansible_python_interpreter": sys.executable, "nhc_cache_directory": str(tmp_path / "cache")}  # fmt: skip
    os.chmod(tmp_path, 0o700)
    run = subprocess.run(
        ["ansible-playbook", "nhc.nhc.fleet_check", "-i", "here,", "-e", json.dumps(variables)],
        cwd=tmp_path, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "OK 1 node here" in run.stdout
    assert (tmp_path / "nhc-report/report.html").exists()
    assert len(list((tmp_path / "cache").iterdir())) == 1
