"""Reads remedy.toml (conf/remedy.toml.example) into `nhc.remedy.settings.RemedySettings`.

Nothing is enabled unless the file says so, action by action.
"""

from __future__ import annotations

import os

from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.marks.plugins import CANDIDATES, REPAIRERS, RUNNERS
from nhc.marks.ports.part_settings import PartTable, check
from nhc.remedy.settings import RemedySettings

PATH = "/etc/nhc/remedy.toml"
HEAD = """
What `nhc serve remedy` may do by itself: /etc/nhc/remedy.toml. Every key may be left out; what stands here behind # is
the default, save for names. docs/remedy.md explains how to enable it step by step.
"""


def parts(settings: RemedySettings, file: Table) -> None:
    """Check the settings of repairers, of the suite runner and of the lead. Raises SettingsError."""
    tables = [PartTable(f"repairers.{one.name}", REPAIRERS, one.type, one.settings) for one in settings.repairers]
    verify, leader = settings.verify, settings.leader
    if verify.runner_settings:
        tables.append(PartTable(f"verify.{verify.runner}", RUNNERS, verify.runner, verify.runner_settings))
    if leader.by != "store":
        tables.append(PartTable("leader", CANDIDATES, leader.by, leader.settings))
    check(file, tables)


FILE = declared.SettingsFile(RemedySettings, PATH, HEAD, optional=True, also=parts)
load, parse = FILE.load, FILE.parse


def evidence_of_store(url: str) -> str:
    """The evidence directory of the loop that uses this store, "" if this machine has no settings of that loop."""
    settings = load() if os.path.exists(PATH) else None
    return settings.evidence_directory if settings is not None and settings.store == url else ""
