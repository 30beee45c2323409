"""Which spare goes in for whom: never two for one node, never more than allowed, never one that is not verified."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nhc.core.model import Verdict
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.ports.adapter import Mark, NodeState
from nhc.remedy.spares.settings import FILE, PoolSettings
from nhc.remedy.spares.swap_decision import SpareView, decide, unverified
from nhc.remedy.view import Health
from nhc.store.episodes import Episode
from nhc.store.spares import ENTERING, IN_SERVICE, LEAVING, SpareInUse

ROOT = Path(__file__).resolve().parents[3]
NOW = 1_700_000_000.0
POOL = PoolSettings("gpu", "slurm", ("n*",), after=1800.0)


def episode(node, state="watching", ago=3600.0, ended=None, number=7):
    return Episode(number, node, "c", "reboot", state, "reboot", NOW - ago, NOW, ended, "", "{}", 1)


def in_use(node, stands_for, state=IN_SERVICE):
    return SpareInUse(node, "gpu", state, stands_for, 7, NOW - 100, NOW - 100, "why", 2)


def view(pool=POOL, waiting=("s1",), used=(), out=("n1",), episodes=None, health=None, verdicts=None, held=None):
    states = {name: NodeState(name, "idle", True) for name in (*waiting, "n1", "n2", "n3", *(one.node for one in used))}
    for name in out:
        states[name] = NodeState(name, "drained", False, mark=Mark("broken"))
    found = {name: episode(name) for name in out} if episodes is None else episodes
    good = {name: Health(Verdict.OK, NOW - 60) for name in waiting}
    return SpareView(pool, list(waiting), list(used), states, {**good, **(health or {})}, verdicts or {}, found, {},
                     held or {}, 900.0, NOW)  # fmt: skip


def shown(decision):
    return [(step.action, step.spare, step.stands_for) for step in decision.steps]


def test_a_node_that_is_out_for_long_gets_a_spare():
    assert shown(decide(view())) == [("swap-in", "s1", "n1")]


def test_not_before_its_time_not_of_another_kind_and_not_for_one_in_service():
    assert shown(decide(view(episodes={"n1": episode("n1", ago=600)}))) == []
    assert shown(decide(view(pool=POOL._replace(serves=("x*",))))) == []
    assert shown(decide(view(out=(), episodes={"n1": episode("n1", "detected")}))) == []


def test_a_node_that_was_given_to_a_person_gets_one_and_one_that_returned_does_not():
    assert shown(decide(view(episodes={"n1": episode("n1", "escalated", ended=NOW)}))) == [("swap-in", "s1", "n1")]
    assert shown(decide(view(episodes={"n1": episode("n1", "returned", ended=NOW)}))) == []


def test_no_second_spare_for_one_node_and_no_more_than_allowed():
    used = [in_use("s0", "n1")]
    assert shown(decide(view(used=used))) == []
    both = view(waiting=("s1", "s2"), out=("n1", "n2"))
    assert shown(decide(both)) == [("swap-in", "s1", "n1")]
    assert "no more than 1 spare may be in service" in decide(both).waits[0].why


def test_a_spare_comes_back_when_the_node_is_in_service_again():
    assert shown(decide(view(used=[in_use("s0", "n1")], out=(), episodes={}))) == [("back", "s0", "n1")]
    assert shown(decide(view(used=[in_use("s0", "n1", LEAVING)]))) == [("back", "s0", "n1")]
    assert shown(decide(view(used=[in_use("s0", "n1", ENTERING)]))) == [("swap-in", "s0", "n1")]


@pytest.mark.parametrize(
    ("health", "why"),
    [
        (Health(Verdict.CRIT, NOW - 60), "its newest report is CRIT"),
        (Health(Verdict.UNKNOWN, NOW - 60), "its newest report is UNKNOWN"),
        (Health(Verdict.OK, NOW - 3600), "it has no fresh report"),
    ],
)
def test_a_spare_that_is_not_verified_stays(health, why):
    seen = view(health={"s1": health})
    assert unverified(seen, "s1") == why
    assert shown(decide(seen)) == []
    assert [wait.why for wait in decide(seen).waits] == [f"not verified: {why}", "no verified spare waits"]


@pytest.mark.parametrize(("state", "held", "why"), [
    ({"booted": NOW - 30}, "", "it has booted since its report"),
    ({"boot_id": "b2"}, "", "it has booted since its report"),
    ({"available": False, "mark": Mark("new DIMM", owner="ann")}, "", "it is marked by ann: new DIMM"),
    ({}, "hold by ann: mine", "hold by ann: mine"),
    ({"booted": NOW - 300, "boot_id": "b1"}, "", ""),
])  # fmt: skip
def test_a_spare_that_is_somebodys_or_of_another_boot_than_its_report_stays(state, held, why):
    seen = view(health={"s1": Health(Verdict.OK, NOW - 60, "b1")}, held={"s1": held})
    seen.states["s1"] = seen.states["s1"]._replace(**state)
    assert unverified(seen, "s1") == why
    assert shown(decide(seen)) == [] or not why


def test_a_suite_that_passed_ahead_of_our_clock_proves_nothing():
    seen = view(pool=POOL._replace(suite="burn", verified=86400.0), verdicts={"s1": ("OK", NOW + 86400.0)})
    assert unverified(seen, "s1") == "the deep suite burn passed in the future"


def test_the_deep_suite_counts_where_the_pool_asks_for_one():
    pool = POOL._replace(suite="burn", verified=86400.0)
    assert "has not run" in unverified(view(pool), "s1")
    assert "failed" in unverified(view(pool, verdicts={"s1": ("CRIT", NOW)}), "s1")
    assert "2.0 days ago" in unverified(view(pool, verdicts={"s1": ("OK", NOW - 2 * 86400)}), "s1")
    assert unverified(view(pool, verdicts={"s1": ("OK", NOW - 3600)}), "s1") == ""


def test_a_hold_keeps_a_spare_from_standing_in():
    assert shown(decide(view(held={"n1": "held by ann: mine"}))) == []


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(
    st.sets(st.sampled_from(["n1", "n2", "n3"])), st.sets(st.sampled_from(["s1", "s2", "s3"])),
    st.dictionaries(st.sampled_from(["u1", "u2"]), st.tuples(
        st.sampled_from(["n1", "n2", "n3"]), st.sampled_from([ENTERING, IN_SERVICE, LEAVING])), max_size=2),
    st.integers(1, 3), st.sets(st.sampled_from(["s1", "s2", "s3"])),
)  # fmt: skip
def test_bounds_hold_whatever_is_seen(out, waiting, used, most, sick):
    rows = [in_use(node, *what) for node, what in used.items()]
    if len({row.stands_for for row in rows}) != len(rows):
        rows = rows[:1]
    bad = {name: Health(Verdict.CRIT, NOW) for name in sick & waiting}
    found = decide(view(POOL._replace(most=most), sorted(waiting), rows, sorted(out), health=bad))
    new = [step for step in found.steps if step.action == "swap-in" and step.row is None]
    assert len(new) + len(rows) <= max(most, len(rows))
    served = [row.stands_for for row in rows] + [step.stands_for for step in new]
    assert len(served) == len(set(served))
    assert len({step.spare for step in found.steps}) == len(found.steps)
    assert not {step.spare for step in new} & sick
    assert {step.stands_for for step in new} <= out


def test_the_example_is_read_and_mistakes_are_one_line():
    found = FILE.parse(FILE.example()).pools
    assert found == (PoolSettings("gpu", "slurm", ("gpu*",), settings={"reservation": "nhc-spare"}),)
    for text, said in (
        ("", "pools: missing"),
        ('[pools.a]\nfor = "n*"\n', "pools.a.type: missing"),
        ('[pools.a]\ntype = "slurm"\nfor = "n*"\nafter = "1s"\n', "too small"),
    ):
        with pytest.raises(SettingsError) as caught:
            FILE.parse(text)
        assert said in str(caught.value)


@given(
    st.sets(st.sampled_from(["n1", "n2", "n3"])), st.dictionaries(st.sampled_from(["n1", "n2", "n3"]),
    st.sampled_from([ENTERING, IN_SERVICE, LEAVING]), max_size=2), st.integers(1, 3), st.integers(-1, 3),
    st.sets(st.sampled_from([1, 2, 3])),
)  # fmt: skip
def test_what_is_added_is_bounded_whatever_is_seen(out, used, most, addable, had):
    rows = [in_use(f"ml/gpus+{node}", node, state) for node, state in used.items()]
    found = {name: episode(name, number=int(name[1])) for name in sorted(out)}
    seen = view(POOL._replace(most=most), (), rows, sorted(out), found)._replace(adds="ml/gpus", addable=addable,
                                                                                had=frozenset(had))  # fmt: skip
    new = [step for step in decide(seen).steps if step.row is None]
    assert len(new) <= max(0, min(addable, most - len(rows)))
    assert {step.stands_for for step in new} <= out - set(used)
    assert not {step.episode for step in new} & had
    assert len({step.spare for step in decide(seen).steps}) == len(decide(seen).steps)
    back = {step.stands_for for step in decide(seen).steps if step.action == "back"}
    assert back == {node for node, state in used.items() if state == LEAVING or node not in out}
