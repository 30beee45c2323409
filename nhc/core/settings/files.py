"""Every settings file in TOML, by its name, and the module that declares it.

Nothing is imported until somebody asks for one.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from nhc.core.settings.declared import SettingsFile

FILES = {
    "agent.toml": "nhc.agent.settings",
    "console.toml": "nhc.console.settings",
    "fleet.toml": "nhc.fleet.settings",
    "gate.toml": "nhc.remedy.gates.settings",
    "jobs.toml": "nhc.jobs.settings",
    "kubernetes.toml": "nhc_adapters.kubernetes.controller.settings",
    "notices.toml": "nhc.console.notices.settings",
    "policy.toml": "nhc.marks.policy.policy_file",
    "remedy.toml": "nhc.remedy.remedy_file",
    "serve.toml": "nhc.cli.host_settings",
    "server.toml": "nhc.store.server.settings",
    "spares.toml": "nhc.remedy.spares.settings",
    "store.toml": "nhc.store.settings",
    "train.toml": "nhc.remedy.trains.settings",
}
"""The module whose `FILE` it is."""


def file_of(name: str) -> SettingsFile[Any]:
    """The declaration of a settings file."""
    found: SettingsFile[Any] = __import__(FILES[name], fromlist=["FILE"]).FILE
    return found
