"""A round over the pools: what it reads, and what it leaves alone."""

import json

from nhc.model import CheckResult, Outcome, Report, Verdict
from nhc.remedy.repairers import Repairers
from nhc.remedy.settings import Sources
from nhc.remedy.site import RemedySite
from nhc.render.json import to_dict
from nhc.spares.settings import PoolSettings
from nhc.spares.swap import round_of
from nhc.store import nodes
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
