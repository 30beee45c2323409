"""What the controller and `nhc kubernetes sync` are told to do, from a TOML file (conf/kubernetes.toml.example).

    policy = "policy.toml"
    vocabularies = ["nhc", "hyperpod"]
    faults = ["GpuXid", "GpuCount=True,10m"]
    drain = true

Everything that acts is off or dry until it is switched on. Every mistake is one line with the file and the key.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc import toml_text
from nhc.policy.decide import Ceiling, Policy
from nhc.system.bounded_read import cause, read_text
from nhc.units import seconds
from nhc_adapters.kubernetes.controller import kernlogs, podlogs
from nhc_adapters.kubernetes.controller.judge import parse_fault
from nhc_adapters.kubernetes.controller.loki import LOOKBACK
from nhc_adapters.kubernetes.controller.podlogs import PATTERNS, PodLogs
from nhc_adapters.kubernetes.nodes.accelerators import GRACE
from nhc_adapters.kubernetes.nodes.drain import Rules
from nhc_adapters.kubernetes.nodes.evidence import SILENT_AFTER
from nhc_adapters.kubernetes.nodes.marks import Treatment
from nhc_adapters.kubernetes.nodes.view import TOPOLOGIES
from nhc_adapters.kubernetes.nodes.vocabulary import Fault, Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load


class BadSettings(ValueError):
    """Settings that cannot be used, in one line."""


@dataclass(frozen=True)
class LokiSettings:
    """A Loki that holds the kernel logs of nodes. `node_label` is the stream's label that names the node."""

    url: str = ""
    query: str = '{job="dmesg"} |~ "(?i)NVRM: xid|SXid|NEURON_HW_ERR="'
    node_label: str = "k8s_node_name"
    every: float = 10.0
    tenant: str = ""
    lookback: float = LOOKBACK
    """Seconds looked back on at the very first look; later ones, after a restart too, go on from the last."""


@dataclass(frozen=True)
class Settings:
    """All of it. `apply` False means a dry run."""

    apply: bool = False
    policy: Policy = field(default_factory=Policy)
    vocabularies: Tuple[Vocabulary, ...] = ()
    faults: Tuple[Fault, ...] = ()
    treatment: Treatment = field(default_factory=Treatment)
    rules: Rules = field(default_factory=Rules)
    topologies: Tuple[str, ...] = TOPOLOGIES
    selector: str = ""
    silent_after: float = SILENT_AFTER
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    watch_allocatable: bool = True
    allocatable_grace: float = GRACE
    """Seconds for which too few accelerators may be allocatable."""
    podlogs: PodLogs = field(default_factory=PodLogs)
    loki: LokiSettings = field(default_factory=LokiSettings)
    namespace: str = "nhc-system"
    sources: Tuple[str, ...] = field(default=(), compare=False)
    """The files that these settings came from, in order to see when one changes."""

    @property
    def verdict(self) -> str:
        """The condition whose heartbeat says that a node's agent lives, "" where no vocabulary names one."""
        return next((one.verdict for one in self.vocabularies if one.verdict), "")


def make(
    vocabularies: Sequence[str] = ("nhc",),
    faults: Sequence[str] = (),
    *,
    apply: bool = False,
    policy: Optional[Policy] = None,
    cordon: bool = True,
    taint: bool = True,
    label: bool = True,
    drain: bool = False,
    **more: Any,
) -> Settings:
    """Settings from plain words. Raises BadSettings."""
    try:
        spoken = tuple(load(name) for name in vocabularies)
        given = tuple(parse_fault(text) for text in faults)
    except (BadVocabulary, ValueError) as error:
        raise BadSettings(str(error)) from None
    # Named faults stand alone, as draino's arguments do; without any, the vocabularies say what is one.
    known = given or tuple(dict.fromkeys(fault for one in spoken for fault in one.faults))
    treatment = Treatment(spoken, cordon, taint, label, drain)
    settings = Settings(apply, policy if policy is not None else Policy(), spoken, known, treatment, **more)
    # What the controller itself finds is a condition too, so that it outlives a restart and kubectl shows it.
    if settings.podlogs.namespaces:
        known += (Fault(podlogs.CONDITION),)
    if settings.loki.url:
        known += (Fault(kernlogs.CONDITION),)
    return replace(settings, faults=known)


def read(path: str, **override: Any) -> Settings:
    """Settings from a file; `override` holds what the command line says. Raises BadSettings."""
    from nhc.policy.policy_file import PolicyError, PolicyFile
    from nhc.policy.policy_file import load as load_policy

    reader = _Reader(path)
    value = reader.parse()
    table = {key: reader.table(value, key) for key in ("drain-rules", "expected", "podlogs", "loki")}
    reader.known("", value, _KEYS)
    chosen = PolicyFile()
    sources = [path, *(name for name in reader.words(value, "vocabularies", ()) if "/" in name)]
    if "policy" in value:
        name = os.path.join(os.path.dirname(os.path.abspath(path)), reader.text(value, "policy", ""))
        try:
            chosen = load_policy(name)
        except PolicyError as error:
            raise BadSettings(str(error)) from None
        sources.append(name)
    words: Dict[str, Any] = {
        "vocabularies": reader.words(value, "vocabularies", ("nhc",)),
        "faults": reader.words(value, "faults", ()),
        "apply": reader.flag(value, "apply", chosen.apply),
        "policy": chosen.policy,
        "cordon": reader.flag(value, "cordon", True),
        "taint": reader.flag(value, "taint", True),
        "label": reader.flag(value, "label", True),
        "drain": reader.flag(value, "drain", False),
        "rules": reader.rules(table["drain-rules"]),
        "topologies": tuple(reader.words(value, "topologies", TOPOLOGIES)),
        "selector": reader.text(value, "selector", ""),
        "silent_after": reader.seconds(value, "silent-after", SILENT_AFTER),
        "expected": reader.expected(table["expected"]),
        "watch_allocatable": reader.flag(value, "allocatable", True),
        "allocatable_grace": reader.seconds(value, "allocatable-grace", GRACE),
        "podlogs": reader.podlogs(table["podlogs"]),
        "loki": reader.loki(table["loki"]),
        "namespace": reader.text(value, "namespace", "nhc-system"),
        "sources": tuple(sources),
    }
    words.update({key: given for key, given in override.items() if given is not None})
    try:
        return make(**words)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from None


_KEYS = frozenset({
    "policy", "vocabularies", "faults", "apply", "cordon", "taint", "label", "drain", "drain-rules", "topologies",
    "selector", "silent-after", "expected", "allocatable", "allocatable-grace", "podlogs", "loki", "namespace",
})  # fmt: skip


def ceilings_for(policy: Policy, groups: Iterable[str]) -> Policy:
    """The policy with its group patterns (`topology.kubernetes.io/zone=*`) spelt out for the groups there are."""
    patterns = [(name, ceiling) for name, ceiling in policy.groups.items() if "*" in name and name != "*"]
    if not patterns:
        return policy
    spelt: Dict[str, Ceiling] = dict(policy.groups)
    for group in groups:
        for pattern, ceiling in patterns:
            if group not in policy.groups and fnmatchcase(group, pattern):
                spelt[group] = ceiling
                break
    return policy._replace(groups=spelt)


class _Reader:
    """Takes typed values out of a TOML table, and names file and key when one does not fit."""

    def __init__(self, path: str) -> None:
        self.path = path

    def fail(self, key: str, what: str) -> BadSettings:
        return BadSettings(f"{self.path}: {key}: {what}")

    def parse(self) -> Dict[str, Any]:
        try:
            text = read_text(self.path)
        except (OSError, UnicodeDecodeError) as error:
            raise BadSettings(f"{self.path}: {cause(error)}") from None
        try:
            return toml_text.parse(text)
        except (toml_text.BadToml, toml_text.NoToml) as error:
            raise BadSettings(f"{self.path}: {error}") from None

    def known(self, where: str, table: Mapping[str, Any], keys: Iterable[str]) -> None:
        for key in table:
            if key not in keys:
                near = get_close_matches(key, sorted(keys), 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(keys))}"
                raise self.fail(f"{where}{key}", f"there is no such key: {hint}")

    def table(self, value: Mapping[str, Any], key: str) -> Dict[str, Any]:
        found = value.get(key, {})
        if not isinstance(found, dict):
            raise self.fail(key, f"{found!r} is not a table")
        return found

    def flag(self, value: Mapping[str, Any], key: str, default: bool) -> bool:
        found = value.get(key, default)
        if not isinstance(found, bool):
            raise self.fail(key, f"{found!r} is neither true nor false")
        return found

    def text(self, value: Mapping[str, Any], key: str, default: str) -> str:
        found = value.get(key, default)
        if not isinstance(found, str):
            raise self.fail(key, f"{found!r} is not a text")
        return found

    def words(self, value: Mapping[str, Any], key: str, default: Sequence[str]) -> List[str]:
        found = value.get(key, list(default))
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise self.fail(key, f"{found!r} is not a list of texts")
        return found

    def count(self, value: Mapping[str, Any], key: str, default: int) -> int:
        found = value.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise self.fail(key, f"{found!r} is not a whole number")
        return int(found)

    def seconds(self, value: Mapping[str, Any], key: str, default: float) -> float:
        if key not in value:
            return default
        try:
            return seconds(str(value[key]))
        except ValueError as error:
            raise self.fail(key, str(error)) from None

    def rules(self, table: Mapping[str, Any]) -> Rules:
        self.known(
            "drain-rules.", table, {"grace", "deadline", "force", "empty-dir", "protected", "namespaces", "selector"}
        )
        default = Rules()
        return Rules(
            int(self.seconds(table, "grace", 0.0)) if "grace" in table else None,
            self.seconds(table, "deadline", default.deadline),
            self.flag(table, "force", False),
            self.flag(table, "empty-dir", False),
            tuple(self.words(table, "protected", default.protected)),
            tuple(self.words(table, "namespaces", ())),
            self.text(table, "selector", ""),
        )

    def expected(self, table: Mapping[str, Any]) -> Dict[str, Dict[str, int]]:
        found: Dict[str, Dict[str, int]] = {}
        for kind, resources in table.items():
            if not isinstance(resources, dict):
                raise self.fail(f"expected.{kind}", f"{resources!r} is not a table of resources")
            found[kind] = {name: self.count(resources, name, 0) for name in resources}
        return found

    def patterns(self, table: Mapping[str, Any]) -> Tuple[str, ...]:
        found = self.words(table, "patterns", PATTERNS)
        for pattern in found:
            try:
                if re.compile(pattern).search("") is not None:
                    raise self.fail("podlogs.patterns", f"{pattern!r} fits every line")
            except re.error as error:
                raise self.fail("podlogs.patterns", f"{pattern!r} is no pattern: {error}") from None
        return tuple(found)

    def podlogs(self, table: Mapping[str, Any]) -> PodLogs:
        self.known("podlogs.", table, {"namespaces", "patterns", "every", "pods", "spread", "window"})
        default = PodLogs()
        return PodLogs(
            tuple(self.words(table, "namespaces", ())),
            self.patterns(table),
            self.seconds(table, "every", default.every),
            self.count(table, "pods", default.pods),
            self.count(table, "spread", default.spread),
            self.seconds(table, "window", default.window),
        )

    def loki(self, table: Mapping[str, Any]) -> LokiSettings:
        self.known("loki.", table, {"url", "query", "node-label", "every", "tenant", "lookback"})
        default = LokiSettings()
        return LokiSettings(
            self.text(table, "url", ""),
            self.text(table, "query", default.query),
            self.text(table, "node-label", default.node_label),
            self.seconds(table, "every", default.every),
            self.text(table, "tenant", ""),
            self.seconds(table, "lookback", default.lookback),
        )
