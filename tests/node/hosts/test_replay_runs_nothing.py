"""A replay runs nothing, whatever the recording says: people attach recordings to bug reports."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.core.host import System
from nhc.core.render import json as wire
from nhc.node.commands.record import judge
from nhc.node.hosts.recording import ReplaySystem
from tests.support.run import nhc

ROOT = Path(__file__).resolve().parents[3]
ENDED = "159 returned"
"""What a program ended by the filter comes to: 128 and SIGSYS."""
KEPT = Path(__file__).parents[2] / "nodes" / "h100-xid79"


def locked_down(*words, seconds=60):
    """nhc in a process that the kernel ends as soon as it, or a child of it, starts a program or connects."""
    argv = [sys.executable, "-m", "tests.support.no_exec", *map(str, words)]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"}
    return subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False, env=env, cwd=ROOT)


def test_the_lock_holds(tmp_path):
    """Else the tests below prove nothing: a run that judges this machine dies of it."""
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_cmd_output -m '/x/' echo x\n")
    done = locked_down("check", "local", "-c", config, "--format", "json")
    assert ENDED in done.stdout


HOSTILE = """\
* || touch {mark}
* || /bin/touch {mark}
* || [[ -d / ]] && touch {mark}
* || X=$(touch {mark})
* || X=`touch {mark}` check_fs_mount /
* || check_fs_mount / ; touch {mark}
* || eval "touch {mark}"
* || . {script}
* || source {script}
* || check_cmd_output -m '/x/' touch {mark}
* || check_cmd_status 0 touch {mark}
* || check_file_test -r /etc/passwd && touch {mark}
* || check_npd_plugin {script}
* || check_ps_service -S sshd
* || check_ps_service -c touch -f -u root init
* || check_moab_sched
* || NHC_MCHECK_DELIM[0]=% NHC_MCHECK_COMMAND[0]={script}
%x% || check_fs_mount /
{{@all}} || check_fs_mount /
{{n1!@group}} || check_fs_mount /
{{@:source}} || touch {mark}
/(a+)+$/ || check_fs_mount /
* || touch () {{ :; }}
* || nonsense $((`touch {mark}`))
"""


@pytest.fixture
def hostile(tmp_path):
    mark, script = tmp_path / "mark", tmp_path / "script.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    kept = shutil.copytree(KEPT, tmp_path / "kept")
    (kept / "nhc.conf").write_text(HOSTILE.format(mark=mark, script=script))
    machine = json.loads((kept / "machine.json").read_text())
    machine["settings"] = {"BASH_ENV": str(script), "PATH": str(tmp_path), "NHC_MCHECK_DELIM[0]": "%",
                           "NHC_MCHECK_COMMAND[0]": str(script), "NVIDIA_SMI": str(script)}  # fmt: skip
    (kept / "machine.json").write_text(json.dumps(machine))
    return kept, mark


def test_a_hostile_recording_starts_nothing(hostile, tmp_path):
    kept, mark = hostile
    for words in ((kept,), ("-c", kept / "nhc.conf", kept)):
        done = locked_down("replay", "--format", "json", *words)
        assert done.returncode in (1, 3), done.stderr
        report = wire.parse(done.stdout)
        assert ENDED not in done.stdout
        assert "SIGSYS" not in done.stdout
        assert "Traceback" not in done.stderr + done.stdout
        assert not mark.exists()
        reasons = [result.outcome.reason for result in report.results]
        assert reasons.count("NotReplayed") >= 8
        assert reasons.count("TargetUndecided") >= 3


@pytest.mark.thorough
def test_every_recorded_machine_is_judged_under_the_lock():
    done = locked_down("replay", "--compare", KEPT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.thorough
def test_a_shell_line_gives_its_recorded_outcome(tmp_path):
    """What a shell made of a line on the node comes back word for word, without its secrets, and is not run again."""
    count, secret = tmp_path / "count", tmp_path / "secret"
    secret.write_text("token=hunter2 of the site\n")
    config = tmp_path / "nhc.conf"
    config.write_text(f"* || [[ -d / ]] && echo x >>{count}\n* || cat {secret}; [[ -e /nowhere ]]\n")
    kept = tmp_path / "kept"
    done = nhc("record", kept, "-c", config, state=tmp_path / "state")
    assert (done.returncode, count.read_text()) == (0, "x\n"), done.stderr
    assert "replays differently" not in done.stdout
    done = locked_down("replay", "--compare", kept)
    assert (done.returncode, done.stdout, count.read_text()) == (0, "", "x\n")
    report = judge(str(kept))
    assert [result.verdict.name for result in report.results] == ["OK", "CRIT"]
    assert report.results[1].outcome.evidence == ("token=[redacted] of the site",)
    assert "hunter2" not in "".join(path.read_text() for path in kept.rglob("*") if path.is_file())


def test_what_asks_the_machine_is_answered_by_the_recording():
    """A new question put to System must be answered by a replay as well, or this machine would answer it."""
    asked = {name for name, value in vars(System).items() if inspect.isfunction(value) and name[0] != "_"}
    assert asked - set(vars(ReplaySystem)) == set()


@pytest.mark.parametrize("path", ["/../../../../etc/hostname", "//etc/hostname", "/a/../../b"])
def test_no_path_leads_out_of_the_recorded_tree(path):
    from nhc.node.hosts.recording import Replay

    host = Replay(str(KEPT)).host()
    assert os.path.realpath(host.path(path)).startswith(str(KEPT / "root"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda kept: (kept / "root/link").symlink_to("/etc"), "root/link: neither a file nor a directory"),
        (lambda kept: os.mkfifo(kept / "root/pipe"), "root/pipe: neither a file nor a directory"),
        (lambda kept: put(kept, "machine.json", time="now"), "machine.json: time: 'now'"),
        (lambda kept: put(kept, "machine.json", name=None), "machine.json: name: None"),
        (lambda kept: (kept / "answers.json").write_text('[[["which", "x"], 5]]'), "answers.json: the answer to"),
        (lambda kept: (kept / "answers.json").write_text('[[["which", "x"], {"errno": "x"}]]'), "the answer to"),
        (lambda kept: (kept / "answers.json").write_text("[" * 100_000), "nested too deep"),
        (lambda kept: (kept / "nhc.conf").unlink(), "No such file"),
    ],
)
def test_what_is_no_recording_is_one_line(tmp_path, damage, said):
    kept = shutil.copytree(KEPT, tmp_path / "kept")
    damage(kept)
    done = nhc("replay", kept)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def put(kept, file, **values):
    path = kept / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
