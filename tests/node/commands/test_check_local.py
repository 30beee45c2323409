"""`nhc check local` as its user meets it: exit status, formats, selection, files."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from nhc.core.command_line.options import CheckLocal, UsageError, read
from tests.support.run import ROOT, nhc

GOOD = "* || check_hw_mem_free 1k\n* || check_fs_mount_rw -f /\n"
BAD = "* || check_hw_mem_free 1k\n* || check_hw_physmem 900TB\n* || check_fs_mount_rw -f /\n"
UNSURE = "* || check_hw_mem_free 1k\n* || check_cmd_status -t 1 no-such-command\n"
NO_BARS = "* || check_hw_mem_free 1k\n* check_fs_mount_rw -f /\n"
NO_TARGET = "* || check_hw_mem_free 1k\n{n[1- || check_fs_mount_rw -f /\n"


@pytest.fixture
def local(tmp_path):
    """Run `nhc check local` on a configuration's text."""

    def run(text, *words, **options):
        config = tmp_path / "nhc.conf"
        config.write_text(text)
        return nhc("check", "local", "-c", config, *words, state=tmp_path / "state", **options)

    return run


@pytest.mark.parametrize(
    ("text", "status"), [(GOOD, 0), (BAD, 1), (UNSURE, 3), (NO_BARS, 3), (NO_TARGET, 3), (BAD + NO_BARS, 1)]
)
def test_exit_status(local, text, status):
    assert local(text).returncode == status


def test_a_sweeps_passwords_reach_no_line(local):
    secrets = {"NHC_SSH_PASSWORD": "hush-1", "NHC_SUDO_PASSWORD": "hush-2"}
    done = local("* || ! env | grep -q hush-\n", env=secrets)
    assert done.returncode == 0, done.stdout


def test_no_configuration_for_this_node_is_a_usage_error(local):
    done = local("elsewhere || check_hw_mem_free 1k\n")
    assert done.returncode == 2
    assert "the configuration has no check for" in done.stderr


def test_a_missing_file_is_a_usage_error_that_names_it():
    done = nhc("check", "local", "-c", "/nowhere/nhc.conf")
    assert done.returncode == 2
    assert "/nowhere/nhc.conf: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nonsense"], "no such option: --nonsense"),
        (["--formt", "json"], "did you mean --format?"),
        (["--format", "xml"], "'xml' is not one of text, json"),
        (["--timeout", "soon"], "'soon' is not a duration"),
        (["--check"], "--check needs a value"),
        (["check_fs"], "unexpected argument 'check_fs'"),
    ],
)
def test_wrong_usage_is_one_clear_line(local, words, said):
    done = local(GOOD, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_the_run_stops_at_its_first_failure_unless_all_are_asked_for(local):
    first = local(BAD)
    assert "check_fs_mount_rw" not in first.stdout
    assert "1 not run after the first failure" in first.stdout
    assert "check_fs_mount_rw" in local(BAD, "--all").stdout


@pytest.mark.thorough
def test_json_fits_the_published_schema(local):
    schema = json.loads((ROOT / "docs/report.schema.json").read_text())
    for text in (GOOD, BAD, UNSURE):
        report = json.loads(local(text, "--format", "json", "-a").stdout)
        jsonschema.validate(report, schema)
    assert report["verdict"] == "UNKNOWN"
    assert [r["check"] for r in report["results"]] == ["check_hw_mem_free", "check_cmd_status"]


@pytest.mark.parametrize(
    ("text", "nagios", "word", "npd"), [(GOOD, 0, "OK", 0), (BAD, 2, "CRITICAL", 1), (UNSURE, 3, "UNKNOWN", 2)]
)
def test_plugin_formats_end_as_their_readers_expect(local, text, nagios, word, npd):
    done = local(text, "--format", "nagios")
    assert done.returncode == nagios
    assert done.stdout.startswith(f"NHC {word} - ")
    done = local(text, "--format", "npd")
    assert done.returncode == npd
    assert len(done.stdout.encode()) <= 80
    assert done.stdout.count("\n") == 1


def test_prometheus_format_is_what_promtool_reads(local):
    text = local(BAD, "-a", "--format", "prometheus").stdout
    assert "\nnhc_node_verdict 4\n" in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series)), "a series must not stand twice"


@pytest.mark.thorough
def test_checks_are_chosen_by_name_pattern_and_tag(local):
    assert "3 results" in local(BAD.replace("900TB", "1k"), "--check", "check_*").stdout
    done = local(BAD, "--check", "check_fs_*")
    assert done.returncode == 0
    assert "1 result " in done.stdout
    assert "1 result " in local(BAD, "--tag", "fs").stdout
    done = local(BAD, "--tag", "nothing")
    assert done.returncode == 2
    assert "no configured check matches --tag nothing" in done.stderr


@pytest.mark.thorough
def test_output_replaces_a_file_whole(local, tmp_path):
    target = tmp_path / "report.json"
    target.write_text("old")
    done = local(BAD, "--format", "json", "--output", target)
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads(target.read_text())["verdict"] == "CRIT"
    assert not list(tmp_path.glob("report.json.*"))
    done = local(BAD, "--output", "/nowhere/report")
    assert done.returncode == 2
    assert "/nowhere/report: No such file or directory" in done.stderr


@pytest.mark.thorough
def test_quiet_and_verbose(local):
    assert local(GOOD, "-q").stdout == ""
    quiet = local(BAD, "-q").stdout.splitlines()
    assert next(line.split()[0] for line in quiet) == "CRIT"
    assert local(BAD, "-qq").stdout == ""
    assert "nhc.conf:2" in local(BAD, "-v").stdout


@pytest.mark.thorough
def test_evidence_is_shown_on_request(local):
    text = "* || check_cmd_status -r 0 false\n* || /bin/ls /nowhere\n"
    assert "cannot access" not in local(text, "-a").stdout
    assert "cannot access" in local(text, "-a", "--evidence").stdout


@pytest.mark.thorough
def test_a_targets_name_can_be_given(local):
    text = "gpu* || check_hw_mem_free 1k\n"
    assert local(text).returncode == 2
    done = local(text, "--node", "gpu042")
    assert done.returncode == 0
    assert done.stdout.rstrip().splitlines()[-1].startswith("gpu042: OK")


@pytest.mark.thorough
def test_context_lines(local):
    text = "* || check_hw_mem_free 1k\n* |context prolog| check_hw_physmem 900TB\n"
    assert "1 result " in local(text, "--context", "epilog").stdout
    assert local(text, "--context", "prolog").returncode == 1


@pytest.mark.thorough
def test_a_fresh_report_is_used_again_only_for_the_same_question(local, tmp_path):
    marker = tmp_path / "ran"
    text = f"* || sh -c 'echo x >> {marker}'\n"
    for words in (["--max-age", "1h"], ["--max-age", "1h"], ["--max-age", "1h", "--check", "sh"], ["--max-age", "0"]):
        assert local(text, *words).returncode == 0
    assert marker.read_text().count("x") == 3


@pytest.mark.thorough
def test_the_embedded_default_runs_on_this_machine(tmp_path):
    done = nhc("check", "local", "--all", "--format", "json", state=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr
    report = json.loads(done.stdout)
    assert len(report["results"]) >= 20
    broken = [r for r in report["results"] if r["reason"] in ("CheckBroken", "BadArguments", "NoSuchCheck", "NotRun")]
    assert not broken


@pytest.mark.thorough
def test_a_changed_configuration_is_read_again(local):
    assert local(GOOD).returncode == 0
    assert local(GOOD).returncode == 0
    assert local(BAD).returncode == 1
    assert local(GOOD).returncode == 0


@pytest.mark.thorough
def test_a_damaged_plan_cache_is_no_obstacle(tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text(GOOD)
    kept = []
    until = time.monotonic() + 60
    while not kept and time.monotonic() < until:  # a file that has just been written is not trusted yet
        assert nhc("check", "local", "-c", config, state=tmp_path / "state").returncode == 0
        kept = list((tmp_path / "state").glob("plan-*.cache"))
    for junk in (b"", b"junk", kept[0].read_bytes()[:-3], os.urandom(200)):
        kept[0].write_bytes(junk)
        done = nhc("check", "local", "-c", config, state=tmp_path / "state")
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
def test_a_reader_that_leaves_early_is_no_traceback(tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text(GOOD * 2000)
    command = f"{sys.executable} -m nhc check local -c {config} | head -1; echo ${{PIPESTATUS[0]}}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NHC_STATE_DIR": str(tmp_path / "s")}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, check=True)
    assert done.stderr == ""


@pytest.mark.thorough
def test_colour_and_progress_only_on_a_terminal(local, tmp_path):
    assert "\033" not in local(BAD).stdout
    assert "\033[1;31mCRIT" in local(BAD, "--color", "always").stdout
    config = tmp_path / "nhc.conf"
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NHC_STATE_DIR": str(tmp_path / "s"), "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    child = subprocess.Popen(
        [sys.executable, "-m", "nhc", "check", "local", "-c", str(config)],
        stdin=theirs, stdout=theirs, stderr=theirs, env=env,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    assert child.wait(60) == 1
    assert b"\033[1;31mCRIT" in seen
    assert b"/3 check_" in seen


def test_the_quick_reader_and_click_agree_on_every_option():
    """One definition, two readers: what click accepts the quick reader accepts with the same values."""
    from click.testing import CliRunner

    from nhc.core.command_line.common_options import click_command

    got = []

    def take(args: CheckLocal):
        got.append(args)

    parsed = click_command(take)
    for words in (
        [],
        ["-c", "a", "--config=b", "-cd", "-a", "-vv", "-q", "--format=json", "-t", "3s", "--check", "x", "-n", "y"],
        ["-avq", "-o", "-", "--max-age", "5m", "--color", "never", "--profile", "none", "--context", "prolog", "-e"],
    ):
        got.clear()
        result = CliRunner().invoke(parsed, words)
        assert result.exit_code == 0, result.output
        assert got == [read(CheckLocal, words)]
    with pytest.raises(UsageError):
        read(CheckLocal, ["--all=yes"])


def test_help_lists_every_option():
    done = nhc("check", "local", "--help")
    assert done.returncode == 0
    for option in CheckLocal.declared.values():
        assert option.flags[-1] in done.stdout


@pytest.mark.thorough
def test_two_runs_at_once_both_finish_and_say_so(tmp_path):
    config = tmp_path / "nhc.conf"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    config.write_text(f"* |timeout 20s| cat {fifo}\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NHC_STATE_DIR": str(tmp_path / "s")}
    argv = [sys.executable, "-m", "nhc", "check", "local", "-c", str(config)]
    first = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    lock = tmp_path / "s" / "run.lock"
    while not (lock.exists() and lock.read_text() == str(first.pid)) and time.monotonic() < until:
        time.sleep(0.01)
    other = tmp_path / "other.conf"
    other.write_text(GOOD)
    second = nhc("check", "local", "-c", other, state=tmp_path / "s")
    assert f"another nhc run (pid {first.pid}) is in progress" in second.stdout
    assert second.returncode == 0
    Path(fifo).write_text("done")
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    assert "another nhc run" not in out


@pytest.mark.thorough
def test_a_deadline_of_weeks_is_a_deadline(tmp_path):
    """poll(2) counts milliseconds in 31 bits: 25 days do not fit."""
    config = tmp_path / "nhc.conf"
    lines = ["* |timeout 25d| /bin/true", "* |timeout 25d| check_cmd_status -t 25d -r 0 /bin/true",
             "* |timeout 25d| [[ -d / ]]", "* |timeout 99999w| check_fs_mount /"]  # fmt: skip
    config.write_text("\n".join(lines) + "\n")
    done = nhc("check", "local", "-c", config, "--all", "--timeout", "25d", state=tmp_path / "state")
    assert (done.returncode, done.stdout.count("OK   ")) == (0, 4), done.stdout
    assert "nhc.conf:4:4: timeout: '99999w' is too large" in done.stdout
    assert nhc("config", "check", config).returncode == 2


def test_a_context_that_there_is_not_is_wrong_usage():
    done = nhc("check", "local", "--context", "prolg")
    assert done.returncode == 2
    assert "--context: expected some of prolog, epilog" in done.stderr
    assert "did you mean prolog?" in done.stderr


@pytest.mark.thorough
def test_make_check_prints_what_the_same_by_hand_prints(tmp_path):
    """But for what time changes; the numbers of lines and of results are the same."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nhc").write_text(f'#!/bin/sh\nexec {sys.executable} -m nhc "$@"\n')
    (tmp_path / "bin/nhc").chmod(0o755)
    environ = {**os.environ, "NHC_STATE_DIR": str(tmp_path / "state"), "PYTHONPATH": f"{ROOT}:{ROOT}/adapters"}
    make = ["make", "-s", "-C", str(ROOT), "-o", f"{tmp_path}/.run", f"VENV={tmp_path}", "check"]
    made = subprocess.run(make, capture_output=True, text=True, env=environ)
    by_hand = nhc("check", "local", "--all", state=tmp_path / "state")
    assert made.returncode == 0, made.stderr

    def shape(text):
        return [
            re.sub(r"\d+(\.\d+)?", "N", line.split(":")[0]) for line in text.splitlines() if "check_kmsg" not in line
        ]

    assert shape(made.stdout) == shape(by_hand.stdout)


UNUSABLE = [
    (["-c", "/none/nhc.conf"], "BadConfiguration", "/none/nhc.conf: No such file or directory"),
    (["-c", "{bad}"], "BadConfiguration", "includes itself"),
    (["--bogus"], "WrongUsage", "--bogus"),
    (["--profile", "none-such"], "WrongUsage", "none-such"),
    (["--check", "check_none"], "WrongUsage", "no configured check matches"),
    (["--timeout", "soon"], "WrongUsage", "--timeout: 'soon' is not a duration"),
    (["--root", "/none"], "WrongUsage", "/none"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("words", "reason", "said"), UNUSABLE, ids=lambda value: str(value)[:20])
def test_what_cannot_be_judged_is_told_in_the_format_that_was_asked_for(words, reason, said, tmp_path):
    """Nagios takes a status of 2 for CRITICAL, and a metrics file that is not replaced for the node's health."""
    bad = tmp_path / "bad.conf"
    bad.write_text(f"* || include {bad}\n* || check_fs_mount /\n")
    words = [str(bad) if word == "{bad}" else word for word in words]
    file = tmp_path / "metrics.prom"
    file.write_text("nhc_node_verdict 1\n")
    done = {form: nhc("check", "local", *words, "--format", form, state=tmp_path / "state")
            for form in ("nagios", "npd", "json", "jsonl", "text")}  # fmt: skip
    done["prometheus"] = nhc("check", "local", "-f", "prometheus", f"--output={file}", *words, state=tmp_path / "state")
    assert {form: one.returncode for form, one in done.items()} == {
        "nagios": 3, "npd": 2, "json": 2, "jsonl": 2, "text": 2, "prometheus": 2,
    }  # fmt: skip
    assert all(said in one.stderr and "Traceback" not in one.stderr for one in done.values())
    assert done["nagios"].stdout.startswith("NHC UNKNOWN - nhc: ")
    assert said in done["nagios"].stdout.splitlines()[0]
    assert done["npd"].stdout.startswith(f"{reason}: ")
    assert len(done["npd"].stdout) <= 80
    report = json.loads(done["json"].stdout)
    assert done["jsonl"].stdout.count("\n") == 1
    assert json.loads(done["jsonl"].stdout)["results"][0]["message"] == report["results"][0]["message"]
    jsonschema.validate(report, json.loads((ROOT / "docs/report.schema.json").read_text()))
    assert (report["verdict"], report["results"][0]["reason"]) == ("UNKNOWN", reason)
    assert done["text"].stdout == ""
    assert "nhc_node_verdict 3\n" in file.read_text()


@pytest.mark.parametrize("named", ["missing", "nhc.conf"])
def test_a_directory_of_scripts_that_is_named_and_not_there_is_wrong_usage(local, tmp_path, named):
    directory = tmp_path / named
    said = f"{directory}: no such directory of site scripts"

    done = local(GOOD, "--scripts", directory)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", said)

    settings = tmp_path / "agent.toml"
    settings.write_text(f'[agent]\nconfig = ["{tmp_path}/nhc.conf"]\nscripts = ["{directory}"]\n')
    for words in (
        ("config", "check", tmp_path / "nhc.conf", "--scripts", directory),
        ("config", "show", tmp_path / "nhc.conf", "--scripts", directory),
        ("serve", "agent", "-s", settings, "--socket", tmp_path / "socket"),
    ):
        done = nhc(*words, state=tmp_path / "state")
        assert (done.returncode, said in done.stderr) == (2, True), (words, done.stderr)
