"""On which nodes of an allocation a step runs next."""

from hypothesis import given
from hypothesis import strategies as st

from nhc.jobs.commands.job_step import StepEnds, StepNodes, next_step

ALL = ("n1", "n2", "n3", "n4")


def test_a_failed_node_is_replaced_by_a_spare_and_the_others_stay():
    assert next_step(ALL, 3, (), set(), {}, 0, 2) == StepNodes(("n1", "n2", "n3"))
    found = next_step(ALL, 3, ("n1", "n2", "n3"), {"n2"}, {"n2": "down"}, 0, 2)
    assert found == StepNodes(("n1", "n3", "n4"), "n2: down")


def test_it_ends_at_its_limit_without_enough_nodes_and_on_healthy_ones():
    assert next_step(ALL, 3, ALL[:3], {"n2"}, {}, 2, 2) == StepEnds(
        "2 of 2 restarts are used up (n2: it failed the step before)"
    )
    assert next_step(ALL, 4, ALL, {"n2"}, {}, 0, 2) == StepEnds("it needs 4 healthy nodes, and the allocation has 3")
    assert next_step(ALL, 3, ALL[:3], {"n4"}, {"n4": "down"}, 0, 2) == StepEnds("its nodes are healthy")


@given(st.sets(st.sampled_from(ALL)), st.sets(st.sampled_from(ALL)), st.integers(1, 4), st.integers(0, 4))
def test_no_step_runs_on_a_failed_node_or_above_its_limit(used, failed, wanted, restarts):
    found = next_step(ALL, wanted, tuple(sorted(used)), failed, {}, restarts, 2)
    if isinstance(found, StepNodes):
        assert not set(found.nodes) & failed
        assert len(found.nodes) == wanted
        assert not used or (used & failed and restarts < 2)
