"""`nhc` called with LBNL NHC's command line: wrong usage, and the command that takes its place."""

from __future__ import annotations

import re
import shlex

import pytest

from nhc.node.commands.lbnl_usage import answer, look_only
from tests.support.run import ROOT, nhc


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("-a", "nhc check local --all"),
        ("-c /tmp/my.conf", "nhc check local -c /tmp/my.conf"),
        ("-ac /tmp/my.conf", "nhc check local -c /tmp/my.conf --all"),
        ("-D /no/such", "nhc check local -c /no/such/nhc.conf"),
        ("-n gpu", "nhc check local -c /etc/nhc/gpu.conf"),
        ("-t 10", "nhc check local -t 10"),
        ("-q", "nhc check local -q"),
        ("-v", "nhc check local -v"),
        ("-d", "nhc check local -v --evidence"),
        ("-x", "nhc check local -v --evidence"),
        ("-f", "nhc check local"),
        ("-l -", "nhc check local"),
        ("MARK_OFFLINE=0", "nhc check local"),
    ],
)
def test_each_flag_has_its_command(words, instead):
    said = answer(shlex.split(words), {})
    assert f"nhc-healthcheck {words};" in said
    assert f"mark nothing: {instead};" in said
    assert "\n" not in said


def test_a_directory_is_named_with_its_scripts_where_it_has_some(tmp_path):
    """--scripts with a directory that is not there is wrong usage."""
    (tmp_path / "scripts").mkdir()
    assert look_only(["-D", str(tmp_path)]) == f"nhc check local -c {tmp_path}/nhc.conf --scripts {tmp_path}/scripts"


def test_one_line_to_evaluate_has_no_look_only_form():
    said = answer(["-e", "check_fs_free / 5%"], {})
    assert "nhc-healthcheck -e 'check_fs_free / 5%';" in said
    assert "mark nothing" not in said


@pytest.mark.parametrize("words", [["list"], ["-v", "check", "local"], ["-z"], ["--help"], []])
def test_what_is_no_command_line_of_lbnl_nhcs(words):
    assert answer(words, {}) is None


@pytest.mark.thorough
def test_it_is_wrong_usage_one_line_and_nothing_on_standard_output():
    for words, environ in ((["-a"], {}), ([], {"SLURMD_NODENAME": "n1"})):
        done = nhc(*words, env=environ)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "HealthCheckProgram=/usr/libexec/nhc/slurm-healthcheck" in done.stderr


@pytest.mark.thorough
def test_nhc_alone_is_no_healthy_node():
    assert nhc().returncode == 2
    assert nhc("-h").returncode == 0


def test_the_migration_page_says_the_same(tmp_path, monkeypatch):
    (tmp_path / "DIR" / "scripts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/migration.md").read_text()
    rows = [line.strip("| \n").split(" | ") for line in page.splitlines() if line.startswith("| `nhc ")]
    told = {}
    for asked, *_, looks in rows:
        for words in re.findall(r"`(?:nhc )?(-[^`]*)`", asked):
            found = re.match(r"`(nhc check local[^`]*)`", looks)
            if found:
                told[words] = found[1]
    assert {"-a", "-c FILE", "-D DIR", "-n NAME", "-t SECONDS", "-v", "-d", "-x", "-q", "-l LOG"} <= set(told)
    for words, command in told.items():
        assert look_only(shlex.split(words)) == command
