"""What is read of a large fleet for the next picture, and what viewers get of it: what changed alone."""

import asyncio
import json
import random

import pytest
import sqlalchemy as sa

from nhc.console import sources
from nhc.console.fleet_nodes import FleetNodes, NodeRow, letter_of
from nhc.console.hub import NAMED, Hub
from nhc.console.snapshot import changes, layout_change, take
from nhc.console.sources import StoreSource
from nhc.core.model import Verdict
from nhc.store import nodes
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from nhc.store.schema import nodes as table
from tests.console.conftest import report
from tests.support.new_store import new_store

NOW = 1e9


def row(name, rack="r1", verdict="OK"):
    return NodeRow(name, verdict, NOW, NOW, "h100", {"rack": rack} if rack else {}, "agent")


def large(directory, count=60):
    store = new_store(str(directory), anchor="")
    with store.write() as connection:
        found = [
            Incoming(report(f"n{number:03}", started=NOW + number), "agent", NOW + number) for number in range(count)
        ]
        receive(connection, found)
    return store


def hear(store, at, *reports):
    with store.write() as connection:
        receive(connection, [Incoming(one, "agent", at) for one in reports])


def reads(monkeypatch):
    """How many rows each read of nodes returned."""
    counts, seen = [], nodes.summaries
    monkeypatch.setattr(nodes, "summaries", lambda *given: counts.append(len(found := seen(*given))) or found)
    return counts


def test_of_the_nodes_those_are_read_that_reported_since(tmp_path, monkeypatch):
    clock = [NOW + 100]
    store, counts = large(tmp_path), reads(monkeypatch)
    source = StoreSource(store, 600, lambda: clock[0])
    assert source.snapshot().letters == "o" * 60
    hear(store, NOW + 90, report("n007", Verdict.CRIT, "GpuLost", NOW + 90))
    clock[0] += 2
    assert source.snapshot().letters == "o" * 7 + "c" + "o" * 52
    assert counts == [60, 1 + sources.OVERLAP + 1]  # it, and the last of the others: their reports are a second apart


def test_a_report_that_came_to_stand_late_is_seen(tmp_path):
    clock = [NOW + 100]
    store = large(tmp_path)
    source = StoreSource(store, 600, lambda: clock[0])
    source.snapshot()
    hear(store, NOW + 59 - sources.OVERLAP, report("n007", Verdict.CRIT, "GpuLost", NOW + 40))
    assert source.snapshot().counts()["c"] == 1
    hear(
        store, NOW + 1, report("n008", Verdict.CRIT, "GpuLost", NOW + 45)
    )  # by a server whose clock is a minute behind
    clock[0] += sources.WHOLE
    assert source.snapshot().counts()["c"] == 2


def test_a_server_whose_clock_is_ahead_keeps_no_report_of_another_back(tmp_path):
    store = large(tmp_path)
    hear(store, NOW + 3600, report("n001", started=NOW + 99))
    source = StoreSource(store, 600, lambda: NOW + 100)
    source.snapshot()
    hear(store, NOW + 100, report("n007", Verdict.CRIT, "GpuLost", NOW + 100))
    assert source.snapshot().counts()["c"] == 1


def test_nodes_that_nobody_reported_come_and_go_at_once(tmp_path):
    store = large(tmp_path)
    source = StoreSource(store, 600, lambda: NOW + 100)
    before = source.snapshot()
    with store.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("m1", groups={"rack": "r9"})])
        connection.execute(sa.delete(table).where(table.c.node == "n059"))
    assert source.snapshot().names == before.names  # as many as before
    with store.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("m2", groups={"rack": "r9"})])
    after = source.snapshot()
    assert (after.names[:3], after.names[-1], after.letters[:3]) == (("m1", "m2", "n000"), "n058", "nno")
    assert after.sizes == {("rack", "r9"): 2}


def test_a_layout_is_the_same_text_for_the_same_nodes_however_they_came():
    chance = random.Random(5)
    kept = FleetNodes()
    for _turn in range(200):
        name = f"n{chance.randint(0, 30)}"
        if name in kept.rows and chance.random() < 0.3:
            kept.forget([name])
        elif chance.random() < 0.1:
            kept.replace([row(f"n{number}", "r2") for number in range(chance.randint(0, 30))])
        else:
            kept.put([row(name, chance.choice(["r1", "r2", ""]))])
        anew = FleetNodes(kept.rows.values())
        assert (kept.layout, kept.names, kept.sizes) == (anew.layout, anew.names, anew.sizes)
        assert list(kept.rows) == sorted(kept.rows)


def patched(old, change):
    """The names, letters and racks after a change of the layout, as the page makes them of those before."""
    names = [one for one in old.names if one not in change.gone]
    kept = {name: (letter, old.nodes[name].groups) for name, letter in zip(old.names, old.letters)}
    for place, name, letter, groups in change.put:
        if names[place : place + 1] == [name]:
            del names[place]
        names.insert(place, name)
        kept[name] = letter, groups
    return names, [kept[name][0] for name in names], [kept[name][1] for name in names]


def test_a_change_of_the_layout_is_all_that_is_needed_to_have_the_new_one():
    chance = random.Random(7)
    fleet = {f"n{number}": row(f"n{number}") for number in range(50)}
    for _turn in range(100):
        old = take(list(fleet.values()), [], NOW, 600)
        for _each in range(chance.randint(1, 5)):
            name = f"n{chance.randint(0, 70)}"
            if name in fleet and chance.random() < 0.4:
                del fleet[name]
            else:
                fleet[name] = row(name, chance.choice(["r1", "r2"]), chance.choice(["OK", "CRIT"]))
        new = take(list(fleet.values()), [], NOW, 600)
        names, letters, groups = patched(old, layout_change(old, new, 100))
        for place, letter in changes(old, new):
            letters[place] = letter
        assert (tuple(names), "".join(letters)) == (new.names, new.letters)
        assert groups == [new.nodes[name].groups for name in names]


class Given:
    name = "given"

    def __init__(self):
        self.rows = [row(f"n{number:05}", f"r{number // 36}") for number in range(20_000)]

        self.revision = 0

    def snapshot(self):
        return take(self.rows, [], NOW, 600, self.revision)

    def report(self, _node):
        return None


@pytest.mark.thorough
def test_viewers_get_what_changed_in_a_layout_and_not_the_whole():
    async def go():
        source = Given()
        hub = Hub(source, 60, lambda: NOW)
        await hub.refresh()
        queue = hub.join(hub.number)
        source.rows = [*source.rows[1:], row("new", "r1")]
        source.rows[7] = source.rows[7]._replace(verdict="CRIT")
        await hub.refresh()
        source.rows = [*source.rows, *(row(f"x{number}") for number in range(NAMED + 1))]
        await hub.refresh()
        return [queue.get_nowait().text.decode() for _message in range(queue.qsize())]

    told = [text.split("\n")[1:3] for text in asyncio.run(go())]
    said = [(kind.split(": ")[1], json.loads(data.partition(": ")[2])) for kind, data in told if "beat" not in kind]
    (first, small), (second, letters), (third, large_one) = said
    assert (first, second, third) == ("layout", "letters", "layout")
    assert (small["gone"], small["put"]) == (["n00000"], [[19_999, "new", "o", {"rack": "r1"}]])
    assert (letters["layout"], letters["changes"]) == (small["layout"], [[7, "c"]])
    assert list(large_one) == ["layout"]


@pytest.mark.thorough
def test_a_step_of_a_repair_is_sent_also_with_another_layout():
    async def go():
        source = Given()
        hub = Hub(source, 60, lambda: NOW)
        await hub.refresh()
        queue = hub.join(hub.number)
        source.rows, source.revision = [*source.rows, *(row(f"x{number}") for number in range(NAMED + 1))], 1
        await hub.refresh()
        return [queue.get_nowait().text.decode().split("\n")[1] for _message in range(queue.qsize())]

    assert asyncio.run(go()) == ["event: beat", "event: episodes", "event: layout"]


@pytest.mark.thorough
def test_a_fleet_that_nobody_looks_at_is_read_less_often(monkeypatch):
    monkeypatch.setattr("nhc.console.hub.RESTING", 1e6)

    async def read(times):
        while len(counts) < times:
            await asyncio.sleep(0.01)

    async def go():
        task = asyncio.ensure_future(hub.run())
        await asyncio.sleep(0.3)
        resting = len(counts)
        hub.current()
        await read(1)
        queue = hub.join(None)
        await read(4)
        hub.leave(queue)
        task.cancel()
        return resting

    source, counts = Given(), []
    source.rows, take_it = source.rows[:10], source.snapshot
    source.snapshot = lambda: counts.append(1) or take_it()
    hub = Hub(source, 0.01, lambda: NOW)
    assert asyncio.run(asyncio.wait_for(go(), 60)) == 0


@pytest.mark.parametrize("turns", range(5))
def test_reading_ends_when_it_is_cancelled_right_after_a_look(monkeypatch, turns):
    """`asyncio.wait_for` of Python before 3.12 returns then, and the cancellation is lost: the console never ended."""
    monkeypatch.setattr("nhc.console.hub.RESTING", 1e9)

    async def go():
        hub = Hub(Given(), 1e-4, lambda: NOW)
        task = asyncio.ensure_future(hub.run())
        await asyncio.sleep(0.1)  # it waits for a look
        hub.current()
        for _turn in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=10)
        return task.cancelled()

    assert asyncio.run(go())


def test_the_letter_of_a_node_whose_report_is_ahead_of_the_clock_is_that_of_a_stale_one():
    for at, letter in ((NOW - 10, "o"), (NOW + 30, "o"), (NOW - 1000, "s"), (NOW + 86400, "s")):
        assert letter_of(NodeRow("n1", "OK", at, None, "", {}, "agent"), NOW, 600.0) == letter
