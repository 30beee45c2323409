"""What the last suite before a job found: the prolog keeps it on the node, and the agent sends it to the server."""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from nhc.core.state.store import State

NAME = "suite-before-job"


def keep(state: State, report: str) -> None:
    """Keep a report (JSON) in place of the one before."""
    state.save_bytes(NAME, report.encode())


def kept(state: State) -> bytes:
    """The report as it is kept, b"" for none."""
    return state.load_bytes(NAME)


def suite_name(suite: str) -> str:
    """What verdicts of a suite are filed under: its name, or a file's without folder and ending."""
    return os.path.basename(suite).removesuffix(".conf").lower() or suite
