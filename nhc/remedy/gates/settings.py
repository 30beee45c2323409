"""gate.toml (conf/gate.toml.example): which nodes have a gate, what closes it, which suite opens it.

Every mistake is one line with the file, the line and the key (`nhc.core.settings`). The first group that has the node
counts; a node in no group has no gate.
"""

from __future__ import annotations

from enum import Enum
from fnmatch import fnmatchcase
from typing import FrozenSet, Mapping, NamedTuple, Optional, Tuple

from nhc.core.limits import Limit, read_limit
from nhc.core.matching.node_ranges import expand
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.plugins import GATEKEEPERS, LIFECYCLE_HOOKS
from nhc.marks.ports.part_settings import PartTable, check

PATH = "/etc/nhc/gate.toml"
LONGEST_HEARTBEAT = 7200.0
"""Seconds: the longest HeartbeatTimeout that Auto Scaling takes."""

HEAD = """
Which nodes take no work until a suite of deep checks has passed: /etc/nhc/gate.toml. docs/new-nodes.md explains it.
What stands here behind # is the default.
"""
ADAPTER = """
Settings of the scheduler's adapter. Slurm: path (where Slurm's commands are), conf (slurm.conf), timeout (of one
command, 30s). Kubernetes: kubeconfig, context,
taint = "startup-taint.cluster-autoscaler.kubernetes.io/nhc-gate:NoSchedule", hyperpod = "yes" for SageMaker HyperPod's
labels and taint as well.
"""
HOOK = """
name = "nhc-gate"                      # the lifecycle hook
on-failure = "wait"                    # "abandon": the group terminates an instance that did not pass
""".strip()


class Trigger(str, Enum):
    """What closes a gate."""

    NEW = "new"
    START = "start"
    UPDATE = "update"
    DEMAND = "demand"


TRIGGERS = {trigger.value: trigger for trigger in Trigger}


def _scheduler(name: str) -> str:
    """The gatekeeper of that name, "" for `none`. Raises ValueError."""
    known = [*GATEKEEPERS.names(), "none"]
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(known)}")
    return "" if name == "none" else name


def _nodes(text: str) -> str:
    """A pattern or a set of nodes. Raises ValueError."""
    _matches(text, "")
    return text


def _matches(pattern: str, node: str) -> bool:
    if "[" in pattern and "*" not in pattern and "?" not in pattern:
        return node in expand(pattern)
    return fnmatchcase(node, pattern)


@declared.settings
class HookSettings(NamedTuple):
    """A cloud's lifecycle hook: which kind, how often it is asked to go on waiting (seconds), and its own settings."""

    kind: str = declared.text("type", declared.NEEDED, shown='"aws"')
    every: float = declared.seconds(
        "every", 300.0, "a heartbeat so often; half of the hook's HeartbeatTimeout at most", least=1.0,
        most=LONGEST_HEARTBEAT,
    )  # fmt: skip
    settings: Mapping[str, str] = declared.rest(shown=HOOK)


@declared.settings
class GateRules(NamedTuple):
    """One group's gate.

    `nodes` are patterns (`gpu*`) or sets (`gpu[001-064]`). `max_age` is how long a verdict holds, 0 for ever. `closed`:
    a suite that could not tell keeps the node out, else it lets work in. After a run that could not tell comes another,
    `tries` in all, each `pause` after the previous one. `limit` is for one run. Times are in seconds. `out` bounds how
    many nodes an update, or the age of verdicts, takes out at one time.
    """

    name: str
    nodes: Tuple[str, ...] = declared.texts(
        "nodes", declared.NEEDED, one=True, each=_nodes, shown='["gpu[001-064]", "h100-*"]'
    )
    suite: str = declared.text("suite", "quick", "what has to pass: nhc list suites")
    on: FrozenSet[Trigger] = declared.choices(
        "on", TRIGGERS, frozenset(Trigger),
        "What closes the gate: new (never tested, or another machine), start (another boot), update (kernel, driver, "
        "firmware, image or a suite of the site's own), demand (nhc gate close).", made=frozenset,
    )  # fmt: skip
    max_age: float = declared.seconds("max-age", 0.0, "how long a verdict holds; 0s: until something above happens")
    closed: bool = declared.choice(
        "cannot-tell", {"closed": True, "open": False}, True,
        'A suite that could not tell, after all its tries: "closed" keeps the node out until a person looks, "open" '
        "lets it in.",
    )  # fmt: skip
    tries: int = declared.count("tries", 3, least=1, most=100)
    pause: float = declared.seconds("pause", 300.0, "between two tries")
    limit: float = declared.seconds("limit", 7200.0, "of one run", least=1.0)
    out: Limit = declared.converted(
        "out", read_limit, Limit(share=0.25),
        "Nodes of the group that may be out at one time, where a gate would close for an update or an old verdict; the "
        "others wait in service. none: any number.", show=Limit.written,
    )  # fmt: skip
    hook: Optional[HookSettings] = declared.part(
        "hook", HookSettings, "An Auto Scaling group that waits with new instances until their gate has decided.",
        optional=True,
    )  # fmt: skip

    def contains(self, node: str) -> bool:
        """Whether a node is in the group."""
        return any(_matches(pattern, node) for pattern in self.nodes)


@declared.settings
class GateSettings(NamedTuple):
    """All of gate.toml. `scheduler` is "" for none; `store` is a URL, "" where nothing is audited."""

    path: str
    scheduler: str = declared.converted(
        "scheduler", _scheduler, "",
        "Who keeps work off a node: slurm, kubernetes, or none (then check_gate in a prolog is what does).",
        shown='"slurm"', live=True,
    )  # fmt: skip
    adapter: Mapping[str, str] = declared.entries("adapter", Table.plain, ADAPTER)
    store: str = declared.secret("store", "", "a store for the audit log of what gates did; empty: none")
    groups: Tuple[GateRules, ...] = declared.tables(
        "groups", GateRules, "The first group that a node is in counts. A node in none has no gate.", sample="gpu",
        live=True,
    )  # fmt: skip

    def checked(self, table: Table) -> GateSettings:
        """The same. Raises SettingsError if it would gate no node, or if nothing could hold nodes."""
        if "scheduler" not in table:
            raise SettingsError(f"{table.path}: scheduler: missing: slurm, kubernetes or none")
        if not self.groups:
            raise SettingsError(f'{table.path}: no [groups.NAME]: no node would have a gate (nodes = ["*"] means all)')
        return self

    def rules(self, node: str) -> Optional[GateRules]:
        """The rules for a node, None if it has no gate."""
        return next((group for group in self.groups if group.contains(node)), None)


def parts(settings: GateSettings, file: Table) -> None:
    """Check the settings of the scheduler's adapter and of lifecycle hooks. Raises SettingsError."""
    hooks = ((group.name, group.hook) for group in settings.groups if group.hook is not None)
    tables = [PartTable(f"groups.{name}.hook", LIFECYCLE_HOOKS, hook.kind, hook.settings) for name, hook in hooks]
    if settings.scheduler:
        tables.append(PartTable("adapter", GATEKEEPERS, settings.scheduler, settings.adapter))
    check(file, tables)


FILE = declared.SettingsFile(GateSettings, PATH, HEAD, also=parts)
load, parse = FILE.load, FILE.parse
