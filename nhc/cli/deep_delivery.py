"""Bring what a run of deep checks found into the store: straight, or through nhc's server as the agent does.

So each node's last deep verdict has an age there. What cannot be brought is said, and changes nothing of the verdict.
"""

from __future__ import annotations

import os
import time
from typing import Callable, List

from nhc.model import Report
from nhc.ports import AdapterError
from nhc.render import push
from nhc.settings_file import SettingsError
from nhc.settings_file import load as load_settings

TRIES = (0.0, 2.0, 10.0)
"""Seconds before each try to reach the server: a run of an hour is worth a quarter of a minute."""


def suite_name(suite: str) -> str:
    """What verdicts of a suite are filed under: its name, or a file's without folder and ending."""
    return os.path.basename(suite).removesuffix(".conf").lower() or suite


def to_store(report: Report, suite: str, url: str) -> str:
    """Keep a report in a store; why it could not be, "" where it was."""
    try:
        from nhc.store import deep
        from nhc.store.errors import StoreError
        from nhc.store.settings import load, opened
    except ImportError as error:
        return f"the store needs the extra nodehealth[remedy]: {error}"
    try:
        store = opened(load(url=url), create=False)
        try:
            with store.write() as connection:
                deep.add_report(connection, report, suite)
        finally:
            store.close()
    except (StoreError, SettingsError) as error:
        return f"{error}: the results are not in the store"
    return ""


def to_server(report: Report, suite: str, path: str, sleep: Callable[[float], None] = time.sleep) -> str:
    """Push a report to the server that [sinks.server] of a file like agent.toml names; why not, "" where it was."""
    try:
        from nhc.agent.server_sink import Hopeless, NotNow, Pusher, PushSettings
    except ImportError as error:
        return f"pushing needs the extra nodehealth[remedy]: {error}"
    try:
        tables = load_settings(path).table("sinks").tables()
        if "server" not in tables:
            return f"{path}: there is no [sinks.server]: the results are not sent"
        pusher = Pusher(PushSettings(tables["server"].raw()))
    except (SettingsError, AdapterError) as error:
        return f"{error}: the results are not sent"
    body = push.pack(report.host, [push.to_text(push.Pushed(report, not report.not_run, time.time(), suite))])
    said = ""
    try:
        for wait in TRIES:
            sleep(wait)
            try:
                refused: List[str] = pusher.push(body)
            except NotNow as error:
                said = str(error)
                continue
            except Hopeless as error:
                return f"{error}: the results are not sent"
            return f"the server refuses the results: {refused[0]}" if refused else ""
    finally:
        pusher.close()
    return f"{said}: the results are not sent"
