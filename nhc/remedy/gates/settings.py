"""gate.toml (conf/gate.toml.example): which nodes have a gate, what closes it, which suite opens it.

Every mistake is one line with the file, the line and the key (`nhc.core.settings`). The first group that a node is in
counts; a node in none has no gate.
"""

from __future__ import annotations

from enum import Enum
from fnmatch import fnmatchcase
from typing import FrozenSet, Mapping, NamedTuple, Optional, Tuple

from nhc.core.matching.node_ranges import expand
from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.plugins import GATEKEEPERS

PATH = "/etc/nhc/gate.toml"
LONGEST_HEARTBEAT = 7200.0
"""Seconds: the longest HeartbeatTimeout that Auto Scaling takes."""


class Trigger(str, Enum):
    """What closes a gate."""

    NEW = "new"
    START = "start"
    UPDATE = "update"
    DEMAND = "demand"


class HookSettings(NamedTuple):
    """A cloud's lifecycle hook: which kind, how often it is asked to go on waiting (seconds), and its own settings."""

    kind: str
    every: float
    settings: Mapping[str, str]


class GateRules(NamedTuple):
    """One group's gate.

    `nodes` are patterns (`gpu*`) or sets (`gpu[001-064]`). `max_age` is how long a verdict holds, 0 for ever. `closed`:
    a suite that could not tell keeps the node out, else lets it in. After such a run comes another, `tries` in all,
    each `pause` after the one before. `limit` is for one run. Times are in seconds.
    """

    name: str
    nodes: Tuple[str, ...]
    suite: str = "quick"
    on: FrozenSet[Trigger] = frozenset(Trigger)
    max_age: float = 0.0
    closed: bool = True
    tries: int = 3
    pause: float = 300.0
    limit: float = 7200.0
    hook: Optional[HookSettings] = None

    def contains(self, node: str) -> bool:
        """Whether a node is in the group."""
        return any(_matches(pattern, node) for pattern in self.nodes)


class GateSettings(NamedTuple):
    """All of gate.toml. `scheduler` is "" for none; `store` is a URL, "" where nothing is audited."""

    path: str
    scheduler: str
    adapter: Mapping[str, str]
    store: str
    groups: Tuple[GateRules, ...]

    def rules(self, node: str) -> Optional[GateRules]:
        """The rules for a node, None where it has no gate."""
        return next((group for group in self.groups if group.contains(node)), None)


def _matches(pattern: str, node: str) -> bool:
    if "[" in pattern and "*" not in pattern and "?" not in pattern:
        return node in expand(pattern)
    return fnmatchcase(node, pattern)


def load(path: str) -> GateSettings:
    """Read a file. Raises SettingsError."""
    return _read(settings_file.load(path))


def parse(text: str, path: str = "gate.toml") -> GateSettings:
    """The settings in a text. Raises SettingsError."""
    return _read(settings_file.parse(text, path))


def _read(file: Table) -> GateSettings:
    adapter = file.table("adapter")
    scheduler = file.converted("scheduler", _scheduler, "")
    settings = GateSettings(
        file.path, scheduler, {name: adapter.converted(name, str, "") for name in adapter.names()},
        file.secret("store"), tuple(_group(name, table) for name, table in file.table("groups").tables().items()),
    )  # fmt: skip
    if "scheduler" not in file:
        raise SettingsError(f"{file.path}: scheduler: missing: slurm, kubernetes or none")
    if not settings.groups:
        raise SettingsError(f'{file.path}: no [groups.NAME]: no node would have a gate (nodes = ["*"] means all)')
    file.finish()
    return settings


def _scheduler(name: str) -> str:
    """The gatekeeper of that name, "" for `none`. Raises ValueError."""
    known = [*GATEKEEPERS.names(), "none"]
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(known)}")
    return "" if name == "none" else name


def _group(name: str, table: Table) -> GateRules:
    table.require("nodes")
    default = GateRules(name, ())
    nodes = table.text_or_texts("nodes")
    for node in nodes:
        try:
            _matches(node, "")
        except ValueError as error:
            raise table.error("nodes", str(error)) from None
    return GateRules(
        name, nodes,
        table.text("suite", default.suite),
        frozenset(table.choices("on", {trigger.value: trigger for trigger in Trigger}, tuple(Trigger))),
        table.seconds("max-age", default.max_age),
        table.choice("cannot-tell", {"closed": True, "open": False}, default.closed),
        table.count("tries", default.tries, least=1, most=100),
        table.seconds("pause", default.pause),
        table.seconds("limit", default.limit, least=1.0),
        _hook(table.table("hook")) if "hook" in table else None,
    )  # fmt: skip


def _hook(table: Table) -> HookSettings:
    table.require("type")
    own = {"type", "every"}
    return HookSettings(
        table.text("type"), table.seconds("every", 300.0, least=1.0, most=LONGEST_HEARTBEAT),
        {key: table.converted(key, str, "") for key in table.names() if key not in own},
    )  # fmt: skip
