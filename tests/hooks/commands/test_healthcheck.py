"""`nhc-healthcheck` in LBNL NHC's place: its command line, files, output, helpers and exit status."""

import os
import stat
import time

import pytest

from nhc.core.language import lbnl_settings, site_settings
from nhc.core.model import CheckResult, Report, crit
from nhc.core.system.steady_time import boot_id
from nhc.hooks.load_sensor import load_values
from tests.support.run import nhc
from tests.support.waiting import until

GOOD = "* || check_hw_mem_free 1k\n"
BAD = "* || check_hw_physmem 900TB\n"


@pytest.fixture
def health(tmp_path):
    """Run nhc-healthcheck with a configuration's text; nothing is marked unless a test says how."""
    confdir = tmp_path / "etc"
    confdir.mkdir()

    def run(text, *words, name="nhc", mark="MARK_OFFLINE=0", **options):
        if text is not None:
            (confdir / f"{name}.conf").write_text(text)
        given = ["-D", confdir, *words]
        given += [word for word in [f"LOGFILE={tmp_path / 'log'}" if "-l" not in words else "", mark] if word]
        return nhc(*given, state=tmp_path / "state", module="nhc.hooks.commands.healthcheck", **options)

    run.log = tmp_path / "log"
    run.confdir = confdir
    return run


def test_a_healthy_node_is_silent(health):
    done = health(GOOD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_failure_is_logged_printed_and_ends_with_1(health):
    done = health(BAD)
    assert done.returncode == 1
    said = "ERROR:  nhc:  Health check failed:  check_hw_physmem:  Actual RAM size ("
    assert done.stdout.startswith(said)
    assert health.log.read_text().startswith(said)


@pytest.mark.thorough
def test_all_checks_counts_failures(health):
    done = health(BAD + GOOD + BAD, "-a")
    assert done.returncode == 2
    assert "ERROR:  nhc:  2 health checks failed." in done.stdout
    assert health(BAD + GOOD + BAD).returncode == 1


def test_a_missing_configuration_is_no_healthy_node(health):
    done = health(None)
    assert done.returncode == 2
    assert "nhc.conf: No such file or directory" in done.stdout


@pytest.mark.parametrize("line", ["* check_fs_mount_rw -f /", "{n[1- || check_fs_mount_rw -f /"])
def test_a_line_that_cannot_be_read_is_loud_and_takes_no_node_out(health, line):
    done = health(f"{GOOD}{line}\n")
    assert (done.returncode, done.stdout) == (3, "")
    (said,) = [told for told in health.log.read_text().splitlines() if "UNKNOWN:" in told]
    assert "UNKNOWN:  check_fs_mount_rw:" in said
    assert f"{health.confdir}/nhc.conf:{GOOD.count(chr(10)) + 1}:" in said
    assert "the line was not run" in said


def test_something_unknown_is_neither_healthy_nor_failed(health):
    done = health("* || check_cmd_status no-such-command\n")
    assert done.returncode == 3
    assert "UNKNOWN:  check_cmd_status:" in health.log.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["-Z"], "Invalid option:  -Z"), (["-t"], "Option -t requires an argument."), (["check_x"], "is not a setting")],
)
def test_a_wrong_command_line_ends_with_10(words, said):
    done = nhc(*words, module="nhc.hooks.commands.healthcheck")
    assert done.returncode == 10
    assert said in done.stderr


def test_help(health):
    done = nhc("-h", module="nhc.hooks.commands.healthcheck")
    assert done.returncode == 0
    assert "-l LOGSPEC" in done.stdout


@pytest.mark.thorough
def test_a_single_check_is_evaluated_and_nothing_is_marked(health, tmp_path):
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\ntouch {tmp_path / 'marked'}\n")
    helper.chmod(0o755)
    done = health(GOOD, "-e", "check_hw_physmem 900TB", f"OFFLINE_NODE={helper}", mark="MARK_OFFLINE=1")
    assert done.returncode == 1
    assert "check_hw_physmem:  Actual RAM size" in done.stdout
    assert not (tmp_path / "marked").exists()
    assert health(BAD, "-e", "check_hw_mem_free 1k").returncode == 0


def test_the_name_chooses_files(health):
    done = health(BAD, "-n", "nhc-cron", name="nhc-cron")
    assert done.returncode == 1
    assert "ERROR:  nhc-cron:  Health check failed:" in done.stdout


@pytest.mark.thorough
def test_quiet_verbose_and_the_log_target(health):
    assert health(BAD, "-q").stdout == ""
    done = health(GOOD, "-v", "-l", "-")
    assert 'Running check:  "check_hw_mem_free 1k"' in done.stdout
    assert "Node Health Check completed successfully" in done.stdout


@pytest.mark.slow
def test_a_timeout_in_the_file_counts(health):
    """The original starts its watchdog before it reads the file, so that a TIMEOUT there changes nothing."""
    begin = time.monotonic()
    done = health("* || TIMEOUT=1\n* || sleep 100\n")
    assert time.monotonic() - begin < 50
    assert done.returncode == 3
    assert "timed out" in health.log.read_text()
    done = health("* |on-timeout crit| sleep 20\n", "-t", "1")
    assert done.returncode == 142
    assert "timed out" in done.stdout


@pytest.mark.thorough
def test_quotes_in_a_message_reach_the_sites_own_helper_unharmed(health, tmp_path):
    """The original builds a shell line of the message: a quote breaks it, and worse."""
    helper = tmp_path / "helper"
    helper.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path / "told"}\n')
    helper.chmod(0o755)
    evil = "* || check_file_contents /etc/passwd \"it's $(touch /tmp/x) 'quoted'\"\n".replace("$(", "(")
    done = health(evil, f"OFFLINE_NODE={helper}", f"ONLINE_NODE={helper}", mark="MARK_OFFLINE=1")
    assert done.returncode == 1
    host, message, _ = (tmp_path / "told").read_text().split("|")
    assert host == os.uname().nodename
    assert "it's (touch /tmp/x) 'quoted'" in message
    assert health(GOOD, f"OFFLINE_NODE={helper}", f"ONLINE_NODE={helper}", mark="MARK_OFFLINE=1").returncode == 0
    assert (tmp_path / "told").read_text() == f"{host}|"


def test_an_unknown_verdict_leaves_the_node_as_it_is(health, tmp_path):
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\ntouch {tmp_path / 'told'}\n")
    helper.chmod(0o755)
    text = "* || check_cmd_status no-such-command\n"
    health(text, f"OFFLINE_NODE={helper}", f"ONLINE_NODE={helper}", mark="MARK_OFFLINE=1")
    assert not (tmp_path / "told").exists()


def test_a_log_that_cannot_be_written_does_not_hide_the_verdict(health):
    done = health(BAD, "-l", "/nowhere/nhc.log")
    assert done.returncode == 1
    assert "Can't write /nowhere/nhc.log" in done.stdout
    assert "Health check failed" in done.stdout


@pytest.mark.thorough
def test_site_scripts_are_loaded(health):
    (health.confdir / "scripts").mkdir()
    (health.confdir / "scripts" / "site.nhc").write_text(
        'check_site() { [[ "$1" == good ]] || { die 1 "$FUNCNAME:  not $1"; return 1; }; }\n'
    )
    assert health("* || check_site good\n").returncode == 0
    done = health("* || check_site bad\n")
    assert done.returncode == 1
    assert "check_site:  not bad" in done.stdout


@pytest.mark.thorough
def test_detached_mode_answers_with_the_last_verdict(health, tmp_path):
    text = BAD
    first = health(text, "DETACHED_MODE=1")
    assert (first.returncode, first.stdout) == (0, "")
    kept = tmp_path / "state" / "detached.json"
    until(kept.exists, what="the first verdict")
    second = health(text, "DETACHED_MODE=1")
    assert second.returncode == 1
    assert second.stdout.startswith("ERROR Health check failed:  check_hw_physmem:")
    (tmp_path / "none").mkdir()
    third = health(
        GOOD, "DETACHED_MODE=1", "DETACHED_MODE_FAIL_NODATA=1", env={"NHC_STATE_DIR": str(tmp_path / "none")}
    )
    assert third.returncode == 1
    assert "no data found" in third.stdout


@pytest.mark.thorough
def test_a_detached_run_without_a_usable_configuration_ends_the_last_verdict(health, tmp_path):
    kept = tmp_path / "state" / "detached.json"
    health(GOOD, "DETACHED_MODE=1")
    until(kept.exists, what="the first verdict")
    health(GOOD, "DETACHED_MODE=1", f"CONFFILE={tmp_path}/none.conf")
    until(lambda: "report" not in kept.read_text(), what="the second run to end")
    unusable = kept.read_text()
    then = health(GOOD, "DETACHED_MODE=1")
    assert (then.returncode, "could not use its configuration" in then.stdout + then.stderr) == (3, True)
    until(lambda: "report" in kept.read_text(), what="the third run to end")
    assert health(GOOD, "DETACHED_MODE=1").returncode == 0
    until(lambda: "report" in kept.read_text(), what="the fourth run to end")
    kept.write_text(unusable.replace(boot_id(), "the boot before"))
    assert health(GOOD, "DETACHED_MODE=1").returncode == 0, "a boot later it tells nothing"


@pytest.mark.thorough
def test_grid_engines_load_sensor_protocol(health):
    done = health(BAD, "NHC_RM=sge", stdin="\n\nquit\n")
    host = os.uname().nodename
    blocks = done.stdout.count("begin\n")
    assert blocks == 2
    assert f"{host}:healthy:false\n{host}:diagnosis:NHC: check_hw_physmem:" in done.stdout
    assert health(GOOD, "NHC_RM=sge", stdin="\n").stdout.endswith(
        f"{host}:healthy:true\n{host}:diagnosis:HEALTHY\nend\n"
    )


def test_command_line_settings_beat_defaults_and_the_environment_does_not(monkeypatch):
    settings, _ = lbnl_settings.resolve(["-a", "-t", "7", "FOO=a b=c"], {"TIMEOUT": "99", "MARK_OFFLINE": "0"}, "nhc")
    assert (settings["NHC_CHECK_ALL"], settings["TIMEOUT"], settings["FOO"]) == ("1", "7", "a b=c")
    assert settings["MARK_OFFLINE"] == "0"
    assert settings["CONFFILE"] == "/etc/nhc/nhc.conf"


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        ("-", ("", True)),
        ("/var/log/x", ("/var/log/x", True)),
        (">>/var/log/nhc.log 2>&1", ("/var/log/nhc.log", True)),
        (">/tmp/x 2>&1", ("/tmp/x", False)),
        (">> /tmp/y", ("/tmp/y", True)),
    ],
)
def test_log_specifications(spec, target):
    assert tuple(lbnl_settings.log_target(spec)) == target


def test_a_sysconfig_file_is_read_by_bash_only_where_it_takes_one(tmp_path, monkeypatch):
    plain = tmp_path / "plain"
    plain.write_text("# comment\nTIMEOUT=60\nexport NHC_RM='slurm'\nLOGFILE=\">>/x 2>&1\"\n")
    assert site_settings.read_sysconfig(str(plain)) == {"TIMEOUT": "60", "NHC_RM": "slurm", "LOGFILE": ">>/x 2>&1"}
    clever = tmp_path / "clever"
    clever.write_text("BASE=30\nTIMEOUT=$((BASE * 2))\n[ -d / ] && DEBUG=1\n")
    assert site_settings.read_sysconfig(str(clever)) == {"BASE": "30", "TIMEOUT": "60", "DEBUG": "1"}
    broken = tmp_path / "broken"
    broken.write_text("TIMEOUT=$((\n")
    with pytest.raises(ValueError, match="bash cannot read it"):
        site_settings.read_sysconfig(str(broken))


def test_the_log_is_not_readable_by_everybody(health):
    health(BAD)
    assert stat.S_IMODE(health.log.stat().st_mode) & 0o007 == 0


def test_a_full_disk_is_no_reason_to_fail(health):
    done = health(BAD, "-l", "/dev/full")
    assert done.returncode == 1
    assert "Health check failed" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_configuration_without_a_line_for_this_node_says_so(health):
    done = health("elsewhere || true\n", "-l", "-")
    assert done.returncode == 3
    assert "no line of the configuration is for" in done.stdout


@pytest.mark.thorough
def test_watch_only_tells_the_log_and_no_scheduler(health):
    """Torque marks a node whose health check prints ERROR, and others by its status."""
    done = health("* || NHC_WATCH_ONLY=1\n" + BAD, "OFFLINE_NODE=touch", "NHC_RM=none", mark="")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Health check failed:  check_hw_physmem" in health.log.read_text()
    assert "watch only: otherwise this would be run: touch" in done.stderr
    assert health(BAD, "NHC_WATCH_ONLY=1").returncode == 0
    assert health(BAD, "NHC_WATCH_ONLY=0").returncode == 1


def test_grid_engine_hears_healthy_while_watching():
    report = Report("n1", "", 0.0, 0.1, (CheckResult("check_x", crit("X", "bad")),))
    assert load_values(report, "n1")[1] == "n1:healthy:false"
    assert load_values(report, "n1", watches=True)[1:3] == [
        "n1:healthy:true", "n1:diagnosis:NHC watch only: check_x:  bad",
    ]  # fmt: skip
