"""The bar that is shown on a terminal while a sweep runs: nodes done, counts by verdict, and who is still awaited."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any, Collection, Mapping, Optional, Sequence, TextIO, Type

from nhc.core.matching.node_ranges import fold
from nhc.core.model import Verdict, printable

_STYLES = {Verdict.CRIT: "bold red", Verdict.UNKNOWN: "magenta", Verdict.WARN: "yellow", Verdict.OK: "green",
           Verdict.SKIP: "dim"}  # fmt: skip
NAMED = 64
"""Nodes still awaited are named once there are at most so many."""


class ProgressLine:
    """A context manager; without `on` it shows nothing and loads nothing. `names` are the nodes of the sweep."""

    def __init__(self, names: Sequence[str], on: bool) -> None:
        self.names, self.on = names, on
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> ProgressLine:  # noqa: PYI034 (Self is Python 3.11's)
        if self.on:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                BarColumn(24), MofNCompleteColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn(),
                TextColumn("{task.fields[awaited]}", markup=False),
                console=Console(file=self._terminal()), transient=True, refresh_per_second=5,
            )  # fmt: skip
            self.task = self.bar.add_task("", total=len(self.names), counts="", awaited="")
            try:
                self.bar.start()
            except RuntimeError:  # no thread can be started to draw it: the sweep goes on without
                self.bar = None
        return self

    def _terminal(self) -> TextIO:
        """Standard error as it is: the bar moves the cursor, which `nhc.core.command_line.clean_output` lets nobody do.

        All that is drawn is ours: numbers, verdicts, and names that are printable.
        """
        encoding = sys.stderr.encoding or "utf-8"
        return open(os.dup(sys.stderr.fileno()), "w", encoding=encoding, errors="backslashreplace")

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, done: int, counts: Mapping[Verdict, int], waiting: Collection[int]) -> None:
        """So many are done, with these verdicts; `waiting` are the places of those that are not."""
        if self.bar is not None:
            counted = (f"[{_STYLES[verdict]}]{count} {verdict.name}[/]" for verdict, count in counts.items() if count)
            awaited = ""
            if 0 < len(waiting) <= NAMED:
                awaited = printable(f"waiting for {fold([self.names[place] for place in sorted(waiting)])}", 120)
            self.bar.update(self.task, completed=done, counts=" ".join(counted), awaited=awaited)
