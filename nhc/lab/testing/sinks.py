"""The contract of sinks as tests: a site's own sink passes them.

    from nhc.lab.testing.sinks import SinkContract, SinkWorld

    class TestMine(SinkContract):
        @pytest.fixture
        def world(self):
            return MyWorld()

A world is one sink in front of another side that can be asked what it has. Each test gets a world of its own.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Mapping, Optional

from nhc.core.model import CheckResult, Outcome, Report, Verdict, ok
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery, Sink, Standing

NODE = "n1"
HOSTILE = 'it\'s "quoted" $(touch /nope) `id`; --option <b>&\n second line \x07 故障 ' + "x" * 5000


class SinkWorld:
    """What a test of a sink needs around it. Override all of it that has no default."""

    make: Callable[..., Sink]
    """What stands under the sink's name."""
    settings: Mapping[str, Any]
    """The sink's own table, with which it reaches the other side."""
    unreachable: Mapping[str, Any]
    """The same, with which it does not."""

    def __init__(self) -> None:
        self.complaints: List[str] = []

    def sink(self, settings: Optional[Mapping[str, Any]] = None) -> Sink:
        """A sink as the agent makes it."""
        return self.make(self.settings if settings is None else settings, NODE, self.complaints.append)

    def shown(self) -> str:
        """What the other side has been given of this node so far, as a text."""
        raise NotImplementedError

    def settle(self, sink: Sink) -> None:
        """Wait until a sink that writes in its own time has written; nothing for most."""


def delivery(verdict: Verdict, message: str = "gpu3 is lost", **more: Any) -> Delivery:
    """The state of the node with one result of that verdict."""
    outcome = ok() if verdict is Verdict.OK else Outcome(verdict, "GpuLost", message)
    return Delivery(Report(NODE, "boot1", 1_760_000_000.0, 0.5, (CheckResult("check_gpu", outcome),)), True, **more)


class SinkContract:
    """Subclass it with a `world` fixture; pytest runs every test below on that world."""

    def refused(self, attempt: Callable[[], object]) -> str:
        """The one line with which something is refused, "" where it is not."""
        why = ""
        try:
            attempt()
        except (AdapterError, SettingsError) as error:
            why = str(error)
        assert "\n" not in why
        assert len(why) <= 1000
        return why

    def test_it_is_made_as_the_agent_makes_one(self, world: SinkWorld) -> None:
        """With its table of agent.toml, the node's name, and a function to complain to."""
        assert len(inspect.signature(world.make).parameters) >= 3
        sink = world.sink()
        sink.close()

    def test_an_unknown_key_is_one_clear_line(self, world: SinkWorld) -> None:
        settings: Dict[str, Any] = {**world.settings, "no-such-key": 1}
        assert "no-such-key" in self.refused(lambda: world.sink(settings)), "nhc.core.settings.settings_file.of says it"

    def test_what_stands_is_a_list(self, world: SinkWorld) -> None:
        sink = world.sink()
        assert all(isinstance(standing, Standing) for standing in sink.standing())
        sink.close()

    def test_a_fault_and_its_end_reach_the_other_side(self, world: SinkWorld) -> None:
        sink, seen = world.sink(), [world.shown()]
        for verdict in (Verdict.OK, Verdict.CRIT, Verdict.OK):
            sink.deliver(delivery(verdict))
            world.settle(sink)
            seen.append(world.shown())
        sink.close()
        assert seen[1] != seen[2] != seen[3]

    def test_no_text_of_a_node_does_harm(self, world: SinkWorld) -> None:
        sink = world.sink()
        sink.deliver(delivery(Verdict.CRIT, HOSTILE))
        world.settle(sink)
        assert world.shown()
        sink.close()

    def test_nobody_there_is_one_line_and_delivered_later(self, world: SinkWorld) -> None:
        sink = world.sink(world.unreachable)
        why = self.refused(lambda: sink.deliver(delivery(Verdict.CRIT)))
        if not why:  # a sink that writes in its own time
            world.settle(sink)
            problem: Callable[[], str] = getattr(sink, "problem", lambda: "")
            why = problem()
        assert why, "deliver raises AdapterError, or problem() says why"
        sink.close()
