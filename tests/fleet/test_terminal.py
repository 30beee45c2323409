"""What somebody at a terminal sees: the bar while it runs, Ctrl-C in the middle, the question for a password."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fleet.conftest import HOSTS, aliases, over
from tests.support.login import PASSWORD, login_server
from tests.support.terminal import terminal
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def env(fleet):
    return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": os.environ["HOME"],
            "XDG_CACHE_HOME": str(fleet.cache), "NHC_FLEET_HISTORY": str(fleet.history), "TERM": "xterm"}  # fmt: skip


def argv(fleet, config, *words):
    return [sys.executable, "-m", "nhc", "fleet", "check", *over(config), "--set", f"node-dir={fleet.node_dir}",
            *map(str, words)]  # fmt: skip


def sleeps(command):
    return subprocess.run(["pgrep", "-fx", command], check=False, capture_output=True).returncode == 0


@pytest.fixture
def slow(tmp_path, server):
    """An ssh_config for three nodes, and a configuration by which one is well, one is sick and one takes long."""
    mark = f"sleep 4{os.getpid()}"
    config = tmp_path / "nhc.conf"
    config.write_text(f"* || check_fs_mount /\ngpu02 || check_file_test -f /no/such\ngpu03 |timeout 300s| {mark}\n")
    return aliases(server, dict(list(HOSTS.items())[:3]), tmp_path / "ssh_config"), config, mark


@pytest.mark.parametrize("transport", ["ssh", "paramiko", "openssh"])
def test_the_bar_counts_by_verdict_and_ctrl_c_leaves_nothing_behind(fleet, env, slow, transport):
    names, config, mark = slow
    words = argv(fleet, names, "-w", "gpu[01-03]", "-c", config, "-t", "200s", "--set", f"transport={transport}")
    with terminal(words, env) as screen:
        screen.until(r"2/3 1 CRIT 1 OK \d:\d\d:\d\d waiting for gpu03")
        until(lambda: sleeps(mark), what="the check that takes long")
        assert len(screen.session()) > 1  # shards
        begin = time.monotonic()
        screen.type("\x03")
        status = screen.end()
        took = time.monotonic() - begin
        until(lambda: screen.session() == [], what="the end of the sweep's processes")
    assert status == 130
    assert took < 60, "the check takes more than a minute"
    last = screen.text[screen.text.rindex("CRIT 1 node gpu02") :]
    assert "OK 1 node gpu01" in last
    assert "2 nodes: 1 CRIT, 1 OK, 1 not judged (interrupted)" in last
    assert "interrupted: 1 node not judged: gpu03" in last
    assert "Traceback" not in screen.text
    assert screen.seen.rindex("\x1b[?25h") > screen.seen.rindex("\x1b[?25l")  # the cursor is back
    until(lambda: not sleeps(mark), what="the end of the check on the node")


def test_what_is_not_a_terminal_gets_no_bar(fleet, few, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    done = fleet.check(*over(few), "-w", "gpu[01-04]", "-c", tmp_path / "nhc.conf")
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "OK 4 nodes gpu[01-04]"


def test_a_terminal_with_the_output_elsewhere(fleet, env, few, tmp_path):
    """The bar goes to the terminal, the result to the file, which has none of it."""
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    words = argv(fleet, few, "-w", "gpu[01-04]", "-c", tmp_path / "nhc.conf")
    with terminal(["/bin/sh", "-c", f'exec "$@" > {tmp_path}/output', "sh", *words], env) as screen:
        assert screen.end() == 0
    assert "4/4" in screen.text
    assert (tmp_path / "output").read_text().startswith("OK 4 nodes gpu[01-04]\n4 nodes: 4 OK in ")


def test_passwords_are_asked_for_on_the_terminal_and_not_shown(fleet, env, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    with login_server() as server:
        text = server.config.read_text()
        server.config.write_text(text.replace(f"IdentityFile {server.identity}", "IdentityFile /no/such/key"))
        words = argv(fleet, server.config, "-w", "127.0.0.1", "-c", tmp_path / "nhc.conf", "--ask-pass",
                     "--set", "transport=ssh", "--set", "python=/no/python")  # fmt: skip
        with terminal(words, env) as screen:
            screen.until("SSH password: ")
            screen.type(f"{PASSWORD}\n")
            assert screen.end() == 3
    assert "NoPython" in screen.text  # so it was let in
    assert PASSWORD not in screen.text
