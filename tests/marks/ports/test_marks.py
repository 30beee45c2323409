"""Marks as text, and the one place that says what must be left alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nhc.core.model import Action, CheckResult, Report, crit
from nhc.core.plugins import NoAdapter
from nhc.marks.plugins import ADAPTERS, adapter
from nhc.marks.ports.adapter import REMEDY_OWNER, Effect, Mark, NodeState
from nhc.marks.ports.marks import (
    DRASTIC,
    mark_of,
    mark_text,
    may_clear,
    may_mark,
    read_mark_text,
    same_words,
    without_figures,
)

texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=400)


@given(texts, st.sampled_from(list(Action)), st.none() | st.integers(0, 4_000_000_000))
@example("ends like ours [action: reboot] [since: 2020-01-01T00:00:00Z]", Action.NONE, None)
@example("", Action.REPLACE, 0)
@example("[action: reboot]", Action.NONE, 5)
@example("[user] [node] x", Action.REBOOT, None)
@example("[node]", Action.NONE, None)
@example(f"[user] {'x' * 300}", Action.NONE, None)
def test_a_mark_written_and_read_is_the_same_mark(why, action, since):
    mark = Mark(why, action, since)
    text = mark_text(mark, with_since=True)
    assert text.isprintable()
    found = read_mark_text(text)
    assert found.ours
    assert found.since == since
    assert found.action is (Action.NONE if action is Action.INSPECT else action)
    assert mark_text(found, with_since=True) == text


@given(texts)
def test_only_the_tag_as_a_word_of_its_own_makes_a_mark_ours(text):
    mark = read_mark_text(text, "root")
    shown = " ".join(text.split())
    assert (mark is not None and mark.ours) == (shown == "NHC:" or shown.startswith("NHC: "))


def test_nobody_can_pose_as_us_by_a_users_name():
    assert not read_mark_text("maintenance", owner="nhc").ours


def test_a_long_reason_is_cut_and_keeps_its_action():
    text = mark_text(Mark("x" * 1000, Action.REBOOT))
    assert len(text) < 300
    assert text.endswith(" [action: reboot]")


def test_every_action_has_its_place_among_the_drastic_ones():
    assert set(DRASTIC) == set(Action)


def test_a_report_without_a_failure_asks_for_no_mark():
    assert mark_of(Report("n1", "b", 0.0, 0.0, ())) is None


def test_the_target_is_named_unless_the_message_does():
    def why(target, message):
        return mark_of(Report("n1", "b", 0.0, 0.0, (CheckResult("check_x", crit("X", message, target=target)),))).why

    assert why("gpu3", "row remap failed") == "check_x: gpu3: row remap failed"
    assert why("/scratch", "/scratch is full") == "check_x: /scratch is full"
    assert why("", "") == "check_x: X"


def test_a_note_on_a_node_in_service_is_replaced_and_said():
    state = NodeState("n1", "idle", True, mark=Mark("ask Ann", owner="root"))
    assert may_mark(state, Mark("bad")) == (Effect.CHANGED, "replaces the note 'ask Ann'")
    assert may_clear(state)[0] is Effect.UNCHANGED


@pytest.mark.parametrize("name", sorted(ADAPTERS.ours))
def test_every_adapter_of_the_table_is_there(name):
    assert callable(adapter(name))


def test_a_misspelt_adapter_is_one_line_with_a_suggestion():
    with pytest.raises(NoAdapter, match=r"^there is no adapter called 'slrum': did you mean slurm\?$"):
        adapter("slrum")


def marked(outcome, check="check_x"):
    return mark_of(Report("n1", "b", 0.0, 0.0, (CheckResult(check, outcome),)))


@pytest.mark.parametrize(
    ("reason", "target", "begins"),
    [
        ("GpuProcessesLeft", "gpu3", "NHC: [user] "),
        ("LeftoversFound", "processes", "NHC: [user] "),
        ("UnauthorisedProcess", "", "NHC: [user] "),
        ("FilesystemFull", "/tmp", "NHC: [user] "),
        ("InodesExhausted", "/dev/shm", "NHC: [user] "),
        ("FilesystemFull", "/local/scratch2", "NHC: [user] "),
        ("InodesLow", "/dev/shm", "NHC: [user] "),
        ("NoSpace", "/scratch", "NHC: [user] "),
        ("InodesLow", "/var", "NHC: [node] "),
        ("FilesystemFull", "/", "NHC: [node] "),
        ("FilesystemFull", "/var", "NHC: [node] "),
        ("FilesystemNotMounted", "/home", "NHC: [node] "),
        ("LeftoversRemain", "processes", "NHC: [node] "),
        ("GpuLost", "gpu3", "NHC: [node] "),
    ],
)
def test_a_marks_class_comes_first(reason, target, begins):
    assert mark_text(marked(crit(reason, "words", target=target))).startswith(begins + "check_x: ")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("failures", "text"),
    [
        ([("FilesystemFull", "/tmp", Action.INSPECT), ("GpuLost", "gpu3", Action.REBOOT)],
         "NHC: [node] check_x: gpu3: GpuLost (and 1 more) [action: reboot]"),
        ([("GpuProcessesLeft", "gpu3", Action.RESTART_APP), ("FilesystemFull", "/", Action.INSPECT)],
         "NHC: [node] check_x: /: FilesystemFull (and 1 more) [action: restart-app]"),
        ([("FilesystemFull", "/tmp", Action.INSPECT), ("GpuProcessesLeft", "gpu3", Action.RESTART_APP)],
         "NHC: [user] check_x: gpu3: GpuProcessesLeft (and 1 more) [action: restart-app]"),
    ],
)  # fmt: skip
def test_a_mark_speaks_of_the_worst_failure_and_of_a_users_only_where_nothing_else_is_wrong(failures, text, turned):
    """`sinfo -R`: a dead GPU on a node whose /tmp a user has filled is the node's fault."""
    results = [
        CheckResult("check_x", crit(reason, reason, target=target, action=action))
        for reason, target, action in (reversed(failures) if turned else failures)
    ]
    assert mark_text(mark_of(Report("n1", "b", 0.0, 0.0, tuple(results)))) == text


def test_the_loops_mark_has_its_class_and_what_a_person_asked_for_has_none():
    fault = Mark("check_x: bad", Action.REBOOT, owner=REMEDY_OWNER, cause="check_x|GpuLost|gpu3")
    assert mark_text(fault) == "NHC-REMEDY: [node] check_x: bad [action: reboot]"
    for cause in ("train|firmware|", "request|reboot|7", ""):
        assert mark_text(Mark("new firmware", owner=REMEDY_OWNER, cause=cause)) == "NHC-REMEDY: new firmware"


def test_a_mark_with_a_class_is_read_without_it_in_its_words():
    mark = marked(crit("GpuProcessesLeft", "held", target="gpu3", action=Action.RESTART_APP))
    found = read_mark_text(mark_text(mark))
    assert (found.why, found.kind, found.action, found.ours) == (mark.why, "user", Action.RESTART_APP, True)
    assert mark_text(found) == mark_text(mark)
    assert read_mark_text("NHC: [other] x").why == "[other] x"
    assert not read_mark_text("[user] x", "ann").ours


def test_a_mark_of_before_there_were_classes_is_ours_and_is_left_as_it_is():
    wanted = marked(crit("GpuLost", "lost at 12C", target="gpu3", action=Action.REBOOT))
    old = read_mark_text("NHC: check_x: gpu3: lost at 11C [action: reboot]")
    assert (old.ours, old.kind) == (True, "")
    state = NodeState("n1", "drained", False, mark=old)
    assert may_mark(state, wanted)[0] is Effect.UNCHANGED
    assert may_clear(state)[0] is Effect.CHANGED


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
    assert len(without_figures(one)) <= len(one)


GROUPED = [
    ("/scratch has only 3% free (12.5GB), minimum is 5%", "/scratch has only 5% free (11GB), minimum is 5%"),
    ("Process 'x' (197) of al using 20GB RAM (limit 5GB)", "Process 'x' (7) of al using 9GB RAM (limit 5GB)"),
    ("/c has ended 1d ago, 2027-11-29T17:46:13Z", "/c has ended 2h3m ago, 2027-11-28T01:02:03Z"),
    ("FAN3 (29.3): 300 RPM, critical", "FAN3 (29.3): 0 RPM, critical"),
    ("a queue of the GPU does not work (-110)", "a queue of the GPU does not work (-5)"),
    ("Xid 79, lost [2026-11-22T03:42:46Z]", "Xid 79, lost [31 lines, last 2026-11-22T04:00:00Z]"),
    ("Memory: Uncorrectable ECC [11/14/2023 21:13:20]", "Memory: Uncorrectable ECC [12/24/2023 01:02:03]"),
    ("NUMA imbalance detected among PIDs 138 139.", "NUMA imbalance detected among PIDs 7 8 9."),
    ("1-minute load average too high:  15 >= 8", "1-minute load average too high:  9.5 >= 8"),
    ("3 stuck in state D for up to 5m1s (a[50], b[51])", "1 stuck in state D for up to 1h (nvidia-smi[4002])"),
    ("gpu1, serial 692: wrong on CU 2, seed 184", "gpu1, serial 17: wrong on CU 9, seed 3"),
]  # fmt: skip
KEPT = [
    "mlx5_1:1 100 of 200 Gb/s", "eno2 has an MTU of 1500, 9000 expected", "gpu3: PCIe link is x8, x16 expected",
    "nvidia-smi returned status 9: no driver", "2 of 64 CPUs are offline", "Expected to see 8 but found 7",
    "gpu3 (0000:3b:00.0) is lost", "NUMA node 1 has CPUs and no memory", "Xid 79, lost", "-e /f returned 1.", "",
    "mlx5_4 runs firmware 28.36.1010, 28.39.1002 expected", "/ is read-only (ext4 on /dev/sda1)",
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), GROUPED)
def test_a_mark_says_the_same_on_each_node_with_the_same_fault(one, other):
    assert without_figures(one, {"79"}) == without_figures(other, {"79"}) != ""


@pytest.mark.parametrize("text", KEPT)
def test_names_limits_and_what_there_should_be_stay_in_a_mark(text):
    assert without_figures(text, {"79"}) == text


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


def test_a_mark_groups_and_the_words_of_a_site_and_of_a_person_stay():
    marks = [
        mark_text(mark_of(report(crit("FilesystemFull", f"/ has only {free}% free, minimum is 5%", target="/"))))
        for free in (3, 4)
    ]
    assert marks[0] == marks[1] == "NHC: [node] check_kmsg: / has only \u2026 free, minimum is 5%"
    assert "rack 12" in mark_of(report(crit("CheckFailed", "rack 12 has no power"), "site")).why


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
