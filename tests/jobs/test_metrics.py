"""The metrics of `nhc serve job`: what the store holds and the last round did, without a name of a job or a node."""

from collections import Counter

import pytest

from nhc.jobs import restart_rounds
from nhc.marks.ports.job_control import LossCause
from nhc.store import job_restarts


def page(world, events):
    done = world.round()
    events.update(event.what for event in done.events)
    return restart_rounds.render_metrics(world.store, done, events).splitlines()


@pytest.mark.thorough
def test_a_restart_is_counted_from_its_hold_to_its_end(world):
    events = Counter()
    body = world.submit("secret-name", wants=3)
    world.rounds(1)
    world.out["n0"] = world.out["n3"] = "DOWN"
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    world.round()
    world.let_pass(15)
    world.round()
    world.let_pass(120)
    lines = page(world, events)
    assert 'nhc_job_restarts_under_way{state="held"} 1' in lines
    assert 'nhc_job_oldest_restart_seconds{state="held"} 120' in lines
    assert "nhc_job_waiting 1" in lines
    world.out.clear()
    for _ in range(4):
        world.schedule()
        events.update(event.what for event in world.round().events)
        world.let_pass(15)
    lines = page(world, events)
    assert 'nhc_job_restarts_day{outcome="restarted"} 1' in lines
    assert 'nhc_job_watched{phase="running"} 1' in lines
    assert 'nhc_job_events_total{what="restarted"} 1' in lines
    assert not [line for line in lines if "secret-name" in line or '"n0"' in line]
    world.let_pass(2 * restart_rounds.DAY)
    assert 'nhc_job_restarts_day{outcome="restarted"} 0' in page(world, events)


def test_a_job_that_is_given_up_is_one_until_it_runs_anew(world):
    events = Counter()
    body = world.submit(wants=1, max_restarts=0)
    world.rounds(1)
    world.out["n0"] = "DOWN"
    world.fail(body, LossCause.NODE, "n0", "its node failed")
    assert 'nhc_job_left{why="limit"} 1' in page(world, events)
    with world.store.read() as connection:
        assert [row.left for row in job_restarts.list_jobs(connection)] == ["limit"]
    body.run += 1
    world.requeue(body)
    world.rounds(2)
    assert 'nhc_job_left{why="limit"} 0' in page(world, events)
