"""Every scheduler adapter keeps the contract: against fake commands, and Slurm against a real cluster."""

from __future__ import annotations

import threading
import time

import pytest

from nhc.core.model import Report
from nhc.core.system.process import Completed
from nhc.lab.testing.adapters import AdapterContract, AdapterWorld
from nhc.marks.ports.adapter import OWNER_SETTING, WORK_SETTING, AdapterError
from nhc.store.intake import Incoming
from nhc.store.node_source import StoreNodes
from nhc.store.nodes import set_marks
from nhc.store.reports import receive
from nhc_adapters.flux import Flux
from nhc_adapters.lsf import Lsf
from nhc_adapters.pbs import Pbs, Torque
from nhc_adapters.sge import GridEngine
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.rest import SlurmRest
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.schedulers import FakeFlux, FakeGridEngine, FakeLsf, FakePbs, FakeTorque
from tests.support.slurmrest import FakeSlurmRest
from tests.support.waiting import until

NODES = ["n1", "n2", "n3"]


class FakeWorld(AdapterWorld):
    """An adapter in front of a fake of its scheduler; `out` and `back` are what an operator types."""

    nodes = NODES

    def __init__(self, adapter, fake, out, back):
        self.kind, self.fake, self.out, self.back = adapter, fake(NODES), out, back
        self.adapter = adapter({}, {}, run=self.fake)

    def by_hand(self, commands, node, reason=""):
        for argv in commands:
            done = self.fake([word.format(node=node, reason=reason) for word in argv], 1.0, {})
            assert done.status == 0, done

    def operator_takes_out(self, node, reason):
        self.by_hand(self.out, node, reason)

    def operator_puts_back(self, node):
        self.by_hand(self.back, node)

    def broken(self):
        self.fake.down = True
        return self.kind({}, {}, run=self.fake)

    def acting_for(self, owner):
        return self.kind({OWNER_SETTING: owner}, {}, run=self.fake)


class GridEngineWorld(FakeWorld):
    """An operator of Grid Engine has nowhere to leave a reason but the host's own complex."""

    def operator_takes_out(self, node, reason):
        from urllib.parse import quote

        super().operator_takes_out(node, quote(reason, safe="") + "/all.q%2Cgpu.q")


WORLDS = {
    "pbs": lambda: FakeWorld(
        Pbs, FakePbs, [["pbsnodes", "-C", "{reason}", "-o", "{node}"]], [["pbsnodes", "-C", "", "-r", "{node}"]]
    ),
    "torque": lambda: FakeWorld(
        Torque, FakeTorque, [["pbsnodes", "-o", "-N", "{reason}", "{node}"]], [["pbsnodes", "-c", "-N", "n", "{node}"]]
    ),
    "lsf": lambda: FakeWorld(
        Lsf, FakeLsf, [["badmin", "hclose", "-C", "{reason}", "{node}"]], [["badmin", "hopen", "{node}"]]
    ),
    "sge": lambda: GridEngineWorld(
        GridEngine,
        FakeGridEngine,
        [
            ["qmod", "-d", "all.q@{node}", "gpu.q@{node}"],
            ["qconf", "-mattr", "exechost", "complex_values", "nhc_mark={reason}", "{node}"],
        ],
        [
            ["qmod", "-e", "all.q@{node}", "gpu.q@{node}"],
            ["qconf", "-dattr", "exechost", "complex_values", "nhc_mark", "{node}"],
        ],
    ),
    "flux": lambda: FakeWorld(
        Flux,
        FakeFlux,
        [["flux", "resource", "drain", "--force", "{node}", "{reason}"]],
        [["flux", "resource", "undrain", "{node}"]],
    ),
}


@pytest.mark.parametrize("name", WORLDS)
class TestFakes(AdapterContract):
    @pytest.fixture
    def world(self, name):
        return WORLDS[name]()


def test_vnodes_of_one_host_share_its_machine():
    world = WORLDS["pbs"]()
    world.fake.hosts = {"n1": "big", "n3": "big"}
    world.operator_takes_out("n3", "mine")
    (n1,) = world.adapter.nodes(["n1"])
    assert [(mate.name, mate.available) for mate in n1.mates] == [("n3", False)]
    assert [[mate.name for mate in state.mates] for state in world.adapter.nodes()] == [["n3"], [], ["n1"]]


class StoreWorld(AdapterWorld):
    """Nodes that have reported to a store; an operator writes the mark by hand."""

    nodes = NODES

    def __init__(self, store):  # noqa: F811
        self.store = store
        self.url = store.engine.url.render_as_string(hide_password=False)
        self.adapter = self.acting_for("nhc")
        at = time.time()
        with store.write() as connection:
            receive(connection, [Incoming(Report(node, "b1", at - 5, 0.1, ()), "agent", at) for node in NODES])

    def operator_takes_out(self, node, reason):
        with self.store.write() as connection:
            set_marks(connection, {node: reason or "by hand"})

    def operator_puts_back(self, node):
        with self.store.write() as connection:
            set_marks(connection, {node: ""})

    def broken(self):
        return StoreNodes({"NHC_STORE": "sqlite:////nowhere/store.db"}, {})

    def acting_for(self, owner):
        return StoreNodes({"NHC_STORE": self.url, OWNER_SETTING: owner}, {})


class TestStore(AdapterContract):
    @pytest.fixture
    def world(self, store):  # noqa: F811
        return StoreWorld(store)


def test_a_node_that_was_silent_for_a_day_is_no_part_of_the_fleet(store):  # noqa: F811
    world = StoreWorld(store)
    with store.write() as connection:
        receive(connection, [Incoming(Report("old", "b", 1.7e9, 0.1, ()), "agent", 1.7e9)])
    assert {state.name: state.absent for state in world.adapter.nodes()} == {
        "n1": False, "n2": False, "n3": False, "old": True,
    }  # fmt: skip


class RestWorld(AdapterWorld):
    nodes = NODES

    def __init__(self, server, settings):
        self.server, self.settings = server, settings
        self.adapter = SlurmRest(settings, {"SLURM_JWT": server.token})

    def operator_takes_out(self, node, reason):
        self.server.change(node, ["DRAIN"], reason, user="operator")

    def operator_puts_back(self, node):
        self.server.change(node, ["RESUME"], "")

    def broken(self):
        return SlurmRest({"NHC_SLURMREST": "http://127.0.0.1:9"}, {})

    def acting_for(self, owner):
        return SlurmRest({**self.settings, OWNER_SETTING: owner}, {"SLURM_JWT": self.server.token})


@pytest.mark.parametrize("version", [39, 40, 42])
class TestSlurmRest(AdapterContract):
    """slurmrestd of 23.02, 23.11 and 24.11: the shapes of states and times differ."""

    @pytest.fixture
    def world(self, version):
        server = FakeSlurmRest(NODES, version)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield RestWorld(server, {"NHC_SLURMREST": server.address})
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def test_a_node_that_is_mixed_when_asked_for_by_itself_is_looked_up_among_all(self, world):
        """slurmctld 23.02 and later, with SHOW_MIXED: the processors of a job that has ended are still counted."""
        world.server.alone["n1"] = ["MIXED"]
        assert not world.adapter.nodes(["n1"])[0].busy
        assert world.server.requests[-2].endswith("/nodes")
        world.server.nodes["n1"]["flags"] = ["MIXED"]
        assert world.adapter.nodes(["n1"])[0].busy

    def test_nodes_of_one_host_or_address_share_a_machine(self, world):
        for name, host, address in (("n1", "a", "10.0.0.1"), ("n2", "b", "10.0.0.2"), ("n3", "c", "10.0.0.1")):
            world.server.nodes[name].update(hostname=host, address=address)
        (n1,) = world.adapter.nodes(["n1"])
        assert [mate.name for mate in n1.mates] == ["n3"]
        hook = SlurmRest({**world.settings, WORK_SETTING: "flags"}, {"SLURM_JWT": world.server.token})
        assert hook.nodes(["n1"])[0].mates == ()

    def test_a_hook_does_not_have_all_nodes_shown_for_a_mixed_one(self, world):
        world.server.alone["n1"] = ["MIXED"]
        hook = SlurmRest({**world.settings, WORK_SETTING: "flags"}, {"SLURM_JWT": world.server.token})
        assert [one.name for one in hook.nodes(["n1"])] == ["n1"]
        assert world.server.requests[-1].endswith("/node/n1")


class SlurmWorld(AdapterWorld):
    """The real thing."""

    def __init__(self, cluster):
        self.cluster, self.nodes = cluster, cluster.nodes
        self.adapter = Slurm({}, cluster.env)

    def operator_takes_out(self, node, reason):
        self.cluster.update(node, State="DRAIN", Reason=reason)

    def operator_puts_back(self, node):
        """Where it is out: 23.11 to 25.11 keep the reason of a node that is in service, and refuse to resume it."""
        if not self.state(node).available:
            self.cluster.update(node, State="RESUME")

    def settle(self):
        """A resumed node does not respond until slurmctld has pinged it."""
        until(
            lambda: not any("NOT_RESPONDING" in state.flags for state in self.adapter.nodes(self.nodes)),
            what="nodes to respond",
        )

    def broken(self):
        def refused(argv, timeout, env):
            return Completed(1, "", "slurm_load_node error: Unable to contact slurm controller (connect failure)\n")

        return Slurm({}, self.cluster.env, run=refused)

    def acting_for(self, owner):
        return Slurm({OWNER_SETTING: owner}, self.cluster.env)


class TestSlurm(AdapterContract):
    @pytest.fixture
    def world(self, cluster):
        return SlurmWorld(cluster)


def test_a_missing_command_is_said_in_one_line():
    def nothing(argv, timeout, env):
        raise FileNotFoundError(2, "no such command", argv[0])

    with pytest.raises(AdapterError, match=r"^sinfo is not installed"):
        Slurm({}, {}, run=nothing).nodes(["n1"])


def test_a_command_that_hangs_is_said_in_one_line():
    with pytest.raises(AdapterError, match=r"^sinfo -a -h did not end within 0.2 s$"):
        Slurm({}, {}, timeout=0.2, run=lambda argv, timeout, env: Completed(124, timed_out=True)).nodes(["n1"])
