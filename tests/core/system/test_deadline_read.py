"""Reading many files of which some hold the reader up. A FIFO without a writer stands for a hung process."""

import os
import threading
import time

import pytest

from nhc.core.system import deadline_read
from nhc.core.system.deadline_read import read_each


@pytest.fixture
def tree(tmp_path):
    for name in "abcdefgh":
        (tmp_path / name).mkdir()
        (tmp_path / name / "cmdline").write_text(f"this is {name}")
    (tmp_path / "gone").mkdir()
    return tmp_path


def hold(tree, name):
    os.unlink(tree / name / "cmdline")
    os.mkfifo(tree / name / "cmdline")


def release(tree, name):
    """Let the thread that opens the FIFO go on."""
    os.close(os.open(tree / name / "cmdline", os.O_RDWR | os.O_NONBLOCK))


def settled(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def test_every_file_is_read_and_missing_ones_are_left_out(tree):
    found = read_each(str(tree), ["a", "gone", "nothing", "h"], "cmdline")

    assert found == {"a": b"this is a", "h": b"this is h"}


def test_files_are_cut_to_the_limit(tree):
    assert read_each(str(tree), ["a"], "cmdline", limit=4) == {"a": b"this"}


@pytest.mark.thorough
def test_what_holds_us_up_is_none_and_the_rest_is_read(tree):
    for name in "ceh":
        hold(tree, name)
    begun = time.monotonic()

    found = read_each(str(tree), list("abcdefgh"), "cmdline")

    assert time.monotonic() - begun < 30
    assert [name for name, data in found.items() if data is None] == ["c", "e", "h"]
    assert found["d"] == b"this is d"
    assert found["g"] == b"this is g"
    for name in "ceh":
        release(tree, name)


@pytest.mark.thorough
def test_what_held_us_up_is_not_tried_again_until_it_lets_go(tree):
    hold(tree, "c")
    read_each(str(tree), list("abcd"), "cmdline")
    reader = deadline_read._held[f"{tree}/c/cmdline"]

    again = read_each(str(tree), list("abcd"), "cmdline")

    assert deadline_read._held[f"{tree}/c/cmdline"] is reader, "no other thread was left at it"
    assert again["c"] is None
    assert again["d"] == b"this is d"
    release(tree, "c")
    assert settled(lambda: reader.finished)
    os.unlink(tree / "c" / "cmdline")
    (tree / "c" / "cmdline").write_text("back")
    assert read_each(str(tree), list("abcd"), "cmdline")["c"] == b"back"


@pytest.mark.thorough
def test_a_job_of_hundreds_that_hangs_costs_about_a_second(tmp_path):
    names = [str(number) for number in range(200)]
    for name in names:
        (tmp_path / name).mkdir()
        os.mkfifo(tmp_path / name / "cmdline")
    begun = time.monotonic()

    found = read_each(str(tmp_path), names, "cmdline")

    assert time.monotonic() - begun < 30
    assert found == dict.fromkeys(names)
    readers = [deadline_read._held[f"{tmp_path}/{name}/cmdline"] for name in names]
    for name in names:
        release(tmp_path, name)
    assert settled(lambda: all(reader.finished for reader in readers))


@pytest.mark.thorough
def test_no_threads_beyond_a_limit_are_left_behind(tree, monkeypatch):
    monkeypatch.setattr(deadline_read, "STUCK_LIMIT", 1)
    hold(tree, "a")

    assert read_each(str(tree), list("abc"), "cmdline") == dict.fromkeys("abc")
    release(tree, "a")


def test_a_thread_without_a_processor_is_told_from_one_that_sleeps():
    """On a busy node a reader may not run for a while: its file is not held up."""
    asleep = threading.Event()
    sleeper = threading.Thread(target=asleep.wait)
    sleeper.start()
    try:
        assert deadline_read._starved(0), "it has not begun"
        assert deadline_read._starved(threading.get_native_id()), "it runs"
        end = time.monotonic() + 60
        while deadline_read._starved(sleeper.native_id) and time.monotonic() < end:
            time.sleep(0.01)
        assert not deadline_read._starved(sleeper.native_id)
    finally:
        asleep.set()
        sleeper.join()
    end = time.monotonic() + 60  # join is back a moment before the kernel has ended it
    while deadline_read._starved(sleeper.native_id) and time.monotonic() < end:
        time.sleep(0.01)
    assert not deadline_read._starved(sleeper.native_id), "it is gone"
