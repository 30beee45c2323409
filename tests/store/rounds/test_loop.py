"""What holds for every flow because the loop asks it: shown with a flow that is as small as one can be."""

import json

import pytest

from nhc.core.limits import Limit, Mode
from nhc.marks.policy.bounds import FLEET, Bounds, RadiusBounds, Usage
from nhc.marks.policy.door import Bars
from nhc.store import audit, episodes, holds
from nhc.store.episodes import OpeningEpisode
from nhc.store.rounds.loop import FlowLoop
from nhc.store.rounds.row_flow import RowFlow, RowMove


class Washing:
    """Each dirty node is washed once: opened, washing (which is a mark to the bars), done."""

    kind, actor = "washing", "nhc wash"

    def __init__(self, store, dirty, bounds=None, mode=Mode.ON):
        self.store, self.dirty, self.problems = store, list(dirty), []
        self.bounds, self.mode, self.calls = bounds or Bounds(radii={}), mode, []
        self.fails, self.killed = "", ""

    def look(self, now, apply, rows):
        with self.store.read() as connection:
            breaker = holds.breaker_of(connection, "remedy")
            held = {hold.name: f"held by {hold.by}" for hold in holds.in_force(connection, now)}
        usage = Usage({f"n{number}": () for number in range(10)}, {(FLEET, ""): 10})
        for row in rows:
            if row.state == "washing":
                usage.count_out(row.node)
        why = breaker.why if breaker.is_open else ""
        return Bars(self.bounds, usage, why, lambda node: held.get(node, ""), lambda _action: self.mode)

    def new(self, now):
        return [OpeningEpisode(node, "dirt", "open", "dirty", kind=self.kind) for node in self.dirty], []

    def step(self, row, time):
        if row.node == self.fails:
            raise ValueError("no such node")
        if row.state == "dirty":
            return RowMove("washing", "it is dirty", takes="mark", detail=json.dumps({"began": time.now}))
        return RowMove(because="it is being washed", bound="" if row.state == "washing" else "done")

    def act(self, row):
        if row.node == self.killed:
            raise KeyboardInterrupt
        self.calls.append(row.node)
        self.dirty.remove(row.node)
        return RowMove("clean", "it is washed", ends=True)


def loop(store, washing):
    return FlowLoop(store, RowFlow(store, washing), clock=lambda: 1000.0, monotonic=lambda: 1000.0)


def rows(store):
    with store.read() as connection:
        return {row.node: row.state for row in episodes.open_work(connection, "washing")}


def whys(done):
    return {wait.node: wait.why.partition(":")[0] for wait in done.waiting}


def test_a_flow_is_read_stepped_written_down_and_done(store):
    washing = Washing(store, ["n1", "n2"])
    told = []
    made = loop(store, washing)
    made.publish = told.append
    done = made.round()
    assert (done.opened, washing.calls, rows(store)) == (2, ["n1", "n2"], {})
    assert [(one.row.node, one.row.state) for one in done.moved] == [
        ("n1", "washing"), ("n2", "washing"), ("n1", "clean"), ("n2", "clean"),
    ]  # fmt: skip
    assert tuple(told) == done.moved
    with store.read() as connection:
        [first, *more] = [one.what for one in audit.entries(connection, node="n1")]
        assert [first, *more] == ["washing.dirty", "washing.washing", "washing.clean"]
        assert episodes.list_episodes(connection) == [], "no repair of the node"


def hold(store, scope="node", name="n1"):
    with store.write() as connection:
        holds.hold(connection, scope, name, by="ann", why="mine", now=999.0)


def test_a_hold_keeps_one_node_and_the_open_breaker_all(store):
    hold(store)
    washing = Washing(store, ["n1", "n2"])
    assert whys(loop(store, washing).round()) == {"n1": "hold"}
    assert washing.calls == ["n2"]
    with store.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="ann", why="stop", now=999.0)
    washing.dirty = ["n3"]
    assert whys(loop(store, washing).round()) == {"n3": "breaker"}
    assert washing.calls == ["n2"]


@pytest.mark.parametrize(
    ("bounds", "bound"),
    [
        (Bounds(radii={FLEET: RadiusBounds(out=Limit(2))}), "fleet.out"),
        (Bounds(radii={}, protected=("n[34]",)), "protected"),
    ],
)
def test_the_bounds_hold_what_takes_of_them(store, bounds, bound):
    washing = Washing(store, ["n1", "n2", "n3", "n4"], bounds)
    done = loop(store, washing).round()
    assert washing.calls == ["n1", "n2"]
    assert set(whys(done).values()) == {bound}


def test_what_is_not_enabled_or_only_shown_is_not_begun(store):
    washing = Washing(store, ["n1"], mode=Mode.DRY_RUN)
    assert whys(loop(store, washing).round()) == {"n1": "dry-run"}
    washing.mode = Mode.ON
    assert [one.node for one in loop(store, washing).round(apply=False).would] == ["n1"]
    assert (washing.calls, rows(store)) == ([], {})


def test_one_that_cannot_be_decided_holds_up_no_other(store):
    washing = Washing(store, ["n1", "n2"])
    washing.fails = "n1"
    assert whys(loop(store, washing).round()) == {"n1": "undecided"}
    assert washing.calls == ["n2"]


def test_what_was_written_down_is_gone_on_with_by_the_next_process(store):
    washing = Washing(store, ["n1"])
    washing.killed = "n1"
    with pytest.raises(KeyboardInterrupt):
        loop(store, washing).round()
    assert rows(store) == {"n1": "washing"}
    washing.killed = ""
    loop(store, washing).round()
    assert (washing.calls, rows(store)) == (["n1"], {})


def test_a_far_step_of_the_clock_opens_the_breaker(store):
    now, ticks = [1000.0], [1000.0]
    washing = Washing(store, ["n1"])
    made = FlowLoop(store, RowFlow(store, washing), clock=lambda: now[0], monotonic=lambda: ticks[0])
    made.round()
    now[0], ticks[0], washing.dirty = 90_000.0, 1010.0, ["n2"]
    done = made.round()
    assert (whys(done), washing.calls) == ({"n2": "breaker"}, ["n1"])
    assert any("the clock jumped" in line for line in done.problems)
