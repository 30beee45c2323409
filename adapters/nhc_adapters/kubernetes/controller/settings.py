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
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.limits import Limit, read_limit
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.policy.mark_decision import Policy
from nhc.marks.policy.policy_file import PolicyFile
from nhc.marks.policy.policy_file import load as load_policy
from nhc_adapters.kubernetes.controller.loki import LokiSettings
from nhc_adapters.kubernetes.controller.node_report import parse_fault
from nhc_adapters.kubernetes.controller.podlogs import PodLogs
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings
from nhc_adapters.kubernetes.nodes.accelerators import GRACE
from nhc_adapters.kubernetes.nodes.conditions import JOB_ERROR, KERNEL_LOG, PREFLIGHT_FAILED
from nhc_adapters.kubernetes.nodes.drain import DrainRules
from nhc_adapters.kubernetes.nodes.evidence import SILENT_AFTER
from nhc_adapters.kubernetes.nodes.maintenance import LIFECYCLE
from nhc_adapters.kubernetes.nodes.marks import Treatment
from nhc_adapters.kubernetes.nodes.view import TOPOLOGIES
from nhc_adapters.kubernetes.nodes.vocabulary import Fault, Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load
from nhc_adapters.kubernetes.preflight.webhook import PreflightSettings

PATH = "/etc/nhc/kubernetes.toml"
HEAD = """
What `nhc sync kubernetes` and `nhc serve kubernetes` do: /etc/nhc/kubernetes.toml. What stands here behind # is the
default, unless the comment says otherwise. docs/kubernetes.md explains it.
"""
NAME = re.compile("[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")
"""What an object's name may begin with: together with its suffix it is still a DNS label (RFC 1123)."""


def _name(text: str) -> str:
    """What objects are called, as far as Kubernetes takes it. Raises ValueError."""
    if not NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name: at most 50 lower-case letters, digits and - between them")
    return text


def _expected(table: Table) -> Dict[str, Dict[str, int]]:
    return {
        kind: {name: resources.count(name, 0) for name in resources.names()}
        for kind, resources in table.tables().items()
    }


@declared.settings
class ControllerSettings(NamedTuple):
    """All of it. `apply` False means a dry run."""

    apply: bool = False
    policy: Policy = Policy()
    vocabularies: Tuple[Vocabulary, ...] = ()
    faults: Tuple[Fault, ...] = ()
    treatment: Treatment = Treatment()
    rules: DrainRules = declared.part("drain-rules", DrainRules)
    topologies: Tuple[str, ...] = declared.texts(
        "topologies", TOPOLOGIES,
        'Zones and pools that can have ceilings of their own, by these labels ("label=value" in the policy\'s '
        "[bounds.named]).",
    )  # fmt: skip
    selector: str = declared.text("selector", "", "only these nodes", shown='"nvidia.com/gpu.present=true"')
    silent_after: float = declared.seconds(
        "silent-after", SILENT_AFTER, "a node whose agent has said nothing for so long is unknown"
    )
    expected: Mapping[str, Mapping[str, int]] = declared.own(
        "expected", {}, lambda table, key, usual: _expected(table.table(key)) if key in table else usual,
        "Accelerators that a node must be able to give out, by instance type. Without an entry, a node's own capacity. "
        "With one, a device plugin that never registered counts, too.", form="tables of counts", within="TYPE",
        shown='[expected."p5.48xlarge"]\n"nvidia.com/gpu" = 8',
    )  # fmt: skip
    watch_allocatable: bool = declared.flag(
        "allocatable", True, "too few accelerators that can be given out are a fault (NhcAllocatableProblem) ..."
    )
    allocatable_grace: float = declared.seconds(
        "allocatable-grace", GRACE,
        "... once that has lasted so long: a device plugin that restarts shows none meanwhile",
    )  # fmt: skip
    devices: DeviceRuleSettings = declared.part(
        "devices", DeviceRuleSettings,
        "A fault of one GPU takes out that GPU alone, with a DeviceTaintRule (docs/kubernetes.md).",
    )  # fmt: skip
    podlogs: PodLogs = declared.part(
        "podlogs", PodLogs, "Pods that failed with a device error in their log speak against their node."
    )
    loki: LokiSettings = declared.part("loki", LokiSettings, "Kernel logs that are collected in Loki.")
    preflight: PreflightSettings = declared.part(
        "preflight", PreflightSettings, "A suite in an init container, before a pod's own containers start."
    )
    lifecycle: bool = declared.flag(
        "lifecycle-conditions", False,
        "say of drains and repairs on the node: DrainInProgress, Drained, MaintenanceInProgress (Kubernetes 1.37)",
    )  # fmt: skip
    maintenance: Tuple[str, ...] = declared.choices(
        "maintenance", {"nhc": "nhc", "nvsentinel": "nvsentinel"}, (),
        "whose requests take a node out: the annotation nhc/maintenance, NVSentinel's MaintenanceRequest",
        shown='["nhc", "nvsentinel"]',
    )  # fmt: skip
    slurm: bool = declared.flag(
        "slurm", False, "a drain that nhc's hooks set in Slurm takes the Kubernetes node out, too (Slinky, SUNK)"
    )
    namespace: str = declared.text("namespace", "nhc-system", "where the Lease and the ledger are")
    name: str = declared.converted(
        "name", _name, "nhc",
        "what they begin with (nhc-controller, nhc-ledger), so that two installations share none; the chart writes its "
        "release's",
    )  # fmt: skip
    agent_namespace: str = declared.text(
        "agent-namespace", "", "where `nhc doctor kubernetes` finds the agents; otherwise in `namespace`",
        shown='"nhc-agents"',
    )  # fmt: skip
    sources: Tuple[str, ...] = ()
    """The files that these settings came from, in order to see when one changes."""

    def object_name(self, part: str) -> str:
        """The name of one of this installation's own objects: its Lease (controller), its ledger, its cursors ..."""
        return f"{self.name}-{part}"

    @property
    def verdict(self) -> str:
        """The condition whose heartbeat says that a node's agent lives, "" if no vocabulary names one."""
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
    for fault in named:
        if fault.type in LIFECYCLE:
            raise SettingsError(f"faults: {fault.type} says what somebody does or plans on purpose, and is no fault")
    known = named or tuple(dict.fromkeys(fault for vocabulary in spoken for fault in vocabulary.faults))
    settings = ControllerSettings(
        vocabularies=spoken, treatment=Treatment(spoken, cordon, taint, label, drain), faults=known, **details
    )
    # What the controller itself finds is a condition too, so that it outlives a restart and kubectl shows it.
    if settings.podlogs.namespaces:
        known += (Fault(JOB_ERROR),)
    if settings.loki.url:
        known += (Fault(KERNEL_LOG),)
    if settings.preflight.on:
        known += (Fault(PREFLIGHT_FAILED),)
    return settings._replace(faults=known)


@declared.settings
class KubernetesFile(NamedTuple):
    """What kubernetes.toml says, before vocabularies and the policy are loaded."""

    apply: Optional[bool] = declared.own(
        "apply", None, lambda table, key, usual: table.flag(key) if key in table else usual,
        "until this is true, nothing is changed: what would be done is said", form="true or false", shown="false",
    )  # fmt: skip
    policy: str = declared.text(
        "policy", "", "ceilings and rates (conf/policy.toml.example), beside this file", shown='"policy.toml"'
    )
    max_marked: Optional[Limit] = declared.converted(
        "max-marked", read_limit, None, "most nodes marked at once, in place of the policy's bounds.fleet.out",
        form="limit", show=Limit.written, shown='"20 10%"',
    )  # fmt: skip
    vocabularies: Tuple[str, ...] = declared.texts(
        "vocabularies", ("nhc",), "also: aks hyperpod hyperpod-short konduktor neuron npd nvsentinel slinky, or a file"
    )
    faults: Tuple[str, ...] = declared.texts(
        "faults", (), 'as draino is told: ["GpuXid", "GpuCount=True,10m"]; none: the vocabularies\''
    )
    cordon: bool = declared.flag("cordon", True)
    taint: bool = declared.flag("taint", True)
    label: bool = declared.flag("label", True)
    drain: bool = declared.flag("drain")
    settings: ControllerSettings = declared.part("", ControllerSettings)


FILE = declared.SettingsFile(KubernetesFile, PATH, HEAD, optional=True)


def read(
    path: str = "", given: Sequence[str] = (), *, apply: Optional[bool] = None, drain: Optional[bool] = None
) -> ControllerSettings:
    """Settings from a file, with what the command line says of them: `KEY=VALUE` each. Raises SettingsError."""
    said = FILE.load(path, given)
    path = path or (FILE.path if os.path.exists(FILE.path) else "")
    sources = [*filter(None, [path]), *(name for name in said.vocabularies if "/" in name)]
    chosen = PolicyFile()
    if said.policy:
        policy = os.path.join(os.path.dirname(os.path.abspath(path)), said.policy)
        chosen = load_policy(policy)
        sources.append(policy)
    details = {
        **said.settings._asdict(), "apply": next(one for one in (apply, said.apply, chosen.apply) if one is not None),
        "policy": chosen.policy if said.max_marked is None else chosen.policy.with_ceiling(said.max_marked),
        "sources": tuple(sources),
    }  # fmt: skip
    for made in ("vocabularies", "treatment", "faults"):
        del details[made]
    try:
        return make(
            said.vocabularies, said.faults, cordon=said.cordon, taint=said.taint, label=said.label,
            drain=said.drain if drain is None else drain, **details,
        )  # fmt: skip
    except SettingsError as error:
        raise SettingsError(f"{path or '--set'}: {error}") from None
