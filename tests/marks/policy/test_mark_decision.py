"""What the policy orders, and what it withholds: ceilings, rates, repairs, and other people's drains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.limits import Limit, Rate
from nhc.core.model import Action, CheckResult, Report, crit, ok, skip, unknown, warn
from nhc.marks.policy.bounds import FLEET, PARTITION, BegunAction, Bounds, RadiusBounds, Timed, read_hours
from nhc.marks.policy.mark_decision import Policy, reconcile, shared_faults
from nhc.marks.ports.adapter import Mark, NodeState, Operation, Silence

NOW = 1_000_000.0


def report(node, *outcomes, age=0.0):
    return Report(node, "boot", NOW - age, 0.1, tuple(CheckResult("check_x", outcome) for outcome in outcomes))


def sick(node, action=Action.INSPECT, failures=1):
    return report(node, *[crit("X", "bad", action=action)] * failures)


def idle(node, *groups):
    return NodeState(node, "idle", True, groups=groups)


def drained(node, *groups, why="check_x: bad", owner="nhc", since=NOW - 7200, busy=False):
    return NodeState(node, "drain", False, busy, Mark(why, since=since, owner=owner), groups=groups)


def nodes(count, *groups):
    return [idle(f"n{number}", *groups) for number in range(count)]


def ordered(decision):
    return [(planned.node, planned.operation) for planned in decision.operations]


FREELY = Policy().with_ceiling(Limit())


def rated(policy=FREELY, **rates):
    return policy._replace(bounds=policy.bounds._replace(radii={FLEET: RadiusBounds(rates=rates)}))


def run(reports, states, policy=FREELY, history=()):
    return reconcile({r.host: r for r in reports}, states, policy, history, NOW)


def test_a_sick_node_is_marked_with_its_worst_failure_and_that_repair():
    found = report("n0", ok(), warn("W", "slow"), crit("A", "one"), crit("B", "two", action=Action.REBOOT))
    (planned,) = run([found], nodes(1)).operations
    assert planned.mark == Mark("check_x: two (and 1 more)", Action.REBOOT, NOW)


@pytest.mark.parametrize("outcome", [unknown("X", "?"), skip("X", "none")])
def test_what_could_not_be_told_changes_nothing(outcome):
    assert run([report("n0", outcome), report("n1", outcome)], [idle("n0"), drained("n1")]) == ((), ())


def test_a_healthy_node_of_ours_is_put_back_and_an_operators_is_not():
    states = [drained("n0"), drained("n1", owner="root", why="DIMM"), idle("n2")]
    decision = run([report(node, ok()) for node in ("n0", "n1", "n2")], states)
    assert ordered(decision) == [("n0", Operation.CLEAR)]
    assert [(w.node, w.why) for w in decision.withheld] == [("n1", "drain by root: DIMM")]


def test_a_report_too_old_or_from_the_future_counts_for_nothing():
    reports = [report("n0", crit("X", "bad"), age=3601), report("n1", crit("X", "bad"), age=-65)]
    decision = run(reports, nodes(2))
    assert decision.operations == ()
    assert "3601 s old" in decision.withheld[0].why
    assert "65 s in the future" in decision.withheld[1].why


def test_a_share_of_the_fleet_bounds_how_many_are_out_and_ours_already_out_count():
    states = [*nodes(18), drained("x1"), drained("x2", owner="root", why="theirs")]
    reports = [sick(f"n{number}") for number in range(5)]
    decision = run(reports, states, Policy().with_ceiling(Limit(share=0.1)))
    assert ordered(decision) == [("n0", Operation.MARK)]
    assert len(decision.withheld) == 4
    assert decision.withheld[0].why == "2 of 20 nodes in the fleet are out, at most 10%"
    with_all = run(reports, states, Policy(count_all=True).with_ceiling(Limit(share=0.1)))
    assert with_all.operations == ()


def test_a_share_is_of_the_nodes_that_are_there():
    """A cloud's thousand powered-down nodes would let the ten that run go out together."""
    away = [state._replace(name=f"away{number}", absent=True) for number, state in enumerate(nodes(90))]
    states = [*nodes(10), *away]
    decision = run([sick("n0"), sick("n1")], states, Policy().with_ceiling(Limit(share=0.1)))
    assert ordered(decision) == [("n0", Operation.MARK)]
    assert decision.withheld[0].why == "1 of 10 nodes in the fleet are out, at most 10%"


def test_nodes_behind_a_gate_count_like_marked_ones():
    gated = drained("x1", owner="", why="NHC-GATE: held: no verdict: a new node")
    decision = run([sick("n0")], [*nodes(9), gated], Policy().with_ceiling(Limit(nodes=1)))
    assert decision.operations == ()
    assert decision.withheld[0].why == "1 of 10 nodes in the fleet are out, at most 1"


def test_one_line_tells_of_a_fault_that_nodes_share_and_are_not_marked_for():
    reports = {f"n{number}": sick(f"n{number}") for number in range(8)}
    reports["n9"] = report("n9", crit("Other", "bad"))
    decision = reconcile(reports, nodes(24), Policy().with_ceiling(Limit(nodes=2)), (), NOW)
    (line,) = shared_faults(reports, decision, 24)
    assert line.startswith("check_x: X: the same on 8 of 24 nodes, 6 of them not marked")
    assert shared_faults(reports, reconcile(reports, nodes(24), FREELY, (), NOW), 24) == ()


def test_what_is_put_back_makes_room():
    states = [*nodes(9), drained("x1")]
    decision = run([sick("n0"), report("x1", ok())], states, Policy().with_ceiling(Limit(nodes=1)))
    assert ordered(decision) == [("x1", Operation.CLEAR), ("n0", Operation.MARK)]


def test_every_partition_of_a_node_must_have_room():
    states = [idle("n0", "gpu", "work"), idle("n1", "gpu", "work"), idle("n2", "work"), idle("n3", "work")]
    policy = Policy(Bounds({FLEET: RadiusBounds(), PARTITION: RadiusBounds(Limit(2))}, {"gpu": Limit(1)}))
    decision = run([sick(f"n{number}") for number in range(4)], states, policy)
    assert ordered(decision) == [("n0", Operation.MARK), ("n2", Operation.MARK)]
    assert [w.why for w in decision.withheld] == [
        "1 of 2 nodes in partition gpu are out, at most 1",
        "2 of 4 nodes in partition work are out, at most 2",
    ]


def test_the_worst_nodes_go_first_where_there_is_not_room_for_all():
    reports = [sick("n0"), sick("n1", failures=3), sick("n2", failures=2)]
    decision = run(reports, nodes(30), Policy().with_ceiling(Limit(nodes=2)))
    assert ordered(decision) == [("n1", Operation.MARK), ("n2", Operation.MARK)]


def test_a_refreshed_reason_needs_no_room():
    states = [drained("n0", why="check_x: old"), *nodes(3)[1:]]
    assert ordered(run([sick("n0")], states, Policy().with_ceiling(Limit(nodes=0)))) == [("n0", Operation.MARK)]


def test_a_rate_counts_what_the_history_says_each_node_once():
    policy = rated(mark=Rate(2, 600.0))
    history = [
        BegunAction(NOW - 10, "n0", "mark"),
        BegunAction(NOW - 5, "n0", "mark"),
        BegunAction(NOW - 900, "n9", "mark"),
    ]
    decision = run([sick("n0"), sick("n1"), sick("n2")], nodes(3), policy, history)
    assert ordered(decision) == [("n0", Operation.MARK), ("n1", Operation.MARK)]
    assert decision.withheld[0].why == "2 marks in the fleet within 600 s, at most 2"


def test_a_protected_node_is_never_touched():
    decision = run([sick("login1"), sick("n0")], [idle("login1"), idle("n0")], Policy(Bounds(protected=("login*",))))
    assert ordered(decision) == [("n0", Operation.MARK)]
    assert decision.withheld[0] == ("login1", Operation.MARK, "protected by the policy (login*)")


def test_a_node_is_kept_for_the_time_the_policy_asks_before_it_is_put_back():
    policy = Policy(healthy_for=600.0).with_ceiling(Limit())
    states = [drained("n0", since=NOW - 599), drained("n1", since=NOW - 601)]
    assert ordered(run([report("n0", ok()), report("n1", ok())], states, policy)) == [("n1", Operation.CLEAR)]


REBOOTS = Policy(Bounds({FLEET: RadiusBounds()}, attempts=2), repairs=frozenset({Operation.REBOOT, Operation.REPLACE}))


def test_only_a_node_that_we_took_out_and_that_is_idle_is_rebooted():
    states = [idle("n0"), drained("n1"), drained("n2", busy=True), drained("n3", owner="root", why="theirs")]
    decision = run([sick(f"n{number}", Action.REBOOT) for number in range(4)], states, REBOOTS)
    assert [node for node, operation in ordered(decision) if operation is Operation.REBOOT] == ["n1"]
    assert ("n2", Operation.REBOOT, "work still runs on it") in decision.withheld


def test_nothing_is_rebooted_unless_the_policy_allows_it():
    decision = run([sick("n0", Action.REBOOT)], [drained("n0")])
    assert Operation.REBOOT not in [operation for _node, operation in ordered(decision)]


def test_a_node_is_not_rebooted_twice_within_the_cooldown():
    history = [BegunAction(NOW - 3599, "n0", "reboot")]
    decision = run([sick("n0", Action.REBOOT)], [drained("n0")], REBOOTS, history)
    assert "last repaired 3599 s ago" in decision.withheld[-1].why


def test_reboots_that_did_not_help_end_in_a_replacement():
    history = [BegunAction(NOW - 8000, "n0", "reboot"), BegunAction(NOW - 4000, "n0", "reboot")]
    decision = run([sick("n0", Action.REBOOT)], [drained("n0")], REBOOTS, history)
    assert decision.operations[-1].operation is Operation.REPLACE
    assert decision.operations[-1].because.endswith("(2 reboots did not help)")


def test_a_rack_is_bounded_as_it_is_for_the_loop():
    states = [state._replace(placed=(("rack", "r1"),)) for state in nodes(4)]
    policy = Policy(Bounds({FLEET: RadiusBounds(), "rack": RadiusBounds(Limit(share=0.25))}))
    decision = run([sick("n0"), sick("n1")], states, policy)
    assert ordered(decision) == [("n0", Operation.MARK)]
    assert decision.withheld[0].why == "1 of 4 nodes in rack r1 are out, at most 25%"


def test_no_repair_begins_in_quiet_hours():
    quiet = REBOOTS._replace(bounds=REBOOTS.bounds._replace(quiet=Timed((read_hours("daily 00:00-24:00"),))))
    decision = run([sick("n0", Action.REBOOT), sick("n1")], [drained("n0"), idle("n1")], quiet)
    assert ("n1", Operation.MARK) in ordered(decision)
    assert ("n0", Operation.REBOOT) not in ordered(decision)
    assert decision.withheld[-1].why == "no reboot in the quiet hours daily 00:00-24:00"


def test_reboots_and_replacements_count_together_against_the_rate_of_repairs():
    policy = rated(REBOOTS, repair=Rate(1, 3600.0))
    history = [BegunAction(NOW - 60, "n9", "replace")]
    decision = run([sick("n0", Action.REBOOT)], [drained("n0")], policy, history)
    assert decision.withheld[-1] == ("n0", Operation.REBOOT, "1 repairs in the fleet within 3600 s, at most 1")


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.builds(Limit, st.none() | st.integers(0, 30), st.none() | st.floats(0, 1)),
)
def test_no_ceiling_is_ever_passed(already, failing, ceiling):
    states = [drained(f"x{number}") for number in range(already)] + nodes(failing + 5)
    decision = run([sick(f"n{number}") for number in range(failing)], states, Policy().with_ceiling(ceiling))
    marked = sum(1 for _node, operation in ordered(decision) if operation is Operation.MARK)
    assert marked == min(failing, max(0, ceiling.of(len(states)) - already))


def on_one_machine(*states):
    return [state._replace(machine=states) for state in states]


MINE = drained("n1", why="new cables", owner="ann")


@pytest.mark.parametrize(("mate", "why"), [
    (drained("n1"), ""),
    (drained("n1", busy=True), "work still runs on n1, on the same machine"),
    (idle("n1"), "n1, on the same machine, takes new work: drain it too"),
    (MINE, "n1, on the same machine, is drain by ann"),
    (drained("n1")._replace(hold="it is rebooting"), "n1, on the same machine, is left alone: it is rebooting"),
    (idle("n1")._replace(absent=True), ""),
    (MINE._replace(mark=Mark("Not responding", owner="scheduler"), silence=Silence(NOW, "not heard")), ""),
])  # fmt: skip
def test_a_machine_is_rebooted_once_none_of_its_nodes_works_or_is_somebody_elses(mate, why):
    repairing = FREELY._replace(repairs=frozenset({Operation.REBOOT}))
    decision = run([sick("n0", Action.REBOOT)], on_one_machine(drained("n0"), mate), repairing)
    assert [one.why for one in decision.withheld if one.operation is Operation.REBOOT] == [why] * bool(why)
    assert (("n0", Operation.REBOOT) in ordered(decision)) == (not why)


def test_a_machine_whose_nodes_all_ask_for_a_reboot_has_one():
    repairing = FREELY._replace(repairs=frozenset({Operation.REBOOT}))
    states = on_one_machine(drained("n0"), drained("n1"))
    decision = run([sick("n0", Action.REBOOT), sick("n1", Action.REBOOT)], states, repairing)
    assert [node for node, operation in ordered(decision) if operation is Operation.REBOOT] == ["n0"]
