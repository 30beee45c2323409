"""`nhc deep due` before a job: what the wrapper of adapters/slurm makes of its answers, and what small jobs cost."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.run import nhc

ROOT = Path(__file__).resolve().parents[2]
RULE = 'NHC_DEEP_DUE="--more-than 4 --suite burn" # the site\n'


class Wrapper:
    """The wrapper with a program, a logger and a settings file of this test's own; all that it starts is real."""

    def __init__(self, place):
        self.place = place
        text = (ROOT / "adapters/slurm/deep-due.sh").read_text()
        for line, own in (
            ("program=/usr/bin/nhc\n", f"program={place}/nhc\n"),
            ('settings="/etc/default/nhc /etc/sysconfig/nhc"\n', f"settings={place}/default\n"),
            ("PATH=/usr/sbin:", f"PATH={place}/bin:/usr/sbin:"),
            ("limit=60 ", "limit=1 "),
        ):
            assert line in text
            text = text.replace(line, own)
        (place / "bin").mkdir()
        self.put("hook", text)
        self.put("bin/logger", f'#!/bin/sh\necho "$*" >> {place}/log\n')

    def put(self, name, text):
        (self.place / name).write_text(text)
        (self.place / name).chmod(0o755)

    def run(self, body, settings=""):
        """Its status, and what it has logged and asked."""
        self.put("nhc", f'#!/bin/sh\necho "$*" > {self.place}/asked\n{body}\n')
        (self.place / "default").write_text(settings)
        (self.place / "log").write_text("")
        done = subprocess.run([self.place / "hook"], env={"SLURM_JOB_ID": "7"}, timeout=60, check=False)
        asked = self.place / "asked"
        return done.returncode, (self.place / "log").read_text(), asked.read_text() if asked.exists() else ""


@pytest.fixture
def hook(tmp_path):
    return Wrapper(tmp_path)


def test_who_is_due_holds_the_job_by_the_rule_of_the_site(hook):
    status, logged, asked = hook.run("echo n2 passed burn 9d ago; exit 1", RULE)
    assert status == 1
    assert "daemon.notice job 7: nhc deep due: the job waits: n2 passed burn 9d ago" in logged
    assert asked == "deep due --more-than 8 --younger-than 7d --tell-job --more-than 4 --suite burn\n"


@pytest.mark.parametrize(
    "settings", ["", "NHC_WATCH_ONLY=1\n" + RULE, "#NHC_DEEP_DUE=x\n", RULE + "NHC_WATCH_ONLY=yes"]
)
def test_without_a_rule_or_while_only_watching_no_job_waits(hook, settings):
    status, logged, asked = hook.run("echo n2 has no deep verdict; exit 1", settings)
    assert status == 0
    assert "the job starts; it would wait for: n2 has no deep verdict" in logged
    assert "--tell-job" not in asked


@pytest.mark.parametrize(("body", "said"), [
    ("echo the store is away >&2; exit 3", "status 3, the job starts: the store is away"), ("exit 2", "status 2"),
    ("sleep 20", "status 124"), ("kill -9 $$", "status 137"), ("exec /no/such/python", "status 127"),
])  # fmt: skip
@pytest.mark.parametrize(("settings", "held"), [(RULE, 0), ('NHC_DEEP_DUE="--on-unknown refuse"\n', 1)])
@pytest.mark.thorough
def test_what_could_not_be_told_goes_by_the_choice_of_the_site(hook, body, said, settings, held):
    status, logged, _asked = hook.run(body, settings)
    assert status == held
    assert "daemon.err" in logged
    assert (said if not held else said.replace("starts", "waits")) in logged


def test_a_healthy_answer_is_silent(hook):
    assert hook.run("exit 0", RULE)[:2] == (0, "")


@pytest.mark.parametrize(("choice", "status"), [("tell", 3), ("admit", 0), ("refuse", 1)])
@pytest.mark.thorough
def test_a_store_that_does_not_answer_goes_by_the_choice(tmp_path, choice, status):
    with closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
        other.execute("create table somebody_elses (id int)")
    done = nhc("deep", "due", "-w", "n[1-9]", "--store", f"sqlite:///{tmp_path}/store.db", "--on-unknown", choice)
    assert (done.returncode, len(done.stderr.splitlines())) == (status, 1), done.stderr


@pytest.mark.thorough
def test_a_small_job_does_not_even_load_the_library_of_the_store():
    done = nhc("deep", "due", "-w", "n[1-8]", "--more-than", "8", env={"PYTHONVERBOSE": "1"})
    assert (done.returncode, done.stdout) == (0, "")
    assert "import 'nhc.deep.commands.deep_due'" in done.stderr
    assert "import 'sqlalchemy" not in done.stderr


@pytest.mark.thorough
def test_the_owner_is_told_only_of_a_job():
    done = nhc("deep", "due", "-w", "n[1-8]", "--tell-job")
    assert (done.returncode, "SLURM_JOB_ID" in done.stderr) == (2, True)
