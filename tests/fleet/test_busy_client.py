"""A client that is busy itself blames no host for it: its own lateness does not count, and it does less at a time."""

import json
import threading
import time

import pytest

from nhc.fleet import node_session, sweep, worker
from nhc.fleet.bundles import SiteFiles
from nhc.fleet.transport import TICK, Lateness, Node, Trouble
from nhc.fleet.worker import FEW, Scarcity

TASK = node_session.SweepTask(None, SiteFiles(None, ()), seconds=3.0, login=0.5)


@pytest.mark.thorough
def test_what_a_process_is_late_is_no_time_on_its_clock():
    lateness = Lateness()
    lateness.start()
    time.sleep(0.2)
    calm, began = lateness.seconds, lateness.now()
    steady = time.monotonic()
    size = 400_000
    while lateness.seconds - calm < 0.5:
        pow(7, size)
        size *= 2
    late, steady = lateness.seconds - calm, time.monotonic() - steady
    assert lateness.now() - began < steady - 0.4
    assert late <= steady


@pytest.mark.thorough
def test_its_clock_does_not_leap_while_the_lateness_is_noted():
    """However long the thread that notes it is kept waiting, at whichever line."""
    lateness, seen, enough = Lateness(), [], threading.Event()

    def look(_frame, _event, _argument):
        time.sleep(3 * TICK)
        seen.append(lateness.seconds)
        if len(seen) < 20:
            return look
        enough.set()
        return None

    threading.settrace(lambda frame, _event, _argument: look if frame.f_code is Lateness._notice.__code__ else None)
    try:
        lateness.start()
    finally:
        threading.settrace(None)
    assert enough.wait(60)
    assert all(later > sooner - TICK for sooner, later in zip(seen, seen[1:]))


class HostThatAnswers:
    """Answers within half a second; one of the nodes stops the whole process for longer than a host may take."""

    def connect(self, node, deadline):
        if node.name == "n0" and not hasattr(self, "stopped"):
            self.stopped = True
            time.sleep(0.3)
            size = 1_000_000
            began = time.monotonic()
            while time.monotonic() - began < 2.5:
                began = time.monotonic()
                pow(7, size)  # one call, which keeps Python's lock
                size *= 2
            raise Trouble("Stopped", "the process stood still")
        time.sleep(0.5)
        if time.monotonic() >= deadline:
            raise Trouble("ConnectTimeout", "no answer")
        return self

    def close(self):
        """Nothing is open."""


@pytest.mark.thorough
def test_a_host_that_answered_while_the_client_stood_still_is_not_lost():
    def judge(session, node, task):
        raise Trouble("Reached", "it answered")

    settings = worker.SweepSettings(TASK, {"ssh": HostThatAnswers()}, shards=1, fanout=20, connect=2.0, judge=judge)
    nodes = [Node(f"n{number}") for number in range(20)]
    found = [json.loads(arrived.text()) for arrived in sweep.sweep(nodes, settings)]
    reasons = [report["results"][0]["reason"] for report in found]
    assert reasons.count("Reached") == 19, reasons


@pytest.mark.thorough
def test_a_host_that_never_answers_is_given_up_all_the_same():
    class Silent:
        def connect(self, node, deadline):
            time.sleep(max(deadline - time.monotonic(), 0))
            raise Trouble("ConnectTimeout", "no answer")

    settings = worker.SweepSettings(TASK, {"ssh": Silent()}, shards=1, connect=0.5)
    began = time.monotonic()
    (found,) = sweep.sweep([Node("n1")], settings)
    assert json.loads(found.text())["results"][0]["reason"] == "ConnectTimeout"
    assert time.monotonic() - began < 20.0


def test_a_late_process_does_less_at_a_time_and_more_again_once_it_is_not():
    scarcity = Scarcity(128)
    scarcity.late(128, 100.0)
    assert scarcity.fanout(100.5) == 96
    for second in range(30):
        scarcity.late(96, 101.0 + second)
    assert scarcity.fanout(131.0) == FEW
    assert [scarcity.fanout(131.0 + 3.0 * turn) for turn in range(1, 4)] == [FEW + 1, FEW + 2, FEW + 3]
    assert scarcity.least == 128  # nothing is scarce, so nothing is told
