"""The bar that is shown on a terminal while a sweep runs: nodes done, and counts by verdict."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Mapping, Optional, Type

from nhc.model import Verdict

_STYLES = {Verdict.CRIT: "bold red", Verdict.UNKNOWN: "magenta", Verdict.WARN: "yellow", Verdict.OK: "green",
           Verdict.SKIP: "dim"}  # fmt: skip


class Progress:
    """A context manager; without `on` it shows nothing and loads nothing."""

    def __init__(self, total: int, on: bool) -> None:
        self.total, self.on = total, on
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> Progress:  # noqa: PYI034 (Self is Python 3.11's)
        if self.on:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn(),
                console=Console(file=sys.stderr), transient=True, refresh_per_second=5,
            )  # fmt: skip
            self.task = self.bar.add_task("", total=self.total, counts="")
            self.bar.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, done: int, counts: Mapping[Verdict, int]) -> None:
        if self.bar is not None:
            words = (f"[{_STYLES[verdict]}]{count} {verdict.name}[/]" for verdict, count in counts.items() if count)
            self.bar.update(self.task, completed=done, counts=" ".join(words))
