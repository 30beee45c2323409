"""What could send a repair twice, or one that nobody wants any more: clocks, holds, breakers, rows of the store."""

import pytest
import sqlalchemy as sa

from nhc.core.model import Action
from nhc.marks.ports.adapter import OWNER, REMEDY_OWNER, Applied, Effect, Mark
from nhc.marks.ports.repair import Answer, Progress, Rung, Sent, Stage
from nhc.remedy.operators import close_breaker
from nhc.remedy.repairers import RepairerEntry
from nhc.remedy.settings import RepairerSettings
from nhc.store import attempts, audit, episodes, holds, schema
from tests.support.remedy_world import FakeMarker, FakeRepairer, Killed, Node, Sickness, World

pytestmark = pytest.mark.thorough


def last(world, node="n1"):
    with world.read() as connection:
        return episodes.list_episodes(connection, node=node)[-1]


def test_an_attempt_written_after_the_clock_was_set_back_is_known(world):
    """A machine's clock ran ahead and is set right between a fault and its repair, whose answer is lost besides."""
    world.nodes["n1"].busy = True
    world.fall_sick("n1")
    controller = world.controller()
    world.run(controller, 2)
    assert last(world).state == "draining"
    world.now -= 300.0  # less than what opens the breaker
    world.nodes["n1"].busy = False
    world.lose = ["dropped"]
    world.run(controller, 12)  # until the clock has passed the newest report again
    assert last(world).state == "watching"
    world.run(controller, 100)
    with world.read() as connection:
        tried = [one.rung for one in attempts.attempts_of(connection, last(world).id)]
    assert tried == ["reboot", "power-cycle"]


def dies(world, boundary):
    """The process of the loop ends at this boundary of its first round; a new one begins afterwards."""

    def die(what):
        if what == boundary:
            raise Killed(what)

    world.at_boundary = die
    with pytest.raises(Killed):
        world.controller().round()
    world.at_boundary = lambda _what: None


@pytest.mark.parametrize(
    ("settings", "open_breaker", "why"),
    [
        ("", True, "breaker: by hand"),
        ("[actions]\nmark = 'dry-run'", False, "dry-run: "),
        ("[quiet-hours]\nhours = ['daily 00:00-24:00']\nactions = ['mark']", False, "quiet-hours: "),
    ],
)
def test_a_mark_that_was_only_written_down_waits_for_what_holds_marks(world, settings, open_breaker, why):
    world.fall_sick("n1")
    dies(world, "before marks are set")  # it is written down that it is about to mark
    assert last(world).state == "marking"
    if open_breaker:
        with world.plain.write() as connection:
            holds.set_breaker(connection, "remedy", "open", by="alice", why="by hand", now=world.now)
    held = world.run(world.controller(settings), 3)[-1].waiting
    assert (world.marked, last(world).state) == ([], "marking")
    assert held[0].why.startswith(why)
    if open_breaker:
        close_breaker(world.plain, by="alice", why="it was nothing", now=world.now)
    world.run(world.controller(), 20)
    assert (world.marked, last(world).state) == (["n1"], "returned")


def test_a_mark_that_was_set_before_the_process_ended_goes_on_under_an_open_breaker(world):
    """The mark stands already: it is known as ours, so that the breaker does not keep the node from coming back."""
    world.fall_sick("n1")
    dies(world, "after marks are set")
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="alice", why="by hand", now=world.now)
    world.run(world.controller(), 2)
    assert (last(world).state, world.sent) == ("recheck", [])
    world.nodes["n1"].sick.clear()
    world.run(world.controller(), 12)
    assert (last(world).state, world.cleared, world.sent) == ("returned", ["n1"], [])


def comes_between(world, what, happens):
    """Something happens once, right after a boundary of the controller."""

    def come(boundary):
        if boundary == what:
            world.at_boundary = lambda _what: None
            happens()

    world.at_boundary = come


def hold_fleet(world):
    with world.plain.write() as connection:
        holds.hold(connection, "fleet", "", by="alice", why="stop", now=world.now)


def open_breaker(world):
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="alice", why="stop", now=world.now)


def give_work(world):
    world.nodes["n1"].busy = True


def go_on(world):
    with world.plain.write() as connection:
        holds.release(connection, "fleet", "", by="alice", now=world.now)
    close_breaker(world.plain, by="alice", why="it was nothing", now=world.now)
    world.nodes["n1"].busy = False


@pytest.mark.parametrize("happens", [hold_fleet, open_breaker, give_work])
def test_what_comes_between_the_last_look_and_the_call_holds_the_call(world, happens):
    """A provider may take its time over many machines; who says stop in those minutes means the calls that follow."""
    world.fall_sick("n1")
    controller = world.controller()
    comes_between(world, "machine looked at", lambda: happens(world))
    world.run(controller, 3)
    assert world.sent == []
    with world.read() as connection:
        [tried] = attempts.attempts_of(connection, last(world).id)
    assert tried.outcome == "refused"
    assert tried.message.startswith("not sent: ")
    go_on(world)
    world.run(controller, 20)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


@pytest.mark.parametrize("takes", ["operator_puts_back", "operator_takes_out"])
def test_a_node_that_a_person_takes_after_the_last_look_is_not_repaired(world, takes):
    world.fall_sick("n1")
    comes_between(world, "machine looked at", lambda: getattr(world, takes)("n1"))
    world.run(world.controller(), 3)
    assert (world.sent, last(world).state) == ([], "withdrawn")


def test_an_attempt_that_another_began_meanwhile_is_not_begun_twice(world):
    """Another loop has begun one since this one read the episode: nothing is written, and nothing is sent."""

    def begin():
        with world.plain.write() as connection:
            episode = episodes.list_episodes(connection, node="n1")[-1]
            theirs = attempts.next_attempt(
                episode, [], rung="reboot", device="", repairer="fake", key="theirs", now=world.now, before="{}"
            )
            attempts.insert_all(connection, [theirs])

    world.fall_sick("n1")
    controller = world.controller()
    comes_between(world, "machine looked at", begin)
    world.run(controller, 1)
    with world.read() as connection:
        tried = attempts.attempts_of(connection, last(world).id)
    assert (world.sent, [one.key for one in tried]) == ([], ["theirs"])


def test_a_hold_again_and_again_leads_to_no_harder_repair(world):
    world.fall_sick("n1")
    controller = world.controller()
    for _ in range(4):
        comes_between(world, "machine looked at", lambda: hold_fleet(world))
        world.run(controller, 2)
        go_on(world)
    world.run(controller, 20)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


def test_no_machine_is_looked_at_for_which_no_bound_has_room(store):
    world = World(store, count=40)
    for name in world.nodes:
        world.fall_sick(name)
    looked = []
    world.at_boundary = lambda what: looked.append(what) if what == "machine looked at" else None
    world.controller("[bounds.fleet]\nout = '100%'\nrepairing = 1").round()
    assert len(world.sent) == 1
    assert len(looked) <= 8


def test_a_fault_that_the_newest_report_does_not_name_any_more_decides_nothing(world):
    """A new fault joins an episode by the very report that says that the old one is gone, and the old one was worse."""
    world.nodes["n1"].busy = True
    world.fall_sick("n1", Sickness(Action.REPLACE, Rung.REPLACE, "Old"))
    controller = world.controller("[drain]\nidle = ['replace']")
    world.run(controller, 1)
    world.nodes["n1"].sick.clear()
    world.run(controller, 2)
    assert last(world).state == "verifying"
    world.nodes["n1"].busy = False
    world.fall_sick("n1", Sickness(Action.RESET_DEVICE, Rung.RESET_DEVICE, "New", "gpu5"))
    world.run(controller, 20)
    assert ([(one.rung, one.device) for one in world.sent], last(world).state) == (
        [(Rung.RESET_DEVICE, "gpu5")], "returned",
    )  # fmt: skip


def test_a_start_time_is_no_boot_id(world):
    """A cloud shows when a machine was launched, a report its boot id: that the two differ is no effect of a reboot."""
    world.boot_shown = lambda node: f"2026-11-22T10:0{node.boot}:00+00:00"
    node = world.nodes["n1"]
    node.mark, node.available = Mark("a hook found a fault", Action.REBOOT, since=world.now), False
    controller = world.controller()
    controller.round()
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "watching")
    world.report_on_the_way_down("n1")
    controller.round()
    assert last(world).state == "watching"
    world.run(controller, 12)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


def test_an_episode_that_cannot_be_read_stops_itself_and_nobody_else(world):
    """Written by a newer nhc, say, before somebody went back to this one."""
    world.nodes["n1"].busy = True
    world.fall_sick("n1")
    controller = world.controller()
    world.run(controller, 1)
    with world.plain.write() as connection:
        connection.execute(sa.update(schema.episodes).values(detail='{"from_tomorrow":1}'))
    world.nodes["n1"].busy = False
    world.fall_sick("n1", Sickness(reason="Another"))
    world.fall_sick("n2")
    found = world.run(controller, 20)[-1]
    assert any("episode 1: its detail cannot be read" in one for one in found.problems)
    assert (world.sendings("n1"), world.sendings("n2")) == ([], [Rung.REBOOT])
    assert last(world, "n2").state == "returned"


class Sized(FakeRepairer):
    """A cloud whose every call has a name, which its progress is asked by; a power cycle takes two."""

    def __init__(self, world):
        super().__init__(world)
        self.asked = []

    def send(self, order):
        sent = super().send(order)
        return sent._replace(request_id=f"{order.rung.value} of {order.machine.node}")

    def complete(self, order, sent):
        return Sent(Answer.ACCEPTED, "started", "start")

    def progress(self, order, sent, before):
        self.asked.append((order.rung.value, sent.request_id))
        if order.rung is Rung.POWER_CYCLE and sent.request_id != "start":
            return Progress(Stage.HALFWAY, "it is off")
        return super().progress(order, sent, before)


def sized(world):
    controller = world.controller()
    repairer = Sized(world)
    controller.flow.actuators.repairers.entries[0] = RepairerEntry(RepairerSettings("fake", "fake"), repairer)
    return controller, repairer


def test_what_a_call_without_an_answer_is_known_by_is_kept(world):
    """Azure's pools and Oracle's clusters are grown back to the size that the lost call had seen."""
    controller, repairer = sized(world)
    world.fall_sick("n1")
    world.lose = ["lost"]
    world.run(controller, 12)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")
    assert set(repairer.asked) == {("reboot", "reboot of n1")}


def test_a_repair_is_not_watched_under_the_name_of_the_one_before(world):
    controller, repairer = sized(world)
    world.fall_sick("n1", Sickness(Action.REBOOT, Rung.REPLACE))
    world.run(controller, 60)
    assert world.sendings("n1") == [Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE]
    assert {name for rung, name in repairer.asked if rung == "replace"} == {"replace of n1"}


def test_a_mark_of_a_hook_on_a_node_of_the_loop_becomes_the_loops_own(world):
    controller = world.controller('[drain]\ndeadline = "1d"\n')
    world.nodes["n1"].busy = True
    world.fall_sick("n1")
    controller.round()
    mark = world.nodes["n1"].mark
    assert mark.owner == REMEDY_OWNER
    world.nodes["n1"].mark = mark._replace(owner=OWNER)  # as a version before had it

    controller.round()

    assert world.nodes["n1"].mark == mark
    assert world.marked == ["n1"]


def test_a_repair_that_a_person_cancels_leaves_the_node_out_and_nothing_harder_follows(world):
    controller = world.controller()
    world.fall_sick("n1")
    world.run(controller, 1, 5.0)
    assert last(world).state == "watching"
    world.operator_cancels("n1")
    controller.round()
    assert (world.nodes["n1"].available, world.nodes["n1"].mark.owner) == (False, REMEDY_OWNER), "in that very round"
    world.run(controller, 3)
    assert last(world).state == "escalated"
    assert world.sendings("n1") == [Rung.REBOOT]
    world.operator_puts_back("n1")
    world.run(controller, 3)
    assert world.nodes["n1"].available, "the person has decided"


def test_an_order_is_sent_though_an_older_mark_becomes_the_loops_own_in_the_same_pass(world):
    world.fall_sick("n1")
    world.claimed["n1"] = "an update"
    controller = world.controller()
    world.run(controller, 3)
    assert last(world, "n1").state == "recheck"
    world.claimed.clear()
    node = world.nodes["n1"]
    node.mark = node.mark._replace(owner=OWNER)  # as a version before the loop had a mark of its own has set it
    world.run(controller, 1)
    assert world.sendings("n1") == [Rung.REBOOT]


class Unmarked(Node):
    """A node of a scheduler whose adapter, a package of the site's, keeps no owner with a mark."""

    def marked(self, mark, available):
        super().marked(mark._replace(owner=OWNER) if mark is not None else None, available)


def test_where_marks_keep_no_owner_a_repair_of_two_calls_is_finished_and_the_mark_set_anew_once_a_state(world):
    world.nodes["n1"] = Unmarked("n1")
    controller, repairer = sized(world)
    world.fall_sick("n1", Sickness(Action.REBOOT, Rung.POWER_CYCLE))
    world.run(controller, 60)
    assert world.sendings("n1") == [Rung.REBOOT, Rung.POWER_CYCLE]
    assert last(world).state == "returned"
    assert ("power-cycle", "start") in repairer.asked
    with world.plain.read() as connection:
        anew = [one for page in audit.walk(connection) for one in page if "marked anew" in str(one)]
    assert 0 < len(anew) < 15


def test_where_marks_keep_no_owner_a_node_is_back_in_the_round_in_which_it_is_proved(world):
    world.nodes["n1"] = Unmarked("n1")
    controller = world.controller()
    world.fall_sick("n1")
    states = []
    for _ in range(20):
        world.run(controller, 1)
        states.append(last(world).state)
    assert states[-1] == "returned"
    assert "returning" not in states
    with world.plain.read() as connection:
        steps = [one.what for page in audit.walk(connection) for one in page]
    assert steps[-2:] == ["episode.returning", "episode.returned"]  # and no mark is set between them


class Moving(FakeMarker):
    """A scheduler of a site's own package: it keeps no owner with a mark, and work that is bound to a dead node."""

    def __init__(self, world):
        super().__init__(world)
        self.moved = []

    def move_work(self, names):
        new = [name for name in names if name not in self.moved]
        self.moved += new
        return [Applied(name, Effect.CHANGED if name in new else Effect.UNCHANGED, "volumes") for name in names]


def test_that_work_may_move_is_written_down_where_the_mark_is_set_anew_in_the_same_round(world):
    world.nodes["n1"] = Unmarked("n1")
    controller = world.controller("[reasons.NodeSilent]\nsettle = '5m'")
    controller.flow.actuators.marker = Moving(world)
    world.report()
    world.die("n1")
    world.run(controller, 18)
    assert world.sendings("n1") == [Rung.POWER_CYCLE]
    assert controller.flow.actuators.marker.moved == ["n1"]
    with world.plain.read() as connection:
        rows = [one for page in audit.walk(connection) for one in page if "its work may move" in one.detail]
    assert [one.node for one in rows] == ["n1"]
