"""A loop for one accelerator: it alone is taken out, reset, proved and given back; the node goes on."""

from __future__ import annotations

import contextlib

import pytest

from nhc.core.model import Action, DeviceId
from nhc.marks.ports.adapter import OWNER, REMEDY_OWNER, AdapterError, DeviceState, Mark
from nhc.marks.ports.repair import Rung
from nhc.remedy.operators import abort, release
from nhc.store import audit, episodes, holds
from tests.support.remedy_world import FakeCluster, FakeMarker, Killed, Sickness
from tests.support.train_world import Line

KEEP = '[devices]\nkeep = "device"\n'
GPUS = [DeviceId(f"0000:{number:02x}:00.0", f"GPU-{number}", str(number)) for number in range(8)]


def broken(number=3, cure=Rung.RESET_DEVICE, action=Action.RESET_DEVICE, reason="GpuFailed", **more):
    return Sickness(action, cure, reason, f"gpu{number}", device=GPUS[number], **more)


class Proofs:
    """Proves a device where the world has it well; `wrong` says otherwise."""

    def __init__(self, world):
        self.world, self.asked, self.wrong = world, [], False

    def proved(self, case, machine, suite):
        about = case.detail.about
        self.asked.append((machine.node, suite, about.pci))
        sick = self.world.nodes[machine.node].sick.values()
        return not self.wrong and not any(one.device.same(about) for one in sick)

    def complaint(self, case):
        return ""


@pytest.fixture
def gpus(world):
    for node in world.nodes.values():
        node.devices = {gpu.pci: DeviceState(node.name, gpu) for gpu in GPUS}
    return world


def loop(world, more="", suite=None):
    return world.controller(KEEP + more, suite=suite or Proofs(world))


def rows(world, node="n1"):
    with world.read() as connection:
        return episodes.list_episodes(connection, node=node)


def marks(world, node="n1"):
    return [one.device.pci for one in world.nodes[node].devices.values() if one.mark is not None]


@pytest.mark.thorough
def test_one_device_is_taken_out_reset_proved_and_given_back(gpus):
    gpus.nodes["n1"].busy = True  # seven at work
    gpus.fall_sick("n1", broken())
    proofs = Proofs(gpus)
    controller = loop(gpus, suite=proofs)
    gpus.run(controller, 1)
    assert marks(gpus) == [GPUS[3].pci]
    gpus.run(controller, 12)
    (row,) = rows(gpus)
    assert row.state == "returned"
    assert [(one.rung, one.device) for one in gpus.sent] == [(Rung.RESET_DEVICE, GPUS[3].pci)]
    assert (gpus.marked, gpus.cleared) == ([], [])  # never the node
    assert gpus.device_marks == [("n1", GPUS[3].pci, True), ("n1", GPUS[3].pci, False)]
    assert set(proofs.asked) == {("n1", "check_gpu_proof", GPUS[3].pci)}
    with gpus.read() as connection:
        opened = next(one for one in audit.entries(connection) if one.what == "episode.opened")
    assert GPUS[3].pci in opened.detail


def test_a_dry_run_names_the_device_that_would_be_marked(gpus):
    gpus.fall_sick("n1", broken())
    done = loop(gpus).round(apply=False)
    assert done.would == (("n1", f"mark {GPUS[3].pci}", "gpu3 is broken"),)


@pytest.mark.thorough
def test_two_names_of_one_device_are_one_reset(gpus):
    gpus.fall_sick("n1", broken())
    by_log = Sickness(Action.RESET_DEVICE, Rung.RESET_DEVICE, "Xid48", GPUS[3].pci, device=DeviceId(GPUS[3].pci))
    gpus.fall_sick("n1", by_log)
    gpus.run(loop(gpus), 14)
    assert [one.state for one in rows(gpus)] == ["returned"]
    assert len(gpus.sent) == 1


@pytest.mark.thorough
def test_work_on_the_device_is_waited_for_and_other_work_is_not_asked_to_leave(gpus):
    gpus.nodes["n1"].busy = True
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    evicted = []
    controller = loop(gpus, "[drain]\nevict = true\n")
    controller.flow.actuators.marker.evict = lambda names: evicted.extend(names) or {}
    gpus.fall_sick("n1", broken())
    gpus.run(controller, 6)
    assert (rows(gpus)[0].state, gpus.sent, evicted) == ("draining", [], [])
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=False)
    gpus.run(controller, 12)
    assert rows(gpus)[0].state == "returned"
    assert evicted == []


@pytest.mark.thorough
def test_work_that_stays_leaves_the_device_to_a_person(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken())
    gpus.run(loop(gpus, '[drain]\ndeadline = "2m"\n'), 10)
    assert (rows(gpus)[0].state, gpus.sent, gpus.marked) == ("escalated", [], [])
    assert marks(gpus) == [GPUS[3].pci]


@pytest.mark.thorough
def test_a_reset_that_does_not_help_makes_it_the_nodes(gpus):
    gpus.fall_sick("n1", broken(cure=Rung.REBOOT))
    gpus.run(loop(gpus), 30)
    (row,) = rows(gpus)
    assert row.state == "returned"
    assert [one.rung for one in gpus.sent] == [Rung.RESET_DEVICE, Rung.RELOAD_DRIVER, Rung.REBOOT]
    assert (gpus.marked, gpus.cleared, marks(gpus)) == (["n1"], ["n1"], [])


@pytest.mark.thorough
def test_a_reset_that_cannot_be_done_makes_it_the_nodes(gpus):
    gpus.can = lambda _node, rung, _device: "MIG instances are there" if rung is Rung.RESET_DEVICE else ""
    gpus.fall_sick("n1", broken())
    gpus.run(loop(gpus), 20)
    assert [one.rung for one in gpus.sent] == [Rung.RELOAD_DRIVER]
    assert (gpus.marked, marks(gpus)) == (["n1"], [])


@pytest.mark.thorough
def test_a_harder_repair_that_is_not_enabled_leaves_the_others_at_work(gpus):
    gpus.fall_sick("n1", broken(cure=Rung.ESCALATE, action=Action.INSPECT))
    gpus.run(loop(gpus), 5)
    assert (rows(gpus)[0].state, gpus.sent, gpus.marked, marks(gpus)) == ("escalated", [], [], [GPUS[3].pci])


@pytest.mark.thorough
def test_a_proof_that_fails_gives_nothing_back(gpus):
    proofs = Proofs(gpus)
    proofs.wrong = True
    gpus.fall_sick("n1", broken())
    controller = loop(gpus, suite=proofs)
    gpus.run(controller, 8)
    assert ("n1", GPUS[3].pci, False) not in gpus.device_marks or gpus.marked == ["n1"]
    gpus.run(controller, 10)
    assert gpus.marked == ["n1"]


@pytest.mark.thorough
@pytest.mark.parametrize("other", [
    Sickness(Action.REBOOT, Rung.REBOOT, "FsReadOnly", "/"), broken(5),
])  # fmt: skip
def test_what_else_fails_makes_it_the_nodes(gpus, other):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken())
    controller = loop(gpus)
    gpus.run(controller, 3)
    assert (marks(gpus), gpus.marked) == ([GPUS[3].pci], [])
    gpus.tick()
    gpus.fall_sick("n1", other)
    gpus.run(controller, 2)
    assert (gpus.marked, marks(gpus)) == (["n1"], [])
    gpus.run(controller, 30)
    assert [one.state for one in rows(gpus)] == ["returned"]
    assert gpus.nodes["n1"].available


@pytest.mark.thorough
def test_a_second_device_waits_where_three_are_the_nodes_fault(gpus):
    gpus.fall_sick("n1", broken())
    controller = loop(gpus, "most = 3\n")
    gpus.run(controller, 1)
    gpus.fall_sick("n1", broken(5))
    gpus.run(controller, 30)
    assert [one.state for one in rows(gpus)] == ["returned", "returned"]
    assert [one.device for one in gpus.sent] == [GPUS[3].pci, GPUS[5].pci]
    assert (gpus.marked, marks(gpus)) == ([], [])


@pytest.mark.thorough
def test_a_cluster_that_cannot_mark_this_device_has_its_node_marked(gpus):
    del gpus.nodes["n1"].devices[GPUS[3].pci]
    gpus.fall_sick("n1", broken())
    gpus.run(loop(gpus), 3)
    assert gpus.marked == ["n1"]


@pytest.mark.thorough
def test_a_device_that_goes_before_it_is_marked_has_its_node_marked(gpus):
    def gone(what):
        if what == "before a device is marked":
            gpus.nodes["n1"].devices.clear()

    gpus.at_boundary = gone
    gpus.fall_sick("n1", broken())
    gpus.run(loop(gpus), 3)
    assert gpus.marked == ["n1"]


@pytest.mark.thorough
def test_an_adapter_that_marks_nodes_alone_marks_the_node(gpus):
    gpus.fall_sick("n1", broken())
    controller = loop(gpus)
    controller.flow.actuators.marker = FakeMarker(gpus)
    gpus.run(controller, 12)
    assert (gpus.marked, gpus.cleared) == (["n1"], ["n1"])


@pytest.mark.thorough
def test_devices_that_cannot_be_read_move_nothing(gpus, monkeypatch):
    def fails(_marker, _nodes=None):
        raise AdapterError("the server does not answer")

    with monkeypatch.context() as away:
        away.setattr(FakeCluster, "device_states", fails)
        gpus.fall_sick("n1", broken())
        controller = loop(gpus)
        gpus.run(controller, 3)
        assert (rows(gpus), gpus.marked) == ([], [])  # the node is not marked in its place
        assert any("devices cannot be read" in one for one in controller.flow.problems)
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.run(controller, 3)
    with monkeypatch.context() as away:
        away.setattr(FakeCluster, "device_states", fails)
        gpus.run(controller, 5)
        assert [one.state for one in rows(gpus)] == ["draining"]  # nor does it look as if the mark were gone
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=False)
    gpus.run(controller, 12)
    assert [one.state for one in rows(gpus)] == ["returned"]


@pytest.mark.thorough
def test_without_the_setting_it_is_the_node_as_ever(gpus):
    gpus.fall_sick("n1", broken())
    gpus.run(gpus.controller(), 12)
    assert (gpus.marked, gpus.device_marks) == (["n1"], [])


@pytest.mark.thorough
def test_a_mark_of_somebody_else_on_the_device_is_left(gpus):
    devices = gpus.nodes["n1"].devices
    theirs = Mark("mine", owner="bob")
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(mark=theirs)
    gpus.fall_sick("n1", broken())
    gpus.run(loop(gpus), 10)
    assert (gpus.sent, gpus.marked, gpus.device_marks) == ([], [], [])
    assert devices[GPUS[3].pci].mark == theirs


@pytest.mark.thorough
def test_who_takes_our_mark_off_has_the_device_in_hand(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken())
    controller = loop(gpus)
    gpus.run(controller, 3)
    devices[GPUS[3].pci] = DeviceState("n1", GPUS[3])
    gpus.run(controller, 10)
    assert ([one.state for one in rows(gpus)], gpus.sent) == (["withdrawn"], [])


@pytest.mark.thorough
def test_a_node_that_somebody_takes_out_is_left_with_its_device(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken())
    controller = loop(gpus)
    gpus.run(controller, 3)
    gpus.operator_takes_out("n1")
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=False)
    gpus.run(controller, 5)
    assert gpus.sent == []
    gpus.operator_puts_back("n1")
    gpus.run(controller, 12)
    assert [one.rung for one in gpus.sent] == [Rung.RESET_DEVICE]


@pytest.mark.thorough
def test_a_device_that_the_hook_has_marked_is_taken_over(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(mark=Mark("by the controller", owner=OWNER))
    gpus.fall_sick("n1", broken())
    gpus.run(loop(gpus), 14)
    assert [one.state for one in rows(gpus)] == ["returned"]
    assert marks(gpus) == []


@pytest.mark.thorough
def test_work_that_comes_back_at_the_last_moment_keeps_the_reset_unsent(gpus):
    devices = gpus.nodes["n1"].devices

    def comes_back(what):
        if what == "machine looked at":
            devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)

    gpus.at_boundary = comes_back
    gpus.fall_sick("n1", broken())
    gpus.run(loop(gpus), 4)
    assert gpus.sent == []


@pytest.mark.thorough
def test_a_hold_and_an_abort_hold_for_a_device(gpus):
    with gpus.write() as connection:
        holds.hold(connection, "node", "n1", by="amy", why="mine", now=gpus.now)
    gpus.fall_sick("n1", broken())
    controller = loop(gpus)
    gpus.run(controller, 5)
    assert (gpus.sent, gpus.device_marks) == ([], [])
    with gpus.write() as connection:
        holds.release(connection, "node", "n1", by="amy", now=gpus.now)
    gpus.duration = 1e9
    gpus.run(controller, 2)
    abort(gpus.plain, rows(gpus)[0].id, by="amy", why="enough", now=gpus.now)
    gpus.run(controller, 5)
    assert [one.state for one in rows(gpus)] == ["aborted"]
    assert len(gpus.sent) == 1


@pytest.mark.thorough
def test_a_device_counts_as_its_node_against_the_bounds(gpus):
    for name in ("n0", "n1", "n2"):
        gpus.fall_sick(name, broken())
    gpus.duration = 1e9
    gpus.run(loop(gpus, '[bounds.fleet]\nout = "2"\n'), 5)
    assert len([one for one in gpus.device_marks if one[2]]) == 2


@pytest.mark.thorough
def test_a_person_who_releases_the_node_has_its_device_proved_and_given_back(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken())
    controller = loop(gpus)
    gpus.run(controller, 3)
    abort(gpus.plain, rows(gpus)[0].id, by="amy", why="I look at it", now=gpus.now)
    gpus.nodes["n1"].sick.clear()
    gpus.tick()
    assert marks(gpus) == [GPUS[3].pci]
    release(gpus.plain, "n1", by="amy", why="a new riser", now=gpus.now)
    gpus.run(controller, 8)
    assert [one.state for one in rows(gpus)] == ["aborted", "returned"]
    assert (gpus.sent, gpus.marked, marks(gpus)) == ([], [], [])


@pytest.mark.thorough
def test_a_node_that_a_train_has_out_is_repaired_as_a_whole_and_given_back(gpus):
    """The train leaves it to the loop with its mark, which nobody else takes off."""
    node = gpus.nodes["n0"]
    node.busy = True
    line = Line(gpus)
    line.begin()
    train, controller = line.engine(), loop(gpus)
    train.round()
    assert gpus.marked == ["n0"]
    gpus.tick()
    gpus.fall_sick("n0", broken())
    for _ in range(3):
        controller.round()
        gpus.tick()
    train.round()
    assert line.states()["n0"] == "withdrawn"
    node.busy = False
    gpus.run(controller, 15)
    assert [one.state for one in rows(gpus, "n0") if one.train is None] == ["returned"]
    assert (node.available, marks(gpus, "n0")) == (True, [])


@pytest.mark.thorough
def test_a_train_that_takes_the_node_meanwhile_makes_it_the_nodes(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken())
    controller = loop(gpus)
    gpus.run(controller, 3)
    assert (marks(gpus), gpus.marked) == ([GPUS[3].pci], [])
    node = gpus.nodes["n1"]
    node.mark, node.available = Mark("train kernel: a new kernel", owner=REMEDY_OWNER), False
    gpus.run(controller, 15)
    assert [one.state for one in rows(gpus)] == ["returned"]
    assert (node.available, marks(gpus)) == (True, [])


@pytest.mark.thorough
def test_a_device_that_fails_beside_one_that_was_left_to_a_person_is_repaired_alone(gpus):
    gpus.fall_sick("n1", broken(cure=Rung.ESCALATE, action=Action.INSPECT))
    controller = loop(gpus, "most = 3\n")
    gpus.run(controller, 4)
    assert rows(gpus)[0].state == "escalated"
    gpus.fall_sick("n1", broken(5))
    gpus.run(controller, 14)
    assert [one.state for one in rows(gpus)][:2] == ["escalated", "returned"]
    assert [one.device for one in gpus.sent] == [GPUS[5].pci]
    assert (gpus.marked, marks(gpus)) == ([], [GPUS[3].pci])


@pytest.mark.thorough
def test_a_device_that_was_left_to_a_person_stays_theirs_when_another_has_come_back(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken(3))
    controller = loop(gpus, 'most = 3\n[drain]\ndeadline = "2m"\n')
    gpus.run(controller, 10)
    assert rows(gpus)[0].state == "escalated"
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=False)
    gpus.fall_sick("n1", broken(5))
    gpus.run(controller, 30)
    assert [one.state for one in rows(gpus)] == ["escalated", "returned"]
    assert [one.device for one in gpus.sent] == [GPUS[5].pci]
    assert marks(gpus) == [GPUS[3].pci]
    assert release(gpus.plain, "n1", by="amy", why="looked at it", now=gpus.now).episode
    gpus.run(controller, 14)
    assert [one.device for one in gpus.sent] == [GPUS[5].pci, GPUS[3].pci]
    assert ([one.state for one in rows(gpus)][2:], marks(gpus)) == (["returned"], [])


@pytest.mark.thorough
def test_a_device_that_waited_is_repaired_after_another_was_left_to_a_person(gpus):
    devices = gpus.nodes["n1"].devices
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(busy=True)
    gpus.fall_sick("n1", broken(3))
    gpus.fall_sick("n1", broken(5))
    gpus.run(loop(gpus, 'most = 3\n[drain]\ndeadline = "2m"\n'), 30)
    assert [one.state for one in rows(gpus)] == ["escalated", "returned"]
    assert [one.device for one in gpus.sent] == [GPUS[5].pci]


@pytest.mark.thorough
def test_a_device_that_is_left_to_a_person_counts_on_against_the_bounds(gpus):
    for name in ("n0", "n1", "n2"):
        gpus.fall_sick(name, broken(cure=Rung.ESCALATE, action=Action.INSPECT))
    gpus.run(loop(gpus, '[bounds.fleet]\nout = "1"\n'), 8)
    assert [one.state for name in ("n0", "n1", "n2") for one in rows(gpus, name)] == [
        "escalated",
        "detected",
        "detected",
    ]
    assert len([one for one in gpus.device_marks if one[2]]) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("cure", [Rung.RESET_DEVICE, Rung.REBOOT])
def test_killed_anywhere_it_sends_each_repair_once_and_leaves_no_mark(gpus, cure):
    gpus.fall_sick("n1", broken(cure=cure))
    for boundary in range(1, 90, 2):
        gpus.kill_at = gpus.boundaries + boundary
        with contextlib.suppress(Killed):
            gpus.run(loop(gpus), 1)
        gpus.tick()
    gpus.kill_at = -1
    gpus.run(loop(gpus), 60)
    sent = gpus.sendings("n1")
    assert len(sent) == len(set(sent))
    assert rows(gpus)[-1].ended is not None
    if rows(gpus)[-1].state == "returned":
        assert marks(gpus) == []
        assert gpus.nodes["n1"].available


@pytest.mark.thorough
def test_a_fault_that_the_driver_disputes_begins_nothing_and_another_beside_it_does(gpus):
    devices = gpus.nodes["n1"].devices
    against = (("Xid79", "its driver says that this is the application's"),)
    devices[GPUS[3].pci] = devices[GPUS[3].pci]._replace(disputed=against)
    gpus.fall_sick("n1", broken(reason="Xid79"))
    controller = loop(gpus)
    gpus.run(controller, 3)
    assert (rows(gpus), marks(gpus), gpus.marked) == ([], [], [])
    assert any(against[0][1] in one.why for one in controller.round().waiting)
    gpus.fall_sick("n1", broken(reason="GpuEcc"))
    gpus.run(controller, 14)
    assert [one.state for one in rows(gpus)] == ["returned"]
