"""check_ps_service: what it finds, and what it does about it."""

import os
import subprocess

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed
from nhc.node.checks import ps_service
from nhc.node.checks.ps_service import parse_main_pid
from tests.support.judge import judge
from tests.support.processes import INIT, NODE, SSHD, SSHD_TITLE, Process, node

RSYSLOGD = Process(1448, "/sbin/rsyslogd -i /var/run/syslogd.pid -c 5")
SYSTEMD = {"/run/systemd/system/": ""}


def see(line, *processes, **given):
    return judge(node(*(processes or (*NODE, RSYSLOGD)), **given), f"check_ps_service {line}")


@pytest.mark.parametrize(
    "line",
    [
        "sshd",
        "-u root sshd",
        "-u '!root' ntpd",
        "-f -m '/rsyslogd -i.* -c 5/' rsyslogd",
        "-S -u root sshd",
        "-d rsyslogd -r syslog",
        "-m '*sbin*sshd' sshd",
        r"-m '/^\/usr\/sbin\/sshd$/' sshd",
        "-s httpd",
        "-k httpd",
        "-E true httpd",
        "-e '/sbin/shutdown -r 1' sshd",
    ],
)
def test_a_service_as_it_should_be_passes(line):
    host = node(*NODE, RSYSLOGD)

    assert judge(host, f"check_ps_service {line}").verdict is Verdict.OK
    assert host.system.ran == []
    assert host.system.done == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("httpd", "Service httpd (process httpd) not running"),
        ("-u root httpd", "Service httpd (process httpd) owned by root not running"),
        ("-u bob sshd", "Service sshd (process sshd) owned by bob not running"),
        ("-u '!root' sshd", "Service sshd (process sshd) owned by !root not running"),
        ("-f rsyslogd", "Service rsyslogd (process rsyslogd) not running"),
        ("-m '^sshd$' sshd", "Service sshd (process sshd) not running"),
        ("-m 'sshd*' sshd", "Service sshd (process sshd) not running"),
        ("-S httpd", "Service httpd (process httpd) not running; start in progress"),
        ("-r httpd", "Service httpd (process httpd) not running; restart in progress"),
        ("-d munged -c munge", "Service munge (process munged) not running; cycle in progress"),
        ("-e 'echo x' httpd", 'Service httpd (process httpd) not running; "echo x" in progress'),
        ("-s -u root sshd", "Service sshd (process sshd) owned by root running; service termination in progress"),
        ("-k sshd", "Service sshd (process sshd) running; killed process ID 1351 (SIGKILL)"),
        ("-E true sshd", 'Service sshd (process sshd) running; "true" in progress.'),
    ],
)
def test_a_service_as_it_should_not_be_fails_in_lbnl_words(line, message):
    outcome = see(line)

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


def test_non_fatal_only_warns():
    outcome = see("-0 httpd")

    assert (outcome.verdict, outcome.message) == (
        Verdict.WARN,
        "Service httpd (process httpd) not running (non-fatal)",
    )


@pytest.mark.parametrize(
    ("line", "files", "command"),
    [
        ("-S httpd", {}, ("/sbin/service", "httpd", "start")),
        ("-r httpd", {}, ("/sbin/service", "httpd", "restart")),
        ("-S httpd", SYSTEMD, ("systemctl", "start", "httpd")),
        ("-s sshd", {}, ("/sbin/service", "sshd", "stop")),
        ("-s sshd", SYSTEMD, ("systemctl", "stop", "sshd")),
        (
            "-c httpd",
            SYSTEMD,
            ("bash", "-c", 'systemctl stop "$1"; sleep 2; systemctl start "$1"', "nhc", "httpd"),
        ),
        (
            "-c httpd",
            {},
            ("bash", "-c", '/sbin/service "$1" stop; sleep 2; /sbin/service "$1" start', "nhc", "httpd"),
        ),
    ],
)
def test_actions_go_through_what_runs_the_node(line, files, command):
    host = node(*NODE, files=files, commands={"systemctl show": "ActiveState=inactive\nMainPID=0\n"})

    judge(host, f"check_ps_service {line}")

    assert host.system.ran[-1][4:] == command


@pytest.mark.parametrize(
    ("line", "answers", "verdict", "tail"),
    [
        ("-S -v httpd", {"start": 0}, Verdict.WARN, "; start succeeded."),
        ("-S -v httpd", {"start": 5}, Verdict.CRIT, "; start failed (exit code 5)."),
        ("-S -V httpd", {"start": 5}, Verdict.CRIT, "; start failed (exit code 5)."),
        ("-S -V httpd", {"start": 0, "status": 0}, Verdict.WARN, "; start succeeded; service httpd now running."),
        ("-r -V httpd", {"restart": 0, "status": 3}, Verdict.CRIT,
         "; restart succeeded but failed to start service httpd."),
        ("-s -v sshd", {"stop": 0}, Verdict.WARN, "; service sshd stopped."),
        ("-s -v sshd", {"stop": 1}, Verdict.CRIT, '; "/sbin/service sshd stop" failed (exit code 1).'),
        ("-s -V sshd", {"stop": 0}, Verdict.CRIT,
         '; "/sbin/service sshd stop" succeeded but failed to stop process 1351.'),
    ],
)  # fmt: skip
def test_waiting_and_verifying(line, answers, verdict, tail, monkeypatch):
    monkeypatch.setattr(ps_service, "GONE_WAIT", 0)
    service = line.split()[-1]
    commands = {f"/sbin/service {service} {verb}": Completed(status) for verb, status in answers.items()}

    outcome = see(line, *NODE, commands=commands)

    assert outcome.verdict is verdict
    assert outcome.message.endswith(tail)


def test_a_missing_service_command_is_told():
    assert see("-S -v httpd").message.endswith("; start failed (no such command).")


def test_an_action_in_verify_mode_is_run_by_bash():
    good = {("bash", "-c", "fix it"): ""}
    bad = {("bash", "-c", "fix it"): Completed(3)}

    assert see("-v -E 'fix it' sshd", *NODE, commands=good).message.endswith('; "fix it" succeeded.')
    assert see("-v -E 'fix it' sshd", *NODE, commands=bad).message.endswith('; "fix it" failed (exit code 3).')


def test_every_process_is_killed_and_a_failure_told():
    two = (INIT, SSHD, SSHD._replace(pid=1360))
    host = node(*two)
    assert judge(host, "check_ps_service -v -k sshd").verdict is Verdict.WARN
    assert host.system.done == ["kill 9 1351", "kill 9 1360"]
    host = node(*two)
    host.system.refuses["kill 9 1360"] = PermissionError(1, "Operation not permitted")
    outcome = judge(host, "check_ps_service -v -k sshd")
    assert outcome.verdict is Verdict.CRIT
    assert outcome.message.endswith('; "kill -9 1360" failed (Operation not permitted).')


@pytest.mark.parametrize("line", ["-u root -S sshd", "-m 'sshd:' sshd", "-d sshd: sshd", "-m '/^sshd:?$/' sshd"])
def test_a_rewritten_title_is_the_program_it_names(line):
    assert see(line, INIT, SSHD_TITLE).verdict is Verdict.OK


def test_a_login_is_not_the_service():
    assert see("sshd", INIT, Process(9, "sshd: alice@pts/0", name="sshd", uid=12345)).verdict is Verdict.CRIT


@pytest.mark.parametrize(
    ("shown", "pid"),
    [
        ("ActiveState=active\nMainPID=1352\n", 1352),
        ("MainPID=1352\nActiveState=failed\n", 0),
        ("ActiveState=active\nMainPID=0\n", 0),
        ("", 0),
    ],
)
def test_main_process_of_a_unit(shown, pid):
    assert parse_main_pid(shown) == pid


def test_an_active_unit_whose_program_is_called_otherwise_runs():
    given = {"files": SYSTEMD, "commands": {"systemctl show": "ActiveState=active\nMainPID=1352\n"}}

    assert see("-u root ssh", INIT, SSHD_TITLE, **given).verdict is Verdict.OK
    assert see("-u ntp ssh", INIT, SSHD_TITLE, **given).verdict is Verdict.CRIT
    assert see("-d ssh ssh", INIT, SSHD_TITLE, **given).verdict is Verdict.CRIT


@pytest.mark.thorough
def test_a_miss_is_unknown_and_nothing_done_where_a_process_hangs():
    host = node(INIT, Process(50, "/usr/sbin/httpd", state="D", name="thing"))
    os.unlink(host.path("/proc/50/cmdline"))
    os.mkfifo(host.path("/proc/50/cmdline"))

    assert judge(host, "check_ps_service -S httpd").verdict is Verdict.UNKNOWN
    assert host.system.ran == []
    os.close(os.open(host.path("/proc/50/cmdline"), os.O_RDWR | os.O_NONBLOCK))


def test_no_proc_is_unknown():
    assert judge(node(), "check_ps_service sshd").verdict is Verdict.UNKNOWN


def test_a_real_process_is_killed_and_seen_to_be_gone():
    mark = f"/dev/null.{os.getpid()}"
    child = subprocess.Popen(["tail", "-F", mark], stderr=subprocess.DEVNULL)
    try:
        outcome = judge(Host(), f"check_ps_service -k -V -f -m 'tail*{mark}' mytail")
        assert outcome.verdict is Verdict.WARN
        assert outcome.message.endswith(f"; process ID {child.pid} terminated successfully.")
        assert child.wait(60) == -9
    finally:
        child.kill()
        child.wait()
