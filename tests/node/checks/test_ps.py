"""check_ps_daemon and check_ps_blacklist."""

import os
import subprocess

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.node.checks.ps import check_ps_blacklist, check_ps_daemon
from tests.support.processes import NODE, NTPD, SSHD, SSHD_TITLE, Process, node


@pytest.mark.parametrize(
    ("daemon", "user", "arguments"),
    [
        ("sshd", "root", None),
        ("ntpd", "ntp", None),
        ("ntpd", "38", None),
        ("pbs_mom", None, "-d /var/spool"),
        ("wrf.e?e", "alice", None),
        ("s[sx]hd", None, None),
        ("[kswapd0]", None, None),
        ("kswapd1", "root", None),
    ],
)
def test_a_running_daemon_passes(daemon, user, arguments):
    assert check_ps_daemon(node(*NODE), daemon, user, arguments).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("daemon", "user", "arguments", "message"),
    [
        ("httpd", None, None, "Process httpd not running"),
        ("nntpd", None, None, "Process nntpd not running"),
        ("sshd", "rpc", None, "Process sshd owned by rpc not running"),
        ("sshd", "stranger", None, "Process sshd owned by stranger not running"),
        ("ntpd", None, "-u root", "Process ntpd -u root not running"),
    ],
)
def test_a_missing_daemon_fails_in_lbnl_words(daemon, user, arguments, message):
    outcome = check_ps_daemon(node(*NODE), daemon, user, arguments)

    assert (outcome.verdict, outcome.reason, outcome.message) == (Verdict.CRIT, "ProcessMissing", message)


def test_a_zombie_is_not_running():
    assert check_ps_daemon(node(Process(9, name="crond", state="Z"), NTPD), "crond").verdict is Verdict.CRIT


def test_a_rewritten_title_is_the_daemon_and_its_sessions_are_not():
    session = Process(9, "sshd: alice [priv]", name="sshd")

    assert check_ps_daemon(node(SSHD_TITLE), "sshd", "root").verdict is Verdict.OK
    assert check_ps_daemon(node(session), "sshd", "root").verdict is Verdict.CRIT
    assert check_ps_daemon(node(session), "sshd: alice", "root").verdict is Verdict.OK
    assert check_ps_blacklist(node(session), "sshd").verdict is Verdict.CRIT


def test_only_the_owner_of_a_match_is_asked_for():
    host = node(SSHD, NTPD)
    asked = []
    original = host.system.stat
    host.system.stat = lambda path, follow: asked.append(path) or original(path, follow)

    check_ps_daemon(host, "sshd", "root")

    assert asked == ["/proc/1351"]


def hung(*others, pid=50, uid=0):
    host = node(Process(pid, "/opt/thing --serve", uid=uid, state="D"), *others)
    os.unlink(host.path(f"/proc/{pid}/cmdline"))
    os.mkfifo(host.path(f"/proc/{pid}/cmdline"))
    return host


def release(host, pid=50):
    os.close(os.open(host.path(f"/proc/{pid}/cmdline"), os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.thorough
def test_a_process_that_hangs_holds_nothing_up_and_is_known_by_its_name():
    host = hung(SSHD)

    assert check_ps_daemon(host, "sshd", "root").verdict is Verdict.OK
    assert check_ps_daemon(host, "[thing]").verdict is Verdict.OK
    release(host)


@pytest.mark.thorough
def test_a_miss_is_unknown_where_a_process_hangs_that_could_be_it():
    host = hung(SSHD)

    missing = check_ps_daemon(host, "httpd", "root")
    forbidden = check_ps_blacklist(host, "telnetd")

    assert (missing.verdict, missing.reason) == (Verdict.UNKNOWN, "ProcessUnreadable")
    assert missing.message == (
        "Process httpd owned by root not found; the command line of PID 50 cannot be read: it hangs"
    )
    assert forbidden.verdict is Verdict.UNKNOWN
    assert check_ps_daemon(host, "httpd", "ntp").verdict is Verdict.CRIT
    release(host)


def test_no_proc_is_unknown():
    assert check_ps_daemon(node(), "sshd").verdict is Verdict.UNKNOWN
    assert check_ps_blacklist(node(), "sshd").reason == "ProcUnreadable"


@pytest.mark.parametrize(
    ("daemon", "user", "verdict"),
    [
        ("httpd", None, Verdict.OK),
        ("ntpd", "root", Verdict.OK),
        ("sshd", "!root", Verdict.OK),
        ("sshd", "root", Verdict.CRIT),
        ("-bash", "!root", Verdict.CRIT),
        ("wrf", "/^al/", Verdict.CRIT),
        ("wrf", "{node[1-2]}", Verdict.OK),
    ],
)
def test_blacklist(daemon, user, verdict):
    assert check_ps_blacklist(node(*NODE), daemon, user).verdict is verdict


def test_a_forbidden_process_is_told_in_lbnl_words_with_evidence():
    outcome = check_ps_blacklist(node(*NODE), "sshd", "root")

    assert outcome.message == "Process sshd owned by root running"
    assert outcome.evidence == ("1351 root /usr/sbin/sshd -D",)


def test_a_real_process_is_found_while_it_lives():
    mark = f"/dev/null.{os.getpid()}"
    child = subprocess.Popen(["tail", "-F", mark], stderr=subprocess.DEVNULL)
    try:
        assert check_ps_daemon(Host(), mark, str(os.geteuid())).verdict is Verdict.OK
    finally:
        child.kill()
        child.wait()
    assert check_ps_daemon(Host(), mark).verdict is Verdict.CRIT
