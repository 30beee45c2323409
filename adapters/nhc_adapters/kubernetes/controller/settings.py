"""The settings of the controller and of `nhc sync kubernetes`, from a TOML file (conf/kubernetes.toml.example).

    policy = "policy.toml"
    vocabularies = ["nhc", "hyperpod"]
    faults = ["GpuXid", "GpuCount=True,10m"]
    drain = true

Everything that acts is off or dry until it is switched on. Every mistake is one line: file, line, key.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.policy.decide import Policy
from nhc.marks.policy.policy_file import PolicyFile
from nhc.marks.policy.policy_file import load as load_policy
from nhc_adapters.kubernetes.controller.judge import parse_fault
from nhc_adapters.kubernetes.controller.loki import LOOKBACK
from nhc_adapters.kubernetes.controller.podlogs import PATTERNS, PodLogs
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings, read_device_rules
from nhc_adapters.kubernetes.nodes.accelerators import GRACE
from nhc_adapters.kubernetes.nodes.conditions import JOB_ERROR, KERNEL_LOG
from nhc_adapters.kubernetes.nodes.drain import DrainRules
from nhc_adapters.kubernetes.nodes.evidence import SILENT_AFTER
from nhc_adapters.kubernetes.nodes.marks import Treatment
from nhc_adapters.kubernetes.nodes.view import TOPOLOGIES
from nhc_adapters.kubernetes.nodes.vocabulary import Fault, Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load

NAME = re.compile("[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
"""What an object's name may begin with: with what stands behind it, it is still a DNS label (RFC 1123)."""


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
class ControllerSettings:
    """All of it. `apply` False means a dry run."""

    apply: bool = False
    policy: Policy = field(default_factory=Policy)
    vocabularies: Tuple[Vocabulary, ...] = ()
    faults: Tuple[Fault, ...] = ()
    treatment: Treatment = field(default_factory=Treatment)
    rules: DrainRules = field(default_factory=DrainRules)
    topologies: Tuple[str, ...] = TOPOLOGIES
    selector: str = ""
    silent_after: float = SILENT_AFTER
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    watch_allocatable: bool = True
    allocatable_grace: float = GRACE
    """Seconds for which too few accelerators may be allocatable."""
    devices: DeviceRuleSettings = field(default_factory=DeviceRuleSettings)
    podlogs: PodLogs = field(default_factory=PodLogs)
    loki: LokiSettings = field(default_factory=LokiSettings)
    namespace: str = "nhc-system"
    name: str = "nhc"
    """What the names of this installation's objects begin with, so that two of them share no Lease and no ledger."""
    agent_namespace: str = ""
    """Where the agents are, "" in `namespace`."""
    sources: Tuple[str, ...] = field(default=(), compare=False)
    """The files that these settings came from, in order to see when one changes."""

    def object_name(self, part: str) -> str:
        """The name of one of this installation's own objects: its Lease (controller), its ledger, its cursors ..."""
        return f"{self.name}-{part}"

    @property
    def verdict(self) -> str:
        """The condition whose heartbeat says that a node's agent lives, "" where no vocabulary names one."""
        return next((vocabulary.verdict for vocabulary in self.vocabularies if vocabulary.verdict), "")


def make(
    vocabularies: Sequence[str] = ("nhc",),
    faults: Sequence[str] = (),
    *,
    cordon: bool = True,
    taint: bool = True,
    label: bool = True,
    drain: bool = False,
    **details: Any,
) -> ControllerSettings:
    """Settings of these vocabularies and faults, by name; `details` are fields as they are. Raises SettingsError."""
    try:
        spoken = tuple(load(name) for name in vocabularies)
        named = tuple(parse_fault(text) for text in faults)
    except (BadVocabulary, ValueError) as error:
        raise SettingsError(str(error)) from None
    # Named faults stand alone, as draino's arguments do; without any, the vocabularies say what is one.
    known = named or tuple(dict.fromkeys(fault for vocabulary in spoken for fault in vocabulary.faults))
    settings = ControllerSettings(
        vocabularies=spoken, treatment=Treatment(spoken, cordon, taint, label, drain), faults=known, **details
    )
    # What the controller itself finds is a condition too, so that it outlives a restart and kubectl shows it.
    if settings.podlogs.namespaces:
        known += (Fault(JOB_ERROR),)
    if settings.loki.url:
        known += (Fault(KERNEL_LOG),)
    return replace(settings, faults=known)


def read(
    path: str,
    *,
    vocabularies: Optional[Sequence[str]] = None,
    faults: Optional[Sequence[str]] = None,
    drain: Optional[bool] = None,
    **override: Any,
) -> ControllerSettings:
    """Settings from a file; the rest is what the command line says, None where nothing. Raises SettingsError."""
    file = settings_file.load(path)
    named = file.texts("vocabularies", ("nhc",))
    sources = [path, *(name for name in named if "/" in name)]
    chosen = PolicyFile()
    if "policy" in file:
        policy = os.path.join(os.path.dirname(os.path.abspath(path)), file.text("policy"))
        chosen = load_policy(policy)
        sources.append(policy)
    details: Dict[str, Any] = {
        "apply": file.flag("apply", chosen.apply),
        "policy": chosen.policy,
        "rules": _rules(file.table("drain-rules")),
        "topologies": file.texts("topologies", TOPOLOGIES),
        "selector": file.text("selector"),
        "silent_after": file.seconds("silent-after", SILENT_AFTER),
        "expected": _expected(file.table("expected")),
        "watch_allocatable": file.flag("allocatable", True),
        "allocatable_grace": file.seconds("allocatable-grace", GRACE),
        "devices": read_device_rules(file),
        "podlogs": _podlogs(file.table("podlogs")),
        "loki": _loki(file.table("loki")),
        "namespace": file.text("namespace", "nhc-system"),
        "name": _name(file),
        "agent_namespace": file.text("agent-namespace"),
        "sources": tuple(sources),
    }
    details.update((key, value) for key, value in override.items() if value is not None)
    faults = faults if faults is not None else file.texts("faults")
    cordon, taint, label = (file.flag(key, True) for key in ("cordon", "taint", "label"))
    drains = file.flag("drain")
    file.finish()
    try:
        return make(
            vocabularies if vocabularies is not None else named, faults,
            cordon=cordon, taint=taint, label=label, drain=drains if drain is None else drain, **details,
        )  # fmt: skip
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _name(file: Table) -> str:
    """What objects are called, as far as Kubernetes takes it."""
    name = file.text("name", "nhc")
    if not NAME.fullmatch(name):
        raise file.error("name", f"{name!r} is no name: at most 50 lower-case letters, digits and - between them")
    return name


def _rules(table: Table) -> DrainRules:
    default = DrainRules()
    return DrainRules(
        int(table.seconds("grace", 0.0)) if "grace" in table else None,
        table.seconds("deadline", default.deadline),
        table.flag("force"),
        table.flag("empty-dir"),
        table.texts("protected", default.protected),
        table.texts("namespaces"),
        table.text("selector"),
    )


def _expected(table: Table) -> Dict[str, Dict[str, int]]:
    return {
        kind: {name: resources.count(name, 0) for name in resources.names()}
        for kind, resources in table.tables().items()
    }


def _podlogs(table: Table) -> PodLogs:
    default = PodLogs()
    patterns = table.texts("patterns", PATTERNS)
    for pattern in patterns:
        try:
            if re.compile(pattern).search("") is not None:
                raise table.error("patterns", f"{pattern!r} fits every line")
        except re.error as error:
            raise table.error("patterns", f"{pattern!r} is no pattern: {error}") from None
    return PodLogs(
        table.texts("namespaces"),
        patterns,
        table.seconds("every", default.every),
        table.count("pods", default.pods),
        table.count("spread", default.spread),
        table.seconds("window", default.window),
    )


def _loki(table: Table) -> LokiSettings:
    default = LokiSettings()
    return LokiSettings(
        table.text("url"),
        table.text("query", default.query),
        table.text("node-label", default.node_label),
        table.seconds("every", default.every),
        table.text("tenant"),
        table.seconds("lookback", default.lookback),
    )
