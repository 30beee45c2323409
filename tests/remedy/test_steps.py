"""What the loop does in its less common turns: approvals, replacements, repairs of two calls, evidence, holds."""

import os
import threading
import time

import pytest

from nhc.core.model import Action
from nhc.marks.ports.adapter import AdapterError, Mark
from nhc.marks.ports.repair import Answer, EvidenceBudget, Exhibit, Machine, Progress, Rung, Sent, Stage
from nhc.remedy import detail as details
from nhc.remedy.gather import Gatherer
from nhc.remedy.operators import abort, close_breaker, decide, release
from nhc.store import audit, episodes, evidence, holds
from nhc.store.errors import RequestRefused
from tests.remedy.test_controller import all_episodes, last, tried
from tests.support.remedy_world import Node, Sickness
from tests.support.waiting import until

APPROVAL = "[approval]\nreboot = 2"


def waiting(world, controller):
    return {one.node: one.why for one in controller.round().waiting}


@pytest.mark.thorough
def test_two_persons_must_agree_and_one_is_not_two(world):
    world.fall_sick("n1")
    controller = world.controller(APPROVAL)
    world.run(controller, 3)
    episode = last(world)
    assert (episode.state, world.sent) == ("awaiting-approval", [])
    decide(world, episode.id, by="ann", agree=True, why="", now=world.now)
    with pytest.raises(Exception, match="it takes another person"):
        decide(world, episode.id, by="ann", agree=True, why="", now=world.now)
    world.run(controller, 2)
    assert world.sent == []
    assert details.read(last(world).detail).waiting == "approval: 1 more person must agree to reboot"  # no more two
    decide(world, episode.id, by="bob", agree=True, why="", now=world.now)
    world.run(controller, 12)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")
    with pytest.raises(RequestRefused, match="waits for nobody's approval"):
        decide(world, episode.id, by="eve", agree=True, why="", now=world.now)


@pytest.mark.thorough
def test_a_refusal_gives_the_node_to_a_person(world):
    world.fall_sick("n1")
    controller = world.controller(APPROVAL)
    world.run(controller, 3)
    decide(world, last(world).id, by="ann", agree=False, why="vendor comes", now=world.now)
    world.run(controller, 2)
    assert (last(world).state, last(world).outcome) == ("escalated", "ann refused reboot")
    assert world.sent == []


@pytest.mark.thorough
def test_an_approval_that_nobody_gives_is_an_escalation(world):
    world.fall_sick("n1")
    controller = world.controller('[approval]\nreboot = 1\nexpires = "10m"')
    world.run(controller, 3)
    world.run(controller, 4, 300)
    assert (last(world).state, world.sent) == ("escalated", [])


@pytest.mark.thorough
def test_an_abort_while_a_repair_is_under_way_ends_the_attempt_and_sends_nothing_more(world):
    world.fall_sick("n1")
    controller = world.controller()
    world.run(controller, 1)
    said = abort(world, last(world).id, by="ann", why="mine", now=world.now)
    assert "may have been sent and is not taken back" in said
    world.run(controller, 5)
    assert tried(world, last(world).id) == [("reboot", "superseded")]
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "aborted")
    done = release(world, "n1", by="ann", why="", now=world.now)
    world.run(controller, 12)
    assert (last(world).id, last(world).state) == (done.episode, "returned")


@pytest.mark.thorough
def test_an_abort_between_the_writing_and_the_sending_stops_the_sending(world):
    world.fall_sick("n1")
    controller = world.controller()
    writes = []

    def hear(what):
        row = all_episodes(world)[-1] if all_episodes(world) else None
        if what == "after a commit" and row is not None and row.state == "acting" and not writes:
            writes.append(row.id)
            world.at_boundary = lambda _what: None
            abort(world, row.id, by="ann", why="no", now=world.now)

    world.at_boundary = hear
    world.run(controller, 4)
    assert writes
    assert (world.sent, last(world).state) == ([], "aborted")


@pytest.mark.thorough
def test_a_replacement_is_watched_until_the_new_node_is_healthy(world):
    world.fall_sick("n1", Sickness(Action.REPLACE, Rung.REPLACE))
    controller = world.controller()
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    world.run(controller, 1)
    assert world.sendings("n1") == [Rung.REPLACE]
    repairer.progress = lambda *_: Progress(Stage.DONE, "replaced", "n1b")
    world.nodes["n1"].gone = True
    world.run(controller, 3)
    assert last(world).state == "verifying"  # the new node has not come yet
    world.nodes["n1b"] = Node("n1b")
    world.run(controller, 10)
    assert last(world).state == "returned"
    assert "n1" not in world.cleared


@pytest.mark.thorough
def test_a_replacement_that_never_comes_is_an_escalation(world):
    world.fall_sick("n1", Sickness(Action.REPLACE, Rung.REPLACE))
    controller = world.controller('[verify]\nhealthy-for = "1m"\ndeadline = "10m"')
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    world.run(controller, 1)
    repairer.progress = lambda *_: Progress(Stage.DONE, "replaced", "n1b")
    world.nodes["n1"].gone = True
    world.run(controller, 10, 120)
    assert last(world).state == "escalated"
    assert last(world).outcome == "no node has joined whose machine is n1b within 600 s"


@pytest.mark.thorough
def test_a_repair_of_two_calls_sends_the_second_after_the_first_is_proved(world):
    world.fall_sick("n1", Sickness(cure=Rung.POWER_CYCLE))
    controller = world.controller('[actions]\nmark = "on"\nreboot = "off"\npower-cycle = "on"')
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    calls = []

    def progress(order, sent, before):
        if not calls:
            return Progress(Stage.HALFWAY, "it is off")
        return Progress(Stage.DONE, f"on, by {sent.request_id}")

    def complete(order, sent):
        calls.append(order.key)
        return Sent(Answer.ACCEPTED, "powers on", "op-on")

    repairer.progress = progress
    type(repairer).complete = staticmethod(complete)
    try:
        world.run(controller, 12)
    finally:
        del type(repairer).complete
    assert len(calls) == 1
    assert (world.sendings("n1"), last(world).state) == ([Rung.POWER_CYCLE], "returned")


@pytest.mark.thorough
def test_a_hold_on_a_group_keeps_the_loop_off_until_it_ends(world):
    world.fall_sick("n1")
    with world.plain.write() as connection:
        holds.hold(connection, "group", "rack=r0", by="ann", why="power works", now=world.now, until=world.now + 300)
    controller = world.controller()
    assert waiting(world, controller)["n1"] == "hold: rack=r0 held by ann: power works"
    world.run(controller, 5)
    assert world.marked == []
    world.run(controller, 20)
    assert last(world).state == "returned"


@pytest.mark.thorough
def test_a_breaker_is_closed_by_a_person_alone(world):
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="loop", why="x", now=world.now)
    world.fall_sick("n1")
    controller = world.controller()
    world.run(controller, 5)
    assert world.marked == []
    assert close_breaker(world, by="ann", why="looked", now=world.now)
    assert not close_breaker(world, by="ann", why="looked", now=world.now)
    world.run(controller, 15)
    assert last(world).state == "returned"


@pytest.mark.thorough
def test_quiet_hours_hold_a_repair_and_not_the_mark(world):
    world.fall_sick("n1")
    controller = world.controller('[quiet-hours]\nhours = ["daily 00:00-24:00"]')
    world.run(controller, 3)
    assert (world.marked, world.sent) == (["n1"], [])
    assert "quiet-hours: no reboot in the quiet hours daily 00:00-24:00" in waiting(world, controller)["n1"]


@pytest.mark.thorough
def test_a_gpu_off_its_bus_is_rebooted_and_the_reset_is_named_as_skipped(world):
    world.fall_sick("n1", Sickness(Action.RESET_DEVICE, Rung.REBOOT, "Xid79", "gpu3"))
    world.run(world.controller(), 20)
    assert world.sendings("n1") == [Rung.REBOOT]
    from nhc.remedy.detail import read

    assert [one.rung for one in read(last(world).detail).skipped] == [Rung.RESET_DEVICE, Rung.RELOAD_DRIVER]


@pytest.mark.thorough
def test_a_far_jump_of_the_clock_opens_the_breaker_and_deadlines_begin_anew(world):
    world.fall_sick("n1")
    world.duration = 1200.0
    controller = world.controller()
    world.run(controller, 2)
    world.now += 86400.0
    world.report()
    world.run(controller, 3)
    assert last(world).state == "watching"  # not failed for a deadline that never passed
    with world.read() as connection:
        assert "clock jumped" in holds.breakers(connection)["remedy"].why


@pytest.mark.parametrize("seconds", [30.0, 600.0, 7200.0])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.thorough
def test_a_clock_set_forward_proves_no_node_healthy(world, seconds, restarted):
    settings = '[verify]\nhealthy-for = "2m"\ngrace = "0s"\n[sources]\nsettle = "0s"\nmax-age = "3h"'
    world.fall_sick("n1")
    controller = world.controller(settings)
    while "healthy since" not in waiting(world, controller).get("n1", ""):
        world.tick(10.0)
    proved_since = world.ticks
    world.now += seconds
    controller = world.controller(settings) if restarted else controller
    while last(world).state != "returned" and world.ticks < proved_since + 600:
        controller.round()
        world.tick(5.0)
    assert last(world).state == "returned"
    assert world.ticks - proved_since >= 120.0


@pytest.mark.thorough
def test_the_wait_of_an_episode_goes_on_where_each_round_is_a_process_of_its_own(world):
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    drain = '[drain]\ndeadline = "10m"\nthen = "force"'
    for _ in range(10):
        world.controller(drain).round()
        world.tick(55.0)
    assert world.sent == []
    for _ in range(4):
        world.controller(drain).round()
        world.tick(55.0)
    assert world.sendings("n1") == [Rung.REBOOT]


@pytest.mark.thorough
def test_a_clock_set_back_does_not_make_a_wait_longer_than_itself(world):
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller('[drain]\ndeadline = "10m"\nthen = "force"')
    world.run(controller, 5)
    world.now -= 86400.0 * 300
    world.report()
    controller.round()
    close_breaker(world, by="ann", why="the clock is right now", now=world.now)
    world.run(controller, 30)
    assert world.sendings("n1") == [Rung.REBOOT]


@pytest.mark.thorough
def test_an_episode_whose_detail_is_damaged_stops_and_is_named(world):
    import sqlalchemy as sa

    world.fall_sick("n1")
    controller = world.controller()
    world.run(controller, 1)
    with world.engine.begin() as connection:
        connection.execute(sa.text('UPDATE episodes SET detail = \'{"entered": "soon"}\''))
    found = controller.round()
    assert "cannot be read" in found.problems[0]
    world.run(controller, 10)
    assert world.sendings("n1") == [Rung.REBOOT]  # nothing more than before the damage


class Source:
    def __init__(self, *pieces, fails="", hangs=None):
        self.pieces, self.fails, self.hangs = pieces, fails, hangs

    def evidence(self, machine, budget):
        for name, content in self.pieces:
            yield Exhibit(name, "text/plain", content)
        if self.hangs is not None:
            self.hangs.wait(60)
        if self.fails:
            raise AdapterError(self.fails)


def gathered(world, tmp_path, sources, budget=EvidenceBudget(1000, 30.0)):  # noqa: B008
    gatherer = Gatherer(world, lambda _node: sources, budget, str(tmp_path / "kept"), 60.0, clock=lambda: world.now)
    world.fall_sick("n1")
    controller = world.controller(evidence=gatherer)
    deadline = time.monotonic() + 60
    while not world.sent and time.monotonic() < deadline:
        controller.round()
        time.sleep(0.01)
    with world.read() as connection:
        return evidence.of_episode(connection, last(world).id), gatherer


@pytest.mark.thorough
def test_secrets_are_cut_out_of_texts_before_they_are_kept(world, tmp_path):
    line = b"mount -o password=hunter2 \xff token: abc"
    rows, _gatherer = gathered(world, tmp_path, [("node", Source(("kernel.txt", line)))])
    kept = (tmp_path / "kept" / rows[0].sha256[:2] / rows[0].sha256).read_bytes()
    assert kept == b"mount -o password=[redacted] \xff token: [redacted]"


@pytest.mark.thorough
def test_evidence_is_kept_before_the_repair_and_a_failure_is_said(world, tmp_path):
    rows, gatherer = gathered(world, tmp_path, [
        ("bmc", Source(("sel.txt", b"log"), ("same.txt", b"log"))), ("cloud", Source(fails="no console")),
    ])  # fmt: skip
    assert world.sendings("n1") == [Rung.REBOOT]
    assert [(one.name, one.size, one.message) for one in rows] == [
        ("bmc/sel.txt", 3, ""), ("bmc/same.txt", 3, ""), ("cloud", 0, "no console")
    ]  # fmt: skip
    kept = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in kept] == [b"log"]  # the same content is kept once
    world.now += 120
    os.utime(kept[0], (world.now - 7200, world.now - 7200))
    assert gatherer.expire() == 1
    assert not [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]


@pytest.mark.thorough
def test_evidence_is_collected_before_the_mark_where_the_mark_costs_the_machine(world, tmp_path):
    in_service = []

    class Watching(Source):
        def evidence(self, machine, budget):
            in_service.append(world.nodes["n1"].available)
            yield from super().evidence(machine, budget)

    source = Watching(("kernel.txt", b"log"))
    gatherer = Gatherer(world, lambda _node: [("node", source)], EvidenceBudget(1000, 30.0), str(tmp_path / "kept"),
                        60.0, clock=lambda: world.now)  # fmt: skip
    world.fall_sick("n1")
    controller = world.controller('[evidence]\ndirectory = "/nonexistent"\nbefore-mark = true', evidence=gatherer)
    deadline = time.monotonic() + 60
    while world.nodes["n1"].available and time.monotonic() < deadline:
        controller.round()
        time.sleep(0.01)
    assert not world.nodes["n1"].available
    assert in_service[0]
    with world.read() as connection:
        assert evidence.of_episode(connection, last(world).id)[0].name == "node/kernel.txt"


@pytest.mark.thorough
def test_evidence_that_a_killed_process_wrote_down_is_not_written_twice(world, tmp_path):
    """The process dies between the rows and the next step: what comes after it collects for the same attempt."""
    source = Source(("x", b"1"), ("x", b"2"))

    class Dying(Gatherer):
        def collected(self, case, machine):
            if super().collected(case, machine):
                raise SystemExit
            return False

    sources = [("bmc", source)]
    budget = EvidenceBudget(1000, 30.0)
    dying = Dying(world, lambda _node: sources, budget, str(tmp_path / "kept"), 60.0, clock=lambda: world.now)
    world.fall_sick("n1")
    controller = world.controller(evidence=dying)
    with pytest.raises(SystemExit):
        until(lambda: controller.round() is None)  # it never is
    rows, _ = gathered(world, tmp_path, sources)
    assert sorted((one.name, one.size) for one in rows) == [("bmc/x", 1), ("bmc/x", 1)]
    assert world.sendings("n1") == [Rung.REBOOT]


@pytest.mark.thorough
def test_evidence_is_cut_to_its_budget(world, tmp_path):
    rows, _ = gathered(world, tmp_path, [("a", Source(("x", b"y" * 2000), ("z", b"z"))), ("b", Source(("q", b"q")))])
    assert [(one.name, one.size, one.cut) for one in rows] == [("a/x", 1000, True), ("b", 0, False)]
    assert "was spent" in rows[1].message


@pytest.mark.thorough
def test_evidence_that_hangs_does_not_hold_the_repair_for_ever(world, tmp_path):
    hangs = threading.Event()
    rows, _ = gathered(world, tmp_path, [("bmc", Source(("x", b"1"), hangs=hangs))], EvidenceBudget(1000, 0.2))
    hangs.set()
    assert world.sendings("n1") == [Rung.REBOOT]
    assert rows[-1].message == "not all of it came within 0.2 s"


@pytest.mark.thorough
def test_what_no_repairer_can_do_is_skipped(world):
    world.can = lambda _node, rung, _device: "no BMC is known" if rung is Rung.POWER_CYCLE else ""
    world.fall_sick("n1", Sickness(cure=Rung.REPLACE))
    world.run(world.controller(), 40)
    assert world.sendings("n1") == [Rung.REBOOT, Rung.REPLACE]


def test_a_machine_is_described_by_the_store_and_the_settings(world):
    from nhc.remedy.repairers import Repairers
    from nhc.remedy.settings import MachineSettings
    from nhc.store import nodes

    with world.plain.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("n1", provider_id="aws:///a/i-1", address="10.0.0.1")])
    repairers = Repairers([], [MachineSettings(("n*",), {"bmc": "{node}-bmc"})])
    with world.read() as connection:
        repairers.learn({"n1": nodes.get(connection, "n1")})
    found = repairers.machine("n1")
    assert (found.provider_id, found.shown_address, found.settings) == ("aws:///a/i-1", "10.0.0.1", {"bmc": "n1-bmc"})
    assert repairers.machine("n9") == Machine("n9", settings={"bmc": "n9-bmc"})
    assert repairers.can("n1", Rung.REBOOT, "").why == "no repairer is set up for reboot on this node"


@pytest.mark.thorough
def test_a_mark_of_a_hook_is_repaired_too(world):
    from nhc.marks.ports.adapter import Mark

    world.nodes["n2"].silent = True
    world.nodes["n2"].mark, world.nodes["n2"].available = Mark("gpu lost", Action.REBOOT, world.now), False
    world.run(world.controller(), 2)
    assert world.sendings("n2") == [Rung.REBOOT]
    with world.read() as connection:
        assert episodes.list_episodes(connection, node="n2")[0].cause == "mark|reboot|"


def test_evidence_without_a_row_is_kept_no_longer_than_that_which_has_one(tmp_path, world):
    """A collection that came too late, or whose process was killed, leaves files that no row will ever name."""
    gatherer = Gatherer(world, lambda _node: (), EvidenceBudget(), str(tmp_path), 7 * 86400.0, lambda: world.now)
    with world.plain.write() as connection:
        row, _ = episodes.open_episode(
            connection, "n1", "c", action="reboot", state="evidence", now=world.now, by="loop"
        )
        evidence.add(connection, row, "nhc/log", now=world.now, sha256="a1" + "0" * 62, size=1,
                     expires=world.now + 30 * 86400.0)  # fmt: skip
    names = {"a1" + "0" * 62: "a row names it", "b2" + "0" * 62: "a stray", "c3" + "0" * 62 + ".77.1": "half-written",
             "d4" + "0" * 62: "young", "README": "not ours"}  # fmt: skip
    for name in names:
        (tmp_path / name[:2]).mkdir()
        (tmp_path / name[:2] / name).write_text("x")
        at = world.now - (6 if name.startswith("d4") else 8) * 86400.0
        os.utime(tmp_path / name[:2] / name, (at, at))
    assert gatherer.expire() == 2
    left = {path.name for path in tmp_path.glob("*/*")}
    assert left == {name for name, what in names.items() if what not in ("a stray", "half-written")}


@pytest.mark.thorough
def test_evidence_is_collected_once_while_a_person_holds_the_node(world, tmp_path):
    """Held in that state for a day, it would be collected anew in every round."""
    held = threading.Event()
    source = Source(("sel.txt", b"log"), hangs=held)
    kept = Gatherer(world, lambda _node: [("bmc", source)], EvidenceBudget(), str(tmp_path), 86400.0)
    controller = world.controller(evidence=kept)
    world.fall_sick("n1")
    world.run(controller, 1)
    assert last(world).state == "evidence"
    held.set()
    kept.wait()
    with world.plain.write() as connection:
        holds.hold(connection, "node", "n1", by="ann", why="mine", now=world.now)
    for _ in range(5):
        controller.round()
        kept.wait()
    with world.read() as connection:
        assert evidence.of_episode(connection, last(world).id) == []
    with world.plain.write() as connection:
        holds.release(connection, "node", "n1", by="ann", now=world.now)
    world.run(controller, 12)
    with world.read() as connection:
        assert [one.name for one in evidence.of_episode(connection, last(world).id)] == ["bmc/sel.txt"]
    assert last(world).state == "returned"


@pytest.mark.thorough
@pytest.mark.parametrize("known_by", ["store", "name"])
def test_a_replacement_that_is_named_as_a_machine_is_followed_to_its_node(world, known_by):
    """Clouds name instances, and the loop judges nodes: i-0new joins as n1b."""
    from nhc.store import nodes

    world.fall_sick("n1", Sickness(Action.REPLACE, Rung.REPLACE))
    controller = world.controller()
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    world.run(controller, 1)
    new = "i-0123456789abcdef0" if known_by == "store" else "n1b"
    repairer.progress = lambda *_: Progress(Stage.DONE, "replaced", new)
    world.nodes["n1"].gone = True
    world.run(controller, 1)
    assert waiting(world, controller)["n1"] == f"joining: no node has joined whose machine is {new}"
    world.nodes["n1b"] = Node("n1b")
    world.report(["n1b"])
    if known_by == "store":
        with world.plain.write() as connection:
            nodes.describe(connection, [nodes.NodeDescription("n1b", provider_id=f"aws:///us-east-1a/{new}")])
    world.run(controller, 12)
    assert (last(world).state, "n1" in world.cleared) == ("returned", False)


@pytest.mark.thorough
def test_a_machine_that_is_stopped_and_started_stays_its_node(world):
    """EC2's stop and start names the same instance: the node keeps its name."""
    from nhc.store import nodes

    with world.plain.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("n1", provider_id="aws:///us-east-1a/i-0123456789abcdef0")])
    world.fall_sick("n1", Sickness(Action.REPLACE, Rung.REPLACE))
    controller = world.controller()
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    world.run(controller, 1)
    repairer.progress = lambda *_: Progress(Stage.DONE, "runs again", "i-0123456789abcdef0")
    world.run(controller, 12)
    assert (last(world).state, world.cleared) == ("returned", ["n1"])


def test_the_fuller_provider_id_counts_where_both_name_one_machine(world):
    """Slurm's InstanceId is i-0abc, the node's report has the zone too; of two machines the scheduler's is believed."""
    from nhc.remedy.repairers import Repairers
    from nhc.store import nodes

    class Cluster:
        instance = "i-0abc"

        def machines(self):
            return {"n1": Machine("n1", provider_id=self.instance)}

    cluster = Cluster()
    repairers = Repairers([], (), [cluster])
    with world.plain.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("n1", provider_id="aws:///us-east-1a/i-0abc")])
    with world.read() as connection:
        repairers.learn({"n1": nodes.get(connection, "n1")})
    assert repairers.machine("n1").provider_id == "aws:///us-east-1a/i-0abc"
    cluster.instance = "i-0def"
    repairers.learn_machines()
    assert repairers.machine("n1").provider_id == "i-0def"


@pytest.mark.thorough
@pytest.mark.parametrize("said", [Stage.FAILED, Stage.CANCELLED])
def test_what_was_said_of_a_repair_that_came_after_all_is_not_said_of_the_next(world, said):
    """Slurm gives a reboot up, and the machine boots all the same: the fault is there still."""
    world.fall_sick("n1", Sickness(cure=Rung.POWER_CYCLE))
    controller = world.controller()
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    plain = repairer.progress

    def progress(order, sent, before):
        seen = plain(order, sent, before)
        gave_up = order.rung is Rung.REBOOT and seen.stage is Stage.WORKING
        return Progress(said, "it was given up") if gave_up else seen

    repairer.progress = progress

    def sent(what):
        if what == "after a repair is sent" and world.sendings("n1") == [Rung.REBOOT]:
            world.nodes["n1"].rebooting_until = world.ticks + 300.0  # its scheduler waits for it

    world.at_boundary = sent
    world.run(controller, 30)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT, Rung.POWER_CYCLE], "returned")
    assert tried(world, last(world).id) == [("reboot", "succeeded"), ("power-cycle", "succeeded")]


def test_a_wait_of_which_nothing_but_figures_changes_writes_no_row(world):
    """The audit log has a row for a change, not one for each round in which a bound counts anew."""
    for node in world.nodes.values():
        node.busy = True
    controller = world.controller('[bounds.fleet]\nout = "1"')
    world.fall_sick("n0")
    world.fall_sick("n1")
    for joined in range(8):
        world.nodes[f"m{joined}"] = Node(f"m{joined}")
        world.run(controller, 1)
    assert [last(world, name).state for name in ("n0", "n1")] == ["draining", "detected"]
    assert "1 of 12 nodes" in controller.round().waiting[-1].why
    with world.read() as connection:
        waits = audit.entries(connection, what="episode.waits", node="n1", limit=100)
    assert len(waits) == 1


@pytest.mark.thorough
def test_a_machine_of_several_nodes_is_repaired_once_and_when_all_of_them_are_idle_and_ours(world):
    world.machine = ("n1", "n2", "n3")
    world.operator_takes_out("n3", "new cables")
    world.nodes["n2"].busy = True
    for name in ("n1", "n2"):
        world.fall_sick(name)
    controller = world.controller()
    world.run(controller, 3)
    assert (world.sent, waiting(world, controller)["n1"]) == ([], "work: work still runs on n2, on the same machine")
    world.nodes["n2"].busy = False
    world.run(controller, 2)
    assert (world.sent, waiting(world, controller)["n1"]) == ([], "node: n3, on the same machine, is drained by bob")
    world.operator_puts_back("n3")
    assert "n3, on the same machine, takes new work" in waiting(world, controller)["n1"]
    world.nodes["n3"].available, world.nodes["n3"].mark = False, Mark("mine too", owner="nhc")
    world.run(controller, 15)
    assert [(one.node, one.rung) for one in world.sent] == [("n1", Rung.REBOOT)]
    assert (last(world).state, last(world, "n2").state) == ("returned", "returned")
    assert world.disturbed == []


@pytest.mark.thorough
def test_a_forced_repair_ends_no_work_of_a_node_that_nobody_drained(world):
    world.machine = ("n1", "n2")
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller('[drain]\ndeadline = "2m"\nthen = "force"')
    world.run(controller, 8)
    assert (world.sent, last(world).state) == ([], "escalated")
    assert "n2, on the same machine, takes new work" in last(world).outcome


@pytest.mark.thorough
def test_a_mark_that_fails_round_after_round_is_one_row_of_the_audit_log(world):
    """What the scheduler answers has a figure that is another each time: its milliseconds, a port."""
    world.fall_sick("n1")
    controller = world.controller()
    tries = []

    def refuse(what):
        if what == "before marks are set":
            tries.append(what)
            raise AdapterError(f"no answer within {len(tries)} ms")

    world.at_boundary = refuse
    world.run(controller, 2)
    with world.plain.read() as connection:
        before = len(list(audit.entries(connection, limit=1000)))
    world.run(controller, 10)
    with world.plain.read() as connection:
        assert len(list(audit.entries(connection, limit=1000))) == before
    assert len(tries) > 10
