"""The contract of sinks finds what it is there to find: a correct sink passes it, each spoilt one does not."""

from __future__ import annotations

from typing import ClassVar

import pytest

from nhc.core.settings import settings_file
from nhc.lab.testing.sinks import SinkContract, SinkWorld
from nhc.marks.ports.adapter import AdapterError


class Correct:
    there: ClassVar[dict] = {}

    def __init__(self, settings, node, complain):
        table = settings_file.of(settings, "sinks", "shelf")
        self.shelf, self.node = table.text("shelf"), node
        table.finish()

    def standing(self):
        return []

    def deliver(self, delivery):
        if self.shelf not in self.there:
            raise AdapterError(f"{self.shelf}: there is no such shelf")
        self.there[self.shelf] = delivery.report.verdict.name

    def close(self):
        pass


class ShelfWorld(SinkWorld):
    def __init__(self, make=Correct):
        super().__init__()
        self.make, self.settings, self.unreachable = make, {"shelf": "upper"}, {"shelf": "gone"}
        make.there = {"upper": ""}

    def shown(self):
        return self.make.there["upper"]


class TestACorrectSink(SinkContract):
    @pytest.fixture
    def world(self):
        return ShelfWorld()


class TakesAnyKey(Correct):
    def __init__(self, settings, node, complain):
        self.shelf = settings["shelf"]


class SaysNothing(Correct):
    def deliver(self, delivery):
        if self.shelf in self.there:
            super().deliver(delivery)


class SaysTooMuch(Correct):
    def deliver(self, delivery):
        if self.shelf not in self.there:
            raise AdapterError("two\nlines")
        super().deliver(delivery)


class KeepsFaults(Correct):
    def deliver(self, delivery):
        if delivery.report.failures() or self.shelf not in self.there or not self.there[self.shelf]:
            super().deliver(delivery)


class TakesNoSettings(Correct):
    def __init__(self, node):
        self.node = node


@pytest.mark.parametrize(
    ("spoilt", "test"),
    [
        (TakesNoSettings, "test_it_is_made_as_the_agent_makes_one"),
        (TakesAnyKey, "test_an_unknown_key_is_one_clear_line"),
        (KeepsFaults, "test_a_fault_and_its_end_reach_the_other_side"),
        (SaysNothing, "test_nobody_there_is_one_line_and_delivered_later"),
        (SaysTooMuch, "test_nobody_there_is_one_line_and_delivered_later"),
    ],
)
def test_a_spoilt_sink_is_found(spoilt, test):
    with pytest.raises((AssertionError, TypeError)):
        getattr(SinkContract(), test)(ShelfWorld(spoilt))
