"""Grid Engine's load sensor: a report of the node for each line on standard input."""

from __future__ import annotations

import gc
import sys

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report
from nhc.hooks.lbnl_output import LbnlOutput, lbnl_text
from nhc.hooks.scheduled_check import helpers_name, judge, watching

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence


def run_load_sensor(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    """Grid Engine's load sensor protocol: a report for every line on standard input, until `quit` or its end."""
    output = LbnlOutput(settings, warnings)
    gc.enable()  # a load sensor keeps running; `nhc.cli.main.entry` expects a run that ends soon
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        report = judge(settings, output)
        name = helpers_name(report.host, settings) if report else ""
        for value in load_values(report, name, watching(settings)):
            print(value, flush=True)
    return 0


def load_values(report: Optional[Report], name: str, watches: bool = False) -> List[str]:
    """A report as the load values `healthy` and `diagnosis`. UNKNOWN and watch-only leave the node in service."""
    if report is None:
        return ["begin", "end"]
    failures = report.failures()
    diagnosis = f"NHC: {lbnl_text(failures[0])}" if failures else "HEALTHY"
    if failures and watches:
        diagnosis = f"NHC watch only: {lbnl_text(failures[0])}"
    healthy = "false" if failures and not watches else "true"
    return ["begin", f"{name}:healthy:{healthy}", f"{name}:diagnosis:{diagnosis}", "end"]
