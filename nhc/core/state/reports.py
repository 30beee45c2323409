"""Reports kept for others on this node, and the one rule of when such a report may stand for a new run."""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Mapping, Optional

    from nhc.core.model import Report
    from nhc.core.state.store import State


def report_name(context: str) -> str:
    """The name in the state directory of the last report of a context (`agent`, `prolog` ...)."""
    return f"report-{context}"


def fresh(kept: Mapping[str, object], max_age: float, now: float, boot_id: str) -> Optional[Report]:
    """The report that nhc.core.render.json.to_dict made this of, if of this boot and at most `max_age` seconds old.

    None otherwise, and for what is no report. One from the future is not fresh: the clock has been set since.
    """
    started = kept.get("started")
    # Compared, not subtracted: a number beyond all measure in a damaged file cannot be.
    if kept.get("boot_id") != boot_id or not isinstance(started, (int, float)) or not now - max_age <= started <= now:
        return None
    from nhc.core.render.json import from_dict

    try:
        return from_dict(kept)
    except ValueError:
        return None


RUN_ITSELF = "nhc_deep_run"
"""What results about a suite's run itself are filed under."""
UNPROVED = "unproved"
"""The label of a suite's report with the accelerators on which no test came to a result, where there are any."""
SUITE_BEFORE_JOB = "suite-before-job"


def store_suite(state: State, report: str) -> None:
    """Keep what the last suite before a job found (JSON): the prolog does, and the agent sends it to the server."""
    state.save_bytes(SUITE_BEFORE_JOB, report.encode())


def stored_suite(state: State) -> bytes:
    """The report of that suite, b"" for none."""
    return state.load_bytes(SUITE_BEFORE_JOB)


def suite_name(suite: str) -> str:
    """What verdicts of a suite are filed under: its name, or a file's without folder and ending."""
    return os.path.basename(suite).removesuffix(".conf").lower() or suite
