"""Nodes of HyperPod that are added as spares: against AWS on loopback, with the real store and the real decisions."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from nhc.marks.ports.adapter import Effect, Mark, SettingError
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.repairers import Repairers
from nhc.remedy.spares.settings import PoolSettings
from nhc.remedy.spares.swap import round_of
from nhc.store import audit, episodes, spares
from nhc.store.spares import ENTERING, IN_SERVICE, LEAVING
from nhc_adapters.cloud.aws.capacity import HyperPodCapacity
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.adapters.test_slurm_spares import SpareRun
from tests.support.clouds.aws import FakeAws
from tests.support.new_store import new_store
from tests.support.remedy_world import FakeMarker, Node, World, settings_of

ADD, DELETE = "BatchAddClusterNodes", "BatchDeleteClusterNodes"
SPARE = "ml/gpus+n1"


class SpareWorld:
    """A cluster whose node n1 is out, and a pool that adds nodes to its group."""

    def __init__(self, place, fake, **settings):
        self.fake, self.world = fake, World(new_store(str(place)), start=time.time())
        self.store = self.world.plain
        self.site = RemedySite(settings_of(""), self.store, FakeMarker(self.world), Repairers([]))
        fake.clock = datetime.now(timezone.utc)
        for _ in range(3):
            fake.node()
        fake.node("gpus-other")
        self.pool, self.most = PoolSettings("gpu", "hyperpod", ("n*",), after=60.0, most=2), 2
        self.now = time.time()
        self.settings = {"cluster": "ml", "group": "gpus", "group-limit": "5", "endpoint": fake.url, **settings}
        self.row = self.fails("n1")

    def fails(self, node):
        self.world.operator_takes_out(node)
        with self.store.write() as connection:
            return episodes.open_episode(connection, node, "check_x|Bad|", action="reboot", rung="reboot",
                                         state="watching", now=self.now - 600, by="test")[0]  # fmt: skip

    def returns(self, node="n1"):
        self.world.operator_puts_back(node)
        with self.store.write() as connection:
            step = episodes.EpisodeStep("test", "episode.returned")
            self.row = episodes.save_step(connection, self.row, step, now=self.now, state="returned", ended=self.now)

    def swap(self, apply=True):
        """One round by a process that has just started. What was done: step, effect, message."""
        self.now += 30
        keeper = HyperPodCapacity(self.settings, ENVIRON, 5.0)
        (found,) = round_of(self.site, [(self.pool, keeper)], apply=apply, now=self.now, monotonic=lambda: self.now)
        assert not found.problem
        self.found = found
        return [(one.step.action, one.applied.effect, one.applied.message) for one in found.done]

    def waits(self):
        return {one.node: one.why for one in self.found.decision.waits}

    def rows(self):
        with self.store.read() as connection:
            return [(row.node, row.state, row.token) for row in spares.in_use(connection)]

    def whats(self):
        with self.store.read() as connection:
            return [one.what for one in audit.entries(connection, node=SPARE, limit=100)]

    def added(self):
        return [one for one, seen in self.fake.nodes.items() if "Logical" in seen]

    def joins(self, busy=False):
        """The added node runs, and the scheduler knows it. Its name there."""
        self.fake.settle()
        (one,) = self.added()
        node = self.world.nodes[f"hyperpod-{one}"] = Node(f"hyperpod-{one}")
        node.busy = busy
        return node


@pytest.fixture
def fake():
    made = FakeAws()
    yield made
    made.close()
    assert made.wrong == [], "what AWS's own model does not allow"


@pytest.fixture
def there(tmp_path, fake):
    made = SpareWorld(tmp_path, fake)
    yield made
    made.site.close()


@pytest.fixture
def deleting(tmp_path, fake):
    made = SpareWorld(tmp_path, fake, **{"after-repair": "delete"})
    made.swap()
    yield made
    made.site.close()


@pytest.mark.thorough
def test_a_dry_run_says_what_would_be_added_and_adds_nothing(there):
    assert there.swap(apply=False) == []
    assert [(one.action, one.spare, one.stands_for) for one in there.found.decision.steps] == [("swap-in", SPARE, "n1")]
    assert (there.fake.calls, there.rows(), there.whats()) == ([], [], [])


@pytest.mark.thorough
def test_a_node_is_added_watched_and_kept(there):
    assert there.swap()[0][:2] == ("swap-in", Effect.CHANGED)
    (one,) = there.added()
    logical = there.fake.nodes[one]["Logical"]
    assert there.rows() == [(SPARE, ENTERING, logical)]
    assert there.swap()[0][1] is Effect.UNCHANGED
    there.joins()
    assert there.swap()[0][1] is Effect.CHANGED
    assert there.rows() == [(SPARE, IN_SERVICE, logical)]
    assert there.swap() == []
    there.returns()
    ((action, effect, message),) = there.swap()
    assert (action, effect, "is kept" in message, there.rows()) == ("back", Effect.CHANGED, True, [])
    assert (there.fake.calls, there.swap()) == ([ADD], [])
    assert there.whats() == ["spare.entering", "spare.added", "spare.in-service", "spare.leaving", "spare.kept"]


@pytest.mark.thorough
def test_a_lost_answer_is_asked_again_with_the_same_token_and_adds_no_second_node(there):
    there.fake.next_fault = "lost"
    assert there.swap()[0][1] is Effect.FAILED
    assert there.rows() == [(SPARE, ENTERING, "")]
    there.fake.next_fault = "throttled"  # proves nothing of the request before it
    assert there.swap()[0][1] is Effect.FAILED
    assert there.rows() == [(SPARE, ENTERING, "")]
    assert there.swap()[0][1] is Effect.UNCHANGED
    asked = {one["ClientToken"] for one in there.fake.asked if "ClientToken" in one}
    assert (len(asked), len(there.added()), there.fake.calls) == (1, 1, [ADD] * 3)


@pytest.mark.thorough
def test_a_token_that_may_have_ended_is_asked_no_more(there):
    there.fake.next_fault = "lost"
    there.swap()
    (one,) = there.added()
    there.now += 7 * 3600
    ((_, effect, message),) = there.swap()
    assert (effect, there.fake.nodes[one]["Logical"] in message, there.fake.calls) == (Effect.FAILED, True, [ADD])


@pytest.mark.thorough
def test_a_node_that_returns_before_the_answer_ends_it_and_nothing_is_added_or_deleted(there):
    there.fake.next_fault = "lost"
    there.swap()
    there.returns()
    ((_, effect, message),) = there.swap()
    assert (effect, "not known whether" in message, there.rows()) == (Effect.CHANGED, True, [])
    assert (there.fake.calls, there.whats()[-1]) == ([ADD], "spare.lost")


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["throttled", "denied", "InstanceGroupNotFound", "InvalidInstanceGroupStatus"])
def test_a_refusal_leaves_nothing_and_the_next_round_begins_anew(there, how):
    if how == "throttled":
        there.fake.next_fault = how
    elif how == "denied":
        there.fake.denied = True
    else:
        there.fake.batch_error = how
    ((_, effect, _message),) = there.swap()
    assert (effect, there.rows(), there.added(), there.whats()[-1]) == (Effect.FAILED, [], [], "spare.refused")
    there.fake.batch_error, there.fake.denied = "", False
    assert there.swap()[0][1] is Effect.CHANGED
    assert len(there.added()) == 1


def test_an_error_of_the_server_is_no_refusal(there):
    there.fake.next_fault = "error"
    there.swap()
    assert there.rows() == [(SPARE, ENTERING, "")]


@pytest.mark.thorough
def test_the_group_never_grows_above_its_limit_nor_the_pool_above_most(there):
    there.settings["group-limit"] = "3"
    there.fake.page = 1
    assert (there.swap(), there.fake.calls) == ([], [])
    assert "as many nodes as the pool allows" in there.waits()["n1"]
    there.settings["group-limit"] = "4"
    there.fails("n2")
    assert [one[1] for one in there.swap()] == [Effect.CHANGED]
    assert len(there.added()) == 1
    there.settings["group-limit"] = "9"
    there.pool = there.pool._replace(most=1)
    there.swap()
    assert (there.fake.calls, "may be in service" in there.waits()["n2"]) == ([ADD], True)


@pytest.mark.thorough
def test_one_failure_adds_one_node_even_where_its_node_came_back_for_a_moment(there):
    there.swap()
    with there.store.write() as connection:
        step = episodes.EpisodeStep("test", "episode.escalated")
        episodes.save_step(connection, there.row, step, now=there.now, state="escalated", ended=there.now)
    there.world.operator_puts_back("n1")
    assert there.swap()[0][0] == "back"
    there.world.operator_takes_out("n1")
    assert (there.swap(), "already" in there.waits()["n1"], there.fake.calls) == ([], True, [ADD])


@pytest.mark.thorough
def test_a_node_that_does_not_come_up_is_said_and_no_other_is_added(there):
    there.swap()
    (one,) = there.added()
    there.fake.nodes[one].update(Status="Failure", Message="the lifecycle script failed")
    ((_, effect, message),) = there.swap()
    assert (effect, "the lifecycle script failed" in message, there.fake.calls) == (Effect.FAILED, True, [ADD])


@pytest.mark.thorough
def test_a_pool_that_was_changed_while_a_node_comes_is_not_asked_elsewhere(there):
    there.fake.next_fault = "lost"
    there.swap()
    there.settings["group"] = "gpus-other"
    assert there.swap()[0][1] is Effect.FAILED
    assert there.fake.calls == [ADD]


@pytest.mark.thorough
def test_exactly_the_added_node_is_deleted_when_it_is_idle(deleting):
    node = deleting.joins()
    before = set(deleting.fake.nodes)
    deleting.swap()
    deleting.returns()
    assert deleting.swap()[0][1] is Effect.CHANGED
    assert deleting.rows()[0][1] == LEAVING
    assert not node.available, "out of service before it was deleted"
    assert deleting.swap()[0][1] is Effect.UNCHANGED  # it shuts down
    deleting.fake.settle()
    assert before - set(deleting.fake.nodes) == {node.name.removeprefix("hyperpod-")}
    assert deleting.swap()[0][1] is Effect.CHANGED
    assert (deleting.rows(), deleting.whats()[-1], deleting.fake.calls) == ([], "spare.deleted", [ADD, DELETE])


@pytest.mark.thorough
def test_a_host_name_is_the_name_in_slurm(deleting):
    node = deleting.joins()
    (one,) = deleting.added()
    deleting.fake.nodes[one]["Host"] = "ip-10-1-2-3.ec2.internal"
    deleting.world.nodes["ip-10-1-2-3"] = deleting.world.nodes.pop(node.name)
    node.name = "ip-10-1-2-3"
    deleting.returns()
    deleting.swap()
    assert deleting.fake.calls == [ADD, DELETE]


@pytest.mark.thorough
def test_a_busy_node_is_left_and_keeps_its_place(deleting):
    node = deleting.joins(busy=True)
    deleting.returns()
    ((_, effect, message),) = deleting.swap()
    assert (effect, "work still runs" in message, node.available) == (Effect.FAILED, True, True)
    node.busy = False
    deleting.swap()
    assert deleting.fake.calls == [ADD, DELETE]


@pytest.mark.thorough
def test_work_that_starts_at_the_last_moment_stops_the_deletion(deleting):
    node = deleting.joins()
    deleting.returns()

    def starts(what):
        node.busy = node.busy or what == "before marks are set"

    deleting.world.at_boundary = starts
    assert deleting.swap()[0][1] is Effect.FAILED
    assert (deleting.fake.calls, node.available) == ([ADD], True)


@pytest.mark.thorough
@pytest.mark.parametrize("why", ["unknown", "marked by another"])
def test_a_node_of_which_it_is_not_known_that_it_is_free_is_not_deleted(deleting, why):
    node = deleting.joins()
    deleting.returns()
    if why == "unknown":
        node.gone = True
    else:
        node.mark, node.available = Mark("mine", owner="bob"), False
    assert deleting.swap()[0][1] is Effect.FAILED
    assert deleting.fake.calls == [ADD]


@pytest.mark.thorough
def test_a_refused_deletion_returns_the_node_and_a_lost_answer_is_looked_at_first(deleting):
    node = deleting.joins()
    deleting.returns()
    deleting.fake.batch_error = "NodeIdInUse"
    assert deleting.swap()[0][1] is Effect.FAILED
    assert node.available
    deleting.fake.batch_error, deleting.fake.next_fault = "", "lost"
    assert deleting.swap()[0][1] is Effect.FAILED
    assert not node.available
    assert deleting.swap()[0][1] is Effect.UNCHANGED
    assert deleting.fake.calls == [ADD, DELETE, DELETE], "the one that was lost is not sent again"


@pytest.mark.thorough
def test_a_policy_that_became_keep_returns_the_node(deleting):
    node = deleting.joins()
    deleting.returns()
    deleting.fake.next_fault = "error"
    deleting.swap()
    assert not node.available
    deleting.settings["after-repair"] = "keep"
    deleting.swap()
    assert (node.available, deleting.rows(), deleting.whats()[-1]) == (True, [], "spare.kept")


def test_an_endpoint_that_is_away_is_a_problem_of_the_pool(there):
    there.fake.vanish()
    keeper = HyperPodCapacity(there.settings, ENVIRON, 5.0)
    (found,) = round_of(there.site, [(there.pool, keeper)], apply=True, now=there.now)
    assert ("ListClusterNodes" in found.problem, there.rows()) == (True, [])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cluster": ""}, "cluster"), ({"group": "a--"}, "group"), ({"group-limit": "0"}, "group-limit"),
        ({"group-limit": ""}, "group-limit"), ({"after-repair": "drop"}, "after-repair"), ({"grup": "a"}, "group"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(settings, said):
    with pytest.raises(SettingError, match=said):
        HyperPodCapacity({"cluster": "ml", "group": "gpus", "group-limit": "5", **settings}, ENVIRON)


def test_a_node_is_added_by_the_command_for_one_of_a_real_slurm(cluster, tmp_path, fake):
    run = SpareRun(tmp_path, cluster)
    run.cluster = SimpleNamespace(env={**cluster.env, **ENVIRON})
    (tmp_path / "spares.toml").write_text(
        f'[pools.gpu]\ntype = "hyperpod"\ncluster = "ml"\ngroup = "gpus"\ngroup-limit = 1\nfor = "n*"\nafter = "1m"\n'
        f'endpoint = "{fake.url}"\nregion = "us-east-1"\n'
    )
    assert run.ask("spares", "verify").returncode == 0
    assert "1 may be added to ml/gpus of 1 wanted" in run.ask("status", "spares").stdout
    cluster.update("n1", State="DRAIN", Reason="NHC: check_x: broken")
    store = run.store()
    with store.write() as connection:
        episodes.open_episode(connection, "n1", "check_x|Bad|", action="reboot", rung="reboot",
                              state="watching", now=time.time() - 600, by="test")  # fmt: skip
    store.close()
    dry = run.ask("spares", "swap")
    assert (dry.returncode, f"would swap-in  {SPARE}  for n1" in dry.stdout, fake.calls) == (0, True, []), dry
    done = run.ask("spares", "swap", "--apply")
    assert (done.returncode, "is Pending" in done.stdout, fake.calls) == (0, True, [ADD]), done
    fake.settle()
    done = run.ask("spares", "swap", "--apply")
    assert (done.returncode, "is Running" in done.stdout, fake.calls) == (0, True, [ADD]), done
    assert run.rows()[0] == [(SPARE, IN_SERVICE, "n1")]
    wrong = (tmp_path / "spares.toml").read_text().replace("group-limit = 1", 'group-limit = "x"')
    (tmp_path / "spares.toml").write_text(wrong)
    bad = run.ask("spares", "swap")
    assert (bad.returncode, "group-limit" in bad.stderr, "Traceback" in bad.stderr) == (2, True, False), bad
    assert ENVIRON["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr + bad.stderr
