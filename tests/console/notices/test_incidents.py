"""When people are told of what: bursts, cooldown, flapping, storms, and ends. Time is a number here."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nhc.console.notices import incidents
from nhc.console.notices.incidents import ActiveFault, NoticeTiming

PACE = NoticeTiming()


def fault(node, reason="GpuLost", place="rack r1", verdict="CRIT", began=0.0):
    return ActiveFault(node, "check_gpu", reason, verdict, "reboot", "gone", began, place)


class Watch:
    """Looks at faults, one after the other, as the service does."""

    def __init__(self, pace=PACE):
        self.kept, self.pace, self.told, self.withheld = {}, pace, [], 0

    def look(self, now, *faults):
        recent = len({one.key for one in self.told if one.at > now - 60 and one.kind != "refresh"})
        done = incidents.step(self.kept, faults, self.pace, now, cluster="c", recent=recent)
        self.kept.update({key: incidents.load(incidents.dump(one)) for key, one in done.changed.items()})
        for key in done.forgotten:
            del self.kept[key]
        self.told += done.notices
        self.withheld = done.withheld
        return [(one.kind, one.place, one.affected) for one in done.notices if one.kind != "refresh"]


def test_a_burst_is_told_of_together_and_its_end_once():
    watch = Watch()
    assert watch.look(0, fault("n1")) == []
    assert watch.look(20, fault("n1"), fault("n2"), fault("n3")) == []
    assert watch.look(31, fault("n1"), fault("n2"), fault("n3")) == [("open", "rack r1", 3)]
    assert watch.told[0].nodes == "n[1-3]"
    assert watch.look(60, fault("n1")) == []
    assert watch.look(70) == []
    assert watch.look(189) == []
    assert watch.look(191) == [("resolved", "rack r1", 1)]
    assert watch.look(10000) == []
    assert watch.kept == {}


def test_what_is_over_within_the_wait_is_not_told():
    watch = Watch()
    watch.look(0, fault("n1"))
    assert watch.look(20) == []
    assert watch.look(1000) == []


def test_more_nodes_are_told_after_the_cooldown_and_it_does_not_slide():
    watch = Watch()
    watch.look(0, fault("n1"))
    watch.look(40, fault("n1"))
    for now in range(50, 330, 10):
        assert watch.look(now, *[fault(f"n{number}") for number in range(now // 10)]) == []
    assert watch.look(341, *[fault(f"n{number}") for number in range(40)]) == [("update", "rack r1", 40)]
    assert watch.look(351, *[fault(f"n{number}") for number in range(41)]) == []


def test_groups_are_told_apart_until_the_cause_is_the_fleets():
    watch = Watch()
    two = [fault("a", place="rack r1"), fault("b", place="rack r2")]
    watch.look(0, *two)
    assert sorted(watch.look(31, *two)) == [("open", "rack r1", 1), ("open", "rack r2", 1)]
    many = [fault(f"m{number}", reason="NfsHangs", place=f"rack r{number}") for number in range(50)]
    watch.look(40, *two, *many)
    assert watch.look(71, *two, *many) == [("open", "", 50)]


def test_a_fault_that_comes_back_is_the_same_incident_and_flaps():
    watch = Watch()
    now = 0.0
    for _ in range(6):
        for _ in range(5):
            watch.look(now, fault("n1"))
            now += 10
        for _ in range(5):
            watch.look(now)
            now += 10
    kinds = [one.kind for one in watch.told if one.kind != "refresh"]
    assert kinds == ["open"]
    gone = now - 50
    assert watch.look(gone + 800) == []
    assert watch.look(gone + 901) == [("resolved", "rack r1", 1)]
    assert watch.told[-1].flaps == 5
    assert "Flapping, 5 times in 1 h" in watch.told[-1].text


def test_a_recovery_that_was_not_told_withholds_no_later_fault():
    watch = Watch()
    watch.look(0, fault("n1"))
    watch.look(31, fault("n1"))
    watch.look(40)
    assert watch.look(200) == [("resolved", "rack r1", 1)]
    watch.look(210, fault("n1"))
    assert watch.look(245, fault("n1")) == [], "the cooldown since the last notice"
    assert watch.look(501, fault("n1")) == [("open", "rack r1", 1)]
    assert watch.told[-1].number == 2


def test_a_storm_is_bounded_and_loses_nothing():
    watch = Watch()
    storm = [
        fault(f"n{number}", reason=f"R{number}", verdict="CRIT" if number == 99 else "WARN") for number in range(100)
    ]
    watch.look(0, *storm)
    first = watch.look(31, *storm)
    assert len(first) == 20
    assert watch.told[0].reason == "R99"
    assert watch.withheld == 80
    assert watch.look(40, *storm) == []
    for now in range(100, 400, 61):
        watch.look(now, *storm)
    assert {one.reason for one in watch.told} == {f"R{number}" for number in range(100)}


def names(one):
    return [one.reason, *(line.split()[1] for line in one.also)]


def test_causes_that_come_on_one_node_without_a_silence_are_one_incident():
    watch = Watch()
    xid, gone, link = fault("n1", "Xid79", verdict="WARN"), fault("n1", "GpuLost"), fault("n1", "IbPortDown")
    watch.look(0, xid)
    watch.look(20, xid, gone)  # worse, and nobody was told yet: it leads
    assert watch.look(31, xid, gone) == [("open", "rack r1", 1)]
    assert names(watch.told[-1]) == ["GpuLost", "Xid79"]
    assert "Also: WARN Xid79" in watch.told[-1].text
    assert watch.look(150, xid, gone, link) == []
    assert watch.look(340, xid, gone, link) == [("update", "rack r1", 1)], "by the cooldown"
    assert names(watch.told[-1]) == ["GpuLost", "IbPortDown", "Xid79"]
    assert watch.look(350, link) == []
    assert watch.look(600, link) == [], "one of it stands"
    assert watch.look(610) == []
    assert watch.look(735) == [("resolved", "rack r1", 1)]
    assert {one.key for one in watch.told} == {watch.told[0].key}
    assert watch.look(20000) == []
    assert watch.kept == {}


def test_what_comes_after_a_silence_is_another_incident():
    watch = Watch()
    watch.look(0, fault("n1"))
    watch.look(31, fault("n1"))
    both = [fault("n1"), fault("n1", "DiskFailed")]
    watch.look(182, *both)
    assert watch.look(215, *both) == [("open", "rack r1", 1)]
    assert [one.reason for one in watch.told if one.kind == "open"] == ["GpuLost", "DiskFailed"]


def test_a_burst_goes_on_as_long_as_something_comes_before_the_silence():
    watch = Watch()
    standing = []
    for number in range(10):
        standing.append(fault("n1", f"R{number}"))
        watch.look(number * 170.0, *standing)
    assert {one.key for one in watch.told} == {watch.told[0].key}


def test_a_fault_of_one_node_is_not_hidden_in_the_burst_of_many():
    watch = Watch()
    many = [fault(f"n{number}", reason) for number in range(40) for reason in ("NfsHangs", "IbPortDown")]
    watch.look(0, *many)
    watch.look(31, *many, fault("n7"))
    assert watch.told[0].affected == 40
    assert sorted(names(watch.told[0])) == ["IbPortDown", "NfsHangs"]
    watch.look(62, *many, fault("n7"))
    assert [(one.reason, one.affected) for one in watch.told[1:] if one.kind == "open"] == [("GpuLost", 1)]


def test_jobs_and_nodes_are_told_of_apart_and_jobs_each_for_itself():
    def job(name, reason):
        return ActiveFault("n1", "nhc job", reason, "CRIT", "inspect", "given up", 0.0, f"job {name}")

    watch = Watch()
    all_of_it = [fault("n1"), job("a", "JobHeld"), job("a", "JobGivenUp"), job("b", "JobFailed")]
    watch.look(0, *all_of_it)
    watch.look(31, *all_of_it)
    assert sorted((one.place, len(one.also)) for one in watch.told) == [("job a", 1), ("job b", 0), ("rack r1", 0)]


def test_a_cause_that_ends_before_it_was_told_of_leaves_the_burst_to_the_next():
    watch = Watch()
    watch.look(0, fault("n1"), fault("n1", "IbPortDown", verdict="WARN"))
    watch.look(20, fault("n1", "IbPortDown", verdict="WARN"))
    assert watch.look(31, fault("n1", "IbPortDown", verdict="WARN")) == [("open", "rack r1", 1)]
    assert watch.told[0].reason == "IbPortDown"


def test_without_a_silence_each_cause_is_an_incident():
    watch = Watch(PACE._replace(silence=0.0))
    both = [fault("n1"), fault("n1", "DiskFailed")]
    watch.look(0, *both)
    assert len(watch.look(31, *both)) == 2


def test_what_stands_is_repeated_and_what_forgets_is_refreshed():
    watch = Watch()
    for now in range(0, 15000, 30):
        watch.look(now, fault("n1"))
    kinds = [one.kind for one in watch.told]
    assert [kind for kind in kinds if kind != "refresh"] == ["open", "repeat"]
    at = [one.at for one in watch.told]
    assert max(later - earlier for earlier, later in zip(at, at[1:])) <= 150


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sets(
            st.tuples(
                st.sampled_from("abc"), st.sampled_from(["r1", "r2", "r3", "r4", "r5"]),
                st.sampled_from(["GpuLost", "DiskFailed", "IbPortDown"]),
            )
        ),
        max_size=40,
    )
)  # fmt: skip
def test_every_incident_told_of_is_resolved_and_messages_stay_bounded(looks):
    watch = Watch()
    now = 0.0
    for standing in looks:
        watch.look(now, *[fault(f"{node}{place}", reason, place=place) for node, place, reason in standing])
        now += 45
    for _ in range(100):
        watch.look(now)
        now += 60
    state = {}
    for one in watch.told:
        if one.kind == "open":
            assert state.get(one.key) in (None, "resolved")
        elif one.kind != "refresh":
            assert state.get(one.key) not in (None, "resolved")
        if one.kind != "refresh":
            state[one.key] = one.kind
    assert set(state.values()) <= {"resolved"}
    assert watch.kept == {}
