"""How tests of groups of nodes are launched: what a launcher gets, and what it can be asked.

A launcher puts a test where a scheduler keeps other work off its nodes, and gives way to real work. What came of a test
is known by the completion marker that the test itself writes with its token, never by what the scheduler says of it.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, NamedTuple, Optional, Protocol, Sequence, Tuple, runtime_checkable


class GroupOrder(NamedTuple):
    """One test. `key` names it within its sweep, as a word; `seconds` is its limit; `tasks` are ranks on each node."""

    key: str
    nodes: Tuple[str, ...]
    argv: Tuple[str, ...]
    tasks: int
    seconds: float


class GroupJob(NamedTuple):
    """A test that the scheduler has: its handle, and whether it has begun."""

    handle: str
    running: bool


class GroupOutput(NamedTuple):
    """A test that wrote its completion marker: the tool's exit status, and what it printed."""

    status: int
    output: str


@runtime_checkable
class SaysWhyBusy(Protocol):
    """A launcher that knows why a node was not idle when it last looked."""

    def why_busy(self, node: str) -> str:
        """One line, "" where nothing is known."""


class Launcher(Protocol):
    """All raise AdapterError. `sweep` is a sweep's token, the same for all its tests.

    What makes a launcher of its settings raises SettingError where one of them makes no sense.
    """

    def idle(self, nodes: Sequence[str]) -> FrozenSet[str]:
        """Those of the nodes on which nothing runs and on which a test may be started now."""

    def launch(self, sweep: str, order: GroupOrder) -> str:
        """Start a test; its handle. Where the answer is lost the test may have been started: `jobs` shows it."""

    def jobs(self, sweep: str) -> Dict[str, GroupJob]:
        """The tests of a sweep that wait or run, by key."""

    def finished(self, sweep: str, key: str) -> Optional[GroupOutput]:
        """What a test left, None where it has no completion marker."""

    def failure(self, sweep: str, key: str) -> str:
        """Why a test that has gone left no completion marker, "" where the launcher does not know."""

    def end(self, handle: str) -> None:
        """Take a test back or end it."""

    def finish(self, sweep: str) -> None:
        """The sweep is over: remove what nobody needs any more. Asked for twice it does nothing more.

        Raises AdapterError that names what could not be taken away or ended.
        """
