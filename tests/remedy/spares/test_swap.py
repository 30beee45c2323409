"""A round over the pools: what it reads, and what it leaves alone."""

import contextlib
import json

import pytest

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.marks.ports.adapter import AdapterError, Applied, Effect
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.repairers import Repairers
from nhc.remedy.settings import Sources
from nhc.remedy.spares.settings import PoolSettings
from nhc.remedy.spares.spare_rounds import SpareRounds
from nhc.remedy.spares.swap import round_of
from nhc.store import audit, episodes, holds, nodes, spares
from tests.support.new_store import new_store, store  # noqa: F401 (a fixture)
from tests.support.remedy_world import FakeMarker, Killed, World, settings_of


class Waiting:
    """A pool of one node."""

    def waiting(self):
        return ["n3"]


def test_what_is_only_shown_takes_no_report_into_the_store(store, tmp_path):  # noqa: F811
    """`nhc spares list` and `swap` without --apply are looks; the report counts for what they show all the same."""
    world = World(store)
    report = Report("n3", "boot1", world.now, 0.1, (CheckResult("check_gpu", Outcome(Verdict.OK)),))
    (tmp_path / "n3.json").write_text(json.dumps(to_dict(report)))
    settings = settings_of("")._replace(
        sources=Sources("fake", {}, (str(tmp_path),)), evidence_directory=str(tmp_path / "evidence")
    )
    site = RemedySite(settings, store, FakeMarker(world), Repairers([]))
    pool = (PoolSettings("a", "fake", ("n*",)), Waiting())
    (found,) = round_of(site, [pool], apply=False, now=world.now)
    assert [health.verdict for name, health in found.view.health.items() if name == "n3"] == [Verdict.OK]
    with store.read() as connection:
        assert nodes.latest(connection, ["n3"]) == {}
    round_of(site, [pool], apply=True, now=world.now)
    with store.read() as connection:
        assert list(nodes.latest(connection, ["n3"])) == ["n3"]
    site.actuators.close()


class Busy:
    """A pool whose spare is in use, and comes back after so many askings."""

    def __init__(self, busy):
        self.busy = busy

    def waiting(self):
        return []

    def back(self, node):
        self.busy -= 1
        if self.busy < 0:
            return Applied(node, Effect.CHANGED)
        return Applied(node, Effect.FAILED, "work still runs on it")


def test_a_spare_that_is_busy_for_days_is_no_line_in_each_round(store, tmp_path):  # noqa: F811
    """It is asked again and again: the service says once that it waits for it, and then that the spare is back."""
    world = World(store)
    settings = settings_of("")._replace(evidence_directory=str(tmp_path / "evidence"))
    site = RemedySite(settings, store, FakeMarker(world), Repairers([]))
    with store.write() as connection:
        stands_in = spares.opening("n3", "a", "n1", episode=0, why="out")._replace(state=spares.IN_SERVICE)
        episodes.open_episodes(connection, [stands_in], now=world.now, by="test")
    lines = []
    rounds = SpareRounds(site, [(PoolSettings("a", "fake", ("n*",)), Busy(3))], True, lines.append)
    rounds.lead(None)
    for _ in range(3):
        assert rounds.round().problems == ("a: back n3: work still runs on it",)
    assert lines == []
    assert rounds.round().problems == ()
    assert [done.applied.effect for done in lines] == [Effect.CHANGED]
    site.actuators.close()


def test_a_spare_that_a_person_holds_or_the_policy_protects_waits(store, tmp_path):  # noqa: F811
    world = World(store)
    world.report()
    world.fall_sick("n1")
    settings = settings_of("")._replace(evidence_directory=str(tmp_path / "evidence"))
    site = RemedySite(settings, store, FakeMarker(world), Repairers([]))

    def why(site):
        (found,) = round_of(site, [(PoolSettings("a", "fake", ("n*",)), Waiting())], apply=False, now=world.now)
        return [wait.why for wait in found.decision.waits if wait.node == "n3"]

    assert why(site) == ["not verified: its reports say OK for 0 s, not for 120 s"]
    bounds = settings.bounds._replace(protected=("n3*",))
    shielded = RemedySite(settings._replace(bounds=bounds), store, FakeMarker(world), Repairers([]))
    assert why(shielded) == ["not verified: protected by the policy (n3*)"]
    with store.write() as connection:
        holds.hold(connection, "node", "n3", by="ann", why="mine", now=world.now)
    (held,) = why(site)
    assert "ann" in held
    site.actuators.close()
    shielded.actuators.close()


class Kept:
    """A pool of one node, n3, whose every call is a boundary, and whose answers can be lost."""

    def __init__(self, world, lost=""):
        self.world, self.lost, self.free, self.calls = world, lost, True, []

    def waiting(self):
        return ["n3"] if self.free else []

    def _call(self, what, free):
        self.world.boundary(f"before {what}")
        changed = self.free is not free
        self.free = free
        if changed:
            self.calls.append(what)
        self.world.boundary(f"after {what}")
        if self.lost == what:
            self.lost = ""
            raise AdapterError("no answer")
        return Applied("n3", Effect.CHANGED if changed else Effect.UNCHANGED)

    def into_service(self, _node):
        return self._call("in", False)

    def back(self, _node):
        return self._call("back", True)


def out(world, tmp_path):
    """A world whose n1 is out for an hour, by an episode; its site over the store with its boundaries."""
    with world.plain.write() as connection:
        row, _new = episodes.open_episode(connection, "n1", "check_x|Bad|", action="reboot", state="watching",
                                          now=world.now - 3600, by="test")  # fmt: skip
    world.operator_takes_out("n1")
    for _ in range(3):
        world.tick(100.0)
    settings = settings_of("")._replace(evidence_directory=str(tmp_path / "evidence"))
    return RemedySite(settings, world, FakeMarker(world), Repairers([])), row


def swap(site, world, pool):
    world.tick(30.0)
    served = [(PoolSettings("a", "fake", ("n1",), after=60.0), pool)]
    return round_of(site, served, apply=True, now=world.now, monotonic=lambda: world.ticks)


def returns(world, row):
    world.operator_puts_back("n1")
    with world.plain.write() as connection:
        step = episodes.EpisodeStep("test", "episode.returned")
        episodes.save_step(connection, row, step, now=world.now, state="returned", ended=world.now)


def test_an_open_breaker_keeps_a_spare_from_standing_in_and_brings_one_back(store, tmp_path):  # noqa: F811
    world = World(store)
    site, row = out(world, tmp_path)
    pool = Kept(world)

    def breaker(state):
        with store.write() as connection:
            holds.set_breaker(connection, "remedy", state, by="ann", why="too many", now=world.now)

    breaker("open")
    (found,) = swap(site, world, pool)
    assert (pool.calls, found.decision.steps) == ([], ())
    assert [wait.why for wait in found.decision.waits] == ["breaker: the breaker is open: too many"]
    breaker("closed")
    swap(site, world, pool)
    assert pool.calls == ["in"]
    breaker("open")
    returns(world, row)
    swap(site, world, pool)
    assert pool.calls == ["in", "back"]
    site.actuators.close()


def one_swap(store, tmp_path, kill_at, lost=""):  # noqa: F811
    """A node that is out for a while, and the process killed once, at that boundary; what was asked of the pool."""
    world = World(store)
    site, row = out(world, tmp_path)
    pool = Kept(world, lost)
    world.boundaries, world.kill_at = 0, kill_at
    for number in range(12):
        with contextlib.suppress(Killed):
            swap(site, world, pool)
        if number == 5:
            returns(world, row)
    with store.read() as connection:
        left, whats = spares.in_use(connection), [one.what for one in audit.entries(connection, node="n3")]
    site.actuators.close()
    return world.boundaries, pool.calls, left, whats


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["", "in", "back"])
def test_killed_at_each_boundary_a_spare_stands_in_once_and_comes_back(tmp_path, lost):
    def life(kill_at):
        place = tmp_path / str(kill_at)
        place.mkdir()
        with contextlib.closing(new_store(str(place))) as made:
            return one_swap(made, place, kill_at, lost)

    whole = life(-1)[0]
    assert whole > 20
    for boundary in range(1, whole + 1, 2):
        _count, calls, left, whats = life(boundary)
        assert (calls, left) == (["in", "back"], []), f"killed at boundary {boundary}"
        assert whats == ["spare.entering", "spare.in-service", "spare.leaving", "spare.waiting"], boundary
