"""The one door: whoever asks, and whatever else is so, somebody else's node is left alone, and no bound is passed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.limits import Limit, Rate
from nhc.core.model import Action, CheckResult, Report, crit, ok, unknown
from nhc.marks.policy.bounds import FLEET, PARTITION, Bounds, Held, RadiusBounds, usage_of
from nhc.marks.policy.door import NODE, MarkRequest, one_too_many, report_doubts, rule
from nhc.marks.policy.mark_decision import Policy, reconcile
from nhc.marks.ports.adapter import OWNER, REMEDY_OWNER, SCHEDULER, Effect, Mark, NodeState, Operation, Silence
from nhc.marks.ports.marks import may_change, out_by_nhc

NOW = 1_000_000.0
NAMES = [f"n{number}" for number in range(8)]
OWNERS = st.sampled_from([OWNER, REMEDY_OWNER, "", "ann", SCHEDULER])
MARKS = st.builds(
    Mark, st.sampled_from(["check_x: bad", "mine"]), st.sampled_from([Action.NONE, Action.REBOOT]),
    st.sampled_from([None, NOW - 5.0, NOW - 50.0]), OWNERS,
)  # fmt: skip


def state_of(name: str) -> st.SearchStrategy[NodeState]:
    return st.builds(
        NodeState, st.just(name), st.just("shown"), st.booleans(), st.booleans(), st.none() | MARKS,
        st.sampled_from(["", "it reboots"]), st.sampled_from([(), ("gpu",), ("gpu", "work")]),
        silence=st.sampled_from([None, Silence(NOW, "not heard")]), absent=st.booleans(),
        booted=st.sampled_from([0.0, NOW - 100.0, NOW - 1.0]), boot_id=st.sampled_from(["", "b1", "b2"]),
        machine=st.just(()),
    )  # fmt: skip


STATES = st.tuples(*map(state_of, NAMES)).map(list)
FOUND = st.sampled_from([ok(), unknown("X", "?"), crit("X", "bad"), crit("Y", "bad", action=Action.REBOOT)])
REPORTS = st.dictionaries(
    st.sampled_from([*NAMES, "stranger"]),
    st.tuples(FOUND, st.sampled_from(["", "b1", "b2"]), st.sampled_from([0.0, 30.0, 4000.0, -60.0])),
).map(lambda found: {
    name: Report(name, boot, NOW - age, 0.1, (CheckResult("check_x", outcome),))
    for name, (outcome, boot, age) in found.items()
})  # fmt: skip
LIMITS = st.sampled_from([None, Limit(0), Limit(1), Limit(3), Limit(share=0.25)])
BOUNDS = st.builds(
    lambda fleet, group, rate, shielded: Bounds(
        {FLEET: RadiusBounds(fleet, rates={"mark": Rate(rate, 3600.0)} if rate else {}),
         PARTITION: RadiusBounds(group)}, protected=shielded),
    LIMITS, LIMITS, st.sampled_from([0, 1, 2]), st.sampled_from([(), ("n1",), ("n*",)]),
)  # fmt: skip
WHY = st.sampled_from(["", "because"])


@pytest.mark.thorough
@given(REPORTS, STATES, BOUNDS)
def test_a_round_touches_nobody_elses_node_and_passes_no_bound(reports, states, bounds):
    policy = Policy(bounds)
    decision = reconcile(reports, states, policy, (), NOW)
    known = {state.name: state for state in states}
    done = {(planned.node, planned.operation) for planned in decision.operations}
    assert len(done) == len(decision.operations), "nothing twice"
    for node, operation in done:
        state, report = known[node], reports[node]
        assert not state.hold
        assert not report_doubts(report.started, report.boot_id, state, NOW, policy.max_age)
        assert not any(node == pattern or pattern == "n*" for pattern in bounds.protected)
        if not state.available:
            assert state.mark is not None
            assert may_change(state.mark), "what another has taken out is theirs, the loop's too"
        assert operation is (Operation.MARK if report.failures() else Operation.CLEAR)
    out = {state.name for state in states if out_by_nhc(state)}
    after = (out - {node for node, operation in done if operation is Operation.CLEAR}) | {
        node for node, operation in done if operation is Operation.MARK}  # fmt: skip
    usage = usage_of(states)
    for radius, size in usage.sizes.items():
        limit, now_out = bounds.out(radius), {node for node in after if radius in usage.radii(node)}
        if limit is not None:
            before = {node for node in out if radius in usage.radii(node)}
            assert len(now_out) <= max(limit.of(size), len(before))


@pytest.mark.thorough
@given(REPORTS, STATES, BOUNDS)
def test_what_was_done_is_not_asked_for_again(reports, states, bounds):
    policy = Policy(bounds)
    marks = {planned.node: planned for planned in reconcile(reports, states, policy, (), NOW).operations}
    after = [
        state if state.name not in marks
        else state._replace(available=marks[state.name].mark is None, mark=marks[state.name].mark)
        for state in states
    ]  # fmt: skip
    again = reconcile(reports, after, policy, (), NOW).operations
    assert not {planned.node for planned in again} & set(marks)


@given(
    st.sampled_from(NAMES).flatmap(state_of), st.sampled_from([None, Mark("check_x: new")]), OWNERS, WHY, WHY, BOUNDS,
    st.booleans(), st.sampled_from([None, NOW - 10.0, NOW - 1e9]),
)  # fmt: skip
def test_first_whose_it_is_then_what_holds_all_then_room_then_what_is_known(
    state, mark, owner, holds_all, doubt, bounds, full, enabled
):
    others = [NodeState(f"m{number}", "out", False, groups=state.groups) for number in range(4)]
    usage = usage_of([state, *others], [other.name for other in others] if full else ())
    free = rule(MarkRequest(state.name, state, mark, owner), Bounds({}), usage_of([]), NOW)
    ask = MarkRequest(state.name, state, mark, owner, (Held("breaker", holds_all),), (Held("report", doubt),))
    ruling = rule(ask, bounds, usage, NOW, enabled)
    if not free.may:
        assert ruling == free, "whose it is comes first, and nothing else is asked"
        assert (free.bound == NODE) == (bool(state.hold) and free.why == f"left alone: {state.hold}")
    elif holds_all:
        assert ruling.bound in ("breaker", "protected")
    elif ruling.may:
        assert not doubt
        assert mark is None or state.out_by_us or not full or bounds.out((FLEET, "")) in (None, Limit(nodes=None))
    elif not doubt:
        assert ruling.bound not in ("", "report", "breaker")


@given(OWNERS)
def test_a_node_that_the_scheduler_does_not_know_is_nobodys_to_mark(owner):
    for mark in (None, Mark("check_x: bad")):
        assert rule(MarkRequest("n1", None, mark, owner), Bounds({}), usage_of([]), NOW).effect is Effect.FAILED


@pytest.mark.parametrize(
    ("report", "state", "counts"),
    [
        (("b1", 10.0), ("b1", 0.0), True),
        (("b1", 10.0), ("b2", 0.0), False),
        (("", 10.0), ("b2", 0.0), True),  # a report that names no boot
        (("b1", 10.0), ("", NOW - 11.0), True),
        (("b1", 10.0), ("", NOW - 8.0), True),  # schedulers compute it from an uptime
        (("b1", 60.0), ("", NOW - 8.0), False),
        (("b1", 3601.0), ("b1", 0.0), False),
        (("b1", -59.0), ("b1", 0.0), True),  # clocks differ by so much
        (("b1", -61.0), ("b1", 0.0), False),
    ],
)
def test_a_report_counts_for_the_boot_that_its_node_is_in(report, state, counts):
    (boot, age), (shown, booted) = report, state
    node = NodeState("n1", "idle", True, booted=booted, boot_id=shown)
    found = {name: Report(name, boot, NOW - age, 0.1, (CheckResult("check_x", crit("X", "bad")),)) for name in ("n1",)}
    decision = reconcile(found, [node], Policy().with_ceiling(Limit()), (), NOW)
    assert [planned.operation for planned in decision.operations] == ([Operation.MARK] if counts else [])
    ours = node._replace(available=False, mark=Mark("check_x: bad", since=NOW - 9000))
    well = {"n1": found["n1"]._replace(results=(CheckResult("check_x", ok()),))}
    cleared = reconcile(well, [ours], Policy(), (), NOW).operations
    assert [planned.operation for planned in cleared] == ([Operation.CLEAR] if counts else [])


@given(st.lists(st.floats(0, 3), min_size=1, max_size=8), LIMITS, LIMITS)
def test_of_nodes_that_were_marked_together_as_many_stay_as_there_is_room_for(times, fleet, group):
    bounds = Bounds({FLEET: RadiusBounds(fleet), PARTITION: RadiusBounds(group)})
    states = [
        NodeState(f"n{at}", "drain", False, mark=Mark("x", since=since), groups=("work",))
        for at, since in enumerate(times)
    ]
    limits = [limit.of(len(states)) for limit in (fleet, group) if limit is not None]
    stay = [state.name for state in states if one_too_many(states, state.name, bounds) is None]
    assert len(stay) == min([len(states), *limits])
