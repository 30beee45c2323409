"""The agent's settings, from a TOML file (conf/agent.toml.example). nhc.conf decides which checks run.

Every mistake is one line with the file, the line, the key and what was expected.
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from nhc.agent.events import FORMATS
from nhc.core.light import NamedTuple
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.core.system.addresses import host_and_port

LONGEST = 600.0
"""Seconds that the agent keeps a request open that is answered by a run of checks."""


def _mode(text: str) -> int:
    """A file's mode. Raises ValueError."""
    if not (text.isdigit() and len(text) == 4 and set(text) <= set("01234567")):
        raise ValueError(f"{printable(text, 20)!r} is not four octal digits, as 0660")
    return int(text, 8)


def _path(text: str) -> str:
    """A socket's path. Raises ValueError."""
    if not text.startswith("/") or len(text.encode()) > 100:
        raise ValueError(f"{printable(text, 120)!r} is not a path from / of at most 100 bytes")
    return text


@declared.settings
class NvhcdSettings(NamedTuple):
    """The table [serve.nvhcd]. `scheduler` is asked whether the node is out of service, "" for none.

    `timeout` is how long a caller waits for checks that run now, in seconds; `proof` the suite that `--proof` runs, ""
    for none; `store` the URL of the store that knows whether the node's newest deep checks failed, "" for none.
    """

    path: str = declared.converted("path", _path, "/run/nvhcd/nvhcd.sock")
    mode: int = declared.converted("mode", _mode, 0o660, show=lambda mode: f"{mode:04o}")
    group: str = declared.text("group", "", "default: root's", shown='"users"')
    max_age: float = declared.seconds("max-age", 900.0, "an older verdict is no verdict", least=1.0)
    unknown_fails: bool = declared.flag("unknown-fails")
    scheduler: str = declared.text(
        "scheduler", "", "who says whether the node is drained; default: nobody is asked", shown='"slurm"'
    )
    timeout: float = declared.seconds(
        "timeout", 30.0, "how long a caller waits for checks that run because the verdict is too old", least=1.0,
        most=LONGEST,
    )  # fmt: skip
    proof: str = declared.text(
        "proof", "", "the suite of deep checks that --proof runs; default: none", shown='"prejob"'
    )
    store: str = declared.secret(
        "store", "", "who knows whether the newest deep checks failed; default: nobody is asked",
        shown='"postgresql://nhc@db/nhc"',
    )  # fmt: skip


PATH = "/etc/nhc/agent.toml"


HEAD = """
Settings of the resident agent, `nhc serve agent`: /etc/nhc/agent.toml. Every key may be left out; what is shown is the
default, unless the comment says otherwise. Which checks run is nhc.conf's: each line may say its own cadence,
`* |every 5m, strikes 3| check_...`, and be meant for the agent alone (`context agent`). docs/agent.md explains all of
it. A change is taken in at once; one with a mistake is refused and said.
"""
INTROS = {
    "events": "News as lines of JSON (docs/event.schema.json).",
    "history": "The same in an SQLite file, for `nhc status agent --history 20`.",
    "npd": "node-problem-detector's own configuration files, as they are.",
}
SINKS = """
# This node's conditions and events in Kubernetes (needs the extra `kubernetes`).
# [sinks.kubernetes]
# vocabularies = ["nhc", "npd"]         # docs/kubernetes.md
# kubeconfig = ""                       # default: this pod's service account
# context = ""
# node = ""                             # default: the agent's node
# heartbeat = "5m"

# This node's health as CloudWatch's metrics (needs the extra `aws`), docs/repairers.md.
# [sinks.cloudwatch]
# namespace = "NHC"
# period = "60s"

# This node's reports for `nhc serve server` (needs the extra `remedy`), docs/store.md.
# [sinks.server]
# url = "https://nhc.example.org:20259"
# token-file = "/etc/nhc/server.token"  # or certificate and key
# certificate = "/etc/nhc/node.crt"
# key = "/etc/nhc/node.key"
# ca = "/etc/nhc/ca.crt"                # default: the system's authorities
# every = "60s"                         # for a report that says nothing new
# whole = "1h"                          # between two whole reports where nothing is new
# timeout = "15s"
# spool = "/var/lib/nhc/server-spool"   # where reports wait while the server is away
# spool-size = "64MB"
# spool-age = "24h"

# OpenTelemetry over OTLP/HTTP.
# [sinks.otel]
# endpoint = "http://127.0.0.1:4318"
# headers = { authorization = "Bearer TOKEN" }
# every = "60s"
# timeout = "10s"
# logs = true
# metrics = true
# certificate = "/etc/ssl/collector.pem"
""".strip()


EVENT_FORMATS = {name: name for name in FORMATS}


def _sinks(table: Table, key: str, _usual: object) -> Mapping[str, Mapping[str, object]]:
    return {name: one.raw() for name, one in table.table(key).tables().items()}


def _address(text: str) -> str:
    """HOST:PORT. Raises ValueError."""
    host_and_port(text)
    return text


@declared.settings
class ProofSettings(NamedTuple):
    """The table [proof]: how often a GPU is proved, for how many seconds, in how many bytes of memory."""

    every: float = declared.seconds(
        "every", 900.0, "one GPU of the node: with eight of them each is proved every two hours", least=10.0
    )
    time: float = declared.seconds("time", 0.03, "of products", least=0.001, most=1.0)
    memory: int = declared.size(
        "memory", 1 << 30, "less where less is free; none where the job needs it", least=64 << 20
    )


@declared.settings
class AgentSettings(NamedTuple):
    """All of it. Times are in seconds."""

    path: str = ""
    node: str = declared.text("agent.node", "", "default: $NODE_NAME, else the kernel's host name", shown='"node001"')
    root: str = declared.text(
        "agent.root", "", "in a container: where the node's whole root is mounted; default: $NHC_ROOT", shown='"/host"'
    )
    config: Tuple[str, ...] = declared.texts(
        "agent.config", (), "files or directories; default: this one, else the built-in checks", one=True,
        shown='["/etc/nhc/nhc.conf"]',
    )  # fmt: skip
    scripts: Tuple[str, ...] = declared.texts(
        "agent.scripts", (), "the site's own *.nhc checks; default: this directory", one=True,
        shown='["/etc/nhc/scripts"]',
    )  # fmt: skip
    profile: str = declared.text("agent.profile", "auto")
    state: str = declared.text(
        "agent.state", "", "what is remembered from run to run, and the control socket", shown='"/run/nhc"'
    )
    watch_config: bool = declared.flag("agent.watch-config", True, "take changed files in without being told to")
    jitter: float = declared.share("agent.jitter", 0.05, "of each cadence")
    retry: float = declared.seconds("agent.retry", 15.0, "until a check that failed or got well is looked at again")
    recover: int = declared.count("agent.recover", 2, "good runs in a row that end a fault", least=1)
    boot_window: float = declared.seconds("agent.boot-window", 300.0, 'after a boot: failures are "too early to tell"')
    boot_window_except: Tuple[str, ...] = declared.texts(
        "agent.boot-window-except", (), 'checks that count at once, as ["check_fs_*"]', one=True
    )
    kernel_log: bool = declared.flag("agent.kernel-log", True, "follow /dev/kmsg live")
    gpu_events: bool = declared.flag(
        "agent.gpu-events", False, "the driver's GPU events beside it (R615); no GPU can be reset meanwhile"
    )
    listen: Tuple[str, ...] = declared.texts(
        "agent.listen", ("127.0.0.1:20258",), "HTTP: /metrics /healthz /livez /conditions /report; [] for none",
        one=True, each=_address,
    )  # fmt: skip
    socket: str = declared.text("agent.socket", "", "for `nhc agent`", shown='"/run/nhc/agent.sock"')
    events: str = declared.text("events.path", "-", '"-" is standard output, "" none')
    events_format: str = declared.choice(
        "events.format", EVENT_FORMATS, "json",
        "or hyperpod (its health monitoring agent's), hyperpod-deep (its deep checks')",
    )  # fmt: skip
    events_limit: int = declared.size("events.rotate-at", 64 << 20)
    history: str = declared.text("history.path", "", 'as "/var/lib/nhc/history.sqlite"; "" keeps none')
    history_keep: float = declared.seconds("history.keep", 14 * 86400.0)
    history_rows: int = declared.count("history.rows", 100_000, least=1)
    system_log: Tuple[str, ...] = declared.texts(
        "npd.system-log-monitor", (), 'as ["/etc/npd/kernel-monitor.json"]', one=True
    )
    custom_plugin: Tuple[str, ...] = declared.texts("npd.custom-plugin-monitor", (), one=True)
    system_stats: Tuple[str, ...] = declared.texts("npd.system-stats-monitor", (), one=True)
    labels: Mapping[str, str] = declared.entries(
        "labels", lambda table, name: table.text(name),
        "What is known of this node: in reports, in OpenTelemetry's resource, in HyperPod's lines (region, "
        "instance_type).", shown='rack = "r12"',
    )  # fmt: skip
    proof: Optional[ProofSettings] = declared.part(
        "proof", ProofSettings,
        "GPUs are proved beside the jobs that use them, one at a time (docs/deep-checks.md). Without this table none "
        "is.", optional=True,
    )  # fmt: skip
    nvhcd: Optional[NvhcdSettings] = declared.part(
        "serve.nvhcd", NvhcdSettings,
        "What training jobs ask before a rendezvous (needs the extra `nvhcd`), docs/agent.md.", optional=True,
    )  # fmt: skip
    sinks: Mapping[str, Mapping[str, object]] = declared.own(
        "sinks", {}, _sinks,
        form="tables, which each sink reads itself", within="NAME", shown=SINKS, live=True,
    )  # fmt: skip

    @property
    def inputs(self) -> Tuple[str, ...]:
        """The files that these settings come from, or name."""
        named = (*self.system_log, *self.custom_plugin, *self.system_stats)
        return (self.path, *named) if self.path else named


FILE = declared.SettingsFile(AgentSettings, PATH, HEAD, optional=True, intros=INTROS)
load, parse, read = FILE.load, FILE.parse, FILE.read
