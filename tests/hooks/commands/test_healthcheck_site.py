"""What a site relies on when `nhc-healthcheck` takes LBNL NHC's place: PATH, names, wording, what is printed."""

import os

import pytest

from nhc.core.language import lbnl_settings, site_settings
from nhc.core.language.loader import load_text
from nhc.core.model import CheckResult, crit, describe
from tests.support.run import nhc


@pytest.fixture
def health(tmp_path):
    """Run nhc-healthcheck with a configuration's text, its log on standard output."""

    def run(text, *words, mark="MARK_OFFLINE=0", **options):
        (tmp_path / "nhc.conf").write_text(text)
        given = ["-c", tmp_path / "nhc.conf", *words, "LOGFILE=-", f"INCDIR={tmp_path}/scripts", mark]
        return nhc(*given, state=tmp_path / "state", module="nhc.hooks.commands.healthcheck", **options)

    return run


@pytest.fixture
def program(tmp_path):
    """A program that is on nobody's PATH; it writes its arguments and NHC_RM down."""
    path = tmp_path / "bin" / "site-tool"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\necho "OK $*"\nprintf "%s|" "$@" "$NHC_RM" > {tmp_path}/told\n')
    path.chmod(0o755)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize(
    "line",
    [
        'export PATH="$PATH:{}"',
        "PATH={}:$PATH",
        "PATH={}:/bin",
        "[ -d / ] && export PATH=$PATH:{}",
        "export PATH=`echo {}`:$PATH",
    ],
)
def test_commands_of_checks_are_found_where_the_configuration_says(health, program, line):
    text = f"* || {line.format(program.parent)}\n"
    for check in (
        "check_cmd_status site-tool",
        "check_cmd_output -m '*OK*' site-tool x",
        "site-tool",
        "site-tool | grep OK",
    ):
        text += f"* || {check}\n"
    done = health(text)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.thorough
def test_a_message_has_the_words_that_it_had(health):
    text = (
        "* || check_file_test -f /none\n* || die 1 on its own\n* || sh -c 'exit 7'\n* || f() { die 1 'f:  in f'; }; f\n"
    )
    done = health(text, "-a")
    assert [line.split("failed:  ")[1] for line in done.stdout.splitlines()[:-1]] == [
        "check_file_test:  -f /none returned 1.", "on its own", "Check sh -c 'exit 7' returned 7", "f:  in f",
    ]  # fmt: skip


def test_a_target_is_told_where_the_message_does_not_name_it():
    assert describe(CheckResult("check_x", crit("R", "is hot", target="gpu3"))) == "check_x: gpu3: is hot"
    assert describe(CheckResult("check_x", crit("R", "gpu3 is hot", target="gpu3"))) == "check_x: gpu3 is hot"


def test_a_wrapper_fails_under_its_own_name(health):
    done = health("* || check_cmd_output -C check_mine -M 'no %m' -m there echo here\n")
    assert done.stdout == "ERROR:  nhc:  Health check failed:  check_mine:  no there.\n"


@pytest.mark.thorough
@pytest.mark.parametrize(("setting", "name"), [("HOSTNAME=n1.example", "n1.example"), ("HOSTNAME=n1", "n1")])
def test_a_helper_program_is_told_the_hosts_name_as_ever(health, program, tmp_path, setting, name):
    """PBS knows nodes by full names; a site that wants short ones has said so with HOSTNAME=$HOSTNAME_S."""
    helper = [f"OFFLINE_NODE='{program} --why'", f"ONLINE_NODE={program}", "NHC_RM=pbs", setting]
    assert health("* || die 1 'it broke'\n", *helper, mark="MARK_OFFLINE=1").returncode == 1
    assert (tmp_path / "told").read_text() == f"--why|{name}|it broke|pbs|"
    health("* || HOSTNAME=$HOSTNAME_S\n* || die 1 'it broke'\n", *helper, mark="MARK_OFFLINE=1")
    assert (tmp_path / "told").read_text() == "--why|n1|it broke|pbs|"


def test_a_helper_is_told_a_name_of_the_schedulers_own(health, program, tmp_path):
    words = [f"OFFLINE_NODE={program}", f"ONLINE_NODE={program}", "HOSTNAME=n1.example", "NHC_NODE_NAME=slot-7"]
    health("* || true\n", *words, mark="MARK_OFFLINE=1")
    assert (tmp_path / "told").read_text().startswith("slot-7|")


def test_grid_engine_is_told_the_hosts_name_as_ever(health):
    done = health("* || true\n", "NHC_RM=sge", "HOSTNAME=n1.example", stdin="\nquit\n")
    assert "n1.example:healthy:true\n" in done.stdout


@pytest.mark.parametrize("words", [["-v"], ["-e", "log seen; echo printed"]])
def test_what_a_passing_line_prints_can_be_read(health, words):
    done = health("* || log seen; echo printed\n* || echo from a program\n", *words)
    assert done.returncode == 0
    assert "seen\nprinted\n" in done.stdout


def test_without_v_a_passing_line_is_silent(health):
    assert health("* || log seen; echo printed\n* || echo from a program\n").stdout == ""


def test_command_line_settings_are_evaluated_as_a_shell_would():
    words = ["TIMEOUT='60'", 'OFFLINE_NODE="/opt/off --why"', "HOSTNAME=$HOSTNAME_S", "X='a", "Y=$(date)"]
    found = lbnl_settings.parse_command_line(words, {"HOSTNAME_S": "n1"})
    assert found == {"TIMEOUT": "60", "OFFLINE_NODE": "/opt/off --why", "HOSTNAME": "n1", "X": "'a", "Y": "$(date)"}


@pytest.mark.parametrize("computed", ["", "[ -d / ] && DEBUG=1\n"])
def test_a_sysconfig_file_uses_what_is_known_by_then(tmp_path, computed):
    path = tmp_path / "nhc"
    path.write_text(f"HOSTNAME=$HOSTNAME_S\nLOGFILE=/var/log/$NAME.log\nexport PATH=$PATH:/opt/slurm/bin\n{computed}")
    known = {"HOSTNAME": "n1.example", "HOSTNAME_S": "n1", "NAME": "nhc-cron", "PATH": "/bin"}
    found = site_settings.read_sysconfig(str(path), known)
    found.pop("DEBUG", None)
    assert found.pop("PATH").endswith(":/opt/slurm/bin")
    assert found == {"HOSTNAME": "n1", "LOGFILE": "/var/log/nhc-cron.log"}


def test_the_hosts_names_are_the_kernels():
    assert site_settings.host_names()["HOSTNAME"] == os.uname().nodename
    assert "." not in site_settings.host_names()["HOSTNAME_S"]


def test_external_matchers_of_a_sysconfig_file_decide_about_targets(tmp_path):
    """Arrays, which an environment cannot hold (docs/configuration.md has them written so)."""
    path = tmp_path / "nhc"
    path.write_text("NHC_MCHECK_DELIM=( '<>' %% )\nNHC_MCHECK_COMMAND=( '[[ %h == *%m ]]' '[ %h = %m ]' )\n")
    settings = site_settings.read_sysconfig(str(path))
    plan = load_text("<01> || check_hw_eth a\n%n01% || check_hw_eth b\n<02> || check_hw_eth c\n", "f", "n01", settings)
    assert [item.argv[1] for item in plan.items] == ["a", "b"]
