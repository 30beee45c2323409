"""The planner and the judge of a sweep, played against made-up clusters."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nhc.deep.group_test import Culprit, GroupOutcome, GroupResult, GroupTest, Layer, NodeStanding, Rules, Topology
from nhc.deep.node_verdicts import judge_sweep
from nhc.deep.planner import next_round
from nhc.deep.simulate import Faults, break_some, cluster, play, run


def names(judgement, culprit):
    return {blame.names for blame in judgement.blames if blame.culprit is culprit}


@pytest.mark.parametrize(("count", "bad", "rounds"), [(64, 5, 3), (256, 10, 3), (1024, 10, 3)])
def test_bad_nodes_are_found_in_three_rounds(count, bad, rounds):
    nodes, topology = cluster(count, 32)
    faults = break_some(nodes, topology, bad, 0, 0, seed=1)

    played = play(nodes, topology, faults, Rules(), seed=1)

    assert played.convicted() == faults.nodes
    assert len(played.rounds) == rounds
    assert played.tests < 1.2 * count


def test_one_bad_pair_takes_no_node_out():
    nodes, topology = cluster(8, 8)

    played = play(nodes, topology, Faults(links=frozenset({("n1", "n2")})), Rules(), seed=1)

    assert played.convicted() == frozenset()
    assert names(played.judgement, Culprit.LINK) == {("n1", "n2")}
    assert set(played.judgement.nodes.values()) == {NodeStanding.PASSED}


def test_the_pair_of_a_blamed_link_was_tested_three_times():
    nodes, topology = cluster(8, 8)

    played = play(nodes, topology, Faults(links=frozenset({("n1", "n2")})), Rules(repeats=2), seed=1)

    assert sum(result.test.nodes == ("n1", "n2") for result in played.results) == 3


def test_two_nodes_alone_cannot_be_told_apart():
    nodes, topology = cluster(2, 8)

    played = play(nodes, topology, Faults(nodes=frozenset({"n1"})), Rules(), seed=1)

    assert played.convicted() == frozenset()
    assert played.judgement.nodes == {"n1": NodeStanding.SUSPECT, "n2": NodeStanding.SUSPECT}
    assert names(played.judgement, Culprit.UNCLEAR) == {("n1",), ("n2",)}


def test_a_leaf_with_bad_uplinks_is_named_and_none_of_its_nodes():
    nodes, topology = cluster(64, 16)

    played = play(nodes, topology, Faults(uplinks=frozenset({"leaf2"})), Rules(), seed=1)

    assert names(played.judgement, Culprit.LEAF) == {("leaf2",)}
    assert played.convicted() == frozenset()


def test_nothing_good_at_all_is_the_launcher_and_nobody_is_tested():
    nodes, topology = cluster(32, 8)
    seen = []
    while (step := next_round(nodes, topology, seen, Rules())) is not None:
        seen += [GroupResult(test, GroupOutcome.BAD, why="no such file: all_reduce_perf") for test in step.tests]

    found = judge_sweep(nodes, topology, seen, Rules())

    assert [blame.culprit for blame in found.blames] == [Culprit.TEST]
    assert "no such file: all_reduce_perf" in found.blames[0].message
    assert set(found.nodes.values()) == {NodeStanding.NOT_TESTED}
    assert len(seen) == 16  # it stops after the first round


def test_too_many_convictions_doubt_the_test_and_leave_the_good_their_verdict():
    nodes, topology = cluster(40, 40)

    played = play(nodes, topology, Faults(nodes=frozenset(nodes[:12])), Rules(cap=0.2), seed=1)

    assert played.convicted() == frozenset()
    assert names(played.judgement, Culprit.TEST) == {tuple(nodes[:12])}
    assert {played.judgement.nodes[node] for node in nodes[:12]} == {NodeStanding.SUSPECT}
    assert {played.judgement.nodes[node] for node in nodes[12:]} == {NodeStanding.PASSED}


def test_a_test_that_cannot_be_told_is_tried_again_and_then_left():
    nodes, topology = cluster(6, 6)
    seen = []
    while (step := next_round(nodes, topology, seen, Rules(retries=3))) is not None:
        for test in step.tests:
            lost = "n1" in test.nodes
            seen.append(
                GroupResult(test, GroupOutcome.UNKNOWN if lost else GroupOutcome.GOOD, missing=("n1",) if lost else ())
            )
        assert len(seen) < 40

    found = judge_sweep(nodes, topology, seen, Rules(retries=3))

    assert found.nodes["n1"] is NodeStanding.NOT_TESTED
    assert {node for node, standing in found.nodes.items() if standing is NodeStanding.PASSED} == set(nodes) - {"n1"}
    assert any("sent no result to" in blame.message for blame in found.blames)


def pairs(outcome, *some):
    return [GroupResult(GroupTest(Layer.LEAF, tuple(sorted(pair.split("-")))), outcome) for pair in some]


def test_bad_nodes_that_are_lucky_once_convict_nobody_whom_they_meet():
    """x and y are bad, and each was good once: what the innocent a had with them says nothing of a."""
    nodes, topology = [*"abcdefghij", "x", "y"], Topology()
    seen = [
        *pairs(GroupOutcome.GOOD, "x-b", "y-c", "d-e", "f-g", "h-i", "b-j", "c-j", "a-j"),
        *pairs(GroupOutcome.BAD, "x-a", "y-a", "x-d", "x-e", "y-f", "y-g"),
    ]
    found = judge_sweep(nodes, topology, seen, Rules())
    assert {node for node, one in found.nodes.items() if one is NodeStanding.FAILED} == {"x", "y"}
    assert found.nodes["a"] is NodeStanding.PASSED
    assert "x: bad with 3 proven partners (a, d, e)" in {blame.message for blame in found.blames}

    step = next_round(nodes, topology, [one for one in seen if one.test.nodes != ("a", "j")], Rules(across=False))
    assert step is not None  # until it has a good pair of its own
    assert "a" in {node for test in step.tests for node in test.nodes}


def test_a_node_that_was_good_once_and_bad_once_has_not_passed():
    seen = [*pairs(GroupOutcome.GOOD, "a-b", "c-d", "c-e"), *pairs(GroupOutcome.BAD, "a-c")]
    found = judge_sweep([*"abcde"], Topology(), seen, Rules())
    assert found.nodes["a"] is NodeStanding.SUSPECT
    assert found.nodes["c"] is NodeStanding.PASSED


RAILS = Rules(rails=("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"))


def test_a_bad_leaf_that_is_bad_on_every_rail_stays_the_leaf():
    nodes, topology = cluster(24, 6)

    played = play(nodes, topology, Faults(uplinks=frozenset({"leaf1"})), RAILS, seed=1)

    assert played.convicted() == frozenset()
    assert names(played.judgement, Culprit.LEAF) == {("leaf1",)}
    assert names(played.judgement, Culprit.RAIL) == set()
    tested = {
        node for one in played.results if one.test.rail for node in one.test.nodes if topology.leaf(node) == "leaf1"
    }
    assert len(tested) == 4  # of six: some tell enough


def test_rails_name_the_adapter_of_a_bad_node():
    nodes, topology = cluster(8, 8)

    played = play(nodes, topology, Faults(rails=frozenset({("n3", "mlx5_2")})), RAILS, seed=1)

    assert [blame.message for blame in played.judgement.blames] == [
        "n3: bad with 2 proven partners (n1, n4); bad on rail mlx5_2 alone"
    ]


def test_a_node_that_is_bad_on_every_rail_has_no_bad_adapter():
    nodes, topology = cluster(8, 8)

    played = play(nodes, topology, Faults(nodes=frozenset({"n3"})), RAILS, seed=1)

    assert [blame.message for blame in played.judgement.blames] == [
        "n3: bad with 2 proven partners (n1, n4); bad on each of its 4 rails: the host, not one adapter"
    ]


def test_rails_that_are_good_alone_are_said_to_be():
    nodes, topology = cluster(8, 8)
    seen = []
    while (step := next_round(nodes, topology, seen, RAILS)) is not None:
        seen += [
            GroupResult(test, GroupOutcome.BAD if "n3" in test.nodes and not test.rail else GroupOutcome.GOOD)
            for test in step.tests
        ]
    assert (
        judge_sweep(nodes, topology, seen, RAILS)
        .blames[0]
        .message.endswith("; each of its 4 rails tested alone is good")
    )


def test_a_rail_test_that_could_not_be_told_is_run_again_and_then_left():
    nodes, topology = cluster(8, 8)
    seen = []
    while (step := next_round(nodes, topology, seen, RAILS)) is not None:
        for test in step.tests:
            lost, bad = test.rail == "mlx5_0", "n3" in test.nodes and test.rail in ("", "mlx5_1")
            seen.append(
                GroupResult(test, GroupOutcome.UNKNOWN if lost else GroupOutcome.BAD if bad else GroupOutcome.GOOD)
            )
    assert sum(one.test.rail == "mlx5_0" for one in seen) == RAILS.retries + 1
    assert judge_sweep(nodes, topology, seen, RAILS).blames[0].message.endswith("; bad on rail mlx5_1 alone")


def test_two_nodes_with_the_same_bad_rail_are_two_bad_nodes():
    nodes, topology = cluster(12, 12)

    played = play(nodes, topology, Faults(rails=frozenset({("n01", "mlx5_0"), ("n03", "mlx5_0")})), RAILS, seed=1)

    assert played.convicted() == {"n01", "n03"}


def test_a_rail_that_is_bad_at_most_nodes_of_a_leaf_is_the_leafs():
    nodes, topology = cluster(24, 6)

    faults = Faults(rails=frozenset((node, "mlx5_3") for node in nodes[:5]))

    played = play(nodes, topology, faults, RAILS, seed=1)

    assert played.convicted() == frozenset()
    assert names(played.judgement, Culprit.RAIL) == {("leaf1", "mlx5_3")}
    assert names(played.judgement, Culprit.LEAF) == set()


def test_what_shows_only_at_scale_blames_no_node():
    nodes, topology = cluster(16, 16)
    seen = []
    while (step := next_round(nodes, topology, seen, Rules(scale=True))) is not None:
        seen += [
            GroupResult(test, GroupOutcome.BAD if len(test.nodes) > 8 else GroupOutcome.GOOD) for test in step.tests
        ]

    found = judge_sweep(nodes, topology, seen, Rules(scale=True))

    assert [blame.culprit for blame in found.blames] == [Culprit.SCALE]
    assert found.blames[0].names == tuple(nodes)
    assert "both halves are good" in found.blames[0].message
    assert set(found.nodes.values()) == {NodeStanding.PASSED}


# Paths between leaves.


def every_path(leaves):
    return frozenset(itertools.combinations([f"leaf{number}" for number in range(1, leaves + 1)], 2))


@pytest.mark.parametrize(("count", "leaf_size"), [(4, 2), (16, 8), (64, 32), (128, 64)])
def test_two_leaves_without_a_path_are_named_in_three_rounds_and_no_node_is(count, leaf_size):
    nodes, topology = cluster(count, leaf_size)

    played = play(nodes, topology, Faults(paths=frozenset({("leaf1", "leaf2")})), Rules(scale=True), seed=1)

    assert len(played.rounds) == 3
    assert played.tests <= 1.5 * count
    assert [(blame.culprit, blame.names) for blame in played.judgement.blames] == [(Culprit.PATH, ("leaf1", "leaf2"))]
    assert set(played.judgement.nodes.values()) == {NodeStanding.SUSPECT}


@pytest.mark.parametrize("seed", range(20))
def test_whichever_path_of_four_leaves_is_bad_it_is_named(seed):
    nodes, topology = cluster(64, 16)
    faults = break_some(nodes, topology, seed % 3, 0, 0, seed, paths=1)

    played = play(nodes, topology, faults, Rules(), seed)

    assert names(played.judgement, Culprit.PATH) == faults.paths
    assert played.convicted() == faults.nodes
    assert set(played.judgement.nodes.values()) <= {NodeStanding.PASSED, NodeStanding.FAILED}
    assert len(played.rounds) <= 8


@pytest.mark.parametrize("seed", range(20))
def test_where_no_leaf_reaches_another_the_spine_is_named_and_nobody_is_convicted_whatever_chance_does(seed):
    nodes, topology = cluster(64, 16)
    faults = Faults(paths=every_path(4), false_good=0.02, unclear=0.05)

    played = play(nodes, topology, faults, Rules(), seed)

    assert names(played.judgement, Culprit.PATH) == {("leaf1", "leaf2", "leaf3", "leaf4")}
    assert "the spine" in played.judgement.blames[0].message
    assert played.convicted() == frozenset()
    assert len(played.rounds) <= 8


@pytest.mark.parametrize("seed", range(20))
def test_two_islands_are_bad_paths_and_no_bad_node(seed):
    nodes, topology = cluster(64, 16)
    apart = {("leaf1", "leaf3"), ("leaf1", "leaf4"), ("leaf2", "leaf3"), ("leaf2", "leaf4")}

    played = play(nodes, topology, Faults(paths=frozenset(apart)), Rules(), seed)
    noisy = play(nodes, topology, Faults(paths=frozenset(apart), false_bad=0.01, unclear=0.05), Rules(), seed)

    assert names(played.judgement, Culprit.PATH) == apart
    assert names(noisy.judgement, Culprit.PATH) <= apart
    assert played.convicted() == noisy.convicted() == frozenset()


@pytest.mark.thorough
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(2, 20))
@settings(max_examples=60)
def test_pairs_across_leaves_are_of_two_leaves(seed, leaves, size):
    nodes, topology = cluster(leaves * size, size)
    faults = Faults(paths=every_path(leaves), false_good=0.05, unclear=0.1)

    played = play(nodes, topology, faults, Rules(), seed)

    across = [one.test.nodes for one in played.results if one.test.layer is Layer.ACROSS]
    assert all(topology.leaf(one) != topology.leaf(two) for one, two in across)


@pytest.mark.parametrize("seed", range(20))
def test_before_anybody_is_proven_pairs_inside_leaves_stay_there(seed):
    """A bad uplink must not show in the first layer: all of round one is cut short, so it is paired anew."""
    nodes, topology = cluster(64, 16)
    seen = [GroupResult(test, GroupOutcome.UNKNOWN) for test in next_round(nodes, topology, [], Rules()).tests]

    step = next_round(nodes, topology, seen, Rules())

    assert all(topology.leaf(one) == topology.leaf(two) for one, two in (test.nodes for test in step.tests))


# What is cut short, what is unsteady.


@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_a_first_round_that_was_cut_short_runs_again_and_its_end_is_as_ever(count):
    nodes, topology = cluster(count, 32)
    seen = [GroupResult(test, GroupOutcome.UNKNOWN, why="preempted or cancelled: it left no completion marker")
            for test in next_round(nodes, topology, [], Rules()).tests]  # fmt: skip
    early = judge_sweep(nodes, topology, seen, Rules())
    rounds = 0
    while (step := next_round(nodes, topology, seen, Rules())) is not None:
        seen += [GroupResult(test, GroupOutcome.GOOD, 360.0) for test in step.tests]
        rounds += 1

    assert rounds > 0
    assert set(judge_sweep(nodes, topology, seen, Rules()).nodes.values()) == {NodeStanding.PASSED}
    (blame,) = early.blames
    assert "launcher" not in blame.message
    assert "preempted" in blame.message


def test_what_is_cut_short_every_time_ends_and_says_why():
    nodes, topology = cluster(16, 16)
    seen = []
    while (step := next_round(nodes, topology, seen, Rules())) is not None:
        seen += [GroupResult(test, GroupOutcome.UNKNOWN, why="preempted") for test in step.tests]
        assert len(seen) < 100
    found = judge_sweep(nodes, topology, seen, Rules())
    assert [blame.message for blame in found.blames] == [
        f"not one of {len(seen)} tests came to a result; most said: preempted"
    ]
    assert set(found.nodes.values()) == {NodeStanding.NOT_TESTED}


def test_a_node_on_which_no_test_begins_is_named_with_the_reason():
    nodes, topology = cluster(8, 8)
    seen = []
    while (step := next_round(nodes, topology, seen, Rules())) is not None:
        seen += [
            GroupResult(test, GroupOutcome.UNKNOWN, why="the tool was ended (status 127)")
            if "n3" in test.nodes else GroupResult(test, GroupOutcome.GOOD) for test in step.tests
        ]  # fmt: skip
    found = judge_sweep(nodes, topology, seen, Rules())
    assert found.nodes["n3"] is NodeStanding.NOT_TESTED
    assert [blame.message for blame in found.blames] == [
        "n3: 4 tests came to no result; most said: the tool was ended (status 127)"
    ]


@pytest.mark.thorough
def test_a_flaky_node_never_passes_without_word_of_its_bad_tests():
    nodes, topology = cluster(16, 16)
    for seed in range(200):
        played = play(nodes, topology, Faults(flaky=frozenset({"n03"})), Rules(), seed)
        bad = [one.test.nodes for one in played.results if one.seen is GroupOutcome.BAD]
        blamed = {node for blame in played.judgement.blames for node in blame.names}
        assert not bad or "n03" in blamed, (seed, bad)
        assert played.convicted() <= {"n03"}
        if len({node for pair in bad for node in pair}) > 2 and "n03" not in played.convicted():
            assert played.judgement.nodes["n03"] is NodeStanding.SUSPECT


fleets = st.builds(cluster, st.integers(2, 90), st.integers(2, 20))


@pytest.mark.thorough
@given(fleets, st.data(), st.integers(0, 10**6))
def test_no_node_stands_in_two_tests_of_a_round_and_every_sweep_ends(fleet, data, seed):
    nodes, topology = fleet
    bad = data.draw(st.sets(st.sampled_from(nodes), max_size=len(nodes) // 3))
    faults = Faults(frozenset(bad), false_bad=0.1, false_good=0.05, unclear=0.1)
    chance = random.Random(seed)
    rules = Rules(rails=("mlx5_0", "mlx5_1"), scale=True)
    seen, rounds = [], 0
    while (step := next_round(nodes, topology, seen, rules)) is not None:
        busy = [node for test in step.tests for node in test.nodes]
        assert len(busy) == len(set(busy))
        assert step.tests
        assert set(busy) <= set(nodes)
        assert len({result.test.name for result in seen} & {test.name for test in step.tests}) == 0
        seen += [run(test, topology, faults, chance) for test in step.tests]
        rounds += 1
        assert rounds <= 4 * len(nodes) + 20


@pytest.mark.thorough
@given(st.integers(0, 10**6), st.integers(24, 200), st.integers(1, 4))
@settings(max_examples=60)
def test_without_chance_the_culprits_are_found_and_nobody_else(seed, count, bad):
    nodes, topology = cluster(count, 16)
    faults = break_some(nodes, topology, bad, 1, 0, seed)

    played = play(nodes, topology, faults, Rules(), seed)

    # Two bad nodes of a leaf so small that they are half of it look like a bad leaf.
    blamed = {blame.names[0] for blame in played.judgement.blames if blame.culprit is Culprit.LEAF}
    assert {node for node in faults.nodes if topology.leaf(node) not in blamed} == set(played.convicted())
    assert names(played.judgement, Culprit.LINK) <= faults.links


@pytest.mark.slow
def test_the_rate_of_innocent_convictions_is_as_the_document_states():
    """One chance failure in a hundred: about 4 innocents in 10,000 nodes with two failures, hardly one with three."""
    innocent = {2: 0, 3: 0}
    for failures in innocent:
        for seed in range(40):
            nodes, topology = cluster(256, 32)
            faults = break_some(nodes, topology, 5, 2, 0, seed)._replace(false_bad=0.01, unclear=0.01)
            played = play(nodes, topology, faults, Rules(failures=failures), seed)
            innocent[failures] += len(played.convicted() - faults.nodes)
            assert faults.nodes <= played.convicted()

    assert innocent[2] <= 10
    assert innocent[3] <= 1


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_both_nodes_of_a_bad_pair_are_never_convicted_on_the_pair_alone(seed):
    chance = random.Random(seed)
    nodes = [f"n{number}" for number in range(chance.randrange(2, 12))]
    results = [
        GroupResult(GroupTest(Layer.LEAF, tuple(sorted(pair))), GroupOutcome.BAD)
        for pair in zip(nodes[::2], nodes[1::2])
    ]

    assert not names(judge_sweep(nodes, Topology(), results, Rules()), Culprit.NODE)


def test_a_killed_sweep_goes_on_from_its_results():
    nodes, topology = cluster(64, 16)
    faults = break_some(nodes, topology, 3, 0, 0, seed=3)
    whole = play(nodes, topology, faults, Rules(), seed=3)
    half = list(whole.results[: whole.rounds[0]])

    step = next_round(nodes, topology, half, Rules())

    assert step is not None
    assert step.tests == tuple(result.test for result in whole.results[whole.rounds[0] :][: whole.rounds[1]])


# Suspects that somebody names before the first test.


def first_tests(played):
    """The number of the round in which each node was first tested, and the nodes proven before each round."""
    rounds, at = [], 0
    for size in played.rounds:
        rounds.append([one for one in played.results[at : at + size] if one.test.layer is Layer.LEAF])
        at += size
    first, proven = {}, [set()]
    for number, tests in enumerate(rounds):
        good = {node for one in tests if one.seen is GroupOutcome.GOOD for node in one.test.nodes}
        proven.append(proven[-1] | good)
        for one in tests:
            for node in one.test.nodes:
                first.setdefault(node, (number, one))
    return first, proven


@pytest.mark.thorough
@given(st.integers(0, 10**6), st.integers(8, 120), st.data())
@settings(max_examples=60)
def test_suspects_meet_proven_partners_in_their_order_and_the_verdict_is_the_same(seed, count, data):
    nodes, topology = cluster(count, 16)
    suspects = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=count // 2 - 1, unique=True))
    bad = data.draw(st.integers(0, min(2, len(suspects))))
    faults = Faults(frozenset(suspects[:bad]))  # what the job's evidence says is true of some, and of others it is not

    played = play(nodes, topology, faults, Rules(), seed, suspects)

    first, proven = first_tests(played)
    for suspect in suspects:
        number, one = first[suspect]
        (partner,) = set(one.test.nodes) - {suspect}
        assert partner in proven[number], f"{suspect} met {partner}, which nothing had proven"
    order = [first[suspect][0] for suspect in suspects]
    assert order == sorted(order)
    plain = play(nodes, topology, faults, Rules(), seed)
    assert played.convicted() == plain.convicted()
    assert played.judgement.nodes == plain.judgement.nodes


@pytest.mark.thorough
@given(fleets, st.data(), st.integers(0, 10**6))
def test_whoever_is_suspect_and_whatever_is_broken_every_node_is_tested_and_the_sweep_ends(fleet, data, seed):
    nodes, topology = fleet
    suspects = data.draw(st.lists(st.sampled_from([*nodes, "elsewhere"]), max_size=len(nodes)))
    bad = data.draw(st.sets(st.sampled_from(nodes), max_size=len(nodes)))
    faults = Faults(frozenset(bad), false_bad=0.1, false_good=0.05, unclear=0.1)
    chance = random.Random(seed)
    seen, rounds = [], 0
    while (step := next_round(nodes, topology, seen, Rules(), suspects)) is not None:
        busy = [node for test in step.tests for node in test.nodes]
        assert len(busy) == len(set(busy)) > 0
        assert len({result.test.name for result in seen} & {test.name for test in step.tests}) == 0
        seen += [run(test, topology, faults, chance) for test in step.tests]
        rounds += 1
        assert rounds <= 4 * len(nodes) + 20
    if any(result.seen is GroupOutcome.GOOD for result in seen):
        assert {node for result in seen for node in result.test.nodes} == set(nodes)


def test_where_no_other_pair_is_good_the_suspects_meet_one_another():
    nodes, topology = cluster(4, 4)
    others = (GroupTest(Layer.LEAF, ("n1", "n2")), GroupOutcome.BAD)

    first = next_round(nodes, topology, [], Rules(), ["n4", "n3"])
    then = next_round(nodes, topology, [GroupResult(*others)], Rules(), ["n4", "n3"])

    assert [test.nodes for test in first.tests] == [("n1", "n2")]
    assert [test.nodes for test in then.tests] == [("n3", "n4")]
