"""NHC_WATCH_ONLY=1: a check says what it would do to the node, and does not do it."""

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from tests.node.checks.test_fs_mount import MOUNTS
from tests.support.judge import judge
from tests.support.processes import NODE, Process, node
from tests.support.run import nhc

ROGUE = Process(31337, "/home/mallory/badstuff --now", uid=31337, cpu=9000)


def site(watch):
    settings = {"NHC_WATCH_ONLY": watch, "NHC_RM": "slurm"}
    commands = {"sh": "", "bash": "", "mount": "", "mkdir": "", "/sbin/service": "", "squeue": ""}
    files = {"/proc/mounts": MOUNTS, "/unmounted/": "", "/proc/net/tcp": "", "/proc/net/unix": ""}
    return node(*NODE, ROGUE, settings=settings, commands=commands, files=files)


LINES = [
    ("check_ps_service -S httpd", "Service httpd (process httpd) not running; start not done (watch only)"),
    ("check_ps_service -c -v httpd", "Service httpd (process httpd) not running; cycle not done (watch only)."),
    ("check_ps_service -e 'echo x' httpd", 'Service httpd (process httpd) not running; "echo x" not done (watch only)'),
    ("check_ps_service -s sshd", 'running; "/sbin/service sshd stop" not done (watch only).'),
    ("check_ps_service -V -E true sshd", 'Service sshd (process sshd) running; "true" not done (watch only).'),
    ("check_ps_service -k sshd", 'Service sshd (process sshd) running; "kill -9 1351" not done (watch only).'),
    ("check_ps_unauth_users kill die", "process is unauthorized. (PID 31337); not killed (watch only)"),
    ("check_ps_cpu -m '/badstuff/' -k 1%", "; not killed (watch only)"),
    ("check_ps_cpu -m '/badstuff/' -r 5 1%", "; not reniced (watch only)"),
    ("check_ps_cpu -m '/badstuff/' -e fix 1%", '; "fix" not started (watch only)'),
    ("check_fs_mount -r -f /unmounted", "not started (watch only): mount /unmounted"),
    ("check_fs_mount -r -f /gone", "not started (watch only): mount /gone"),
    ("check_fs_mount -e fix -f /unmounted", "not started (watch only): bash -c fix"),
    ("check_net_socket -l '*:80' -e fix", '"fix" not started: watch only'),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), LINES)
def test_an_action_is_named_and_not_taken(line, said):
    host = site("1")

    outcome = judge(host, line)

    assert outcome.verdict is Verdict.CRIT
    assert said in "\n".join((outcome.message, *outcome.evidence))
    assert host.system.done == []
    assert not [argv for argv in host.system.ran if argv[0] in ("sh", "bash", "mount", "mkdir", "/sbin/service")]


@pytest.mark.parametrize("line", [line for line, _said in LINES])
def test_the_same_line_acts_where_the_site_does_not_only_watch(line):
    host = site("0")

    judge(host, line)

    assert host.system.done or [argv for argv in host.system.ran if argv[0] in ("sh", "bash")]


def test_a_command_that_only_asks_is_run(tmp_path):
    (tmp_path / "x").write_text("fine\n")

    assert (
        judge(Host(settings={"NHC_WATCH_ONLY": "1"}), f"check_cmd_output -m fine cat {tmp_path}/x").verdict
        is Verdict.OK
    )


@pytest.mark.thorough
def test_a_whole_run_touches_nothing_not_even_from_a_shell_line(tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text(
        "* || NHC_WATCH_ONLY=1\n"
        f"* || check_ps_service -v -e 'touch {tmp_path}/one' no-such-service\n"
        f"* || true && check_ps_service -v -e 'touch {tmp_path}/two' no-such-service\n"
    )

    ended = nhc("check", "local", "--all", "-c", config, state=tmp_path / "state")

    assert (ended.returncode, ended.stdout.count("not done (watch only)")) == (1, 2)
    assert {path.name for path in tmp_path.iterdir()} <= {"nhc.conf", "state"}
