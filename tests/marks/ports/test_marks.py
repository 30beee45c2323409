"""Marks as text, and the one place that says what must be left alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nhc.core.model import Action, CheckResult, Report, crit
from nhc.core.plugins import NoAdapter
from nhc.marks.plugins import ADAPTERS, adapter
from nhc.marks.ports.adapter import REMEDY_OWNER, Effect, Mark, NodeState
from nhc.marks.ports.marks import DRASTIC, mark_of, mark_text, may_clear, may_mark, read_mark_text

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
