"""node-problem-detector's monitor files: what they say, with its defaults, and one clear line for what is wrong.

Facts: pkg/custompluginmonitor/types/config.go, pkg/systemlogmonitor/config.go and
logwatchers/types/log_watcher.go of node-problem-detector.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Pattern, Tuple

from nhc.core.light import NamedTuple
from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.bounded_read import read_text
from nhc.node.kernlog.npd_rules import PERMANENT, TEMPORARY, Rule, compile_go, go_duration, parse_config
from nhc.node.kernlog.npd_rules import parse as parse_rules
from nhc.node.kernlog.source import BadRules

KUBELET_CONDITIONS = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""Types that the kubelet writes (k8s.io/api/core/v1: NodeConditionType): two writers would take turns."""


class Default(NamedTuple):
    """A condition as it is while nothing is wrong."""

    type: str
    reason: str
    message: str


class LogMonitor(NamedTuple):
    """A system-log-monitor. `suffixes` are the rules' patternGeneratedMessageSuffix, in their order.

    `message` and `timestamp` take a filelog's lines apart.
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
    except (ValueError, RecursionError) as error:
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
