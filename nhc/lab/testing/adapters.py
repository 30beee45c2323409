"""The adapter contract as tests: every adapter passes them, ours and a site's own.

    from nhc.lab.testing.adapters import AdapterContract, AdapterWorld

    class TestMine(AdapterContract):
        @pytest.fixture
        def world(self):
            return MyWorld()

A world is one adapter in front of something with at least three nodes in service, and the ways in which an
operator, not nhc, would change one. The tests put back what they change, so a world may be shared.
"""

from __future__ import annotations

import inspect
import time
from typing import Any, Callable, Optional, Sequence

from nhc.core.model import Action, DeviceId
from nhc.marks.ports.adapter import (
    OWNER,
    REMEDY_OWNER,
    AdapterError,
    Comments,
    Effect,
    JobMessages,
    Mark,
    Marker,
    MarksDevices,
    NodeState,
    Operation,
    OtherJobs,
    Power,
    read_mark,
)
from nhc.marks.ports.job_control import ListsWork
from nhc.marks.ports.marks import NODE, USER, mark_text


class AdapterWorld:
    """What a test of an adapter needs around it. Override all of it."""

    adapter: Marker
    nodes: Sequence[str]
    """Names of at least three nodes in service, unmarked."""
    made_by: Optional[Callable[..., Any]] = None
    """What stands under the adapter's name, where it is not the adapter's class."""
    unknown = "no-such-node"
    """A name that nobody has."""

    def operator_takes_out(self, node: str, reason: str) -> None:
        """Take a node out with a reason of one's own, as an operator would by hand."""
        raise NotImplementedError

    def operator_puts_back(self, node: str) -> None:
        """Put a node back by hand."""
        raise NotImplementedError

    def broken(self) -> Marker:
        """The same adapter, unable to reach the other side."""
        raise NotImplementedError

    def acting_for(self, owner: str) -> Marker:
        """The same adapter, made with `owner` as its setting OWNER_SETTING."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until the other side shows what it was asked for; nothing for most."""

    def state(self, node: str) -> NodeState:
        """One node as the adapter sees it now."""
        self.settle()
        (state,) = self.adapter.nodes([node])
        return state


HOSTILE = (
    'it\'s "quoted" $(touch /nope) `id` ; | & < > \\ %s %n {0}',
    "two\nlines\tand\x07bell",
    "Störung – 故障",
    "-o --option State=IDLE Reason=x",
    "ends like ours [action: reboot] [since: 2020-01-01T00:00:00Z]",
    "a,b=c/d:e[1-3]",
    "x" * 5000,
)


class AdapterContract:
    """Subclass it with a `world` fixture; pytest runs every test below on that world."""

    MARK = Mark("check_fs_free: /scratch has only 3% free", Action.REBOOT)

    def one(self, world: AdapterWorld) -> str:
        return world.nodes[0]

    def restore(self, world: AdapterWorld) -> None:
        for node in world.nodes:
            state = world.state(node)
            if state.mark is not None or not state.available:
                world.operator_puts_back(node)

    # Making.

    def test_it_is_made_as_nhc_makes_one(self, world: AdapterWorld) -> None:
        """`nhc.marks.ports.adapter.MakeAdapter`: settings, environment, timeout, each with a default."""
        signature = inspect.signature(world.made_by or type(world.adapter))
        signature.bind({}, {}, 5.0)
        signature.bind()

    def test_what_more_it_can_is_called_as_nhc_calls_it(self, world: AdapterWorld) -> None:
        for port, method, arguments in (
            (Comments, "comment", ("n1", "text")),
            (Comments, "comments", ()),
            (JobMessages, "tell_job", ("7", "text")),
            (OtherJobs, "other_jobs", ("n1", "user", "7")),
            (ListsWork, "work_on", ("n1",)),
            (Power, "repair", (Operation.REBOOT, ["n1"], "why")),
            (MarksDevices, "device_states", (["n1"],)),
            (MarksDevices, "mark_device", ("n1", DeviceId("0000:3b:00.0"), Mark("why"))),
            (MarksDevices, "clear_device", ("n1", DeviceId("0000:3b:00.0"))),
        ):
            if isinstance(world.adapter, port):
                inspect.signature(getattr(world.adapter, method)).bind(*arguments)

    # Reading.

    def test_nodes_are_listed_in_order_and_in_service(self, world: AdapterWorld) -> None:
        self.restore(world)
        states = world.adapter.nodes()
        names = [state.name for state in states]
        assert names == sorted(names)
        assert set(world.nodes) <= set(names)
        assert all(state.available for state in states if state.name in world.nodes)

    def test_only_the_nodes_asked_for_are_returned(self, world: AdapterWorld) -> None:
        asked = [world.nodes[1], world.unknown]
        assert [state.name for state in world.adapter.nodes(asked)] == [world.nodes[1]]
        assert world.adapter.nodes([]) == []

    # Marking.

    def test_a_mark_takes_the_node_out_and_says_who_why_and_what_to_do(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        before = time.time()
        (applied,) = world.adapter.mark({node: self.MARK._replace(since=before)})
        assert (applied.node, applied.effect) == (node, Effect.CHANGED)
        state = world.state(node)
        assert not state.available
        mark = read_mark(world.adapter, node)
        assert mark is not None
        assert mark.ours
        assert (mark.why, mark.action) == (self.MARK.why, Action.REBOOT)
        assert mark.since is not None
        assert abs(mark.since - before) < 60
        self.restore(world)

    def test_marking_again_changes_nothing(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        world.adapter.mark({node: self.MARK._replace(since=time.time())})
        first = world.state(node)
        (applied,) = world.adapter.mark({node: self.MARK._replace(since=time.time() + 1000)})
        assert applied.effect is Effect.UNCHANGED
        assert world.state(node).mark == first.mark
        self.restore(world)

    def test_new_figures_are_no_new_reason(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        world.adapter.mark({node: self.MARK._replace(since=time.time() - 1000)})
        first = world.state(node).mark
        calls = getattr(world.adapter, "calls", 0)
        seen = world.adapter.nodes([node])
        reading = getattr(world.adapter, "calls", 0) - calls
        lower = self.MARK._replace(why=self.MARK.why.replace("3%", "2.5%"), since=time.time())
        assert world.adapter.mark({node: lower}, seen)[0].effect is Effect.UNCHANGED
        assert world.adapter.mark({node: lower})[0].effect is Effect.UNCHANGED
        assert getattr(world.adapter, "calls", 0) - calls <= 2 * reading, "told something, not only asked"
        assert world.state(node).mark == first
        other = self.MARK._replace(why=self.MARK.why.replace("/scratch", "/home"))
        assert world.adapter.mark({node: other})[0].effect is Effect.CHANGED
        self.restore(world)

    def test_a_new_reason_replaces_our_old_one(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        world.adapter.mark({node: self.MARK})
        (applied,) = world.adapter.mark({node: Mark("check_hw_ib: no port is active", Action.REPLACE)})
        assert applied.effect is Effect.CHANGED
        mark = world.state(node).mark
        assert mark is not None
        assert (mark.why, mark.action, mark.ours) == ("check_hw_ib: no port is active", Action.REPLACE, True)
        self.restore(world)

    def test_other_nodes_stay_as_they_are(self, world: AdapterWorld) -> None:
        self.restore(world)
        others = world.nodes[1:]
        before = [state._replace(shown="", flags=frozenset()) for state in world.adapter.nodes(others)]
        world.adapter.mark({self.one(world): self.MARK})
        world.settle()
        assert [state._replace(shown="", flags=frozenset()) for state in world.adapter.nodes(others)] == before
        self.restore(world)

    def test_no_reason_can_do_harm_or_get_lost(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        for text in HOSTILE:
            mark = Mark(text)
            (applied,) = world.adapter.mark({node: mark})
            assert applied.effect is Effect.CHANGED, text
            set_mark = world.state(node).mark
            assert set_mark is not None, text
            assert set_mark.ours, text
            assert mark_text(set_mark) == mark_text(mark), text
            assert set_mark.action is Action.NONE, text
        self.restore(world)

    def test_many_nodes_of_one_reason_are_marked_together(self, world: AdapterWorld) -> None:
        self.restore(world)
        applied = world.adapter.mark(dict.fromkeys(world.nodes, self.MARK))
        assert [(a.node, a.effect) for a in applied] == [(node, Effect.CHANGED) for node in world.nodes]
        assert all(not world.state(node).available for node in world.nodes)
        cleared = world.adapter.clear(list(world.nodes))
        assert [a.effect for a in cleared] == [Effect.CHANGED] * len(world.nodes)
        assert all(world.state(node).available for node in world.nodes)

    def test_an_unknown_node_fails_alone(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        applied = world.adapter.mark({world.unknown: self.MARK, node: self.MARK})
        assert [(a.node, a.effect) for a in applied] == [(world.unknown, Effect.FAILED), (node, Effect.CHANGED)]
        assert [a.effect for a in world.adapter.clear([world.unknown, node])] == [Effect.FAILED, Effect.CHANGED]
        self.restore(world)

    def test_states_read_a_moment_ago_are_enough(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        seen = world.adapter.nodes([node])
        assert world.adapter.mark({node: self.MARK}, seen)[0].effect is Effect.CHANGED
        assert not world.state(node).available
        self.restore(world)

    # Clearing.

    def test_clearing_puts_back_what_we_took_out(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        world.adapter.mark({node: self.MARK})
        assert world.adapter.clear([node])[0].effect is Effect.CHANGED
        state = world.state(node)
        assert state.available
        assert state.mark is None or not state.mark.ours

    def test_clearing_an_unmarked_node_changes_nothing(self, world: AdapterWorld) -> None:
        self.restore(world)
        assert world.adapter.clear([self.one(world)])[0].effect is Effect.UNCHANGED
        assert world.state(self.one(world)).available

    def test_a_mark_that_another_nhc_left_is_ours_to_clear(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        world.operator_takes_out(node, "NHC: check_fs_mount:  /scratch not mounted")
        world.settle()
        assert world.adapter.clear([node])[0].effect is Effect.CHANGED
        assert world.state(node).available

    # What is somebody else's.

    def test_an_operators_drain_keeps_its_reason_and_is_never_resumed(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        world.operator_takes_out(node, "new DIMM on Tuesday")
        before = world.state(node)
        assert not before.available
        assert before.mark is not None
        assert not before.mark.ours
        marked, cleared = world.adapter.mark({node: self.MARK})[0], world.adapter.clear([node])[0]
        assert (marked.effect, cleared.effect) == (Effect.REFUSED, Effect.REFUSED)
        assert "new DIMM on Tuesday" in marked.message
        after = world.state(node)
        assert (after.available, after.mark) == (before.available, before.mark)
        self.restore(world)

    def test_a_reason_that_only_resembles_ours_is_somebody_elses(self, world: AdapterWorld) -> None:
        self.restore(world)
        node = self.one(world)
        for reason in ("NHC:broken", "nhc: broken", "see NHC: log"):
            world.operator_takes_out(node, reason)
            world.settle()
            assert world.adapter.clear([node])[0].effect is Effect.REFUSED, reason
            world.operator_puts_back(node)
            world.settle()

    # The two owners that are nhc's.

    def test_a_mark_of_the_remedy_loop_is_cleared_by_no_healthy_report(self, world: AdapterWorld) -> None:
        """A node is healthy a second after its boot, and not proved: OWNER_SETTING says who may put it back."""
        self.restore(world)
        node, loop = self.one(world), world.acting_for(REMEDY_OWNER)
        assert [getattr(adapter, "owner", None) for adapter in (world.adapter, loop)] == [OWNER, REMEDY_OWNER]
        assert loop.mark({node: self.MARK})[0].effect is Effect.CHANGED
        before = world.state(node)
        assert before.mark is not None
        assert (before.available, before.mark.owner) == (False, REMEDY_OWNER)
        marked, cleared = world.adapter.mark({node: Mark("another")})[0], world.adapter.clear([node])[0]
        assert (marked.effect, cleared.effect) == (Effect.REFUSED, Effect.REFUSED)
        assert world.state(node).mark == before.mark
        assert loop.clear([node])[0].effect is Effect.CHANGED
        assert world.state(node).available

    def test_the_remedy_loop_takes_over_a_mark_of_a_health_check(self, world: AdapterWorld) -> None:
        self.restore(world)
        node, loop = self.one(world), world.acting_for(REMEDY_OWNER)
        world.adapter.mark({node: self.MARK})
        assert loop.mark({node: self.MARK})[0].effect is Effect.CHANGED
        mark = world.state(node).mark
        assert mark is not None
        assert (mark.owner, mark.why) == (REMEDY_OWNER, self.MARK.why)
        self.restore(world)

    def test_a_mark_that_the_loop_takes_over_keeps_its_class(self, world: AdapterWorld) -> None:
        """Unless the loop's own cause has one: what a person asks for is neither the node's fault nor a user's."""
        self.restore(world)
        node, loop = self.one(world), world.acting_for(REMEDY_OWNER)
        world.adapter.mark({node: self.MARK._replace(cause="check_leftovers|LeftoversFound|")})
        for wanted, kind in (
            (Mark("ann asks for it", Action.REBOOT, cause="request|reboot|"), USER),
            (Mark("check_gpu: lost", Action.REPLACE, cause="check_gpu|GpuLost|gpu3"), NODE),
        ):
            assert loop.mark({node: wanted})[0].effect is Effect.CHANGED
            mark = world.state(node).mark
            assert mark is not None
            assert (mark.owner, mark.kind) == (REMEDY_OWNER, kind)
        self.restore(world)

    # When it cannot.

    def test_an_unreachable_other_side_is_said_in_one_line(self, world: AdapterWorld) -> None:
        adapter = world.broken()
        for attempt in (adapter.nodes, lambda: adapter.mark({self.one(world): self.MARK})):
            message = error_of(attempt)
            assert message is not None
            assert message
            assert "\n" not in message
            assert "Traceback" not in message


def error_of(attempt: Callable[[], object]) -> Optional[str]:
    """What the AdapterError says that the attempt raises, None where it raises none."""
    try:
        attempt()
    except AdapterError as error:
        return str(error)
    return None
