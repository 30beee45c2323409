"""The signals that end a service between two rounds."""

import os
import signal
import threading
import time

import pytest

from nhc.core.system.stop_signals import ENDING, StopSignals


@pytest.fixture
def stop():
    before = {number: signal.getsignal(number) for number in ENDING}
    yield StopSignals()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_wait_without_a_signal_ends_by_itself(stop):
    assert (stop.wait(0.01), stop.come) == (False, False)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_wakes_the_wait_and_every_later_one(stop, number):
    threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
    began = time.monotonic()
    assert stop.wait(300)
    assert stop.wait(300)
    assert stop.come
    assert time.monotonic() - began < 150


@pytest.mark.thorough
def test_more_signals_than_the_pipe_holds_do_not_block(stop):
    for _ in range(70_000):  # a pipe holds 65,536 bytes: pipe(7)
        signal.raise_signal(signal.SIGTERM)
    assert stop.wait(300)
