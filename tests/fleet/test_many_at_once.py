"""Hundreds of hosts whose answers share two busy processors: each is judged, and new ones begin as fast as these go."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from nhc.fleet import node_session, sweep, transport, worker
from nhc.fleet.bundles import SiteFiles
from nhc.fleet.transport import Deadline, Node, Trouble, left, passed
from nhc.fleet.worker import FIRST, LEAST, Starts
from tests.fleet.conftest import inventory


class BusyHost:
    """Hosts on one machine: a start takes so many seconds of a processor that is shared evenly among all under way."""

    COST = 0.05

    def __init__(self):
        self.under_way = 0
        self.count = threading.Lock()

    def connect(self, node, deadline):
        with self.count:
            self.under_way += 1
        try:
            for _part in range(10):
                time.sleep(self.COST / 10 * self.under_way)
                if time.monotonic() >= deadline:
                    raise Trouble("HandshakeTimeout", "the SSH handshake did not end in time")
            return self
        finally:
            with self.count:
                self.under_way -= 1

    def close(self):
        """Nothing is open."""


def reached(session, node, task):
    task.started()
    raise Trouble("Reached", "it answered")


@pytest.mark.slow
def test_hosts_that_share_a_processor_are_all_reached():
    settings = worker.SweepSettings(
        node_session.SweepTask(None, SiteFiles(None, ()), seconds=3.0, login=1.0), {"ssh": BusyHost()}, shards=1,
        fanout=128, connect=4.0, retries=0, judge=reached,
    )  # fmt: skip
    found = [json.loads(one.text()) for one in sweep.sweep([Node(f"n{number}") for number in range(200)], settings)]
    reasons = [report["results"][0]["reason"] for report in found]
    assert Counter(reasons) == {"Reached": 200}


def test_quick_starts_let_more_begin_and_slow_ones_fewer():
    starts = Starts(128, 2.5)
    assert starts.room(FIRST - 1)
    assert not starts.room(FIRST)
    for _one in range(200):
        starts.ended(0.2, 0.0)
    assert starts.window == 128
    for second in range(200):
        starts.ended(9.0, 10.0 * second)
    assert starts.window == LEAST
    assert starts.patience > 9.0


def test_far_hosts_are_not_slow_ones():
    starts = Starts(128, 2.5)
    for _one in range(200):
        starts.ended(3.0, 0.0)
    assert starts.window == 128


def test_a_few_slow_hosts_among_quick_ones_change_nothing():
    starts = Starts(64, 2.5)
    for turn in range(200):
        starts.ended(9.0 if turn % 20 == 0 else 0.2, float(turn))
    assert starts.window >= 60


@pytest.mark.thorough
def test_a_deadline_does_not_run_while_this_process_is_late():
    transport.CLIENT.start()
    plain, deadline, began = time.monotonic() + 1.0, Deadline(1.0), transport.CLIENT.seconds
    size = 400_000
    while transport.CLIENT.seconds - began < 1.5:
        pow(7, size)  # one call, which keeps Python's lock
        size *= 2
    assert not passed(deadline)
    assert left(deadline) > 0
    with pytest.raises(Trouble):
        left(plain)  # one that was made without it has run on


@pytest.mark.sshd
@pytest.mark.slow
def test_a_python_that_starts_slowly_is_no_login_that_hangs(fleet, server, tmp_path):
    slow = tmp_path / "slow-python"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    hosts = inventory(tmp_path / "hosts", {"gpu01": "127.0.1.1"}, f"[all:vars]\nansible_python_interpreter={slow}")
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    done = fleet.check("-i", hosts, "-c", tmp_path / "nhc.conf", "-f", "jsonl", "--set", "connect-timeout=2s")
    [result] = json.loads(done.stdout)["results"]
    assert (result["verdict"], result["reason"]) == ("UNKNOWN", "SlowStart")
    assert result["message"].count("connect-timeout") == 1  # the option is named, once


@pytest.mark.sshd
@pytest.mark.slow
def test_three_hundred_of_three_hundred_hosts_answer_on_two_loaded_processors(fleet, server, tmp_path):
    hosts = {f"h{number:03}": f"127.0.{8 + number // 200}.{number % 200 + 1}" for number in range(300)}
    server.trust(list(hosts.values()))
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _one in range(2)]
    try:
        done = fleet.check(
            "-i", inventory(tmp_path / "hosts", hosts), "-c", tmp_path / "nhc.conf", "-f", "jsonl", timeout=300
        )
    finally:
        for process in burning:
            process.kill()
            process.wait()
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert Counter(result["reason"] for report in reports for result in report["results"]) == {"": 300}
