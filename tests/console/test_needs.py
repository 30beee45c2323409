"""What needs a person, out of service by whom, and lists that keep what matters when they are cut."""

import json

import pytest

from nhc.console import open_work, screens
from nhc.console.sources import StoreSource
from nhc.core.model import CheckResult, DeviceId, Metric, Outcome, Report, Verdict
from nhc.remedy.detail import Detail
from nhc.store import episodes, holds, trains
from nhc.store.coverage import ReportSpan
from tests.console.conftest import report


def episode(site, node, state="draining", ended=None, at=0.0, **detail):
    with site.store.write() as connection:
        made, _new = episodes.open_episode(
            connection, node, f"check_gpu_lost|GpuFallenOffBus|{at}", action="reboot", state=state,
            now=site.now + at, by="nhc", rung="reboot", detail=Detail(**detail).text(),
        )  # fmt: skip
        if ended is not None:
            step = episodes.EpisodeStep("nhc", state, {})
            made = episodes.save_step(connection, made, step, now=ended, state=state, ended=ended, outcome=state)
    return made


def seen(site):
    return screens.needs(source(site).snapshot(), site.store)


def source(site):
    return StoreSource(site.store, 600, lambda: site.now)


def service(site, node):
    return open_work.out_of(source(site).snapshot().standing.get(node, ()))


@pytest.mark.thorough
def test_a_node_that_the_loop_gave_up_is_listed_until_a_person_gives_it_back(site):
    first = episode(site, "b2", "escalated", ended=site.now, at=1, marked=site.now - 5)
    assert [one["id"] for one in seen(site)["left"]] == [first.id]

    second = episode(site, "b2", "draining", at=2)

    assert seen(site)["left"] == []
    assert second.id not in {one["id"] for one in seen(site)["approvals"]}


def test_what_is_crit_without_anybody_at_it_is_listed(site):
    assert [(one["reason"], one["nodes"]) for one in seen(site)["unplanned"]] == [("GpuFallenOffBus", "b2")]
    with site.store.write() as connection:
        holds.hold(connection, "node", "b2", by="ann", why="mine", now=site.now)

    assert seen(site)["unplanned"] == []


def test_nodes_that_are_silent_are_counted(site):
    assert seen(site)["silent"] == {"count": 1, "nodes": "b4"}


@pytest.mark.parametrize(
    ("state", "marked", "ended", "out"),
    [("draining", 5.0, False, True), ("detected", 0.0, False, False), ("returned", 5.0, True, False),
     ("escalated", 5.0, True, True), ("escalated", 0.0, True, False), ("returning", 5.0, False, False)],
)  # fmt: skip
def test_a_node_is_out_of_service_while_the_loops_mark_stands(site, state, marked, ended, out):
    since = site.now - marked if marked else 0.0
    made = episode(site, "a1", state, ended=site.now if ended else None, marked=since)

    found = service(site, "a1")

    assert found["out"] is out
    if out:
        assert found["since"] == since
        assert f"episode {made.id}" in found["by"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_node_of_which_one_gpu_is_out_is_in_service(site, ended):
    gpu = DeviceId(pci="0000:3b:00.0", uuid="GPU-1")
    for node, what in (("a1", "about"), ("a2", "widened")):
        state = ("escalated" if ended else "draining") if what == "about" else "marking"
        episode(site, node, state, site.now if ended else None, at=-60.0, marked=site.now - 60, **{what: gpu})

    assert [service(site, node) for node in ("a1", "a2")] == [{"out": False}] * 2
    snapshot = source(site).snapshot()
    assert screens.tiles(snapshot, site.store)["out"] == 0
    parts = screens.history(site.store, site.now, 1, snapshot.devices, 600)["parts"]
    assert sum(part["node_seconds"] for part in parts) == 0
    if not ended:
        assert snapshot.standing["a2"][0].next == "take the node out of service"
        assert snapshot.standing["a1"][0].next == "wait until running work has ended, then reboot"


def test_what_follows_for_one_gpu_names_it(site):
    episode(site, "a1", "returning", marked=site.now - 60, about=DeviceId(pci="0000:3b:00.0"))

    [work] = source(site).snapshot().standing["a1"]
    assert work.next == "put 0000:3b:00.0 of the node back in service"


def test_the_gpus_of_a_node_that_came_back_count_in_what_was_lost(site):
    counted = CheckResult("check_gpu_count", Outcome(Verdict.OK, metrics=(Metric("gpu_expected", 8),)))
    site.hear(Report("a1", "boot-a1", site.now - 5, 0.1, (counted,)))
    with site.store.write() as connection:
        made, _new = episodes.open_episode(
            connection, "a1", "check_gpu_lost|GpuLost|", action="reboot", state="draining", now=site.now - 1800,
            by="nhc", rung="reboot",
        )  # fmt: skip
        step = episodes.EpisodeStep("nhc", "returned", {})
        episodes.save_step(connection, made, step, now=site.now - 900, state="returned", ended=site.now - 900,
                           detail=Detail(marked=site.now - 1800).text())  # fmt: skip

    parts = screens.history(site.store, site.now, 1, source(site).snapshot().devices, 600)["parts"]

    lost = [sum(part[key] for part in parts) for key in ("node_seconds", "gpu_seconds")]
    assert lost == [pytest.approx(900), pytest.approx(8 * 900)]


def test_a_node_that_a_train_has_taken_out_says_so(site):
    assert service(site, "a2") == {"out": False}
    with site.store.write() as connection:
        train = trains.create(connection, "driver-570", [["a2"]], plan="", digest="", state="running",
                              node_state="draining", by="ann", why="a new driver", now=site.now)  # fmt: skip
        (row,) = trains.nodes_of(connection, train.id)
        step = episodes.EpisodeStep("nhc", "episode.draining")
        episodes.save_step(connection, row, step, now=site.now, detail=Detail(marked=site.now - 9).text())

    found = service(site, "a2")
    assert (found["by"], found["since"]) == ("maintenance train driver-570", site.now - 9)


def test_the_longest_waiting_approval_is_on_the_first_page(site, monkeypatch):
    monkeypatch.setattr(screens, "ROWS", 3)
    for number in range(8):
        episode(site, f"a{number % 4 + 1}", at=number + 1)

    first = screens.list_episodes(site.store, site.now, True)
    assert [one["state"] for one in first["episodes"]] == ["awaiting-approval", "draining", "draining"]
    assert (first["count"], first["pages"]) == (9, 3)
    pages = [screens.list_episodes(site.store, site.now, True, page)["episodes"] for page in range(3)]
    assert len({one["id"] for page in pages for one in page}) == 9


def test_a_timeline_that_is_cut_keeps_what_stands_and_the_newest(site, monkeypatch):
    monkeypatch.setattr(screens, "NAMES", 3)
    site.hear(report("a1", Verdict.CRIT, "Stands", started=site.now))
    for number in range(6):
        at = site.now + 1 + number
        kept = report("a1", Verdict.CRIT, "Stands", started=at).results
        other = report("a1", Verdict.CRIT, f"Short{number}", started=at, target="x").results
        site.hear(report("a1", started=at)._replace(results=kept + other))
    window = ReportSpan(site.now - 60, site.now + 60)

    found = screens.timeline(site.store, "a1", window, 600)

    reasons = [row["reason"] for row in found["problems"]]
    assert "Stands" in reasons
    assert "Short5" in reasons
    assert found["more"]
    assert json.loads(json.dumps(found["problems"]))
