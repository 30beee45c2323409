"""`nhc doctor kubernetes`: finds early what would keep an installation from working.

It reads and never writes. Each finding is a line: `ok`, `warn`, `problem`, or `unknown` if the user may not read the
object. Each problem says what to do about it.

On nodes it checks labels, agents, the runtime class, clocks, and who else writes our conditions.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from nhc.core.model import printable
from nhc.core.settings import toml_text
from nhc.core.system.bounded_read import parse_json
from nhc.core.timestamps import from_utc, is_recent
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import get
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.devices.rules import find_api
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.doctor import controller
from nhc_adapters.kubernetes.doctor.controller import (
    OK,
    PROBLEM,
    SKEW,
    UNKNOWN,
    WARN,
    Check,
    DoctorFinding,
    Installation,
    names,
    pod_spec_of,
    pods_refused,
    spec_of,
    why_waiting,
)
from nhc_adapters.kubernetes.nodes.accelerators import device_plugin, registered
from nhc_adapters.kubernetes.nodes.conditions import read_conditions
from nhc_adapters.kubernetes.nodes.scheduling import chooses, keys
from nhc_adapters.kubernetes.nodes.vocabulary import Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load

# Whether the services beside the controller (remedy loop, job loop, console) run, and what their pods wait for.


PENDING_AFTER = 60.0
"""Seconds that a pod may take to start."""


def services(site: Installation) -> Iterator[DoctorFinding]:
    """Each StatefulSet of ours, by how many of its pods are ready."""
    for item in site.statefulsets:
        name, ready = str(item["metadata"]["name"]), int((item.get("status") or {}).get("readyReplicas") or 0)
        wanted = int(spec_of(item).get("replicas", 1))
        level = OK if ready >= wanted else WARN if ready else PROBLEM
        made = int((item.get("status") or {}).get("replicas") or 0)
        said = site.refused_pods("services", name) if made < wanted else ""
        advice = "" if ready >= wanted else f"kubectl -n {site.namespace} describe statefulset {name}"
        text = f"{name}: {ready} of {wanted} ready{f': {said}' if said else ''}"
        yield DoctorFinding(level, "services", text, pods_refused(said) if said else advice)


def pods(site: Installation) -> Iterator[DoctorFinding]:
    """Each pod of ours that has not started for longer than that takes, and what it waits for."""
    for pod in site.pods:
        status: Mapping[str, Any] = pod.get("status") or {}
        waits = site.now() - from_utc(pod["metadata"].get("creationTimestamp"))
        if status.get("phase") != "Pending" or waits <= PENDING_AFTER:
            continue
        name = str(pod["metadata"]["name"])
        text = f"{name} is Pending for {waits / 60:.0f} min: {printable(why_waiting(pod) or 'nobody says why', 200)}"
        yield DoctorFinding(PROBLEM, "pods", text, f"kubectl -n {site.namespace} describe pod {name}")


SERVICE_CHECKS: Tuple[Check, ...] = (services, pods)


# What the doctor asks of single devices: whether the cluster can take one out, and whose devices it knows.


def devices(site: Installation) -> Iterator[DoctorFinding]:
    if not site.settings.devices.on:
        return
    api = find_api(site.client)
    if api is None:
        yield DoctorFinding(
            PROBLEM,
            "devices",
            "[devices] keep = device, and the cluster serves no DeviceTaintRule: faults of devices mark their nodes",
            "Kubernetes 1.37 serves it; before, the API server needs --runtime-config and the gate DRADeviceTaintRules",
        )
        return
    watch = DeviceWatch(site.client)
    watch.load()
    nodes = watch.slices.nodes()
    count = sum(len(watch.slices.physical(name)) for name in nodes)
    if nodes:
        yield DoctorFinding(OK, "devices", f"{len(nodes)} nodes publish {count} devices; rules are {api.rules}")
    else:
        yield DoctorFinding(
            WARN, "devices", "no ResourceSlice names a device by UUID or PCI address: each fault marks its node",
            "install a DRA driver, or set [devices] keep = node",
        )  # fmt: skip
    both = [str(node["metadata"]["name"]) for node in site.nodes if device_plugin(node)]
    both = sorted(set(both) & set(nodes))
    if both:
        more = f" and {len(both) - 1} more" if len(both) > 1 else ""
        yield DoctorFinding(
            WARN, "devices", f"{both[0]}{more}: a device plugin gives devices out as well: each fault marks its node",
            "leave the devices of a node to one of the two",
        )  # fmt: skip


CHECKS: Tuple[Check, ...] = (devices,)


def examine(client: Client, namespace: str, settings: ControllerSettings) -> List[DoctorFinding]:
    """All findings. Raises AdapterError where the cluster cannot be used at all."""
    installation = Installation(client, namespace, settings)
    checks: Tuple[Check, ...] = (*controller.CHECKS, *CHECKS, *SERVICE_CHECKS, *NODE_CHECKS)
    findings: List[DoctorFinding] = []
    for check in checks:
        try:
            findings += check(installation)
        except ApiError as error:
            topic = check.__name__.replace("_", " ")
            findings.append(DoctorFinding(UNKNOWN, topic, f"cannot be looked at: {error}"))
    return list(dict.fromkeys([*installation.unread, *findings]))


def as_text(findings: Sequence[DoctorFinding]) -> str:
    width = max((len(finding.topic) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:7}  {finding.topic:{width}}  {finding.text}")
        if finding.advice:
            lines.append(f"{'':7}  {'':{width}}  -> {finding.advice}")
    problems = sum(1 for finding in findings if finding.level == PROBLEM)
    warnings = sum(1 for finding in findings if finding.level in (WARN, UNKNOWN))
    lines.append(f"{problems} problems, {warnings} warnings")
    return "\n".join(lines) + "\n"


def as_json(findings: Sequence[DoctorFinding]) -> str:
    return json.dumps([finding._asdict() for finding in findings], indent=2) + "\n"


def sick(findings: Sequence[DoctorFinding]) -> bool:
    return any(finding.level == PROBLEM for finding in findings)


OURS = frozenset({"nhc"})
"""The field managers under which nhc writes conditions."""


def labels(site: Installation) -> Iterator[DoctorFinding]:
    """Each node is to have one agent, the one of its kind."""
    if not site.agents:
        if site.readable("agents"):
            yield DoctorFinding(
                PROBLEM,
                "labels",
                f"no agent is installed in {site.agents_namespace}",
                "apply an overlay, or install the chart; --namespace says where it is",
            )
        return
    chosen: Dict[str, List[str]] = {}
    for agent in site.agents:
        name, spec = str(agent["metadata"]["name"]), pod_spec_of(agent)
        nodes = [str(node["metadata"]["name"]) for node in site.nodes if chooses(spec, node)]
        for node in nodes:
            chosen.setdefault(node, []).append(name)
        if nodes:
            yield DoctorFinding(OK, "labels", f"{name} is for {len(nodes)} nodes")
        else:
            wanted = ", ".join(f"{key}={values}" for key, values in keys(spec)) or "any"
            yield DoctorFinding(
                PROBLEM,
                "labels",
                f"{name} is for no node: none has a label that it looks for ({wanted})",
                "install GPU feature discovery or node feature discovery, or choose other labels "
                "(agents.KIND.nodeSelectorTerms in the chart)",
            )
    twice = [node for node, agents in chosen.items() if len(agents) > 1]
    if twice:
        yield DoctorFinding(
            PROBLEM,
            "labels",
            f"several agents are for {names(twice)}: they overwrite each other's conditions",
            f"narrow one of {', '.join(sorted(set(chosen[twice[0]])))}",
        )
    bare = [
        str(node["metadata"]["name"])
        for node in site.nodes
        if any(registered(node).values()) and not chosen.get(_name(node))
    ]
    if bare:
        yield DoctorFinding(
            PROBLEM,
            "labels",
            f"no agent is for {names(bare)}, which have accelerators",
            "their labels are not those that an agent looks for: kubectl get nodes --show-labels",
        )


def agents(site: Installation) -> Iterator[DoctorFinding]:
    """Whether the agents that there should be are there, and report."""
    for agent in site.agents:
        name, status = str(agent["metadata"]["name"]), agent.get("status") or {}
        wanted, ready = int(status.get("desiredNumberScheduled") or 0), int(status.get("numberReady") or 0)
        if wanted and ready == wanted:
            yield DoctorFinding(OK, "agents", f"{name}: all {wanted} are ready")
        elif wanted:
            made = int(status.get("currentNumberScheduled") or 0)
            said = site.refused_pods("agents", name, site.agents_namespace) if made < wanted else ""
            yield DoctorFinding(
                PROBLEM,
                "agents",
                f"{name}: {ready} of {wanted} are ready{f': {said}' if said else ''}",
                pods_refused(said)
                if said
                else f"kubectl -n {site.agents_namespace} get pods -l app.kubernetes.io/component=agent -o wide",
            )
    verdict = site.settings.verdict
    if not verdict or not site.agents:
        return
    specs = [pod_spec_of(agent) for agent in site.agents]
    expected = [node for node in site.nodes if any(chooses(spec, node) for spec in specs)]
    never, silent = [], []
    for node in expected:
        voice = read_conditions(node).get(verdict)
        if voice is None:
            never.append(_name(node))
        elif not is_recent(voice.seen, site.now(), site.settings.silent_after):
            silent.append(_name(node))
    for nodes, what in ((never, "nothing was ever heard"), (silent, "nothing was heard lately")):
        if nodes:
            yield DoctorFinding(
                PROBLEM,
                "agents",
                f"{what} of {len(nodes)} nodes: {names(nodes)}",
                f"kubectl -n {site.agents_namespace} logs of the agent there; `nhc status agent` in it",
            )
    if expected and not never and not silent:
        yield DoctorFinding(OK, "agents", f"all {len(expected)} nodes that should have an agent are heard of")


def runtime_class(site: Installation) -> Iterator[DoctorFinding]:
    for agent in site.agents:
        wanted = pod_spec_of(agent).get("runtimeClassName")
        if not wanted:
            continue
        name = agent["metadata"]["name"]
        if site.get("runtime", f"/apis/node.k8s.io/v1/runtimeclasses/{wanted}") is not None:
            yield DoctorFinding(OK, "runtime", f"{name}: the RuntimeClass {wanted} is there")
        elif site.readable("runtime"):
            yield DoctorFinding(
                PROBLEM,
                "runtime",
                f"{name}: there is no RuntimeClass {wanted}, so no pod of it can be made",
                "install the GPU operator or make one; where the nodes' default runtime is NVIDIA's, leave it out: "
                "overlays/no-runtimeclass, or agents.nvidia.runtimeClassName='' in the chart",
            )


def clocks(site: Installation) -> Iterator[DoctorFinding]:
    """A kubelet stamps its Lease by the node's clock, and the API server notes by its own when that was written."""
    leases = site.list("clocks", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    nodes = {_name(node) for node in site.nodes}
    wrong: Dict[str, float] = {}
    judged = 0
    for lease in leases:
        name = _name(lease)
        renewed, written = from_utc((lease.get("spec") or {}).get("renewTime")), _written(lease)
        if name not in nodes or not renewed or written is None:
            continue
        judged += 1
        if abs(renewed - written) > SKEW:
            wrong[name] = renewed - written
    if wrong:
        worst = max(wrong, key=lambda name: abs(wrong[name]))
        way = "ahead" if wrong[worst] > 0 else "behind"
        yield DoctorFinding(
            PROBLEM,
            "clocks",
            f"{len(wrong)} nodes' clocks are wrong: {names(list(wrong))} ({worst} is {abs(wrong[worst]):.0f} s {way})",
            "synchronise them: NTP or chrony",
        )
    elif judged:
        yield DoctorFinding(OK, "clocks", f"{judged} nodes' clocks agree with the API server's")


def _written(item: Mapping[str, Any]) -> Optional[float]:
    """When the API server last took a change of this object, by its own clock."""
    times = [from_utc(entry.get("time")) for entry in item["metadata"].get("managedFields") or ()]
    return max(times) if times else None


def vocabularies(site: Installation) -> Iterator[DoctorFinding]:
    """Condition types that both an agent of ours and somebody else writes: they would overwrite each other."""
    spoken: Dict[str, str] = {}
    for agent in site.agents:
        for vocabulary in _spoken(site, agent):
            for rule in vocabulary.conditions:
                spoken.setdefault(rule.type, vocabulary.name)
    rivals: Dict[Tuple[str, str], List[str]] = {}
    for node in site.nodes:
        for manager, types in _writers(node).items():
            for kind in types & set(spoken):
                rivals.setdefault((kind, manager), []).append(_name(node))
    for (kind, manager), nodes in sorted(rivals.items()):
        yield DoctorFinding(
            PROBLEM,
            "vocabularies",
            f"{kind} is written by nhc and by {manager} on {len(nodes)} nodes: {names(nodes)}",
            f"take {spoken[kind]!r} out of the agents' vocabularies, or that condition out of {manager}",
        )
    if spoken and not rivals:
        yield DoctorFinding(OK, "vocabularies", f"nobody else writes the {len(spoken)} conditions that agents write")


def admission(site: Installation) -> Iterator[DoctorFinding]:
    """Whether the policy that binds agents to their nodes lists each condition that they are to write."""
    policy = site.settings.object_name("agent")
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{policy}"
    variables = get(site.get("admission", path) or {}, "spec", "variables") or ()
    listed = next((str(entry.get("expression")) for entry in variables if entry.get("name") == "ours"), "")
    allowed = set(re.findall(r"'([^']+)'", listed))
    missing: Dict[str, str] = {}
    for agent in site.agents if allowed else ():
        written = {rule.type: vocabulary.name for vocabulary in _spoken(site, agent) for rule in vocabulary.conditions}
        missing.update(
            {kind: source for kind, source in {**written, **_ruled(site, agent)}.items() if kind not in allowed}
        )
    for kind, source in sorted(missing.items()):
        yield DoctorFinding(
            PROBLEM,
            "admission",
            f"the policy {policy} does not list {kind}, which {source} has: no agent may write it",
            "add it to admissionPolicy.conditions (chart), or to the policy's variable `ours` by a patch",
        )


def _settings_of(site: Installation, agent: Mapping[str, object]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The agent.toml of an agent, and all files of the ConfigMaps that its pods have."""
    files: Dict[str, str] = {}
    for volume in pod_spec_of(agent).get("volumes") or ():
        parts = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for part in parts:
            files.update(site.configmaps.get(str((part.get("configMap") or {}).get("name")), {}))
    try:
        return toml_text.parse(files.get("agent.toml", "")), files
    except (toml_text.BadToml, toml_text.NoToml):
        return {}, files


def _spoken(site: Installation, agent: Mapping[str, object]) -> List[Vocabulary]:
    """The vocabularies of an agent, from the ConfigMap with its agent.toml."""
    try:
        chosen = _settings_of(site, agent)[0]["sinks"]["kubernetes"].get("vocabularies", ["nhc"])
        return [load(name) for name in ([chosen] if isinstance(chosen, str) else chosen)]
    except (BadVocabulary, KeyError, TypeError, AttributeError):
        return []


def _ruled(site: Installation, agent: Mapping[str, object]) -> Dict[str, str]:
    """The conditions of node-problem-detector's rule files that an agent reads, each with its file, as far as these
    files are in ConfigMaps.
    """
    settings, files = _settings_of(site, agent)
    types: Dict[str, str] = {}
    for key in ("system-log-monitor", "custom-plugin-monitor"):
        named = get(settings, "npd", key) or ()
        for path in [named] if isinstance(named, str) else named:
            name = os.path.basename(str(path))
            try:
                conditions = get(parse_json(files.get(name, "{}")) or {}, "conditions") or ()
                types.update({str(entry["type"]): name for entry in conditions})
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # the agent says what is wrong with it
    return types


def _writers(node: Mapping[str, Any]) -> Dict[str, Set[str]]:
    """The condition types on a node by who else writes them, as the API server notes it."""
    by_manager: Dict[str, Set[str]] = {}
    for entry in node["metadata"].get("managedFields") or ():
        manager = str(entry.get("manager", ""))
        if manager in OURS:
            continue
        for key in ((entry.get("fieldsV1") or {}).get("f:status") or {}).get("f:conditions") or {}:
            if key.startswith("k:"):
                try:
                    by_manager.setdefault(manager, set()).add(str(json.loads(key[2:])["type"]))
                except (ValueError, KeyError, TypeError):
                    continue
    return by_manager


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])


NODE_CHECKS: Tuple[Check, ...] = (labels, agents, runtime_class, clocks, vocabularies, admission)
