"""What is decided on the page, and what the remedy loop makes of it: the real console, the real loop, one store."""

import pytest

from nhc.console.sources import StoreSource
from nhc.marks.ports.repair import Rung
from nhc.remedy import operators
from nhc.store import attempts, audit, episodes
from tests.console.conftest import Running, settings
from tests.support.new_store import new_store
from tests.support.ports import free_ports
from tests.support.remedy_world import World
from tests.support.waiting import until

TWO = "[approval]\nreboot = 2\n"
ONE = "[approval]\nreboot = 1\n"


@pytest.fixture
def world(tmp_path):
    store = new_store(str(tmp_path))
    yield World(store)
    store.close()


@pytest.fixture
def page(world):
    found = settings(free_ports(1)[0])
    running = Running(found, StoreSource(world.plain, found.stale), world.plain, clock=lambda: world.now)
    until(lambda: running.server.hub.snapshot, what="the first snapshot")
    yield running
    running.stop()


def until_it_waits(world, controller):
    """The episode of n1 that waits for persons."""
    world.fall_sick("n1")
    world.run(controller, 6)
    episode = newest(world)
    assert (episode.state, world.sent) == ("awaiting-approval", [])
    return episode.id


def newest(world):
    with world.read() as connection:
        return episodes.list_episodes(connection, node="n1")[-1]


def post(page, number, what, who, **changes):
    """As the form of the episode's page sends it: what it shows is asked for first."""
    shown = page.ask("GET", f"/api/episode/{number}", who="olga")[1]
    form = {"digest": shown["digest"], "confirm": "n1", "reason": "seen it", **changes}
    return page.ask("POST", f"/api/episode/{number}/{what}", form, who)


@pytest.mark.thorough
def test_what_is_agreed_to_on_the_page_is_done(world, page):
    controller = world.controller(ONE)
    number = until_it_waits(world, controller)

    assert post(page, number, "decision", "olga", decision="approved")[0] == 200
    world.run(controller, 20)

    assert (newest(world).state, world.sendings("n1")) == ("returned", [Rung.REBOOT])


@pytest.mark.thorough
def test_two_persons_are_two_whichever_way_each_came(world, page):
    controller = world.controller(TWO)
    number = until_it_waits(world, controller)

    assert post(page, number, "decision", "olga", decision="approved")[0] == 200
    world.run(controller, 3)
    assert (newest(world).state, world.sent) == ("awaiting-approval", [])
    with pytest.raises(Exception, match="olga has decided"):  # she cannot agree a second time as `nhc approve episode`
        operators.decide(world.plain, number, by="olga", agree=True, why="", now=world.now)

    operators.decide(world.plain, number, by="adam", agree=True, why="", now=world.now)
    world.run(controller, 20)

    assert (newest(world).state, world.sendings("n1")) == ("returned", [Rung.REBOOT])
    with world.read() as connection:
        rows = attempts.decisions(connection, number)
    assert [(one.decided_by, one.evidence_digest, one.asked) for one in rows] == [
        ("olga", rows[1].evidence_digest, rows[1].asked), ("adam", rows[0].evidence_digest, rows[0].asked),
    ]  # fmt: skip


@pytest.mark.thorough
def test_what_is_refused_on_the_page_goes_to_a_person(world, page):
    controller = world.controller(ONE)
    number = until_it_waits(world, controller)

    assert post(page, number, "decision", "olga", decision="refused")[0] == 200
    world.run(controller, 5)

    assert (newest(world).state, newest(world).outcome, world.sent) == ("escalated", "olga refused reboot", [])


@pytest.mark.thorough
def test_what_is_aborted_on_the_page_is_left_alone(world, page):
    controller = world.controller(ONE)
    number = until_it_waits(world, controller)

    status, value, _headers = post(page, number, "abort", "olga", reason="I look at it myself")
    assert (status, value["said"]) == (
        200, f"episode {number} of n1 is aborted; the node stays out: nhc release remedy n1"
    )  # fmt: skip
    world.run(controller, 20)

    assert (newest(world).id, newest(world).state, world.sent) == (number, "aborted", [])
    assert not world.nodes["n1"].available
    with world.read() as connection:
        last = audit.entries(connection, episode=number, newest=True, limit=1)[0]
    assert (last.actor, last.what) == ("olga", "episode.aborted")
    assert "I look at it myself" in last.detail


@pytest.mark.thorough
def test_an_abort_while_a_repair_is_under_way_says_that_it_is_not_taken_back(world, page):
    world.fall_sick("n1")
    controller = world.controller()
    while not world.sent:
        world.run(controller, 1)
    number = newest(world).id

    assert "may have been sent and is not taken back" in post(page, number, "abort", "adam")[1]["said"]
    world.run(controller, 20)

    with world.read() as connection:
        assert [one.outcome for one in attempts.attempts_of(connection, number)] == ["superseded"]
    assert world.sendings("n1") == [Rung.REBOOT]
    assert post(page, number, "abort", "adam")[1]["error"] == f"episode {number} has ended already: aborted"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("who", "changes", "said"),
    [
        ("olga", {"confirm": "n2"}, "type the node's name, n1, to confirm"),
        ("olga", {"reason": ""}, "say why it is aborted"),
        ("olga", {"digest": "old"}, "the episode has moved on since this page was shown: look again"),
        ("nina", {}, "nina may decide nothing about n1"),
    ],
)
def test_an_abort_that_is_not_clear_changes_nothing(world, page, who, changes, said):
    number = until_it_waits(world, world.controller(ONE))

    status, value, _headers = post(page, number, "abort", who, **changes)

    assert (status, value["error"]) == (409, said)
    assert newest(world).state == "awaiting-approval"


def test_an_episode_that_is_not_there_is_said_so(page):
    form = {"digest": "", "confirm": "n1", "reason": "seen it", "decision": "approved"}
    for what in ("abort", "decision"):
        assert page.ask("POST", f"/api/episode/77/{what}", form, "olga")[0] == 404
