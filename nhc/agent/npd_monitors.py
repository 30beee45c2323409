"""node-problem-detector's monitors in the agent: its files, its logs, its statistics, its conditions."""

from __future__ import annotations

import json
import os
import re
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Match,
    Optional,
    Pattern,
    Sequence,
    Tuple,
    Union,
    cast,
)

from nhc.agent.check_round import Finished, key_of
from nhc.agent.event_loop import Loop, Timer
from nhc.agent.journal_follower import Journalctl
from nhc.agent.kmsg_follower import Follower
from nhc.agent.publisher import Publisher
from nhc.agent.settings import AgentSettings
from nhc.core.host import Host
from nhc.core.light import NamedTuple
from nhc.core.model import Verdict, printable
from nhc.core.plan import BUILT_IN, Item
from nhc.core.prometheus_family import Family
from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.core.system.kernel_ring import KMSG
from nhc.core.timestamps import utc_milliseconds
from nhc.core.units import whole_of_digits
from nhc.marks.ports.sinks import EventDetails, NodeCondition
from nhc.node.facts.journal import FIELDS, NO_JOURNAL, is_kept, same_entry
from nhc.node.facts.kernel_lines import Record, parse_journal, parse_line
from nhc.node.facts.kmsg import log_tail, ring_records, rotated_to, unread
from nhc.node.kernlog.npd_rules import PERMANENT, TEMPORARY, Rule, compile_go, go_duration, needle, parse_config
from nhc.node.kernlog.npd_rules import parse as parse_rules
from nhc.node.kernlog.source import BadRules

# node-problem-detector's monitor files: their values, with its defaults, and one clear line for each mistake.
#
# Facts: pkg/custompluginmonitor/types/config.go, pkg/systemlogmonitor/config.go and
# logwatchers/types/log_watcher.go of node-problem-detector.


KUBELET_CONDITIONS = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""Types that the kubelet writes (k8s.io/api/core/v1: NodeConditionType): two writers would take turns."""


class Default(NamedTuple):
    """A condition as it is while nothing is wrong."""

    type: str
    reason: str
    message: str


class LogMonitor(NamedTuple):
    """A system-log-monitor. `suffixes` are the rules' patternGeneratedMessageSuffix, in their order.

    `message` and `timestamp` parse a filelog's lines.
    """

    path: str
    source: str
    plugin: str
    log_path: str
    options: Mapping[str, str]
    lookback: float
    delay: float
    skip: Tuple[str, ...]
    buffer: int
    metrics: bool
    conditions: Tuple[Default, ...]
    rules: Tuple[Rule, ...]
    suffixes: Tuple[str, ...]
    message: Optional[Pattern[str]] = None
    timestamp: Optional[Pattern[str]] = None


class PluginRule(NamedTuple):
    """A rule of a custom-plugin-monitor: a program, and what its exit status means."""

    type: str
    condition: str
    reason: str
    path: str
    args: Tuple[str, ...]
    timeout: float
    every: float


class PluginMonitor(NamedTuple):
    """A custom-plugin-monitor."""

    path: str
    source: str
    limit: int
    metrics: bool
    conditions: Tuple[Default, ...]
    rules: Tuple[PluginRule, ...]


def read_json(path: str) -> Dict[str, Any]:
    """A file's JSON object. Raises SettingsError."""
    try:
        value = parse_config(read_text(path))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: expected an object")
    return value


def load_log_monitor(path: str) -> LogMonitor:
    """Raises SettingsError."""
    raw = read_json(path)
    try:
        rules = parse_rules(json.dumps(raw), path)
    except BadRules as error:
        raise SettingsError(str(error)) from None
    if rules.plugin not in ("kmsg", "journald", "filelog"):
        raise SettingsError(f"{path}: plugin: {rules.plugin!r}, expected kmsg, journald or filelog")
    if rules.plugin == "filelog" and not rules.log_path:
        raise SettingsError(f"{path}: logPath: a filelog monitor needs one")
    options = raw.get("pluginConfig") or {}
    reader = _ObjectReader(path)
    if not isinstance(options, dict):
        raise reader.wrong("pluginConfig", options, "an object")
    return LogMonitor(
        path,
        rules.source,
        rules.plugin,
        rules.log_path,
        {str(key): str(value) for key, value in options.items()},
        reader.duration(raw, "lookback", "0"),
        reader.duration(raw, "delay", "0"),
        reader.texts(raw, "skipList"),
        max((rule.lines for rule in rules.rules), default=1),
        reader.flag(raw, "metricsReporting", True),
        reader.defaults(raw),
        rules.rules,
        tuple(str(rule.get("patternGeneratedMessageSuffix") or "") for rule in raw["rules"]),
        reader.pattern(options, "message"),
        reader.pattern(options, "timestamp"),
    )


def load_plugin_monitor(path: str) -> PluginMonitor:
    """Raises SettingsError."""
    raw = read_json(path)
    reader = _ObjectReader(path)
    if raw.get("plugin", "custom") != "custom":
        raise reader.wrong("plugin", raw.get("plugin"), "custom")
    options = raw.get("pluginConfig") or {}
    if not isinstance(options, dict):
        raise reader.wrong("pluginConfig", options, "an object")
    timeout = reader.duration(options, "timeout", "5s")
    every = reader.duration(options, "invoke_interval", "30s")
    if every <= 0:
        raise reader.wrong("invoke_interval", options.get("invoke_interval"), "a duration above 0")
    defaults = reader.defaults(raw)
    rules: List[PluginRule] = []
    given = raw.get("rules")
    if not isinstance(given, list):
        raise reader.wrong("rules", given, "a list")
    for number, rule in enumerate(given, 1):
        where = f"rule {number}"
        if not isinstance(rule, dict):
            raise reader.wrong(where, rule, "an object")
        if rule.get("type") not in (PERMANENT, TEMPORARY):
            raise reader.wrong(f"{where}: type", rule.get("type"), f"{PERMANENT} or {TEMPORARY}")
        for key in ("reason", "path"):
            if not isinstance(rule.get(key), str) or not rule[key]:
                raise reader.wrong(f"{where}: {key}", rule.get(key), "text")
        condition = str(rule.get("condition") or "")
        if rule["type"] == PERMANENT and condition not in {default.type for default in defaults}:
            raise reader.wrong(f"{where}: condition", condition, "one of the file's conditions")
        own = reader.duration(rule, "invoke_interval", "", where) or every
        limit = reader.duration(rule, "timeout", "", where) or timeout
        rules.append(
            PluginRule(rule["type"], condition if rule["type"] == PERMANENT else "", rule["reason"], rule["path"],
                       reader.texts(rule, "args", where), limit, own)
        )  # fmt: skip
    limit_bytes = options.get("max_output_length", 80)
    if not isinstance(limit_bytes, int) or isinstance(limit_bytes, bool) or limit_bytes < 1:
        raise reader.wrong("max_output_length", limit_bytes, "a whole number above 0")
    reader.flag(options, "enable_message_change_based_condition_update", False)  # the detector refuses another type
    return PluginMonitor(
        path,
        str(raw.get("source") or path.rpartition("/")[2]),
        limit_bytes,
        reader.flag(raw, "metricsReporting", True),
        defaults,
        tuple(rules),
    )


class _ObjectReader:
    def __init__(self, path: str) -> None:
        self.path = path

    def wrong(self, where: str, value: object, expected: str) -> SettingsError:
        return SettingsError(f"{self.path}: {where}: {value!r}, expected {expected}")

    def duration(self, raw: Mapping[str, object], key: str, default: str, where: str = "") -> float:
        value = raw.get(key) or default
        if not value:
            return 0.0
        try:
            return go_duration(str(value))
        except ValueError:
            raise self.wrong(f"{where}: {key}".lstrip(": "), value, "a duration, as in 30s") from None

    def texts(self, raw: Mapping[str, object], key: str, where: str = "") -> Tuple[str, ...]:
        value = raw.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(f"{where}: {key}".lstrip(": "), value, "a list of texts")
        return tuple(value)

    def flag(self, raw: Mapping[str, object], key: str, default: bool) -> bool:
        value = raw.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def pattern(self, raw: Mapping[str, object], key: str) -> Optional[Pattern[str]]:
        value = raw.get(key)
        if not value:
            return None
        try:
            return compile_go(str(value), f"{self.path}: {key}")
        except BadRules as error:
            raise SettingsError(str(error)) from None

    def defaults(self, raw: Mapping[str, object]) -> Tuple[Default, ...]:
        given = raw.get("conditions") or []
        if not isinstance(given, list) or not all(isinstance(c, dict) and c.get("type") for c in given):
            raise self.wrong("conditions", given, "a list of objects with a type, a reason and a message")
        for condition in given:
            if condition["type"] in KUBELET_CONDITIONS:
                raise self.wrong("conditions", condition["type"], "a type of its own: the kubelet writes this one")
        return tuple(Default(str(c["type"]), str(c.get("reason", "")), str(c.get("message", ""))) for c in given)


# The node conditions and events of node-problem-detector's rules, without its flaws.
#
# Several rules may set one condition: it is bad while any of them says so (in the detector the last rule wins, so that
# it flaps). A condition that a log rule set stays until the node restarts or someone acknowledges it, also across a
# restart of the agent (the detector's own restart clears it). A plugin's temporary problem is counted each time and
# published when it begins or its message changes, not again with every run.


TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
MESSAGE = 1024
REMOVED = 600.0
"""Seconds for which a condition whose rules are gone is published at its default: two heartbeats of a sink."""


class RuleStatus(NamedTuple):
    """What one rule reports for its condition."""

    status: str
    reason: str
    message: str


class RuleConditions:
    """All conditions of all monitors. `emit` takes events, `count` problems, `clock` is the wall clock."""

    def __init__(
        self,
        clock: Callable[[], float],
        count: Callable[[str, str, int], None] = lambda _kind, _reason, _times: None,
    ) -> None:
        self.clock, self.count = clock, count
        self.emit: Callable[[str, EventDetails], None] = lambda _what, _more: None
        self.defaults: Dict[str, Default] = {}
        self.sources: Dict[str, str] = {}
        self.rules: Dict[str, List[str]] = {}
        self.statuses: Dict[str, RuleStatus] = {}
        self.standing: Dict[str, NodeCondition] = {}
        self.gauges: Dict[Tuple[str, str], float] = {}
        self._published: Dict[str, str] = {}
        self.removed: Dict[str, NodeCondition] = {}
        """Conditions whose rules are gone: they are published at their default for REMOVED seconds more."""
        self._leaving: List[EventDetails] = []
        self._beginning = False

    def connect(self, emit: Callable[[str, EventDetails], None], count: Callable[[str, str, int], None]) -> None:
        """From now on events go to `emit`, and problems are counted by `count`."""
        self.emit, self.count = emit, count

    def begin(self) -> None:
        """The logs are opened now. A log that cannot be read then is no change: no event reports it."""
        self._beginning = True

    def begun(self) -> None:
        """From now on it is a change."""
        self._beginning = False

    def define(self, defaults: Sequence[Default], source: str) -> None:
        for default in defaults:
            self.defaults.setdefault(default.type, default)
            self.sources.setdefault(default.type, source)
            self.standing.setdefault(default.type, self._entry(default.type, FALSE, default.reason, default.message))

    def rule(self, name: str, condition: str, reason: str, metrics: bool) -> None:
        """Add a permanent rule, by a unique name."""
        self.rules.setdefault(condition, []).append(name)
        if metrics:
            self.gauges.setdefault((condition, reason), 0.0)
            self.count("", reason, 0)

    def say(self, name: str, condition: str, status: str, reason: str, message: str) -> bool:
        """What one rule reports now. Returns whether the condition changed its status or its reason."""
        self.statuses[name] = RuleStatus(status, reason, printable(message, MESSAGE))
        return self._settle(condition)

    def cannot_tell(self, name: str, condition: str, reason: str, problem: str) -> bool:
        """A rule that has found nothing cannot tell, for this reason; "": it can tell again. Returns as `say` does."""
        known = self.statuses.get(name)
        if known is not None and known.status != UNKNOWN:
            return False
        if problem:
            return self.say(name, condition, UNKNOWN, reason, problem)
        return self.statuses.pop(name, None) is not None and self._settle(condition)

    def end(self, condition: str) -> bool:
        """An acknowledgement: what the rules reported of this condition has ended. Returns whether it was active."""
        for name in self.rules.get(condition, ()):
            self.statuses.pop(name, None)
        if condition not in self.standing or self.standing[condition]["status"] == FALSE:
            return False
        self._settle(condition)
        return True

    def temporary(self, name: str, source: str, reason: str, message: str, *, every: bool, metrics: bool) -> None:
        """A temporary problem: an event. With `every` unset it is published only if it says something new."""
        if metrics:
            self.count("", reason, 1)
        text = printable(message, MESSAGE)
        if every or self._published.get(name) != text:
            self._published[name] = text
            self.emit("log.event", {"type": source, "reason": reason, "severity": "warn", "message": text})

    def over(self, name: str) -> None:
        """A temporary problem that is not there this time."""
        self._published.pop(name, None)

    def _settle(self, condition: str) -> bool:
        default = self.defaults[condition]
        statuses = [self.statuses[name] for name in self.rules.get(condition, ()) if name in self.statuses]
        bad = next((rule for rule in statuses if rule.status == TRUE), None)
        unknown = next((rule for rule in statuses if rule.status == UNKNOWN), None)
        if bad:
            status, reason, message = bad
        elif unknown:
            status, reason, message = UNKNOWN, default.reason, unknown.message
        else:
            status, reason, message = FALSE, default.reason, default.message
        before = self.standing[condition]
        for kind, known in self.gauges:
            if kind == condition:
                self.gauges[kind, known] = float(any(rule[:2] == (TRUE, known) for rule in statuses))
        if (before["status"], before["reason"]) == (status, reason):
            if before["message"] == message:
                return False
            before["message"] = message
            return True
        self.standing[condition] = self._entry(condition, status, reason, message)
        if status == TRUE and (condition, reason) in self.gauges:
            self.count(condition, reason, 1)
        source = self.sources.get(condition, "")
        details: EventDetails = {
            "type": condition, "status": status, "reason": reason, "message": message, "source": source,
        }  # fmt: skip
        if not (self._beginning and status == UNKNOWN):
            self.emit("condition.changed", details)
        return True

    def published(self) -> List[NodeCondition]:
        """The conditions to show: the active ones, and for a while those whose rules are gone."""
        late = utc_milliseconds(self.clock() - REMOVED)
        self.removed = {kind: entry for kind, entry in self.removed.items() if entry["transition"] > late}
        return [*self.standing.values(), *self.removed.values()]

    def _remove(self, condition: str, entry: NodeCondition, default: object) -> None:
        """End a condition whose rules are gone: nothing else would ever clear it."""
        words = default if isinstance(default, list) and len(default) == 2 else ["RuleRemoved", ""]
        self.removed[condition] = self._entry(condition, FALSE, str(words[0]), str(words[1]))
        details: EventDetails = {
            "type": condition, "status": FALSE, "reason": str(words[0]), "message": "its rules were removed",
            "source": entry["reason"],
        }  # fmt: skip
        self._leaving.append(details)

    def tell_removed(self) -> None:
        """Emit what `load` has ended, when there are sinks to receive it."""
        leaving, self._leaving = self._leaving, []
        for details in leaving:
            self.emit("condition.changed", details)

    def _entry(self, condition: str, status: str, reason: str, message: str) -> NodeCondition:
        return {
            "type": condition,
            "status": status,
            "transition": utc_milliseconds(self.clock()),
            "reason": reason,
            "message": message,
        }

    # Across restarts of the agent.

    def dump(self) -> Dict[str, Any]:
        return {
            "said": {name: list(rule) for name, rule in self.statuses.items()},
            "standing": self.standing,
            "defaults": {kind: [default.reason, default.message] for kind, default in self.defaults.items()},
            "removed": self.removed,
        }

    def load(self, kept: Mapping[str, object]) -> None:
        """Restore what `dump` gave before a restart, for rules that still exist."""
        names = {name for known in self.rules.values() for name in known}
        statuses, standing = kept.get("said"), kept.get("standing")
        for name, rule in statuses.items() if isinstance(statuses, dict) else ():
            if name in names and isinstance(rule, list) and len(rule) == 3 and all(isinstance(x, str) for x in rule):
                self.statuses[name] = RuleStatus(*rule)
        for condition, entry in standing.items() if isinstance(standing, dict) else ():
            if condition in self.standing and isinstance(entry, dict) and set(entry) == set(self.standing[condition]):
                self.standing[condition] = cast("NodeCondition", {key: str(value) for key, value in entry.items()})
        self._load_removed(standing, kept)
        emit, count = self.emit, self.count
        self.connect(lambda _what, _more: None, lambda _kind, _reason, _times: None)
        try:
            for condition in self.standing:
                self._settle(condition)
        finally:
            self.connect(emit, count)

    def _load_removed(self, standing: object, kept: Mapping[str, object]) -> None:
        """Restore the conditions whose rules no longer exist."""
        defaults, removed = kept.get("defaults"), kept.get("removed")
        shape = set(self._entry("", "", "", ""))
        for condition, entry in removed.items() if isinstance(removed, dict) else ():
            if condition not in self.standing and isinstance(entry, dict) and set(entry) == shape:
                self.removed[condition] = cast("NodeCondition", {key: str(value) for key, value in entry.items()})
        for condition, entry in standing.items() if isinstance(standing, dict) else ():
            known = condition in self.standing or not isinstance(entry, dict) or set(entry) != shape
            if not known and entry["status"] != FALSE:
                default = defaults.get(condition) if isinstance(defaults, dict) else None
                self._remove(str(condition), cast("NodeCondition", entry), default)


# node-problem-detector's system-stats-monitor: the metrics that its file asks for, under the names it gives them.
#
# Read from /proc when /metrics is requested, at most once in the file's `invokeInterval`. Names, labels and units are
# pkg/systemstatsmonitor's, so that dashboards made for it go on working; a missing source costs only its metrics, and
# not, as there, the whole program.


TICKS = 100.0
"""Clock ticks a second in /proc/stat (USER_HZ, the same on every Linux architecture of today)."""
SECTOR = 512
GROUPS = ("cpu", "disk", "host", "memory", "net", "osFeature")
_STAGES = ("user", "nice", "system", "idle", "iowait", "iRQ", "softIRQ", "steal", "guest", "guestNice")
_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_NET = (
    "net/rx_bytes", "net/rx_packets", "net/rx_errors", "net/rx_dropped", "net/rx_fifo", "net/rx_frame",
    "net/rx_compressed", "net/rx_multicast", "net/tx_bytes", "net/tx_packets", "net/tx_errors", "net/tx_dropped",
    "net/tx_fifo", "net/tx_collisions", "net/tx_carrier", "net/tx_compressed",
)  # fmt: skip
GAUGE, COUNTER = "gauge", "counter"

Labels = Mapping[str, str]
Sample = Tuple[str, str, str, float, Labels]
"""Metric id, kind, about, value, labels."""


class Stats:
    """One file. Raises SettingsError."""

    def __init__(self, path: str) -> None:
        self.path = path
        raw = read_json(path)
        self.names: Dict[str, str] = {}
        try:
            self.every = go_duration(str(raw.get("invokeInterval") or "60s"))
            for group in GROUPS:
                for metric, options in ((raw.get(group) or {}).get("metricsConfigs") or {}).items():
                    name = str(options.get("displayName") or "")
                    if name:
                        self.names[metric] = re.sub(r"[^A-Za-z0-9_:]", "_", name)
            self.proc = str(raw.get("procPath") or "/proc").rstrip("/")
            net = raw.get("net") or {}
            pattern = str(net.get("excludeInterfaceRegexp") or "")
            self.exclude = compile_go(pattern, "excludeInterfaceRegexp") if pattern else None
        except (BadRules, ValueError, AttributeError, TypeError) as error:
            raise SettingsError(f"{path}: {' '.join(str(error).split())}") from None
        disk = raw.get("disk") or {}
        self.all_blocks, self.root_blocks = bool(disk.get("includeAllAttachedBlk")), bool(disk.get("includeRootBlk"))
        known = str((raw.get("osFeature") or {}).get("KnownModulesConfigPath") or
                    (raw.get("osFeature") or {}).get("knownModulesConfigPath") or "")  # fmt: skip
        self.known_modules = os.path.join(os.path.dirname(path), known) if known else ""
        self._families: List[Family] = []
        self._at: Optional[float] = None
        self._weighted: Dict[str, Tuple[float, float]] = {}

    def families(self, host: Host) -> List[Family]:
        """The metrics, read now or a moment ago."""
        now = host.monotonic()
        if self._at is not None and now - self._at < self.every:
            return self._families
        self._at = now
        made: Dict[str, Family] = {}
        gather: Sequence[Callable[[Host], List[Sample]]] = (
            self._load, self._stat, self._memory, self._uptime, self._net, self._features, self._disks, self._space
        )  # fmt: skip
        for source in gather:
            try:
                samples = source(host)
            except (OSError, ValueError, IndexError, KeyError):
                continue  # what this kernel or this container does not show is left out
            for metric, kind, about, value, labels in samples:
                name = self.names.get(metric)
                if name:
                    made.setdefault(name, Family(name, kind, about)).add(value, **labels)
        self._families = list(made.values())
        return self._families

    def _wants(self, prefix: str) -> bool:
        return any(metric.startswith(prefix) for metric in self.names)

    def _load(self, host: Host) -> List[Sample]:
        last, five, fifteen = (float(value_text) for value_text in host.read(f"{self.proc}/loadavg").split()[:3])
        return [
            ("cpu/load_1m", GAUGE, "CPU average load (1m)", last, {}),
            ("cpu/load_5m", GAUGE, "CPU average load (5m)", five, {}),
            ("cpu/load_15m", GAUGE, "CPU average load (15m)", fifteen, {}),
            ("cpu/runnable_task_count", GAUGE, "Runnable tasks in the run queue, on average over a minute", last, {}),
        ]

    def _stat(self, host: Host) -> List[Sample]:
        samples: List[Sample] = []
        for line in host.lines(f"{self.proc}/stat"):
            key, *values = line.split()
            if key == "cpu":
                for state, value_text in zip(_STATES, values):
                    value = float(value_text)
                    samples.append(("cpu/usage_time", COUNTER, "CPU usage, in clock ticks", value, {"state": state}))
            elif key.startswith("cpu"):
                for stage, value_text in zip(_STAGES, values):
                    labels = {"cpu": key, "stage": stage}
                    samples.append(
                        ("system/cpu_stat", COUNTER, "Seconds each CPU spent", float(value_text) / TICKS, labels)
                    )
            elif key == "processes":
                samples.append(("system/processes_total", COUNTER, "Forks since boot", float(values[0]), {}))
            elif key == "procs_running":
                samples.append(("system/procs_running", GAUGE, "Processes that run", float(values[0]), {}))
            elif key == "procs_blocked":
                samples.append(("system/procs_blocked", GAUGE, "Processes that are blocked", float(values[0]), {}))
            elif key == "intr":
                samples.append(("system/interrupts_total", COUNTER, "Interrupts since boot", float(values[0]), {}))
        return samples

    def _memory(self, host: Host) -> List[Sample]:
        from nhc.node.facts.meminfo import parse_meminfo

        info = parse_meminfo(host.read(f"{self.proc}/meminfo"))
        samples: List[Sample] = []

        def add(metric: str, about: str, field: str, state: str) -> None:
            if field in info:
                samples.append((metric, GAUGE, about, float(info[field]) * 1024, {"state": state} if state else {}))

        used = "Memory, in bytes, by state"
        for state, field in (("free", "MemFree"), ("buffered", "Buffers"), ("cached", "Cached"), ("slab", "Slab")):
            add("memory/bytes_used", used, field, state)
        rest = info["MemTotal"] - sum(info[field] for field in ("MemFree", "Buffers", "Cached", "Slab"))
        samples.append(("memory/bytes_used", GAUGE, used, float(rest) * 1024, {"state": "used"}))
        share = rest * 100.0 / info["MemTotal"]
        samples.append(("memory/percent_used", GAUGE, "Memory used, in per cent", share, {"state": "used"}))
        dirty = "Memory that is to be or is being written back, in bytes"
        add("memory/dirty_used", dirty, "Dirty", "dirty")
        add("memory/dirty_used", dirty, "Writeback", "writeback")
        for state in ("active", "inactive"):
            title = state.capitalize()
            add("memory/anonymous_used", "Anonymous memory, in bytes", f"{title}(anon)", state)
            add("memory/page_cache_used", "Page cache, in bytes", f"{title}(file)", state)
        add("memory/unevictable_used", "Unevictable memory, in bytes", "Unevictable", "")
        return samples

    def _uptime(self, host: Host) -> List[Sample]:
        if not self._wants("host/"):
            return []
        up = float(host.read(f"{self.proc}/uptime").split()[0])
        labels = {"kernel_version": host.read_or("/proc/sys/kernel/osrelease"), "os_version": _os_version(host)}
        return [("host/uptime", GAUGE, "The uptime of the operating system, in seconds", float(int(up)), labels)]

    def _net(self, host: Host) -> List[Sample]:
        samples: List[Sample] = []
        for line in host.lines(f"{self.proc}/net/dev")[2:]:
            name, _, values = line.partition(":")
            name = name.strip()
            if self.exclude is not None and self.exclude.search(name):
                continue
            for metric, value_text in zip(_NET, values.split()):
                samples.append((metric, COUNTER, "See /proc/net/dev", float(value_text), {"interface_name": name}))
        return samples

    def _features(self, host: Host) -> List[Sample]:
        if not self._wants("system/os_feature"):
            return []
        parameters = dict(parameter.partition("=")[::2] for parameter in host.read(f"{self.proc}/cmdline").split())

        def number(key: str) -> float:
            return float(whole_of_digits(parameters.get(key)) or 0)

        signed = number("module.sig_enforce") == 1 and number("loadpin.enabled") == 1
        features: List[Tuple[str, float, Labels]] = [
            ("KTD", number("csm.enabled"), {}),
            ("UnifiedCgroupHierarchy", number("systemd.unified_cgroup_hierarchy"), {}),
            ("KernelModuleIntegrity", float(signed), {}),
        ]
        try:
            features += self._modules(host)
        except OSError:
            pass  # a kernel without modules has none to report
        about = "Features of the operating system: 1 where there"
        return [("system/os_feature", GAUGE, about, value, {"os_feature": name, **labels})
                for name, value, labels in features]  # fmt: skip

    def _modules(self, host: Host) -> List[Tuple[str, float, Labels]]:
        known = set()
        if self.known_modules:
            try:
                modules = parse_json(read_text(self.known_modules))
                known = {str(module.get("moduleName", "")) for module in modules}
            except (OSError, ValueError, AttributeError, TypeError):
                pass
        gpu, strange = 0.0, []
        for line in host.lines(f"{self.proc}/modules"):
            fields = line.split()
            name, flags = fields[0], fields[-1] if fields[-1].startswith("(") else ""
            if "nvidia" in name:
                gpu = 1.0
            elif ("O" in flags or "P" in flags) and name not in known:
                strange.append(name)
        value: Labels = {"value": ",".join(strange)} if strange else {}
        return [("UnknownModules", float(bool(strange)), value), ("GPUSupport", gpu, {})]

    def _disks(self, host: Host) -> List[Sample]:
        if not self._wants("disk/"):
            return []
        wanted = self._devices(host)
        now = host.monotonic()
        samples: List[Sample] = []
        for line in host.lines(f"{self.proc}/diskstats"):
            fields = line.split()
            name = fields[2]
            if name not in wanted:
                continue
            r_ops, r_merged, r_sectors, r_ms, w_ops, w_merged, w_sectors, w_ms, _now, io_ms, weighted = (
                float(field) for field in fields[3:14]
            )
            device = {"device_name": name}
            samples.append(("disk/io_time", COUNTER, "Time with I/O under way, in ms", io_ms, device))
            samples.append(("disk/weighted_io", COUNTER, "Weighted I/O time, in ms", weighted, device))
            before = self._weighted.get(name)
            if before is not None and now > before[0]:
                length = (weighted - before[1]) / ((now - before[0]) * 1000)
                samples.append(("disk/avg_queue_len", GAUGE, "The queue's average length", length, device))
            self._weighted[name] = (now, weighted)
            for way, ops, merged, sectors, ms in (
                ("read", r_ops, r_merged, r_sectors, r_ms), ("write", w_ops, w_merged, w_sectors, w_ms)
            ):  # fmt: skip
                labels = {"device_name": name, "direction": way}
                samples.append(("disk/operation_count", COUNTER, "Operations", ops, labels))
                samples.append(("disk/merged_operation_count", COUNTER, "Merged operations", merged, labels))
                samples.append(("disk/operation_bytes_count", COUNTER, "Bytes moved", sectors * SECTOR, labels))
                samples.append(("disk/operation_time", COUNTER, "Time of operations, in ms", ms, labels))
        return samples

    def _devices(self, host: Host) -> Dict[str, None]:
        """Whole disks (includeRootBlk) and mounted devices (includeAllAttachedBlk)."""
        names: Dict[str, None] = {}
        if self.root_blocks:
            names.update(dict.fromkeys(host.listdir("/sys/block")))
        if self.all_blocks:
            names.update(dict.fromkeys(_short(device) for device, *_rest in self._mounts(host)))
        return names

    def _mounts(self, host: Host) -> List[Tuple[str, str, str, str]]:
        """Device, place, type and options of each mounted block device, once."""
        mounts: Dict[str, Tuple[str, str, str, str]] = {}
        for line in host.lines(f"{self.proc}/mounts"):
            device, place, kind, options = line.split(" ")[:4]
            if device.startswith("/dev/"):
                mounts.setdefault(device, (device, place.replace("\\040", " "), kind, options))
        return list(mounts.values())

    def _space(self, host: Host) -> List[Sample]:
        if not (self._wants("disk/bytes_used") or self._wants("disk/percent_used")):
            return []
        samples: List[Sample] = []
        for device, place, kind, options in self._mounts(host):
            try:
                space = host.statvfs(place)
            except OSError:
                continue
            used = space.size - space.free
            labels = {"device_name": _short(device), "fs_type": kind, "mount_option": options}
            about = "Space, in bytes, by state"
            samples.append(("disk/bytes_used", GAUGE, about, float(space.free), {**labels, "state": "free"}))
            samples.append(("disk/bytes_used", GAUGE, about, float(used), {**labels, "state": "used"}))
            if used + space.available:
                share = used * 100.0 / (used + space.available)
                samples.append(
                    ("disk/percent_used", GAUGE, "Space used, in per cent", share, {**labels, "state": "used"})
                )
        return samples


def _short(device: str) -> str:
    return device.removeprefix("/dev/")


def _os_version(host: Host) -> str:
    """The contents of /etc/os-release, in node-problem-detector's form: `ubuntu 22.04.3 LTS (Jammy Jellyfish)`."""
    fields: Dict[str, Any] = {}
    for line in host.read_or("/etc/os-release").splitlines():
        key, _, value = line.partition("=")
        fields[key] = value.strip("\"'")
    return f"{fields.get('ID', 'unknown')} {fields.get('VERSION', fields.get('VERSION_ID', ''))}".strip()


# Logs that node-problem-detector's rules are applied to, live: the kernel's, journald's, a file's.


POLL = 1.0
"""Seconds between reads of a file."""
JOURNAL_LOOK = 5.0
"""Seconds between checks whether journald keeps a journal: without one journalctl waits silently."""
RUNS = 2.0
"""A journalctl that has not ended after so many seconds reads the journal."""
CHUNK = 8 << 20


class LogReader:
    """One monitor's rules on its log. Lines from before `since` (Unix time) are left out."""

    def __init__(self, monitor: LogMonitor, conditions: RuleConditions, changed: Callable[[], None]) -> None:
        self.monitor, self.conditions, self.changed = monitor, conditions, changed
        self.since = 0.0
        self.problem = ""
        """Problems of the log: that it cannot be read, or parts of it that are not lines."""
        self._unread = ""
        self._last: List[str] = []
        self._rules = [(rule, needle(rule.pattern.pattern[:-2]), suffix, f"{monitor.path}#{number}")
                       for number, (rule, suffix) in enumerate(zip(monitor.rules, monitor.suffixes), 1)]  # fmt: skip
        for rule, _needle, _suffix, name in self._rules:
            if rule.type == PERMANENT:
                conditions.rule(name, rule.condition, rule.reason, monitor.metrics)
            elif monitor.metrics:
                conditions.count("", rule.reason, 0)

    def begin_at(self, since: float) -> None:
        """Leave out lines from before this Unix time."""
        self.since = since

    def cannot_read(self, problem: str) -> None:
        """From now on the log is not read, for this reason; "": it is read again.

        A rule that has found nothing then reports that it cannot tell. What a rule has found stays.
        """
        self.problem = problem
        if problem == self._unread:
            return
        self._unread = problem
        changed = False
        for rule, _needle, _suffix, name in self._rules:
            if rule.type == PERMANENT:
                changed |= self.conditions.cannot_tell(name, rule.condition, rule.reason, problem)
        if changed:
            self.changed()

    def read(self, records: Sequence[Record]) -> None:
        """Apply the rules to new lines."""
        lines = [record.text for record in records
                 if (record.when is None or record.when >= self.since)
                 and not any(text in record.text for text in self.monitor.skip)]  # fmt: skip
        if not lines:
            return
        # In most batches no rule can match anything: one search for each rule shows that.
        whole = "\n".join((*self._last, *lines))
        rules = [entry for entry in self._rules if entry[1] in whole]
        span = self.monitor.buffer
        changed = False
        if rules:
            for line in lines:
                self._last = [*self._last[-(span - 1) :], line] if span > 1 else [line]
                for rule, text, suffix, name in rules:
                    hit = rule.search(text, self._last, line)
                    if hit is not None:
                        block, start = hit
                        message = block[block.rfind("\n", 0, start) + 1 :]  # from the start of the line
                        changed |= self._hit(rule, name, f"{message}; {suffix}" if suffix else message)
        elif span > 1:
            self._last = [*self._last, *lines][-(span - 1) :]
        if changed:
            self.changed()

    def _hit(self, rule: Rule, name: str, message: str) -> bool:
        if rule.type == PERMANENT:
            return self.conditions.say(name, rule.condition, TRUE, rule.reason, message)
        self.conditions.temporary(
            name, self.monitor.source, rule.reason, message, every=True, metrics=self.monitor.metrics
        )
        return False


def catch_up(host: Host, readers: Sequence[LogReader], after: int) -> int:
    """Give readers what the kernel's ring holds after record number `after`. Returns the last record's number."""
    try:
        raws = host.system.kernel_log(after)
    except OSError as error:
        for reader in readers:
            reader.cannot_read(f"{KMSG}: {error.strerror}")
        return after
    records = ring_records(host, raws)
    for reader in readers:
        reader.read(records)
    return records[-1].number if records else after


class FileFollower:
    """A log file, read every second, across rotation."""

    def __init__(self, loop: Loop, host: Host, reader: LogReader) -> None:
        self.loop, self.host, self.reader = loop, host, reader
        self._message, self._stamp = reader.monitor.message, reader.monitor.timestamp
        self.cursor: Optional[Tuple[int, int]] = None
        self.left_out = 0
        """Bytes that are not lines: holes, lines without an end."""
        self._over = False

    def start(self) -> None:
        self._look()

    def close(self) -> None:
        self._over = True

    def _look(self) -> None:
        if self._over:
            return
        self.loop.after(POLL, self._look)
        path = self.reader.monitor.log_path
        try:
            self._follow(path)
            self.reader.cannot_read("")
            self.reader.problem = unread(path, self.left_out, 0)
        except OSError as error:
            self.reader.cannot_read(f"{path}: {error.strerror}")

    def _follow(self, path: str) -> None:
        stat = self.host.stat(path)
        if self.cursor is None and not self.reader.monitor.lookback:
            self.cursor = (stat.ino, stat.size)
            return
        inode, offset = self.cursor or (stat.ino, max(0, stat.size - CHUNK))
        before = ""
        if inode != stat.ino:
            rotated = rotated_to(self.host, path, inode)
            before = log_tail(self.host, rotated, offset, CHUNK)[0] if rotated else ""
            offset = 0
        elif stat.size < offset:
            offset = 0
        if stat.size == offset and not before:
            self.cursor = (stat.ino, offset)
            return
        text, end, left_out = log_tail(self.host, path, offset, CHUNK)
        first, self.cursor = self.cursor is None, (stat.ino, end)
        if not first or left_out >= CHUNK:  # a first read may begin within a line: its rest does not count
            self.left_out += left_out
        now = self.host.time()
        lines = f"{before}{text}".split("\n")
        self.reader.read([self._record(line, now) for line in lines if line])

    def _record(self, line: str, now: float) -> Record:
        """A line, parsed by the monitor's own expressions; if they do not fit, in syslog's form."""
        record = parse_line(line, now)
        if self._message is None:
            return record
        match = self._message.search(line)
        if not match:
            return record._replace(text=line)
        stamp = self._stamp.search(line) if self._stamp else None
        when = None
        if stamp:
            from nhc.core.timestamps import from_iso
            from nhc.node.facts.kernel_lines import bsd_time

            written = _last(stamp)
            when = from_iso(written) or bsd_time(written, now)
        return record._replace(text=_last(match), when=when)


def _last(match: Match[str]) -> str:
    """What an expression's last group matched, the whole match if it has none: logwatchers/filelog/translator.go."""
    return next((group for group in reversed(match.groups()) if group is not None), match[0])


class JournalFollower:
    """journald's entries of one identifier. `cursor` is that of the last entry read, also from before a restart."""

    def __init__(self, loop: Loop, host: Host, reader: LogReader, cursor: str = "") -> None:
        self.loop, self.host, self.reader, self.cursor = loop, host, reader, cursor
        self._child = Journalctl(loop, host, self._options, self._take, reader.cannot_read)
        self._timer: Optional[Timer] = None

    @property
    def place(self) -> str:
        """Where to go on after a restart."""
        return self.cursor or f"@{self.reader.since:.0f}"

    def start(self) -> None:
        """Start journalctl if there is a journal; else try again later."""
        if is_kept(self.host):
            self._child.start()
            if self._child.runs_for() >= RUNS:
                self.reader.cannot_read("")
        else:
            self.reader.cannot_read(NO_JOURNAL)
        self._timer = self.loop.after(JOURNAL_LOOK, self.start)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._child.close()

    def _options(self) -> List[str]:
        identifier = self.reader.monitor.options.get("source", "")
        options = ["--no-tail", "--output=json", f"--output-fields={FIELDS}"]
        options += [f"--identifier={identifier}"] if identifier else []
        # From the cursor on, not after it: if its entry is gone, journalctl leaves out the entry that came next.
        return [*options, f"--cursor={self.cursor}" if self.cursor else f"--since=@{int(max(self.reader.since, 0))}"]

    def _take(self, lines: Sequence[bytes]) -> None:
        records = []
        for line in lines:
            entry = parse_journal(line.decode(errors="replace"), whole=False)
            if entry is None or (self.cursor and same_entry(entry[1], self.cursor)):
                continue
            records.append(entry[0])
            self.cursor = entry[1] or self.cursor
        if records:
            self.reader.read(records)


CHECK = "check_npd_plugin"


def load(settings: AgentSettings) -> Optional[Monitors]:
    """The monitors of the settings' files, None if they name none. Raises SettingsError."""
    if not (settings.system_log or settings.custom_plugin or settings.system_stats):
        return None
    stats = [Stats(path) for path in settings.system_stats]
    try:
        return Monitors(
            [load_log_monitor(path) for path in settings.system_log],
            [load_plugin_monitor(path) for path in settings.custom_plugin],
            stats,
        )
    except (OverflowError, RecursionError) as error:
        raise SettingsError(f"{settings.path}: npd: {error}") from None


class Monitors:
    """All of them."""

    def __init__(self, logs: List[LogMonitor], plugins: List[PluginMonitor], stats: List[Stats]) -> None:
        self.logs, self.plugins, self.stats = logs, plugins, stats
        self._seeds: Dict[str, int] = {}
        self.conditions_kept = RuleConditions(self._clock, self._seed)
        self._host: Optional[Host] = None
        self._on_change: Optional[Callable[[], None]] = None
        self.followers: List[Union[FileFollower, JournalFollower]] = []
        self._kernel: List[LogReader] = []
        self._kmsg: Optional[Follower] = None
        self._loop: Optional[Loop] = None
        self.number = -1
        """The last record of the kernel's log that the rules have seen."""
        self.cursors: Dict[str, str] = {}
        """How far each journald monitor had read before a restart: a cursor, or @ and a time."""
        self._items: List[Item] = []
        self._plugins: Dict[str, Tuple[PluginMonitor, PluginRule, str]] = {}
        monitors: Sequence[Union[LogMonitor, PluginMonitor]] = (*logs, *plugins)
        for monitor in monitors:
            self.conditions_kept.define(monitor.conditions, monitor.source)
        self.readers = [LogReader(monitor, self.conditions_kept, self._changed) for monitor in logs]
        for plugin in plugins:
            for number, rule in enumerate(plugin.rules, 1):
                name = f"{plugin.path}#{number}"
                item = _item(plugin, rule, number)
                self._items.append(item)
                self._plugins[key_of(item)] = (plugin, rule, name)
                if rule.type == PERMANENT:
                    self.conditions_kept.rule(name, rule.condition, rule.reason, plugin.metrics)
                elif plugin.metrics:
                    self._seed("", rule.reason, 0)

    def _clock(self) -> float:
        if self._host is not None:
            return self._host.time()
        import time

        return time.time()

    def _seed(self, _kind: str, reason: str, _times: int) -> None:
        self._seeds[reason] = 0

    def items(self) -> List[Item]:
        """The plugins, as checks of the agent."""
        return self._items

    def owns(self, key: str) -> bool:
        """Whether a check is one of the plugins."""
        return key in self._plugins

    def start(
        self,
        host: Host,
        loop: Loop,
        publisher: Publisher,
        changed: Callable[[], None],
        kmsg: Optional[Follower],
    ) -> None:
        """Begin to follow the logs. `changed` is called when a condition changes; `kmsg` follows the kernel's."""
        self._host, self._on_change = host, changed
        self.conditions_kept.connect(publisher.emit, publisher.count_problem)
        self.conditions_kept.begin()
        for reason in self._seeds:
            publisher.count_problem("", reason, 0)
        loop.after(0.0, self.conditions_kept.tell_removed)  # when there are sinks to receive it
        now = host.time()
        booted = now - host.monotonic()
        kernel: List[LogReader] = []
        for reader in self.readers:
            lookback = reader.monitor.lookback
            reader.begin_at(max(now - lookback if lookback else now, booted + reader.monitor.delay))
            if reader.monitor.plugin == "kmsg":
                kernel.append(reader)
            elif reader.monitor.plugin == "journald":
                self._follow(self._journal(host, loop, reader, booted))
            else:
                self._follow(FileFollower(loop, host, reader))
        self._kernel, self._kmsg, self._loop = kernel, kmsg, loop
        if kernel and kmsg:
            if self.number >= 0:  # read so far before a restart: everything that came since is new, at any age
                for reader in kernel:
                    reader.begin_at(booted + reader.monitor.delay)
            self.number = catch_up(host, kernel, self.number)
            for reader in kernel:
                reader.begin_at(booted + reader.monitor.delay)
            kmsg.tell_every_record(self._read_ring)
            self._look_at_ring()
        self.conditions_kept.begun()

    def _journal(self, host: Host, loop: Loop, reader: LogReader, booted: float) -> JournalFollower:
        """As with the kernel's own: everything that came since the last read before a restart is new, at any age."""
        cursor = self.cursors.get(reader.monitor.path, "")
        if cursor:
            first = booted + reader.monitor.delay
            reader.begin_at(max(first, float(cursor[1:])) if cursor[0] == "@" else first)
        return JournalFollower(loop, host, reader, cursor if cursor[:1] != "@" else "")

    def _follow(self, follower: Union[FileFollower, JournalFollower]) -> None:
        self.followers.append(follower)
        follower.start()

    def close(self) -> None:
        self._kmsg = None
        self.cursors = self._places()
        for follower in self.followers:
            follower.close()
        self.followers.clear()

    def _read_ring(self, records: Sequence[Record]) -> None:
        """Apply the rules to records of the kernel's log, without those that `catch_up` has read."""
        fresh = [record for record in records if record.number > self.number]
        if fresh:
            self.number = fresh[-1].number
            for reader in self._kernel:
                reader.read(fresh)

    def _look_at_ring(self) -> None:
        """Check, now and then, whether the kernel's log is followed; then read the records that came meanwhile."""
        if self._kmsg is None or self._loop is None or self._host is None:
            return
        if not self._kmsg.live:
            problem = self._kmsg.problem or f"{KMSG} is not followed (kernel-log = false)"
            for reader in self._kernel:
                reader.cannot_read(problem)
        elif any(reader.problem for reader in self._kernel):
            for reader in self._kernel:
                reader.cannot_read("")
            self.number = catch_up(self._host, self._kernel, self.number)
        self._loop.after(POLL, self._look_at_ring)

    def _changed(self) -> None:
        if self._on_change:
            self._on_change()

    def judged(self, finished: Finished) -> None:
        """Enter what the plugins of a round reported."""
        changed = False
        for key in finished.keys:
            known = self._plugins.get(key)
            results = finished.results.get(key)
            if known is None or not results:
                continue
            plugin, rule, name = known
            outcome = results[0].outcome
            status = {Verdict.OK: FALSE, Verdict.UNKNOWN: UNKNOWN, Verdict.SKIP: UNKNOWN}.get(outcome.verdict, TRUE)
            if rule.type == PERMANENT:
                changed |= self.conditions_kept.say(name, rule.condition, status, rule.reason, outcome.message)
            elif status == FALSE:
                self.conditions_kept.over(name)
            else:
                self.conditions_kept.temporary(
                    name, plugin.source, rule.reason, outcome.message, every=False, metrics=plugin.metrics
                )
        if changed:
            self._changed()

    def ack(self, condition: str) -> bool:
        """End a condition that a log rule has set; only the plugin ends its own. Returns whether it was active."""
        plugins = {name for _plugin, _rule, name in self._plugins.values()}
        if any(name in plugins for name in self.conditions_kept.rules.get(condition, ())):
            return False
        ended = condition in self.conditions_kept.standing and self.conditions_kept.end(condition)
        if ended:
            self._changed()
        return ended

    def end(self, keys: Sequence[str], everything: bool) -> List[str]:
        """End the named conditions (`condition/TYPE`), or all. Returns what ended."""
        named = [entry["type"] for entry in self.conditions() if everything or f"condition/{entry['type']}" in keys]
        return [f"condition/{name}" for name in named if self.ack(name)]

    # What the agent shows.

    def conditions(self) -> List[NodeCondition]:
        return self.conditions_kept.published()

    def gauges(self) -> Dict[Tuple[str, str], float]:
        return self.conditions_kept.gauges

    def families(self) -> List[Family]:
        host = self._host
        return [family for stats in self.stats for family in stats.families(host)] if host else []

    def problems(self) -> List[str]:
        """Why logs cannot be read."""
        return [f"{reader.monitor.path}: {reader.problem}" for reader in self.readers if reader.problem]

    # Across restarts, and from one configuration to the next.

    def dump(self) -> Dict[str, Any]:
        return {**self.conditions_kept.dump(), "number": self.number, "cursors": self._places()}

    def _places(self) -> Dict[str, str]:
        journals = (follower for follower in self.followers if isinstance(follower, JournalFollower))
        return {**self.cursors, **{journal.reader.monitor.path: journal.place for journal in journals}}

    def load(self, kept: Mapping[str, object]) -> None:
        number = kept.get("number")
        self.number = number if isinstance(number, int) else -1
        cursors = kept.get("cursors")
        self.cursors = {str(path): str(at) for path, at in cursors.items()} if isinstance(cursors, dict) else {}
        self.conditions_kept.load(kept)

    def take_over(self, before: Monitors) -> None:
        """Go on from the monitors of the last configuration, and end those."""
        before.close()
        self.load(before.dump())


def _item(plugin: PluginMonitor, rule: PluginRule, number: int) -> Item:
    options = ["--timeout", f"{rule.timeout:g}", "--max-output", str(plugin.limit), "--reason", rule.reason]
    if rule.type != PERMANENT:
        options.append("--temporary")
    argv = (CHECK, *options, rule.path, *rule.args)
    return Item(BUILT_IN, CHECK, " ".join(argv), f"{plugin.path}: rule {number}", argv, every=rule.every)
