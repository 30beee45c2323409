"""A sink of the agent: a file that says in one line how the node is, for a login message or another agent.

[sinks.statusfile]
path = "/run/nhc/status"
"""

from __future__ import annotations

import os
from typing import Any, Callable, List, Mapping

from nhc.api import AdapterError, Delivery, Standing, printable, settings_file


class StatusFile:
    def __init__(self, settings: Mapping[str, Any], node: str, complain: Callable[[str], None]) -> None:
        table = settings_file.of(settings, "sinks", "statusfile")
        self.path = table.text("path", "/run/nhc/status")
        table.finish()
        self.node, self.complain = node, complain

    def standing(self) -> List[Standing]:
        return []  # the file is no memory of faults

    def deliver(self, delivery: Delivery) -> None:
        failures = [f"{one.check}: {one.outcome.message}" for one in delivery.report.failures()]
        line = printable(f"{self.node} {delivery.report.verdict.name} {'; '.join(failures)}").strip()
        try:
            with open(f"{self.path}.new", "w", encoding="utf-8") as file:
                file.write(f"{line}\n")
            os.replace(f"{self.path}.new", self.path)
        except OSError as error:
            raise AdapterError(f"{self.path}: {error.strerror}") from None

    def close(self) -> None:
        pass  # every delivery is written whole
