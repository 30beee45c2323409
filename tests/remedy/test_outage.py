"""What passes by itself leaves no healthy node out of service: an outage that all nodes share, and the breaker."""

import pytest

from nhc.core.model import Action
from nhc.marks.ports.adapter import OWNER, Mark
from nhc.marks.ports.repair import Rung
from nhc.remedy.operators import close_breaker
from nhc.store import holds
from tests.remedy.test_controller import all_episodes, last
from tests.store.test_pushes import OK, XID, Machine
from tests.support.remedy_world import Sickness, World

OUTAGE = Sickness(Action.INSPECT, Rung.ESCALATE, "FsNotAnswering", "/home", "check_fs_mount")
BREAKER = '[breaker]\nfaults = "10% at least 5"\nblind = "100%"\nfailures = 0\n'


def fleet(store, count=24):
    return World(store, count=count)


def hook_marks(world, name):
    """What the Slurm health check does on the node, without the loop."""
    world.nodes[name].mark, world.nodes[name].available = Mark("/home does not answer", owner=OWNER), False


def hooks_return(world):
    for node in world.nodes.values():
        if node.mark is not None and node.mark.owner == OWNER and not node.sick:
            node.mark, node.available = None, True


def breaker(world):
    with world.read() as connection:
        return holds.breaker_of(connection, "remedy").state


def out(world):
    return [name for name, node in world.nodes.items() if not node.available]


@pytest.mark.thorough
@pytest.mark.parametrize(("fails_at_once", "hooked"), [(24, 12), (4, 12), (4, 0)])
def test_an_outage_of_a_shared_file_system_ends_with_every_node_back_by_itself(store, fails_at_once, hooked):
    """24 nodes fail one check for a minute, some seconds before the others; hooks have drained twelve, or none."""
    world = fleet(store)
    controller = world.controller(BREAKER)
    names = list(world.nodes)
    for name in names[:fails_at_once]:
        world.fall_sick(name, OUTAGE)
    for name in names[:hooked]:
        hook_marks(world, name)
    world.run(controller, 1, 8.0)
    for name in names[fails_at_once:]:
        world.fall_sick(name, OUTAGE)
    world.run(controller, 6, 10.0)
    assert breaker(world) == "open"
    early = fails_at_once if fails_at_once < 24 else 0
    assert sum(last(world, name).state == "escalated" for name in names) == early
    for node in world.nodes.values():
        node.sick.clear()
    hooks_return(world)
    for _ in range(20):
        hooks_return(world)
        world.run(controller, 1)
    assert out(world) == []
    assert breaker(world) == "open", "a person closes it, and no node waits for that"
    close_breaker(world.plain, by="ann", why="the file system is back", now=world.now)
    world.run(controller, 3)
    assert (out(world), world.sent) == ([], [])


@pytest.mark.thorough
def test_a_mark_of_a_hook_stays_the_hooks_where_no_repair_is_known(world):
    """A person is told, and the next healthy report puts the node back; the loop's own mark would stand."""
    hook_marks(world, "n1")
    world.fall_sick("n1", OUTAGE)
    controller = world.controller()
    world.run(controller, 3)
    assert (last(world).state, world.nodes["n1"].mark.owner, world.marked) == ("escalated", OWNER, [])
    world.fall_sick("n1", Sickness(Action.REBOOT, Rung.REBOOT))  # one that the loop repairs: its mark takes the place
    world.run(controller, 3)
    assert (last(world).state, world.nodes["n1"].mark.owner) != ("escalated", OWNER)
    hook_marks(world, "n2")
    world.fall_sick("n2", OUTAGE)
    world.run(controller, 3)
    world.nodes["n2"].sick.clear()
    hooks_return(world)
    world.run(controller, 3)
    assert (last(world, "n2").state, "n2" in out(world)) == ("withdrawn", False), "nobody is asked for any more"


@pytest.mark.thorough
@pytest.mark.parametrize("state", ["detected", "marked", "draining", "recheck", "awaiting-approval", "verifying"])
def test_no_node_is_left_to_a_person_while_the_breaker_is_open(world, state):
    """Whatever the state, and however long it lasts: once it is closed, the time of the state begins anew."""
    action = Action.INSPECT if state in ("detected", "marked") else Action.REBOOT
    settings = '[drain]\ndeadline = "5m"\n[approval]\nreboot = 1\nexpires = "5m"\n'
    settings += '[verify]\nhealthy-for = "2m"\ndeadline = "5m"\n'
    if state in ("draining", "recheck", "verifying"):
        settings = settings.replace("reboot = 1", "reboot = 0")
    settings += '[limits]\nfirst-run = "100%"\nattempts = 20\npatience = "10m"\n'
    controller = world.controller(settings)
    world.nodes["n1"].busy = state == "draining"
    if state == "recheck":
        world.claimed["n1"] = "the platform repairs it"
    open_at = {"detected": "", "marked": "marked"}.get(state, state)

    def opened():
        with world.plain.write() as connection:
            holds.set_breaker(connection, "remedy", "open", by="ann", why="look", now=world.now)

    if state == "detected":
        opened()
    elif state == "marked":
        moments = []

        def hear(what):
            if what == "after marks are set" and not moments:
                moments.append(what)
                opened()

        world.at_boundary = hear
    world.fall_sick("n1", Sickness(action, Rung.ESCALATE))
    for _ in range(8):
        world.run(controller, 1)
        if last(world).state == open_at:
            break
    if state == "verifying":
        world.nodes["n1"].unknown = True
        world.nodes["n1"].sick.clear()
    opened()
    before = last(world).state
    world.run(controller, 40, 60.0)
    assert last(world).state in (before, state), last(world).detail
    world.nodes["n1"].sick.clear()
    world.nodes["n1"].busy, world.nodes["n1"].unknown = False, False
    world.claimed.clear()
    world.run(controller, 10)
    assert out(world) == [], last(world).detail
    assert [row.state for row in all_episodes(world)] in (["returned"], ["withdrawn"])


@pytest.mark.thorough
def test_a_fault_that_stands_is_left_to_a_person_once_the_breaker_is_closed(world):
    controller = world.controller()
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="ann", why="look", now=world.now)
    hook_marks(world, "n1")
    world.fall_sick("n1", OUTAGE)
    world.run(controller, 5)
    assert last(world).state == "detected"
    close_breaker(world.plain, by="ann", why="looked", now=world.now)
    world.run(controller, 5)
    assert (last(world).state, out(world)) == ("escalated", ["n1"])


@pytest.mark.thorough
def test_a_node_is_proved_once_faults_that_nobody_repairs_have_ended_but_not_one_that_was_booted(world):
    controller = world.controller()
    for name in ("n1", "n2"):
        world.fall_sick(name, OUTAGE)
    world.fall_sick("n3", Sickness(cure=Rung.ESCALATE))  # what was repaired in vain stays a person's
    world.run(controller, 80)
    assert [last(world, name).state for name in ("n1", "n2", "n3")] == ["escalated"] * 3
    world.nodes["n2"].boot += 1
    for node in world.nodes.values():
        node.sick.clear()
    world.report()
    world.run(controller, 20)
    assert (out(world), last(world, "n1").state) == (["n2", "n3"], "returned")


@pytest.mark.thorough
@pytest.mark.parametrize("repairing", [False, True])
def test_nothing_is_done_to_a_node_under_whose_name_two_machines_push(world, repairing):
    controller = world.controller()
    if repairing:
        world.nodes["n1"].busy = True
        world.fall_sick("n1")
        world.run(controller, 2)
    world.nodes["n1"].silent = True
    one = Machine(world.plain, "b1", world.now - 1000.0)
    two = Machine(world.plain, "b2", world.now - 500.0)
    for _ in range(3):
        one.push(world.now, XID)
        world.tick(30.0)
        two.push(world.now, XID if repairing else OK)
        world.tick(30.0)
    world.nodes["n1"].busy = False
    done = controller.round()
    assert [wait.node for wait in done.waiting if "two machines push" in wait.why] == ["n1"]
    for _ in range(5):
        one.push(world.now, XID)
        two.push(world.now + 1.0, XID)
        world.run(controller, 1)
    assert (world.sent, len(all_episodes(world))) == ([], int(repairing))
    for _ in range(15):  # one of them is found, and ends
        two.push(world.now, XID)
        world.run(controller, 1, 60.0)
    assert len(all_episodes(world)) == 1
