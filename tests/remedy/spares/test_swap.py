"""A round over the pools: what it reads, and what it leaves alone."""

import json

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.marks.ports.adapter import Applied, Effect
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.repairers import Repairers
from nhc.remedy.settings import Sources
from nhc.remedy.spares.settings import PoolSettings
from nhc.remedy.spares.spare_rounds import SpareRounds
from nhc.remedy.spares.swap import round_of
from nhc.store import holds, nodes, spares
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.remedy_world import FakeMarker, World, settings_of


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
        spares.begin(connection, "n3", "a", "n1", episode=None, by="test", why="out", now=world.now)
        row = spares.in_use(connection)[0]
        spares.save(connection, row, spares.IN_SERVICE, by="test", why="out", now=world.now)
    lines = []
    rounds = SpareRounds(site, [(PoolSettings("a", "fake", ("n*",)), Busy(3))], True, lines.append)
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
