"""A configuration that other users can write to is refused as root and in hooks, by every door, in one clear line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nhc.agent import agent_plan
from nhc.agent.settings import AgentSettings
from nhc.core.host import Host
from nhc.core.language import trust
from nhc.core.state.store import State
from tests.support.other_user import become
from tests.support.require import need
from tests.support.run import ROOT, nhc

USER = 65534
RAN = "* || touch {}/ran\n"


@pytest.fixture
def etc(tmp_path):
    need("root", os.geteuid() == 0, "the rule is root's")
    made = tmp_path / "etc"
    made.mkdir()
    (made / "nhc.conf").write_text(RAN.format(tmp_path))
    return made


def everybody(etc):
    (etc / "nhc.conf").chmod(0o666)


def in_an_open_directory(etc):
    etc.chmod(0o777)


def below_an_open_directory(etc):
    etc.parent.chmod(0o777)


def by_a_link(etc):
    elsewhere = etc.parent / "elsewhere"
    (etc / "nhc.conf").rename(elsewhere)
    elsewhere.chmod(0o646)
    (etc / "nhc.conf").symlink_to(elsewhere)


def by_an_include(etc):
    (etc / "nhc.conf").rename(etc / "part")
    (etc / "part").chmod(0o666)
    (etc / "nhc.conf").write_text("include part\n")


def by_a_script(etc):
    (etc / "scripts").mkdir()
    (etc / "scripts/site.nhc").write_text("check_site() { return 0; }\n")
    (etc / "scripts/site.nhc").chmod(0o666)
    (etc / "nhc.conf").write_text((etc / "nhc.conf").read_text() + "* || check_site\n")


def by_a_profile(etc):
    profile = etc / "type.conf"
    profile.write_text(f"# A type\n{(etc / 'nhc.conf').read_text()}")
    profile.chmod(0o666)
    (etc / "nhc.conf").write_text(f"* || export NHC_PROFILE={profile}\n* || check_fs_mount_rw -f /\n")


def another_user(etc):
    os.chown(etc / "nhc.conf", USER, 0)


def a_group(etc):
    os.chown(etc / "nhc.conf", 0, USER)
    (etc / "nhc.conf").chmod(0o664)


OPEN = [
    everybody, in_an_open_directory, below_an_open_directory, by_a_link, by_an_include, by_a_script, by_a_profile,
]  # fmt: skip


def hook(etc, *words, module="nhc.hooks.commands.prolog"):
    return nhc("-D", etc, *words, "NHC_RM=none", state=etc.parent / "state", module=module)


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", [*OPEN, another_user, a_group])
def test_a_hook_refuses_it_and_lets_the_job_start(etc, mistake):
    mistake(etc)
    run = hook(etc)
    assert run.returncode == 0
    assert not (etc.parent / "ran").exists()
    (line,) = [line for line in run.stderr.splitlines() if "can write to" in line]
    assert "configuration cannot be used" in line
    assert "NHC_ALLOW_WRITABLE_CONFIG=1" in line
    assert "Traceback" not in run.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", [everybody, another_user])
def test_a_setting_allows_it(etc, mistake):
    mistake(etc)
    assert hook(etc, "NHC_ALLOW_WRITABLE_CONFIG=1").returncode == 0
    assert (etc.parent / "ran").exists()


@pytest.mark.thorough
def test_a_run_that_was_allowed_allows_no_later_one(etc):
    everybody(etc)
    for words, ran in ((("NHC_ALLOW_WRITABLE_CONFIG=1",), True), ((), False)):
        hook(etc, *words)
        assert (etc.parent / "ran").exists() is ran
        (etc.parent / "ran").unlink(missing_ok=True)


def test_what_nobody_else_can_write_to_runs(etc):
    assert hook(etc).returncode == 0
    assert (etc.parent / "ran").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", OPEN)
@pytest.mark.parametrize("words", [("check", "local"), ("config", "check"), ()], ids=["check", "config", "healthcheck"])
def test_root_is_refused_in_one_line_by_every_door(etc, mistake, words):
    mistake(etc)
    if words == ("config", "check") and mistake is by_a_profile:
        return  # a profile is no part of the file that is checked
    if not words:
        run = hook(etc, "-l", "-", module="nhc.hooks.commands.healthcheck")
    else:
        scripts = ["--scripts", etc / "scripts"] if (etc / "scripts").exists() else []
        file = ["-c"] if words[0] == "check" else []
        run = nhc(*words, *file, etc / "nhc.conf", *scripts, state=etc.parent / "state")
    assert run.returncode in (2, 3), run.stderr + run.stdout
    assert len([line for line in (run.stderr + run.stdout).splitlines() if "can write to" in line]) == 1
    assert not (etc.parent / "ran").exists()


@pytest.mark.parametrize("mistake", OPEN)
def test_the_agent_is_refused(etc, mistake, capsys):
    mistake(etc)
    scripts = tuple(map(str, etc.glob("scripts")))
    settings = AgentSettings(config=(str(etc / "nhc.conf"),), scripts=scripts)
    with pytest.raises(agent_plan.BadConfig):
        agent_plan.load(settings, "n1", Host(), State(str(etc.parent / "state")), strict=False)
    assert "can write to" in capsys.readouterr().err


def test_what_root_names_may_belong_to_the_person_who_calls_root(etc):
    another_user(etc)
    assert nhc("check", "local", "-c", etc / "nhc.conf", state=etc.parent / "state").returncode == 0
    assert (etc.parent / "ran").exists()


def test_other_users_judge_their_own_risk(etc):
    everybody(etc)
    code = "from nhc.core.language import trust; print(trust.rule({}, hook=False, named=False) == '')"
    run = subprocess.run(
        [sys.executable, "-c", code], preexec_fn=lambda: become(USER), capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.stdout.strip() == "True", run.stderr


def test_a_settings_file_that_others_can_write_is_not_evaluated(etc, monkeypatch):
    from nhc.core.language import site_settings

    file = etc / "default"
    file.write_text(f"NHC_RM=$(touch {etc.parent}/ran)\n")
    file.chmod(0o666)
    with pytest.raises(trust.Untrusted, match="everybody can write to"):
        site_settings.read(str(file), {})
    assert not (etc.parent / "ran").exists()


def test_a_pipe_and_what_is_not_there_are_no_problem(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o666)
    assert trust.problem(str(tmp_path / "pipe"), strict=True) == ""
    assert trust.problem(str(tmp_path / "none"), strict=True) == ""
    assert trust.problem("/dev/stdin", strict=True) == ""
