"""spares.toml (conf/spares.toml.example): the pools of spare nodes, and when one is swapped in."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Tuple

from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError

PATH = "/etc/nhc/spares.toml"
HOUR = 3600.0
OWN = ("type", "for", "size", "after", "most", "suite", "verified", "timeout")


class PoolSettings(NamedTuple):
    """One pool. Times are in seconds.

    `serves` are patterns of the nodes that its spares stand in for. `size` spares are wanted. One is swapped in when a
    node has been out for `after`, and at most `most` are in service at one time. A spare counts as verified by a fresh
    healthy report and, where `suite` is set, by a healthy verdict of that deep suite not older than `verified`.
    `timeout` is for one question to the keeper of the spares.
    """

    name: str
    type: str
    serves: Tuple[str, ...]
    size: int = 1
    after: float = 0.5 * HOUR
    most: int = 1
    suite: str = ""
    verified: float = 7 * 24 * HOUR
    settings: Mapping[str, str] = {}
    timeout: float = 30.0


def load(path: str) -> Tuple[PoolSettings, ...]:
    """The pools in a file. Raises SettingsError."""
    return _read(settings_file.load(path))


def parse(text: str, path: str = "spares.toml") -> Tuple[PoolSettings, ...]:
    """The pools in a text. Raises SettingsError."""
    return _read(settings_file.parse(text, path))


def _read(file: settings_file.Table) -> Tuple[PoolSettings, ...]:
    pools = []
    for name, table in file.table("pools").tables().items():
        table.require("type", "for")
        pools.append(PoolSettings(
            name, table.text("type"), table.text_or_texts("for"), table.count("size", 1, least=1),
            table.seconds("after", 0.5 * HOUR, least=60.0), table.count("most", 1, least=1), table.text("suite"),
            table.seconds("verified", 7 * 24 * HOUR, least=HOUR),
            {key: table.converted(key, str, "") for key in table.names() if key not in OWN},
            table.seconds("timeout", 30.0, least=1.0),
        ))  # fmt: skip
    file.finish()
    if not pools:
        raise SettingsError(f"{file.path}: pools: missing: name a pool as [pools.gpu]")
    return tuple(pools)
