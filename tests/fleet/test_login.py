"""Passwords, questions, passphrases and sudo: the real sshd, PAM and sudo, with users of their own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.fleet.conftest import Fleet
from tests.support.login import PASSWORD, UID, USER, login_server

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # another user runs it
WRONG = "not the password"


@pytest.fixture
def check(shared, tmp_path):
    """Runs a sweep of one node. `words` and the environment come from the test."""
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_fs_mount /\n* || check_cmd_output -m '/^uid=[0-9]*/' id\n")
    made = []

    def run(server, *words, owner=UID, **env):
        fleet = Fleet(server, shared / "cache", Path(f"/var/tmp/nhc-test-{os.getpid()}-{owner}"),
                      tmp_path / "history.sqlite")  # fmt: skip
        made.append(fleet.node_dir)
        done = fleet.check("-w", "127.0.0.1", "-c", config, "--set", f"python={PYTHON}", *words, env=env)
        assert PASSWORD not in done.stdout + done.stderr
        assert WRONG not in done.stdout + done.stderr
        return done

    yield run
    for path in made:
        shutil.rmtree(path, ignore_errors=True)


def without_key(server):
    """Take the key out of the client's configuration."""
    text = server.config.read_text()
    server.config.write_text(text.replace(f"IdentityFile {server.identity}", "IdentityFile /no/such/key"))


KEYBOARD = "UsePAM yes\nKbdInteractiveAuthentication yes\nPasswordAuthentication no"


@pytest.mark.parametrize("more", ["PasswordAuthentication yes", KEYBOARD], ids=["password", "keyboard-interactive"])
def test_a_password_lets_in_and_a_wrong_one_is_said(check, more):
    with login_server(more=more) as server:
        without_key(server)
        done = check(server, "--ask-pass", NHC_SSH_PASSWORD=PASSWORD)
        assert (done.returncode, done.stdout[:19]) == (0, "OK 1 node 127.0.0.1"), done.stdout
        done = check(server, "--ask-pass", NHC_SSH_PASSWORD=WRONG)
        assert f"UNKNOWN 1 node 127.0.0.1: AuthFailed: {USER}: no key to offer, and the password" in done.stdout
        done = check(server)
        assert f"UNKNOWN 1 node 127.0.0.1: AuthFailed: {USER}: no key to offer" in done.stdout


ROOT_ONLY = "* || check_file_test -r /etc/shadow\n"
FREE, ASKS = f"{USER} ALL=(ALL) NOPASSWD: ALL", f"{USER} ALL=(ALL) ALL"


def test_sudo_that_asks_for_nothing(check, tmp_path):
    with login_server(sudoers=FREE) as server:
        (tmp_path / "root.conf").write_text(ROOT_ONLY)
        words = ["-c", tmp_path / "root.conf"]
        assert check(server, *words).returncode == 1  # as tester
        assert check(server, *words, "--sudo", owner=0).stdout.startswith("OK 1 node 127.0.0.1")
        # A password that is not asked for does no harm, and sudo does not get to see it.
        env = {"NHC_SUDO_PASSWORD": WRONG}
        assert check(server, *words, "--sudo", "--ask-sudo-pass", owner=0, **env).stdout.startswith(
            "OK 1 node 127.0.0.1"
        )


@pytest.mark.service
def test_sudo_that_asks_gets_its_password_and_says_why_it_refuses(check):
    with login_server(sudoers=ASKS) as server:
        words = ["--sudo", "--ask-sudo-pass"]
        assert check(server, *words, owner=0, NHC_SUDO_PASSWORD=PASSWORD).stdout.startswith("OK 1 node 127.0.0.1")
        done = check(server, *words, owner=0, NHC_SUDO_PASSWORD=WRONG)
        assert "UNKNOWN 1 node 127.0.0.1: SudoRefused: sudo: " in done.stdout
        assert "incorrect password" in done.stdout or "no password was provided" in done.stdout
        assert done.returncode == 3
        done = check(server, "--sudo", owner=0)
        assert "UNKNOWN 1 node 127.0.0.1: SudoRefused: sudo: a password is required" in done.stdout


@pytest.mark.parametrize(("rules", "said"), [
    ("somebody ALL=(ALL) ALL", "is not in the sudoers file"),
    (f"{USER} ALL=(ALL) NOPASSWD: /bin/ls", "sudo: a password is required"),
    (f"{USER} ALL=(ALL) NOPASSWD: ALL\nDefaults requiretty", "you must have a tty"),
])  # fmt: skip
def test_a_user_who_may_not_is_told_what_sudo_says(check, rules, said):
    with login_server(sudoers=rules) as server:
        done = check(server, "--sudo", owner=0)
        assert "UNKNOWN 1 node 127.0.0.1: SudoRefused: " in done.stdout
        assert said in done.stdout or "a password is required" in done.stdout
        done = check(server, "--sudo", "--ask-sudo-pass", owner=0, NHC_SUDO_PASSWORD=PASSWORD)
        assert "UNKNOWN 1 node 127.0.0.1: SudoRefused: " in done.stdout
        assert said in done.stdout or "not allowed to execute" in done.stdout


def test_a_sudo_that_is_not_there(check):
    with login_server(more="SetEnv PATH=/no/such") as server:
        done = check(server, "--sudo", owner=0)
        assert "UNKNOWN 1 node 127.0.0.1: SudoRefused: " in done.stdout
        assert "not found" in done.stdout
