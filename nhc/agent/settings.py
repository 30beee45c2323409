"""What the agent is told to do, from a TOML file (conf/agent.toml.example). Which checks run is nhc.conf's.

Every mistake is one line with the file, the key and what was expected.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Tuple

from nhc.agent.events import FORMATS
from nhc.light import NamedTuple
from nhc.system.bounded_read import cause, read_text
from nhc.units import percent, seconds

PATH = "/etc/nhc/agent.toml"


class BadSettings(ValueError):
    """Settings that cannot be used: one line."""


class Settings(NamedTuple):
    """All of it. Times are in seconds."""

    path: str = ""
    node: str = ""
    root: str = ""
    config: Tuple[str, ...] = ()
    scripts: Tuple[str, ...] = ()
    profile: str = "auto"
    state: str = ""
    watch_config: bool = True
    jitter: float = 0.05
    retry: float = 15.0
    recover: int = 2
    boot_window: float = 300.0
    boot_window_except: Tuple[str, ...] = ()
    kernel_log: bool = True
    labels: Mapping[str, str] = {}
    listen: Tuple[str, ...] = ("127.0.0.1:20258",)
    socket: str = ""
    events: str = "-"
    events_format: str = "json"
    events_limit: float = 64 << 20
    history: str = ""
    history_keep: float = 14 * 86400.0
    history_rows: int = 100_000
    system_log: Tuple[str, ...] = ()
    custom_plugin: Tuple[str, ...] = ()
    system_stats: Tuple[str, ...] = ()
    sinks: Mapping[str, Mapping[str, Any]] = {}

    @property
    def inputs(self) -> Tuple[str, ...]:
        """The files that these settings were made of, or name."""
        named = (*self.system_log, *self.custom_plugin, *self.system_stats)
        return (self.path, *named) if self.path else named


def load(path: str = "") -> Settings:
    """The settings in a file, /etc/nhc/agent.toml where none is named, else the defaults. Raises BadSettings."""
    if not path:
        if not os.path.exists(PATH):
            return Settings()
        path = PATH
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: {cause(error)}") from None
    return parse(text, path)


def parse(text: str, path: str) -> Settings:
    """The settings in a file's text. Raises BadSettings."""
    try:
        value = _toml(text)
    except ValueError as error:
        raise BadSettings(f"{path}: {' '.join(str(error).split())}") from None
    reader = _Reader(path)
    found: Dict[str, Any] = {"path": path}
    for section, keys in _KEYS.items():
        table = value.pop(section, {})
        if not isinstance(table, dict):
            raise reader.wrong(section, "a table", table)
        for key, given in table.items():
            if key not in keys:
                raise reader.unknown(f"{section}.{key}", key, list(keys))
            field, convert = keys[key]
            found[field] = convert(reader, f"{section}.{key}", given)
    labels = value.pop("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(label, str) for label in labels.values()):
        raise reader.wrong("labels", "a table of texts", labels)
    found["labels"] = labels
    sinks = value.pop("sinks", {})
    if not isinstance(sinks, dict) or not all(isinstance(sink, dict) for sink in sinks.values()):
        raise reader.wrong("sinks", "tables, one for each sink: [sinks.kubernetes]", sinks)
    found["sinks"] = sinks
    if value:
        key = next(iter(value))
        raise reader.unknown(key, key, [*_KEYS, "labels", "sinks"])
    return Settings(**found)


def _toml(text: str) -> Dict[str, Any]:
    """Raises ValueError for what is no TOML; BadSettings where nothing here can read TOML."""
    from nhc import toml_text

    try:
        return toml_text.parse(text)
    except toml_text.NoToml as error:
        raise BadSettings(f"settings: {error}: pip install tomli") from None


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path

    def wrong(self, key: str, expected: str, value: object) -> BadSettings:
        return BadSettings(f"{self.path}: {key}: {value!r} is not {expected}")

    def unknown(self, key: str, last: str, known: List[str]) -> BadSettings:
        from difflib import get_close_matches

        near = get_close_matches(last, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        return BadSettings(f"{self.path}: {key}: no such setting ({hint})")


def _text(reader: _Reader, key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise reader.wrong(key, "text", value)
    return value


def _texts(reader: _Reader, key: str, value: Any) -> Tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise reader.wrong(key, "a list of texts", value)
    return tuple(value)


def _flag(reader: _Reader, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise reader.wrong(key, "true or false", value)
    return value


def _time(reader: _Reader, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise reader.wrong(key, "a duration, as in 30s", value)
    try:
        return seconds(str(value))
    except ValueError:
        raise reader.wrong(key, "a duration, as in 30s", value) from None


def _count(reader: _Reader, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise reader.wrong(key, "a whole number above 0", value)
    return int(value)


def _share(reader: _Reader, key: str, value: Any) -> float:
    try:
        return percent(str(value)) / 100
    except ValueError:
        raise reader.wrong(key, "a percentage, as in 5%", value) from None


def _size(reader: _Reader, key: str, value: Any) -> float:
    from nhc.units import size_bytes

    try:
        return float(size_bytes(str(value)))
    except ValueError:
        raise reader.wrong(key, "a size, as in 64MB", value) from None


def _form(reader: _Reader, key: str, value: Any) -> str:
    if value not in FORMATS:
        raise reader.wrong(key, f"one of {', '.join(FORMATS)}", value)
    return str(value)


def _addresses(reader: _Reader, key: str, value: Any) -> Tuple[str, ...]:
    for address in _texts(reader, key, value):
        _host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise reader.wrong(key, "HOST:PORT", address)
    return _texts(reader, key, value)


_KEYS: Mapping[str, Mapping[str, Tuple[str, Any]]] = {
    "agent": {
        "node": ("node", _text),
        "root": ("root", _text),
        "config": ("config", _texts),
        "scripts": ("scripts", _texts),
        "profile": ("profile", _text),
        "state": ("state", _text),
        "watch-config": ("watch_config", _flag),
        "jitter": ("jitter", _share),
        "retry": ("retry", _time),
        "recover": ("recover", _count),
        "boot-window": ("boot_window", _time),
        "boot-window-except": ("boot_window_except", _texts),
        "kernel-log": ("kernel_log", _flag),
        "listen": ("listen", _addresses),
        "socket": ("socket", _text),
    },
    "events": {
        "path": ("events", _text),
        "format": ("events_format", _form),
        "rotate-at": ("events_limit", _size),
    },
    "history": {
        "path": ("history", _text),
        "keep": ("history_keep", _time),
        "rows": ("history_rows", _count),
    },
    "npd": {
        "system-log-monitor": ("system_log", _texts),
        "custom-plugin-monitor": ("custom_plugin", _texts),
        "system-stats-monitor": ("system_stats", _texts),
    },
}
