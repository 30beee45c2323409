"""A mark's reason is set anew when its cause is new, and stays when only the figures in its words are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.matching.mark_cause import same_words
from nhc.core.model import Action, CheckResult, Report, crit
from nhc.marks.ports.adapter import Effect, Mark, NodeState
from nhc.marks.ports.marks import mark_of, mark_text, may_mark, read_mark_text

SAME = [
    ("check_fs_free: / has only 93848 kB free", "check_fs_free: / has only 7 kB free"),
    ("/scratch has only 3% free (12.5GB), limit 5%", "/scratch has only 2.75% free (11GB), limit 5%"),
    ("load 312.5/3.1/2 is above 64", "load 97/3.25/2 is above 64"),
    ("check_cmd_output timed out after 5.2s", "check_cmd_output timed out after 1m30s"),
    ("Xid 79, lost [2026-11-22T03:42:46Z]", "Xid 79, lost [31 lines, last 2026-11-22T04:00:00Z]"),
    ("/ is full (and 1 more)", "/ is full (and 12 more)"), ("/ is full", "/ is full (and 2 more)"),
    ("GPU is at 92C, 700W", "GPU is at 93.5C, 698W"), ("eth0 runs at 10Gb/s", "eth0 runs at 2.5Gb/s"),
    ("status 0x1f, retry 3 of 5", "status 0xdeadbeef, retry 4 of 5"),
    ("stuck since 03:42:46 (pid 4711)", "stuck since 04:00:00 (pid 12)"),
    ("clock is off by -3.5ms", "clock is off by 40ms"),
]  # fmt: skip
OTHER = [
    ("GPU 0000:41:00.0 has fallen off", "GPU 0000:42:00.0 has fallen off"), ("gpu3 is gone", "gpu4 is gone"),
    ("/dev/sda1 is full", "/dev/sdb1 is full"), ("mlx5_0:1 is down", "mlx5_0:2 is down"),
    ("10.0.0.5 does not answer", "10.0.0.6 does not answer"), ("/scratch is full", "/home is full"),
    ("check_a: bad", "check_b: bad"), ("1 of 2 ports down: ib0", "2 of 2 ports down: ib0, ib1"),
    ("00:1a:2b:3c:4d:5e is gone", "00:1a:2b:3c:4d:5f is gone"), ("3", "x"), ("()", "[]"), ("", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_figures_are_no_cause(one, other):
    assert same_words(one, other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_names_are(one, other):
    assert not same_words(one, other)


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_is_an_error_and_order_does_not_matter(one, other):
    assert same_words(one, other) == same_words(other, one)


def report(outcome, check="check_kmsg"):
    return Report("n1", "boot", 1.7e9, 0.1, (CheckResult(check, outcome),))


def again(before, after):
    """What is done to a node that the first outcome marked, and that the second is now found on."""
    standing = read_mark_text(mark_text(mark_of(report(before)), with_since=True))
    return may_mark(NodeState("n1", "drained", False, mark=standing), mark_of(report(after)))[0]


def test_what_is_left_of_a_mark_in_a_scheduler_is_compared_with_what_is_found_now():
    assert again(crit("FsFull", "/ has 12 kB free"), crit("FsFull", "/ has 9 kB free")) is Effect.UNCHANGED
    assert again(crit("Xid79", "Xid 79, bad"), crit("Xid48", "Xid 48, bad")) is Effect.CHANGED
    assert again(crit("Mce", "bad", target="24"), crit("Mce", "bad", target="30")) is Effect.CHANGED
    assert again(crit("Mce", "5 bad", target="24"), crit("Mce", "6 bad", target="24")) is Effect.UNCHANGED
    reboot = crit("Mce", "bad", action=Action.REBOOT)
    assert again(crit("Mce", "bad"), reboot) is Effect.CHANGED, "what is to be done is part of the mark"
    assert again(crit("Mce", "bad"), crit("Mce", "bad", action=Action.NONE)) is Effect.UNCHANGED


def test_an_explanation_that_is_cut_is_compared_as_far_as_it_goes():
    long = "word " * 60
    assert again(crit("A", f"{long}1 kB"), crit("A", f"{long}2222222 kB")) is Effect.UNCHANGED
    assert again(crit("A", f"12345 kB: {long}"), crit("A", f"1 kB: {long}")) is Effect.UNCHANGED
    assert again(crit("A", f"here: {long}"), crit("A", f"there: {long}")) is Effect.CHANGED


def test_a_cause_that_is_known_counts_more_than_words():
    one, other = mark_of(report(crit("A", "process bash"))), mark_of(report(crit("A", "process zsh")))
    assert may_mark(NodeState("n1", "drained", False, mark=one), other)[0] is Effect.UNCHANGED
    third = mark_of(report(crit("B", "process zsh")))
    assert may_mark(NodeState("n1", "drained", False, mark=one), third)[0] is Effect.CHANGED


def test_marks_that_say_the_same_are_equal():
    assert Mark("a", cause="x") == Mark("a")
    assert (Mark("a") != Mark("a", cause="x"), Mark("a") != Mark("b")) == (False, True)
    assert len({Mark("a"), Mark("a", cause="x"), Mark("b")}) == 2
