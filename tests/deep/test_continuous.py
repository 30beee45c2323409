"""Sweeps one after another: who is next, windows, and what is gone on with."""

import random
import time

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from nhc.deep.continuous import LEAST, Endless, chosen, run, window
from nhc.deep.group_test import Rules
from nhc.deep.simulate import cluster
from nhc.deep.sweep import SUITE, Surroundings, SweepStopped
from nhc.deep.sweep_plan import SweepPlan
from nhc.marks.policy.deep_due import LastVerdict
from nhc.marks.ports.adapter import AdapterError
from nhc.store import deep
from nhc.store.deep import DeepResult
from nhc.store.rounds.leader import Leader
from nhc.store.schema import sweeps
from tests.deep.test_sweep import ASKED, World
from tests.support.new_store import new_store

DAY = 86400.0
NOW = 1000 * DAY
NODES = [f"n{number:02}" for number in range(1, 21)]


def told(**days):
    return {(node, SUITE): LastVerdict(node, SUITE, "OK", NOW - age * DAY) for node, age in days.items()}


def pick(idle, seen, tried=None, *, most=4, fresh=7 * DAY):
    return chosen(NODES, idle, seen, tried or {}, fresh=fresh, most=most, now=NOW)


def test_the_oldest_idle_nodes_come_first_and_no_more_than_may():
    seen = told(**dict.fromkeys(NODES[:10], 10), n11=30, n12=20, n13=25, n14=8)
    assert pick(NODES, seen) == ("n15", "n16", "n17", "n18")  # never tested
    seen.update(told(**dict.fromkeys(NODES[14:], 1)))
    assert pick(NODES, seen) == ("n01", "n11", "n12", "n13")
    assert pick(["n02", "n11", "n14", "n03", "n04"], seen) == ("n02", "n03", "n04", "n11")


def test_nobody_is_tested_while_nobody_is_due_and_others_help_out_where_few_are():
    seen = told(**dict.fromkeys(NODES, 1))
    assert pick(NODES, seen) == ()
    seen.update(told(n07=9))
    some = pick(NODES, seen)
    assert len(some) == LEAST
    assert "n07" in some
    assert pick(["n07"], seen) == ()  # nobody to test it with
    assert pick(NODES, seen, {"n07": NOW - 60}) == ()


@given(
    st.sets(st.sampled_from(NODES)),
    st.dictionaries(st.sampled_from(NODES), st.integers(0, 480).map(lambda n: n / 8)),
    st.integers(1, 30),
)
def test_only_idle_nodes_are_chosen_in_bounds_and_whoever_is_left_out_is_no_older(idle, ages, most):
    seen = told(**ages)
    some = pick(idle, seen, most=most)
    assert set(some) <= idle
    assert len(some) in (0, *range(2, max(LEAST, most) + 1))
    if some:
        assert any(ages.get(node, 99) >= 7 for node in some)
        left = [ages.get(node, 99) for node in idle - set(some)]
        assert max(left, default=0) <= min(ages.get(node, 99) for node in some)


def local(text):
    return time.mktime(time.strptime(f"2026-03-02 {text}", "%Y-%m-%d %H:%M:%S"))


@pytest.mark.parametrize(("at", "left"), [
    ("21:59:59", 0), ("22:00:00", 8 * 3600), ("23:30:10", 6.5 * 3600 - 10), ("00:00:00", 6 * 3600), ("05:59:00", 60),
    ("06:00:00", 0),
])  # fmt: skip
def test_a_window_over_midnight(at, left):
    now = local(at)
    assert window("22:00-06:00", now).closes(now) - now == left


def test_windows_as_they_are_written():
    assert window("4h", 1000.0).closes(1000.0) == 1000.0 + 4 * 3600
    assert window("", 1000.0).closes(1000.0) == float("inf")
    for text in ("22:00", "25:00-06:00", "6:00-6:00", "later"):
        with pytest.raises(ValueError, match=r"neither HH:MM-HH:MM|begins when it ends"):
            window(text, 0.0)


class Site:
    def __init__(self, tmp_path, count=12, **changes):
        self.store = new_store(str(tmp_path), anchor="")
        self.nodes, topology = cluster(count, count)
        self.plan = SweepPlan("token", tuple(self.nodes), topology, Rules(), ("tool",), ASKED, 300.0, patience=20.0,
                              most=0.34, **changes)  # fmt: skip
        self.passed = []

    def run(self, world, text="", forever=False, **changes):
        wanted = Endless(self.plan, "test", "me", 7 * DAY, window(text, world.now), forever, **changes)
        leader = Leader(self.store, name="sweep")
        assert leader.attempt()
        try:
            around = Surroundings(1.0, lambda: world.now, world.sleep, monotonic=lambda: world.ticks)
            run(wanted, self.store, world, leader, around, lambda number, found: self.passed.append((number, found)))
        finally:
            leader.release()

    def verdicts(self):
        with self.store.read() as connection:
            return {node: one.verdict for (node, _suite), one in deep.last_conclusive(connection).items()}


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.store.close()


def world_of(**more):
    world = World(**more)
    world.now = NOW
    return world


@pytest.mark.thorough
def test_one_run_tests_each_node_once_a_share_at_a_time(site):
    world = world_of(slow=["n05"])
    site.run(world)
    assert site.verdicts() == {**dict.fromkeys(site.nodes, "OK"), "n05": "CRIT"}
    assert world.most <= 4
    assert [len(found.nodes) for _number, found in site.passed] == [4, 4, 4]


@pytest.mark.thorough
def test_nodes_with_work_are_left_out_and_tested_in_the_next_run(site):
    world = world_of()
    world.taken = {"n01", "n02"}
    site.run(world)
    assert set(site.nodes) - set(site.verdicts()) == {"n01", "n02"}
    world.taken = set()
    site.run(world)
    assert set(site.verdicts()) == set(site.nodes)


@pytest.mark.thorough
def test_when_the_window_closes_what_runs_is_ended_and_the_rest_waits(site):
    world = world_of()
    sleeps = world.sleep
    world.sleep = lambda seconds: sleeps(700.0)  # three looks are more than half an hour
    site.run(world, "30m")
    assert world.standing == {}
    assert world.now < NOW + 1801 + 700
    with site.store.read() as connection:
        assert {row.state for row in deep.newest_sweeps(connection)} <= {"done", "stopped"}
    assert len(site.verdicts()) < len(site.nodes)
    world.sleep = sleeps
    site.run(world)
    assert set(site.verdicts()) == set(site.nodes)


@pytest.mark.thorough
def test_a_pass_that_was_killed_is_gone_on_with_first(site):
    world = world_of()
    world.dies_after = 0
    with pytest.raises(KeyboardInterrupt):
        site.run(world)
    world.dies_after = -1
    site.run(world)
    assert [number for number, _found in site.passed] == [1, 2, 3]
    assert len(world.launched) == len(set(world.launched))


@pytest.mark.thorough
def test_a_pass_of_another_launcher_is_left_to_it(site):
    world = world_of()
    world.dies_after = 0
    with pytest.raises(KeyboardInterrupt):
        site.run(world)
    with site.store.write() as connection:
        connection.execute(sa.update(sweeps).values(launcher="slurm"))
    site.run(world_of())
    assert 1 not in [number for number, _found in site.passed]
    with site.store.read() as connection:
        assert deep.sweep(connection, 1).state == "open"


class Ended(Exception):
    """The test has seen enough of a command that runs for ever."""


def test_what_a_killed_pass_left_running_is_ended_outside_of_the_window(site):
    """Real work wants the nodes then, and nobody else ends these tests."""
    local = time.localtime(NOW)
    text = f"{local.tm_hour:02}:{local.tm_min:02}-{(local.tm_hour + 1) % 24:02}:{local.tm_min:02}"
    world = world_of()
    world.dies_after = 0
    with pytest.raises(KeyboardInterrupt):
        site.run(world, text, forever=True)
    assert world.standing

    def asleep(seconds):
        raise Ended

    world.now, world.sleep = NOW + 5 * 3600, asleep
    with pytest.raises(Ended):
        site.run(world, text, forever=True)
    assert world.standing == {}
    with site.store.read() as connection:
        assert {row.state for row in deep.newest_sweeps(connection)} == {"stopped"}


@pytest.mark.thorough
def test_a_launcher_that_is_away_as_the_window_closes_is_asked_again(site):
    local = time.localtime(NOW)
    text = f"{local.tm_hour:02}:{local.tm_min:02}-{(local.tm_hour + 1) % 24:02}:{local.tm_min:02}"
    world, said = world_of(), []
    sleeps, jobs = world.sleep, world.jobs

    def slow(seconds):
        if world.now > NOW + 6 * 3600:
            raise Ended
        sleeps(seconds if world.now > NOW + 3600 else 1300.0)

    def away(sweep):
        if NOW + 3600 <= world.now < NOW + 2 * 3600:
            said.append(world.now)
            raise AdapterError("squeue did not end within 30 s")
        return jobs(sweep)

    world.sleep, world.jobs, world.chance = slow, away, random.Random(3)
    with pytest.raises(Ended):
        site.run(world, text, forever=True, pause=300.0)
    assert len(said) > 5, "it was not away while the window closed"
    assert world.standing == {}
    with site.store.read() as connection:
        assert {row.state for row in deep.newest_sweeps(connection)} <= {"done", "stopped"}


@pytest.mark.thorough
def test_for_ever_means_that_who_grows_old_is_tested_again(site):
    world, looks = world_of(), []
    sleeps = world.sleep

    def sleep(seconds):
        looks.append(seconds)
        sleeps(seconds if seconds < 60 else 2 * DAY)
        if world.now > NOW + 20 * DAY:
            raise KeyboardInterrupt

    world.sleep = sleep
    with pytest.raises(KeyboardInterrupt):
        site.run(world, forever=True)
    with site.store.read() as connection:
        assert {len(deep.history(connection, node)) for node in site.nodes} == {3}


@pytest.mark.thorough
def test_a_pass_that_somebody_stops_ends_all(site):
    world = world_of()
    sleeps = world.sleep

    def sleep(seconds):
        sleeps(seconds)
        with site.store.write() as connection:
            if deep.newest_sweeps(connection, state=deep.OPEN):
                deep.ask_to_stop(connection, 1, "stopped by ada", world.now)

    world.sleep = sleep
    with pytest.raises(SweepStopped, match="stopped by ada"):
        site.run(world, forever=True)


@pytest.mark.thorough
def test_who_cannot_be_told_does_not_keep_the_others_waiting(site):
    with site.store.write() as connection:
        deep.add(connection, [DeepResult(node, SUITE, "group", "", None, "", "OK", "", NOW - 10 * DAY)
                              for node in site.nodes[4:]])  # fmt: skip
    world = world_of(lose=1.0, preempt=1.0)  # no test ever tells anything
    site.run(world)
    assert {node for _number, found in site.passed for node in found.nodes} == set(site.nodes)
