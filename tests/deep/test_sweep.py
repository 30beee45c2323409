"""The sweep's runner against a launcher of this test's own, and what one run's output says."""

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Report, crit, ok
from nhc.core.render.json import render
from nhc.deep.group_output import AskedMeasurement, GroupOutput, held, judged, read
from nhc.deep.group_test import Culprit, GroupOutcome, NodeStanding, Rules
from nhc.deep.simulate import cluster
from nhc.deep.sweep import SUITE, Surroundings, Sweeper, SweepStopped
from nhc.deep.sweep_plan import BadPlan, SweepPlan, key, planned_test, results, write
from nhc.deep.sweep_plan import read as read_plan
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.runner import RunPhase, RunState
from nhc.store import deep
from nhc.store.errors import Conflict, LeadershipLost
from nhc.store.rounds.leader import Leader
from tests.support.deep_samples import output_of_nodes as output
from tests.support.new_store import new_store

ASKED = AskedMeasurement("all_reduce", 8589934592, 1)


# One run.


def test_a_proved_run_gives_its_figure():
    assert read(GroupOutput(0, output(["a", "b"])), ["a", "b"], ASKED).value == 380.0


@pytest.mark.parametrize(
    ("status", "text", "seen", "why"),
    [
        (0, output(["a", "b"], wrong="3"), GroupOutcome.BAD, "3 wrong values"),
        (143, output(["a", "b"]), GroupOutcome.UNKNOWN, "the tool was ended"),
        (143, "", GroupOutcome.UNKNOWN, "the tool was ended"),
        (1, output(["a", "b"]), GroupOutcome.UNKNOWN, "status 1"),
        (0, output(["a", "b"], network="Socket"), GroupOutcome.UNKNOWN, "not by the fabric"),
        (0, output(["a", "b", "c"]), GroupOutcome.UNKNOWN, "3 of 2 ranks"),
        (0, "", GroupOutcome.UNKNOWN, ""),
        (0, output(["a", "b"]).replace("8589934592    2147", "4294967296    2147"), GroupOutcome.UNKNOWN, "no row of"),
    ],
)
def test_what_is_not_proved_is_no_figure(status, text, seen, why):
    found = read(GroupOutput(status, text), ["a", "b"], ASKED)
    assert found.value is None
    assert found.seen is seen
    assert why in found.why


@example(output(["a", "b"]).index(" OK"))
@given(st.integers(min_value=0, max_value=len(output(["a", "b"])) - 30))
def test_output_that_is_cut_off_is_never_a_figure(length):
    found = read(GroupOutput(0, output(["a", "b"])[:length]), ["a", "b"], ASKED)
    assert found.value is None
    assert found.seen is GroupOutcome.UNKNOWN


def test_figures_are_held_against_the_floor_or_their_own_median():
    assert judged([], 300.0, 300.0, 0.8)[0] is GroupOutcome.GOOD
    assert judged([], 299.0, 300.0, 0.8)[0] is GroupOutcome.BAD
    assert judged([380.0, 20.0, 381.0, 379.0], 20.0, 0.0, 0.8)[0] is GroupOutcome.BAD
    assert judged([380.0, 20.0, 381.0, 379.0], 379.0, 0.0, 0.8)[0] is GroupOutcome.GOOD
    assert judged([380.0, 20.0], 20.0, 0.0, 0.8)[0] is GroupOutcome.UNKNOWN


# The runner.


class World:
    """A launcher and a clock: each look ends some tests. It fails a test itself where nodes are used twice at once."""

    def __init__(self, slow=(), seed=1, preempt=0.0, lose=0.0):
        self.slow, self.chance = set(slow), random.Random(seed)
        self.preempt, self.lose = preempt, lose
        self.now = self.ticks = 1000.0
        self.most = 0
        self.standing, self.markers, self.launched = {}, {}, []
        self.taken = set()
        self.numbers = itertools.count(1)
        self.dies_after = -1
        self.finished_sweeps = []
        self.slow_rails = set()
        self.draws = {}
        self.drawn = 0.0
        self.why = ""

    def idle(self, nodes):
        return frozenset(nodes) - self.taken

    def launch(self, sweep, order):
        used = {node for _job, other in self.standing.values() for node in other.nodes}
        assert used.isdisjoint(order.nodes), "a node in two tests at once"
        assert not self.taken.intersection(order.nodes), "a node that is not idle"
        self.launched.append(order.key)
        self.standing[order.key] = (str(next(self.numbers)), order)
        self.most = max(self.most, len(used) + len(order.nodes))
        self.drawn = max(self.drawn, sum(self.draws.get(node, 0.0) for node in (*used, *order.nodes)))
        if self.chance.random() < self.lose:
            raise AdapterError("sbatch did not end within 30 s")
        return self.standing[order.key][0]

    def jobs(self, sweep):
        return {name: job for name, (job, _order) in self.standing.items()}

    def finished(self, sweep, name):
        return self.markers.get(name)

    def failure(self, sweep, name):
        return self.why

    def end(self, handle):
        self.standing = {name: one for name, one in self.standing.items() if one[0] != handle}

    def start(self, run):
        return self.launch(run.group, run)

    def poll(self, runs):
        jobs = self.jobs(runs[0].group)
        return {run.key: self.state(run, jobs) for run in runs}

    def state(self, run, jobs):
        try:
            done = self.finished(run.group, run.key)
        except AdapterError as error:
            return RunState(RunPhase.UNKNOWN, why=str(error))
        if done is not None:
            return RunState(RunPhase.ENDED, *done)
        if run.key in jobs:
            return RunState(RunPhase.RUNNING, name=jobs[run.key])
        return RunState(RunPhase.ABSENT, why=self.failure(run.group, run.key))

    def stop(self, run):
        if run.key in self.standing:
            self.end(self.standing[run.key][0])

    def finish(self, sweep):
        self.finished_sweeps.append(sweep)

    def sleep(self, seconds):
        self.now, self.ticks = self.now + seconds, self.ticks + seconds
        for name, (_job, order) in list(self.standing.items()):
            if self.chance.random() < 0.7:
                del self.standing[name]
                if self.chance.random() >= self.preempt:
                    self.markers[name] = self.prints(order)
        if self.dies_after == 0:
            raise KeyboardInterrupt
        self.dies_after -= 1

    def prints(self, order):
        rail = next((word[13:] for word in order.argv if word.startswith("NCCL_IB_HCA==")), "")
        slow = self.slow.intersection(order.nodes) or any(
            node in order.nodes and rail in ("", adapter) for node, adapter in self.slow_rails
        )
        speed = "20.00" if slow else "128.00" if rail else "380.00"
        return GroupOutput(0, output(order.nodes, speed, rail=rail or "mlx5_0"))


class Case:
    def __init__(self, tmp_path, count=16, leaf=8, **changes):
        self.store = new_store(str(tmp_path), anchor="")
        self.nodes, self.topology = cluster(count, leaf)
        self.plan = SweepPlan(
            "token",
            tuple(self.nodes),
            self.topology,
            changes.pop("rules", Rules()),
            ("tool",),
            ASKED,
            300.0,
            **{"patience": 50.0, **changes},
        )
        with self.store.write() as connection:
            row = deep.begin_sweep(connection, write(self.plan), launcher="test", by="me", now=1000.0)
        self.number = row.id

    def run(self, world, say=lambda line: None):
        leader = Leader(self.store, name="sweep")
        assert leader.attempt()
        try:
            with self.store.read() as connection:
                plan = read_plan(deep.sweep(connection, self.number).plan)
            assert plan == self.plan
            around = Surroundings(1.0, lambda: world.now, world.sleep, say, monotonic=lambda: world.ticks)
            return Sweeper(self.store, self.number, plan, world, leader, around).run()
        finally:
            leader.release()

    def rows(self):
        with self.store.read() as connection:
            return deep.tests_of(connection, self.number)


@pytest.fixture
def case(tmp_path):
    made = Case(tmp_path)
    yield made
    made.store.close()


def failed(found):
    return {node for node, one in found.nodes.items() if one is NodeStanding.FAILED}


@pytest.mark.thorough
def test_the_culprit_is_found_and_kept_with_its_verdict(case):
    world = World(slow=["n03"])
    found = case.run(world)
    assert failed(found) == {"n03"}
    assert world.finished_sweeps == [case.plan.token]
    with case.store.read() as connection:
        assert deep.sweep(connection, case.number).state == "done"
        last = {one.node: one.verdict for one in deep.last_verdicts(connection) if one.suite == SUITE}
    assert last == {**dict.fromkeys(case.nodes, "OK"), "n03": "CRIT"}


@pytest.mark.thorough
def test_an_output_that_cannot_be_read_holds_up_no_other_test_and_its_own_for_a_while(case):
    world = World(slow=["n03"])
    plain = world.finished

    def finished(sweep, name):
        found = plain(sweep, name)
        if found is not None and name == world.launched[0]:
            raise AdapterError("/shared/output: Permission denied")
        assert world.now < 1000 + 2 * case.plan.patience, "the sweep waits for ever"
        return found

    world.finished = finished
    assert failed(case.run(world)) == {"n03"}
    lost = [row for row in case.rows() if row.state == "unknown"]
    assert [row.why for row in lost] == ["what became of it cannot be read: /shared/output: Permission denied"]


@pytest.mark.thorough
def test_why_a_test_left_no_marker_is_kept_with_it_where_the_launcher_knows(case):
    world = World(preempt=1.0)
    world.why = "n03: process 17 (train) is work"
    case.run(world)
    assert {row.why for row in case.rows()} == {"n03: process 17 (train) is work: it left no completion marker"}


@pytest.mark.thorough
def test_a_first_round_that_real_work_took_whole_is_run_again(case):
    world = World(slow=["n03"], preempt=1.0)
    begin = world.launch

    def launch(sweep, order):
        world.preempt = 1.0 if len(world.launched) < 8 else 0.0
        return begin(sweep, order)

    world.launch = launch
    found = case.run(world)

    assert [row.state for row in case.rows() if row.turn == 1] == ["unknown"] * 8
    assert failed(found) == {"n03"}
    assert sum(one is NodeStanding.PASSED for one in found.nodes.values()) == 15


@pytest.mark.thorough
def test_a_sweep_killed_at_any_look_goes_on_and_runs_no_test_twice(tmp_path):
    for looks in range(4):
        (tmp_path / str(looks)).mkdir()
        case, world = Case(tmp_path / str(looks)), World(slow=["n03"], lose=0.3, seed=looks)
        world.dies_after = looks
        try:
            case.run(world)
        except KeyboardInterrupt:
            world.dies_after = -1
            assert failed(case.run(world)) == {"n03"}
        assert len(world.launched) == len(set(world.launched)) == len(case.rows())
        case.store.close()


@pytest.mark.thorough
@settings(max_examples=5, deadline=None)
@given(st.integers(min_value=0, max_value=10_000))
def test_preempted_tests_convict_nobody(tmp_path_factory, seed):
    case = Case(tmp_path_factory.mktemp("sweep"))
    found = case.run(World(slow=["n05"], preempt=0.3, lose=0.1, seed=seed))
    assert failed(found) <= {"n05"}
    for row in case.rows():
        assert row.state in ("good", "bad", "unknown")
        assert row.state != "unknown" or row.why.startswith("preempted")
    case.store.close()


@pytest.mark.thorough
def test_a_bounded_share_is_under_test_at_once(tmp_path):
    case, world = Case(tmp_path, most=0.25), World(slow=["n03"])
    assert failed(case.run(world)) == {"n03"}
    assert world.most <= 4
    case.store.close()


@pytest.mark.thorough
def test_no_more_power_is_drawn_at_once_than_is_allowed(tmp_path):
    nodes = cluster(16, 8)[0]
    watts = {node: 10_000.0 if number % 2 else 4_000.0 for number, node in enumerate(nodes)}
    case, world = Case(tmp_path, watts=tuple(sorted(watts.items())), power=30_000.0), World(slow=["n03"])
    world.draws = watts
    assert failed(case.run(world)) == {"n03"}
    assert 28_000 <= world.drawn <= 30_000
    case.store.close()


@pytest.mark.thorough
def test_a_test_that_draws_too_much_alone_is_run_by_itself(tmp_path):
    case, world = Case(tmp_path, watts=tuple((node, 9e9) for node in cluster(16, 8)[0]), power=1.0), World()
    assert set(case.run(world).nodes.values()) == {NodeStanding.PASSED}
    assert world.most == 2
    case.store.close()


RAILS = Rules(rails=("mlx5_0", "mlx5_1", "mlx5_2"))


@pytest.mark.thorough
def test_the_rail_of_a_bad_node_is_named_by_runs_that_are_held_to_it(tmp_path):
    case, world = Case(tmp_path, rules=RAILS), World()
    world.slow_rails = {("n03", "mlx5_1")}
    found = case.run(world)
    assert failed(found) == {"n03"}
    assert [blame.message.partition("; ")[2] for blame in found.blames] == ["bad on rail mlx5_1 alone"]
    rails = [row for row in case.rows() if row.layer == "rails"]
    assert sorted(row.rails for row in rails) == list(RAILS.rails)
    bad = next(row for row in rails if row.state == "bad")
    assert (bad.rails, bad.value, bad.why) == ("mlx5_1", 20.0, "20 GB/s, at least 100 expected")
    case.store.close()


@pytest.mark.thorough
def test_a_rail_of_a_leaf_is_told_from_the_leaf(tmp_path):
    for rails, culprit, names in ((["mlx5_1"], "rail", ("leaf1", "mlx5_1")), (RAILS.rails, "leaf", ("leaf1",))):
        place = tmp_path / culprit
        place.mkdir()
        case, world = Case(place, count=24, leaf=6, rules=RAILS, rail_floor=40.0), World()
        world.slow_rails = {(f"n{number:02}", rail) for number in range(1, 6) for rail in rails}
        found = case.run(world)
        assert [(blame.culprit.value, blame.names) for blame in found.blames] == [(culprit, names)]
        assert failed(found) == set()
        case.store.close()


def test_a_run_that_left_its_rail_says_nothing():
    strayed = read(GroupOutput(0, output(["a", "b"], rail="mlx5_4")), ["a", "b"], ASKED, "mlx5_3")
    assert strayed.value is None
    assert strayed.why == "the data travelled by mlx5_4, not by rail mlx5_3 alone"
    both = output(["a", "b"], rail="mlx5_3:1/RoCE [1]mlx5_4")
    assert read(GroupOutput(0, both), ["a", "b"], ASKED, "mlx5_3").value is None
    assert read(GroupOutput(0, output(["a", "b"], rail="mlx5_3")), ["a", "b"], ASKED, "mlx5_3").value == 380.0


@pytest.mark.parametrize(("argv", "way", "wanted"), [
    (("env", "NCCL_DEBUG=INFO", "all_reduce_perf", "-b", "8G"), "hca",
     "env NCCL_DEBUG=INFO NCCL_IB_HCA==mlx5_3 UCX_NET_DEVICES=mlx5_3:1 NCCL_CROSS_NIC=0 all_reduce_perf -b 8G"),
    (("ucx_perftest", "-t", "x"), "hca",
     "env NCCL_IB_HCA==mlx5_3 UCX_NET_DEVICES=mlx5_3:1 NCCL_CROSS_NIC=0 ucx_perftest -t x"),
    (("tool",), "interface", ("env NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME==mlx5_3 UCX_NET_DEVICES=mlx5_3"
                              " OMPI_MCA_btl_tcp_if_include=mlx5_3 tool")),
])  # fmt: skip
def test_a_command_is_held_to_a_rail_by_the_variables_that_its_tool_reads(argv, way, wanted):
    assert " ".join(held(argv, "mlx5_3", way)) == wanted
    assert held(argv, "", way) == argv


@pytest.mark.thorough
def test_a_sweep_that_is_asked_to_stop_ends_its_tests_and_keeps_what_is_certain(case):
    world = World(slow=["n03"])
    sleep = world.sleep

    def asked(seconds):
        sleep(seconds)
        if any(row.state == "bad" for row in case.rows()):
            with case.store.write() as connection:
                deep.ask_to_stop(connection, case.number, "stopped by ada", world.now)
                deep.ask_to_stop(connection, case.number, "stopped by bob", world.now)

    world.sleep = asked
    with pytest.raises(SweepStopped, match="stopped by ada"):
        case.run(world)
    assert world.standing == {}
    with case.store.read() as connection:
        row = deep.sweep(connection, case.number)
        last = deep.last_verdicts(connection)
    assert (row.state, row.message) == ("stopped", "stopped by ada")
    good = {node for one in case.rows() if one.state == "good" for node in one.nodes.split()}
    suspects = {node for one in case.rows() if one.state == "bad" for node in one.nodes.split()}
    assert "n03" in suspects - good
    assert {one.node for one in last} == good
    with pytest.raises(Conflict, match="is stopped"), case.store.write() as connection:
        deep.ask_to_stop(connection, case.number, "again", 1.0)


@pytest.mark.thorough
def test_a_node_with_work_is_left_alone_and_not_tested(case):
    world = World()
    world.taken = {"n03"}
    found = case.run(world)
    assert found.nodes["n03"] is NodeStanding.NOT_TESTED
    assert {one for node, one in found.nodes.items() if node != "n03"} == {NodeStanding.PASSED}
    with case.store.read() as connection:
        assert deep.last_verdicts(connection, "n03") == []
    assert any("not idle within 50 s: n03" in row.why for row in case.rows())


class TakenTwice(World):
    """Work runs on n3 for a second at the beginning, and again when the first test ends."""

    def idle(self, nodes):
        return frozenset(nodes) - ({"n3"} if self.now in (1000.0, 1008.0) else set())

    def sleep(self, seconds):
        if self.now < 1007.0:
            self.now, self.ticks = self.now + seconds, self.ticks + seconds
        else:
            super().sleep(seconds)


def test_a_node_that_was_idle_in_between_is_waited_for_anew(tmp_path):
    """Its test waited for its turn all that time: the patience is for its nodes alone."""
    case = Case(tmp_path, count=4, leaf=4, most=0.5, patience=5.0)
    assert set(case.run(TakenTwice()).nodes.values()) == {NodeStanding.PASSED}
    assert [row.why for row in case.rows() if "not idle" in row.why] == []
    case.store.close()


@pytest.mark.thorough
def test_why_a_node_is_waited_for_is_said_at_once(case):
    """A host key that differs would be silent until the patience is over."""
    world = World()
    world.taken = {"n05"}
    world.why_busy = lambda node: "host key of n05 has changed" if node == "n05" else ""
    lines = []
    case.run(world, say=lines.append)
    told = [line for line in lines if "host key" in line]
    assert told[0] == "n05 is waited for: host key of n05 has changed"
    assert len([line for line in told if "is waited for" in line]) == 1
    assert any("not idle within 50 s: n05: host key of n05 has changed" in row.why for row in case.rows())


def test_a_second_runner_is_refused(case):
    first = Leader(case.store, name="sweep")
    assert first.attempt()
    second = Sweeper(case.store, case.number, case.plan, World(), Leader(case.store, name="sweep"), Surroundings())
    with pytest.raises(LeadershipLost, match="another runs a sweep"):
        second.run()
    first.release()


def test_one_that_was_paused_while_it_launched_writes_nothing(case):
    """As by SIGSTOP: another may lead by now, so what it writes may not go through without its number."""
    now, world = [0.0], World()
    leader = Leader(case.store, name="sweep", monotonic=lambda: now[0])
    assert leader.attempt()
    launch = world.launch

    def paused(token, order):
        now[0] += 60.0
        return launch(token, order)

    world.launch = paused
    around = Surroundings(1.0, lambda: world.now, world.sleep, lambda line: None, monotonic=lambda: world.ticks)
    with pytest.raises(LeadershipLost, match="not sure any more"):
        Sweeper(case.store, case.number, case.plan, world, leader, around).run()
    assert all(row.handle is None or not row.handle for row in case.rows())
    leader.release()


@pytest.mark.thorough
def test_rows_and_keys_are_those_of_the_tests(case):
    case.run(World())
    rows = case.rows()
    assert [result.test for result in results(rows)] == [planned_test(row) for row in rows]
    assert len({key(planned_test(row)) for row in rows}) == len(rows)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"nodes": 3}', "null"])
def test_a_plan_that_makes_no_sense_is_refused_in_one_line(text):
    with pytest.raises(BadPlan, match="the sweep's plan cannot be read"):
        read_plan(text)


@pytest.mark.thorough
def test_a_clock_that_is_set_gives_no_running_test_up(case):
    world = World(slow=["n03"])
    plain, steps = world.finished, [86400.0, -86400.0]

    def finished(sweep, name):
        if steps and world.launched:
            world.now += steps.pop()
        return plain(sweep, name)

    world.finished = finished
    assert failed(case.run(world)) == {"n03"}
    assert [row for row in case.rows() if row.state == "unknown"] == []


# A suite, each node alone.


class Suites(World):
    """What `nhc deep run SUITE -f jsonl` prints on each node: of `slow` a failure."""

    def prints(self, order):
        (node,) = order.nodes
        assert order.argv == ("nhc", "deep", "run", "quick", "-n", node)
        if node == "n05":
            return GroupOutput(3, "nhc deep run: began\nno GPU can be asked")
        seen = crit("GpuSlow", "half as fast") if node in self.slow else ok("fast")
        host = "n99" if node == "n04" else node
        results = (CheckResult("check_gpu_proof", seen),)
        report = Report(host, "b", self.now, 1.0, results, labels={"suite": "quick"})
        return GroupOutput(int(node in self.slow), f"progress\n{render(report, 0)}")


def test_a_suite_judges_each_idle_node_by_its_own_report(tmp_path):
    case = Case(tmp_path, suite="quick", most=0.25)
    case.plan = case.plan._replace(argv=("nhc", "deep", "run", "quick", "-n", "{node}"))
    with case.store.write() as connection:
        case.number = deep.begin_sweep(connection, write(case.plan), launcher="t", by="me", now=1000.0).id
    world = Suites(slow=["n03"])
    world.taken = {"n07"}  # work runs there
    found = case.run(world)
    assert world.most == 4, "a quarter of sixteen nodes"
    assert {node for node, one in found.nodes.items() if one is NodeStanding.NOT_TESTED} == {"n04", "n05", "n07"}
    assert [(blame.culprit, blame.names) for blame in found.blames] == [(Culprit.NODE, ("n03",))]
    why = {row.nodes: row.why for row in case.rows()}
    assert "GpuSlow" in why["n03"] or "half as fast" in why["n03"]
    assert "not of quick of n04" in why["n04"]
    assert "printed no report" in why["n05"]
    with case.store.read() as connection:
        last = {node: one.verdict for (node, _suite), one in deep.last_conclusive(connection, None, ["quick"]).items()}
    assert last == {**dict.fromkeys(set(case.nodes) - {"n03", "n04", "n05", "n07"}, "OK"), "n03": "CRIT"}
    case.store.close()
