"""The agent's settings, from a TOML file (conf/agent.toml.example). Which checks run is nhc.conf's.

Every mistake is one line with the file, the line, the key and what was expected.
"""

from __future__ import annotations

import os
from typing import Mapping, Optional, Tuple

from nhc.agent.events import FORMATS
from nhc.agent.nvhcd_settings import NvhcdSettings
from nhc.agent.nvhcd_settings import read_settings as read_nvhcd
from nhc.core.light import NamedTuple
from nhc.core.settings import settings_file
from nhc.core.system.addresses import host_and_port

PATH = "/etc/nhc/agent.toml"


class ProofSettings(NamedTuple):
    """The table [proof]: how often a GPU is proved, for how many seconds of products, with how many bytes of memory."""

    every: float
    time: float
    memory: int


class AgentSettings(NamedTuple):
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
    events_limit: int = 64 << 20
    history: str = ""
    history_keep: float = 14 * 86400.0
    history_rows: int = 100_000
    system_log: Tuple[str, ...] = ()
    custom_plugin: Tuple[str, ...] = ()
    system_stats: Tuple[str, ...] = ()
    sinks: Mapping[str, Mapping[str, object]] = {}
    """What each [sinks.NAME] holds; the sink reads it."""
    proof: Optional[ProofSettings] = None
    """How GPUs are proved beside jobs, None where they are not."""
    nvhcd: Optional[NvhcdSettings] = None
    """The service that training jobs ask, None where it is off."""

    @property
    def inputs(self) -> Tuple[str, ...]:
        """The files that these settings were made of, or name."""
        named = (*self.system_log, *self.custom_plugin, *self.system_stats)
        return (self.path, *named) if self.path else named


def load(path: str = "") -> AgentSettings:
    """The settings in a file, /etc/nhc/agent.toml where none is named, else the defaults. Raises SettingsError."""
    if not path:
        if not os.path.exists(PATH):
            return AgentSettings()
        path = PATH
    return read(settings_file.load(path))


def parse(text: str, path: str) -> AgentSettings:
    """The settings in a file's text. Raises SettingsError."""
    return read(settings_file.parse(text, path))


def read(file: settings_file.Table) -> AgentSettings:
    """The settings in a file's tables. Raises SettingsError."""
    usual = AgentSettings()
    agent, events, history, npd = (file.table(name) for name in ("agent", "events", "history", "npd"))
    labels, sinks, serve = file.table("labels"), file.table("sinks"), file.table("serve")
    settings = AgentSettings(
        path=file.path,
        node=agent.text("node"),
        root=agent.text("root"),
        config=agent.text_or_texts("config"),
        scripts=agent.text_or_texts("scripts"),
        profile=agent.text("profile", usual.profile),
        state=agent.text("state"),
        watch_config=agent.flag("watch-config", usual.watch_config),
        jitter=agent.share("jitter", usual.jitter),
        retry=agent.seconds("retry", usual.retry),
        recover=agent.count("recover", usual.recover, least=1),
        boot_window=agent.seconds("boot-window", usual.boot_window),
        boot_window_except=agent.text_or_texts("boot-window-except"),
        kernel_log=agent.flag("kernel-log", usual.kernel_log),
        labels={name: labels.text(name) for name in labels.names()},
        listen=_addresses(agent, "listen", usual.listen),
        socket=agent.text("socket"),
        events=events.text("path", usual.events),
        events_format=events.choice("format", {name: name for name in FORMATS}, usual.events_format),
        events_limit=events.size("rotate-at", usual.events_limit),
        history=history.text("path"),
        history_keep=history.seconds("keep", usual.history_keep),
        history_rows=history.count("rows", usual.history_rows, least=1),
        system_log=npd.text_or_texts("system-log-monitor"),
        custom_plugin=npd.text_or_texts("custom-plugin-monitor"),
        system_stats=npd.text_or_texts("system-stats-monitor"),
        sinks={name: table.raw() for name, table in sinks.tables().items()},
        proof=_proof(file.table("proof")) if "proof" in file else None,
        nvhcd=read_nvhcd(serve.table("nvhcd")) if "nvhcd" in serve else None,
    )
    file.finish()
    return settings


def _proof(table: settings_file.Table) -> ProofSettings:
    return ProofSettings(
        table.seconds("every", 900.0, least=10.0),
        table.seconds("time", 0.03, least=0.001, most=1.0),
        table.size("memory", 1 << 30, least=64 << 20),
    )


def _addresses(table: settings_file.Table, key: str, default: Tuple[str, ...]) -> Tuple[str, ...]:
    addresses = table.text_or_texts(key, default)
    for address in addresses:
        try:
            host_and_port(address)
        except ValueError as error:
            raise table.error(key, str(error)) from None
    return addresses
