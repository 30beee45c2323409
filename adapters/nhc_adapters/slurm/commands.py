"""Where a site's Slurm is: what a table of settings says of it, as its commands take it."""

from __future__ import annotations

from typing import Dict

from nhc_adapters.repair.settings import AdapterSettings

PLACE = ("path", "conf")
"""The settings: the folder of Slurm's commands, and slurm.conf."""


def place_of(table: AdapterSettings) -> Dict[str, str]:
    """What `nhc_adapters._command.Commands` takes for the settings in PLACE."""
    found = {"NHC_RM_PATH": table.text("path")}
    if table.text("conf"):
        found["SLURM_CONF"] = table.text("conf")
    return found
