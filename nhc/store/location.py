"""The location of the store if neither a command nor its settings name it. Imports no database.

`$NHC_STORE`, else the `url` of store.toml, else one file of this machine. The settings of the remedy loop, the job
loop, the notices and the console that name no store mean this one.
"""

from __future__ import annotations

import os

from nhc.core.settings import settings_file

DIRECTORY = "/var/lib/nhc-server"
"""The data of the services, owned by the user nhc. /var/lib/nhc is root's: the data of a node's agent and gate."""
DEFAULT = f"sqlite:///{DIRECTORY}/store.db"
PATH = "/etc/nhc/store.toml"


def settings_path() -> str:
    """The file of the store's settings: `$NHC_STORE_SETTINGS`, else /etc/nhc/store.toml; "" if there is none."""
    named = os.environ.get("NHC_STORE_SETTINGS", "")
    return named or (PATH if os.path.exists(PATH) else "")


def url() -> str:
    """The store's URL. Raises SettingsError."""
    named, path = os.environ.get("NHC_STORE", ""), settings_path()
    if named or not path:
        return named or DEFAULT
    return settings_file.load(path).secret("url", DEFAULT)
