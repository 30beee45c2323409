"""Properties of the restarting of jobs, whatever happens: kills at every boundary, lost answers, failures of any kind.

A run is restarted at most once, a job never more often than agreed, a failure on healthy nodes never, and no job that
nhc has held is forgotten.
"""

import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nhc.core.system.steady_time import SteadyTime
from nhc.jobs.failure_cause import EvidenceRules, JobNodeFault, JobRun, RunFinding, judge
from nhc.marks.ports.job_control import JobLoss, JobName, JobView, LossCause, Phase
from nhc.store import job_restarts
from tests.support.job_world import World
from tests.support.new_store import new_store

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
CAUSES = st.sampled_from(list(LossCause))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), CAUSES), st.tuples(st.just("final"), CAUSES),
        st.tuples(st.sampled_from(["down", "up", "report", "requeue", "round", "round", "wait"]), st.just(None)),
        st.tuples(st.just("lose"), st.sampled_from(["before", "after", "refused"])),
        st.tuples(st.just("kill"), st.integers(1, 12)),
    ),
    min_size=4, max_size=25,
)  # fmt: skip


def play(world, events):
    """Carry out events, with what a job has no reason to be restarted for counted."""
    body = world.submit(wants=1, max_restarts=2)
    world.rounds(1)
    for what, how in events:
        node = body.nodes[0] if body.nodes else "n0"
        if what in ("fail", "final") and body.phase is Phase.RUNNING:
            world.fail(body, how, node, "ended", final=what == "final")
        elif what == "down":
            world.out[node] = "DOWN"
        elif what == "up":
            world.out.clear()
        elif what == "report":
            world.report(node)
        elif what == "requeue" and body.phase is Phase.RUNNING:
            world.requeue(body)
        elif what == "lose":
            world.lose.append(how)
        elif what == "kill":
            world.kill_at = world.boundaries + how
        elif what == "wait":
            world.let_pass(300.0)
        world.rounds(1)
    world.kill_at, world.lose = -1, []
    return body


@pytest.mark.thorough
@SLOW
@given(EVENTS)
def test_whatever_happens_a_run_is_restarted_once_and_a_job_never_above_its_limit(events):
    with tempfile.TemporaryDirectory() as directory:
        store = new_store(directory, anchor="")
        world = World(store, count=6)
        body = play(world, events)
        held = [act.run for act in world.acts if act.what == "hold"]
        assert len(held) == len(set(held))
        assert len(held) <= 2
        with store.read() as connection:
            rows = [
                one
                for row in job_restarts.list_jobs(connection, is_open=None)
                for one in job_restarts.restarts(connection, row.id)
            ]
        assert len(rows) <= 2
        assert len({one.run for one in rows}) == len(rows)
        world.out.clear()
        world.rounds(30)
        assert not body.held, "held by us, and forgotten"
        assert not body.gone, "taken away, and not made anew"
        store.close()


@pytest.mark.thorough
@SLOW
@given(st.lists(st.one_of(
    st.tuples(st.sampled_from(["fail", "final"]), st.sampled_from([LossCause.EXIT, LossCause.LIMIT])),
    st.tuples(st.sampled_from(["round", "wait"]), st.just(None)), st.tuples(st.just("kill"), st.integers(1, 12)),
), min_size=2, max_size=15))  # fmt: skip
def test_an_application_failure_on_healthy_nodes_is_never_retried(events):
    with tempfile.TemporaryDirectory() as directory:
        store = new_store(directory, anchor="")
        world = World(store)
        play(world, events)
        world.rounds(10)
        assert world.acts == []
        store.close()


NODES = ("n0", "n1", "n2")
TIMES = st.integers(0, 2000).map(float)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.builds(JobLoss, st.sampled_from(NODES), CAUSES, st.just("x"), TIMES), max_size=4),
    st.lists(st.builds(JobNodeFault, st.sampled_from((*NODES, "n9")), st.just("gone"), TIMES,
                       st.one_of(st.none(), TIMES)), max_size=4),
    st.sampled_from(list(Phase)), st.booleans(), TIMES,
)  # fmt: skip
def test_the_infrastructure_is_blamed_only_for_a_fault_or_a_loss_that_is_its_own(losses, faults, phase, changed, now):
    rules = EvidenceRules(180.0, 120.0, None)
    job = JobView(JobName("batch", "", "1"), "1", phase, NODES[:2], started=0.0, ended=now, losses=tuple(losses))
    before = JobRun("0" if changed else "1", NODES[:2], True)
    found = judge(job, before, faults, SteadyTime(now), rules)
    if found.finding is RunFinding.INFRASTRUCTURE:
        own = [loss for loss in losses if loss.cause in (LossCause.NODE, LossCause.EVICTED)]
        named = {*NODES[:2], *(loss.node for loss in losses)}
        assert own or any(fault.node in named for fault in faults)
        assert set(found.nodes) <= named
        assert phase is not Phase.CANCELLED
        assert phase is not Phase.SUCCEEDED
    if phase in (Phase.SUCCEEDED, Phase.CANCELLED):
        assert found.finding is RunFinding.NONE
