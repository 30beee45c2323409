"""Commands that only look make no store, and what root makes by hand in a service's directory is the service's."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remedy.commands.test_remedy import site  # noqa: F401 (a fixture)
from tests.support.require import need

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[3]
JOBS = 'store = "{url}"\n[controllers.none]\ntype = "slurm"\ntimeout = "2s"\nconf = "/nowhere"\n'
NOTICES = 'store = "{url}"\n[channels.mail]\nkind = "alertmanager"\nurl = "http://127.0.0.1:1"\n'
POOLS = '[pools.gpu]\ntype = "slurm"\nreservation = "spare"\nfor = "n*"\ntimeout = "2s"\nconf = "/nowhere"\n'
"""The settings of commands beside the loop's; the peers that they name need not answer."""


@pytest.fixture
def empty(site):  # noqa: F811
    """The site of the loop's tests, before anything has made its store."""
    for name in ("store.db", "store.db-wal", "store.db-shm", "anchor"):
        (site.place / name).unlink(missing_ok=True)
    site.url = f"sqlite:///{site.place}/state/store.db"
    site.write('mark = "on"')
    return site


def _run(empty, *words):
    done = subprocess.run(
        [sys.executable, "-m", "nhc", *map(str, words)], capture_output=True, text=True, timeout=120, cwd=ROOT,
        env={**os.environ, "NHC_STORE": "", "SLURM_JWT": "a.b.c", "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert not (empty.place / "state").exists()
    return done


def test_the_doctor_says_that_there_is_no_store_and_makes_none(empty):
    done = _run(empty, "doctor", "remedy", "-s", empty.settings)
    assert (done.returncode, done.stderr) == (0, "")
    line = next(line for line in done.stdout.splitlines() if " store " in line)
    assert line.startswith("not tried")
    assert f"{empty.url} is not there yet" in line
    assert "knows 3 nodes" in done.stdout


def test_a_dry_run_plans_without_a_store_and_makes_none(empty):
    from nhc.core.model import Action

    empty.report("n1", ("GpuLost", Action.REBOOT))
    done = _run(empty, "serve", "remedy", "--dry-run", "--once", "-s", empty.settings)
    assert done.returncode == 0
    assert "n1" in done.stdout
    assert f"nhc serve remedy: {empty.url} is not there yet: taken as empty, and not made" in done.stderr


@pytest.mark.parametrize(
    ("words", "file", "text"),
    [
        (("status", "spares", "-s", "{settings}", "--pools"), "spares.toml", POOLS),
        (("spares", "swap", "-s", "{settings}", "--pools"), "spares.toml", POOLS),
        (("serve", "job", "--dry-run", "--once", "-s"), "jobs.toml", JOBS),
        (("status", "notices", "-s"), "notices.toml", NOTICES),
    ],
    ids=["status spares", "spares swap", "serve job", "status notices"],
)
def test_a_command_that_only_looks_makes_no_store(empty, words, file, text):
    path = empty.place / file
    path.write_text(text.format(url=empty.url))
    done = _run(empty, *(word.format(settings=empty.settings) for word in words), path)
    assert f"{empty.url} is not there yet" in done.stdout + done.stderr


def test_a_command_over_what_a_store_holds_names_the_command_that_makes_one(empty):
    done = _run(empty, "list", "episodes", "-s", empty.settings)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"nhc list episodes: {empty.url}: {empty.place}/state/store.db: No such file or directory: "
        "run nhc store migrate to make the store\n"
    )


def test_a_store_that_root_makes_in_a_service_s_directory_is_the_service_s(tmp_path):
    need("root", os.geteuid() == 0, "to make files in another user's directory")
    service = pwd.getpwnam("nobody")
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, service.pw_uid, service.pw_gid)
    (tmp_path / "store.toml").write_text(
        f'url = "sqlite:///{state}/db/store.db"\naudit-anchor = "{state}/anchor"\naudit-archive = "{state}/old"\n'
        '[keep]\naudit = "1d"\n'
    )
    for words in (("store", "migrate"), ("token", "node", "n1")):
        done = subprocess.run(
            [sys.executable, "-m", "nhc", *words], capture_output=True, text=True, timeout=120, cwd=ROOT,
            env={**os.environ, "NHC_STORE": "", "NHC_STORE_SETTINGS": str(tmp_path / "store.toml")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    made = list(state.rglob("*"))
    assert {path.name for path in made} >= {"db", "store.db", "anchor"}
    assert {(path.name, path.owner()) for path in made} == {(path.name, "nobody") for path in made}
