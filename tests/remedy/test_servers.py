"""Several servers over one store: one leads, a lost lead stops at once, and what one began another finishes."""

import urllib.error
import urllib.request

import pytest

from nhc.core.system.metrics_server import Pages, serve
from nhc.marks.ports.repair import Rung
from nhc.remedy import remedy_rounds
from nhc.remedy.machine import EpisodeState
from nhc.remedy.remedy_rounds import Totals
from nhc.store import episodes
from nhc.store.connect import open_store
from nhc.store.errors import LeadershipLost
from nhc.store.rounds.leader import Leader
from tests.support.postgresql import postgresql  # noqa: F401 (a fixture)
from tests.support.remedy_world import World
from tests.support.waiting import until

BOTH = ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.slow])]


@pytest.fixture(params=BOTH)
def shared(request, tmp_path):
    """A new store of each kind."""
    url = f"sqlite:///{tmp_path}/store.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").database()
    made = open_store(url, anchor=str(tmp_path / "anchor"))
    yield made
    made.close()


def test_what_one_server_began_another_finishes_and_the_first_can_do_nothing_more(shared):
    world = World(shared)
    first, second = Leader(shared, holder="one"), Leader(shared, holder="two")
    assert first.attempt()
    assert not second.attempt()
    world.fall_sick("n1")
    old = world.controller(fence=first.fence)
    old.round()
    world.tick()
    assert world.sendings("n1") == [Rung.REBOOT]
    first.release()
    until(second.attempt, what="the server to let go of the lock")
    with pytest.raises(LeadershipLost):
        old.round()  # as a server that was paused and wakes up
    world.run(world.controller(fence=second.fence), 15)
    with shared.read() as connection:
        (row,) = episodes.list_episodes(connection)
    assert (row.state, world.sendings("n1")) == ("returned", [Rung.REBOOT])
    second.release()


@pytest.mark.parametrize(
    ("state", "marked", "sent"),
    [("marking", [], []), ("acting", ["n1"], []), ("returning", ["n1"], [Rung.REBOOT])],
)
def test_a_paused_leader_does_nothing_after_it_has_lost(shared, state, marked, sent):
    """It is stopped between the writing of a step and its call, and another leads when it goes on: a late call would
    repair a node again, or put back one that the other repairs.
    """
    world = World(shared)
    first, second = Leader(shared, holder="one"), Leader(shared, holder="two")
    assert first.attempt()
    world.fall_sick("n1")
    old = world.controller(fence=first.fence)

    def lose(what):
        with shared.read() as connection:
            rows = episodes.list_episodes(connection)
        if what == "after a commit" and rows and rows[-1].state == state:
            world.at_boundary = lambda _what: None
            first.release()
            until(second.attempt, what="the server to let go of the lock")

    world.at_boundary = lose
    with pytest.raises(LeadershipLost):
        world.run(old, 20)
    assert (world.marked, world.sendings("n1"), world.cleared) == (marked, sent, [])
    second.release()


def test_a_leader_that_has_lost_sends_nothing_of_what_still_waits_for_a_worker(shared):
    """Many repairs are sent a few at a time; it is stopped during the first, and another leads when it goes on."""
    world = World(shared)
    first, second = Leader(shared, holder="one"), Leader(shared, holder="two")
    assert first.attempt()
    for name in ("n1", "n2"):
        world.fall_sick(name)
    old = world.controller(fence=first.fence, workers=1)

    def lose(what):
        if what == "after a repair is sent":
            world.at_boundary = lambda _what: None
            first.release()
            until(second.attempt, what="the server to let go of the lock")

    world.at_boundary = lose
    with pytest.raises(LeadershipLost):
        old.round()
    old.flow.actuators.close()
    assert len(world.sent) == 1
    second.release()


@pytest.mark.thorough
def test_the_pages_show_what_the_loop_is_at(world):
    world.fall_sick("n1")
    done = world.controller().round()
    totals = Totals()
    for state in EpisodeState:
        assert f'nhc_remedy_steps_total{{state="{state.value}"}} 0\n' in remedy_rounds.render_metrics(
            world, done, totals
        )
    totals.add(done)
    text = remedy_rounds.render_metrics(world, done, totals)
    assert 'nhc_remedy_episodes{state="watching"} 1' in text
    assert 'nhc_remedy_attempts_day{rung="reboot",outcome="sent"} 1' in text
    assert 'nhc_remedy_waiting{bound="effect"} 1' in text
    assert "nhc_remedy_breaker_open 0" in text
    pages = Pages()
    server = serve("127.0.0.1:0", pages)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{base}/healthz", timeout=60)
        assert error.value.code == 503
        error.value.close()
        pages.update(text, "")
        with urllib.request.urlopen(f"{base}/metrics", timeout=60) as answer:
            assert answer.read().decode() == text
        with urllib.request.urlopen(f"{base}/healthz", timeout=60) as answer:
            assert answer.read() == b"ok\n"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("address", ["", "x", "127.0.0.1", "127.0.0.1:99999"])
def test_what_is_no_address_is_said(address):
    with pytest.raises(ValueError, match="is no address such as"):
        serve(address, Pages())
