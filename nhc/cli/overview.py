"""`nhc status` alone: which parts of nhc are set up and run on this machine, and their last reports."""

from __future__ import annotations

import os
import re
import time
from typing import Dict, Iterator, List, Tuple

import click

from nhc import __version__
from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import show, show_table
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_USAGE
from nhc.core.host import Host
from nhc.core.settings.files import FILES, file_of
from nhc.core.settings.settings_file import SettingsError
from nhc.core.state.store import State
from nhc.core.units import show_age
from nhc.node.facts.processes import command_lines

DIRECTORY = "/etc/nhc"
SERVICE = re.compile(r"(?:^|/)nhc(?:\.pyz)? serve(?: ([a-z]+))?(?: |$)")
Row = Dict[str, str]


@click_command
def command(args: options.Formatted) -> int:
    """Show what of nhc is set up and runs here: services, the last reports of hooks and the agent, settings files.

    Exit status: 0, or 2 where a settings file cannot be used.
    """
    rows = [*services(), *reports(State(), time.time()), *settings()]
    if args.form == "json":
        show({"version": __version__, "parts": rows})
    else:
        click.echo(f"nhc {__version__}")
        show_table([(row["part"], row["name"], row["state"], row["detail"]) for row in rows])
    return EXIT_USAGE if any(row["state"] == "unusable" for row in rows) else EXIT_HEALTHY


def _row(part: str, name: str, state: str, detail: str = "") -> Row:
    return {"part": part, "name": name, "state": state, "detail": detail}


def services() -> Iterator[Row]:
    """The services that run on this machine, no matter who started them."""
    found: List[Tuple[str, int]] = []
    for pid, line in command_lines(Host()).items():
        match = SERVICE.search(line)
        if match:
            found.append((match[1] or "all", pid))
    for name, pid in sorted(found):
        yield _row("service", name, "running", f"pid {pid}")
    if not found:
        yield _row("service", "-", "none runs")


def reports(state: State, now: float) -> Iterator[Row]:
    """The last report of each context that stores one: the agent, and each hook of a scheduler."""
    try:
        names = sorted(name for name in os.listdir(state.directory) if name.startswith("report-"))
    except OSError:
        names = []
    for name in names:
        kept = state.load(name[: -len(".json")])
        started = kept.get("started")
        if isinstance(started, (int, float)):
            yield _row("report", name[len("report-") : -len(".json")], str(kept.get("verdict", "-")),
                       f"{show_age(now - started)} ago")  # fmt: skip
    if not names:
        yield _row("report", "-", "none is kept")


def settings() -> Iterator[Row]:
    """The existing settings files, and whether each can be used; the node's configuration comes first."""
    conf = f"{DIRECTORY}/nhc.conf"
    yield _row("settings", "nhc.conf", "there" if os.path.exists(conf) else "absent",
               conf if os.path.exists(conf) else "the built-in checks hold")  # fmt: skip
    for name in FILES:
        path = f"{DIRECTORY}/{name}"
        if not os.path.exists(path):
            continue
        try:
            file_of(name).check(path)
        except ModuleNotFoundError as error:
            yield _row("settings", name, "not read", f"its part is not installed here ({error.name})")
        except SettingsError as error:
            yield _row("settings", name, "unusable", str(error))
        else:
            yield _row("settings", name, "usable", path)
