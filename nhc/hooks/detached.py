"""DETACHED_MODE: the verdict of the last run at once, while the checks run behind the caller's back."""

from __future__ import annotations

import os

from nhc.core.exit_status import EXIT_UNKNOWN
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report
from nhc.core.system.steady_time import boot_id
from nhc.hooks.lbnl_output import LbnlOutput, lbnl_text
from nhc.hooks.scheduled_check import exit_status, judge, log_and_mark, watching

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence


def run_detached(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    """DETACHED_MODE: return the last run's verdict at once and run the checks behind the caller's back.

    Unlike the original, a healthy run writes its result too (there, DETACHED_MODE_FAIL_NODATA fails every
    healthy node) and the detached run keeps the command line.
    """
    from nhc.core.render.json import from_dict, to_dict
    from nhc.core.state.store import State
    from nhc.core.system.children import fork

    kept = State().load("detached")
    try:
        report: Optional[Report] = from_dict(kept["report"])
    except (KeyError, ValueError):
        report = None
    if report is not None and report.boot_id != boot_id():
        report = None

    def child() -> None:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        output = LbnlOutput(settings, warnings)
        judged = judge(settings, output)
        if judged is not None:
            log_and_mark(judged, settings, output)
            State().save("detached", {"report": to_dict(judged)})
            from nhc.core.system.children import reap_all

            reap_all()
        else:  # the last verdict must not count for what is no longer checked
            State().save("detached", {"unusable": boot_id()})

    try:
        fork(child, pipes=0)
    except OSError as error:
        LbnlOutput(settings).error(f"no process can be started for the checks: {error.strerror}")
        return EXIT_UNKNOWN
    if kept.get("unusable") == boot_id():
        LbnlOutput(settings).error("the last run could not use its configuration: nhc config check says why")
        return EXIT_UNKNOWN
    if report is None:
        if settings.get("DETACHED_MODE_FAIL_NODATA") == "1" and not watching(settings):
            print("ERROR Health check failed:  Detached mode -- pending checks (no data found)")
            return 1
        return 0
    if watching(settings):
        return 0
    if report.failures():
        print(f"ERROR Health check failed:  {lbnl_text(report.failures()[0])}")
    return exit_status(report, settings["NHC_CHECK_ALL"] == "1")
