"""What nhc finds under the name `kubernetes`: the adapter made of nhc's settings, and the commands behind it."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.model import DeviceId, Verdict, printable
from nhc.marks.ports.adapter import (
    OWNER,
    OWNER_SETTING,
    REMEDY_OWNER,
    AdapterError,
    Applied,
    ConditionReport,
    DeviceState,
    Effect,
    Mark,
    NodeState,
    NodeStep,
)
from nhc.marks.ports.marks import cause_of, may_clear
from nhc.marks.ports.repair import Claim, Machine, Request, Right
from nhc_adapters.kubernetes.api.access import find
from nhc_adapters.kubernetes.api.client import READ_TIMEOUT, Client, node_path
from nhc_adapters.kubernetes.api.events import NORMAL, WARNING, EventRecorder
from nhc_adapters.kubernetes.controller.detections import acknowledge_on
from nhc_adapters.kubernetes.controller.node_report import (
    ALL_OFFERED,
    NEVER,
    NOT_TAKEN_BACK,
    Accelerators,
    judge,
    reported_at,
)
from nhc_adapters.kubernetes.devices.marker import DeviceMarker
from nhc_adapters.kubernetes.nodes.accelerators import device_plugin, expected_accelerators, offered_before
from nhc_adapters.kubernetes.nodes.adapter import IN_FLIGHT, Kubernetes
from nhc_adapters.kubernetes.nodes.boots import BootsSeen
from nhc_adapters.kubernetes.nodes.condition_times import ConditionsSeen
from nhc_adapters.kubernetes.nodes.conditions import (
    FALSE,
    PREFLIGHT_FAILED,
    TRUE,
    Condition,
    read_conditions,
    write_conditions,
)
from nhc_adapters.kubernetes.nodes.drain import Drain, DrainRules
from nhc_adapters.kubernetes.nodes.evidence import NEVER_STALE
from nhc_adapters.kubernetes.nodes.following import FollowedNodes
from nhc_adapters.kubernetes.nodes.known_types import bad_statuses
from nhc_adapters.kubernetes.nodes.maintenance import lifecycle_changes
from nhc_adapters.kubernetes.nodes.marks import Treatment, apply, plan_step, work_moved
from nhc_adapters.kubernetes.nodes.overruled import OVERRULED, ended_since
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of, read_own_mark, released
from nhc_adapters.kubernetes.nodes.pods import pod_name, pods_on
from nhc_adapters.kubernetes.nodes.view import PLACES, node_state, unheard
from nhc_adapters.kubernetes.nodes.vocabulary import KEY
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load
from nhc_adapters.kubernetes.repair import requests_on_nodes
from nhc_adapters.kubernetes.repair.cluster import machine_of
from nhc_adapters.kubernetes.repair.requests_on_nodes import SOURCES, RequestRead, asks_hyperpod
from nhc_adapters.kubernetes.repair.shown_on_nodes import ClusterClaims

ONE_BY_ONE = 0.25
"""The share of the nodes up to which those that matter are read one by one, and above which all are listed at once. A
node that is read alone costs us twice the CPU of one in a list (docs/performance.md), and the server an authorization,
a read of etcd and a line of its audit log, which a list costs once for 500 nodes.
"""


class _KeptNode(NamedTuple):
    """The machine behind a node, what a person asks for on it, and what is to be tidied up.

    `put_back`: a person undid by hand what our mark did. `ended` is what to write of faults that were overruled.
    `heard`: its kubelet is heard again, and our out-of-service taint is still on it. `plugin`: as what a device plugin
    gives its devices out.
    """

    machine: Machine
    read: RequestRead
    put_back: bool
    ended: Mapping[str, Optional[str]]
    heard: bool
    uid: str
    plugin: str


class Adapter(Kubernetes):
    """The same, from nhc's settings, and what the remedy loop asks of a cluster besides.

    NHC_KUBECONFIG, NHC_KUBE_CONTEXT, NHC_KUBE_VOCABULARY (names with commas); NHC_KUBE_REQUESTS: whose words persons
    use to ask for a repair (nhc, hyperpod); NHC_KUBE_EVICT: what a drain may do besides (force, delete-emptydir-data);
    NHC_KUBE_EVICT_NOT: patterns of namespaces whose pods a drain waits for;
    NHC_KUBE_GROUPS: labels that name a node's blast radius (rack=example.com/rack,pool=example.com/team);
    NHC_KUBE_KARPENTER_REPAIRS=1: Karpenter's gate NodeRepair is on; NHC_KUBE_KURED: NAMESPACE/NAME of its DaemonSet;
    NHC_KUBE_LIFECYCLE=1: what the loop does is said in DrainInProgress, Drained and MaintenanceInProgress;
    NHC_KUBE_OWN_POD: the uid of the pod that asks, which does not make its node busy.
    """

    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = READ_TIMEOUT,
    ) -> None:
        given = settings or {}
        names = [name for name in given.get("NHC_KUBE_VOCABULARY", "nhc").split(",") if name]
        try:
            spoken = tuple(load(name) for name in names)
        except BadVocabulary as error:
            raise AdapterError(str(error)) from None
        kubeconfig = given.get("NHC_KUBECONFIG", "") or (environ or {}).get("KUBECONFIG", "")
        access = find(kubeconfig, given.get("NHC_KUBE_CONTEXT", ""))
        super().__init__(Client(access, connections=IN_FLIGHT, read_timeout=timeout), Treatment(spoken))
        self.owner = given.get(OWNER_SETTING, OWNER)
        self.places = {**PLACES, **_places(given.get("NHC_KUBE_GROUPS", ""))}
        self.own_pod = given.get("NHC_KUBE_OWN_POD", "")
        self.lifecycle = given.get("NHC_KUBE_LIFECYCLE", "") == "1"
        self.bad = bad_statuses((), spoken)
        """Condition types, each with a status that is bad, in the spoken vocabularies."""
        self._followed = FollowedNodes(self.client, self.selector)
        self._drains: Dict[str, Drain] = {}
        self._devices: Optional[DeviceMarker] = None
        """Made when somebody asks for devices: whoever marks nodes alone needs no right to read any."""
        self._healthy: Set[str] = set()
        """The nodes of which the conditions said nothing bad when they were read last."""
        self._boots = BootsSeen()
        self._conditions = ConditionsSeen()
        self._events = EventRecorder(self.client, "nhc-remedy", host=os.uname().nodename)
        self._kept: Dict[str, _KeptNode] = {}
        """What is kept of the nodes as they were read last: an object itself is 20 kB."""
        self.sources = _words(given, "NHC_KUBE_REQUESTS", SOURCES, "nhc")
        if "hyperpod" in self.sources and any(name.startswith("hyperpod") for name in names):
            raise AdapterError("NHC_KUBE_REQUESTS: hyperpod: marks in HyperPod's words (NHC_KUBE_VOCABULARY) would "
                               "write over the label by which persons ask")  # fmt: skip
        evict = _words(given, "NHC_KUBE_EVICT", ("force", "delete-emptydir-data"), "")
        waits = tuple(pattern.strip() for pattern in given.get("NHC_KUBE_EVICT_NOT", "").split(",") if pattern.strip())
        self.rules = DrainRules(force="force" in evict, empty_dir="delete-emptydir-data" in evict, waits=waits)
        self._others = ClusterClaims(
            kubeconfig, given.get("NHC_KUBE_CONTEXT", ""), timeout, given.get("NHC_KUBE_KURED", "kube-system/kured"),
            given.get("NHC_KUBE_KARPENTER_REPAIRS", "") == "1",
        )  # fmt: skip

    def objects(self, names: Optional[Sequence[str]] = None) -> List[Dict[str, Any]]:
        """As the base's, and remembered. All nodes are listed once, and then followed; those that the loop may do
        something to are read anew, as a watch may be behind what a person or another controller has done to them.
        """
        nodes = self._renewed(self._all()) if names is None else super().objects(names)
        now = time.time()
        kept = {
            str(node["metadata"]["name"]): _KeptNode(
                machine_of(node), requests_on_nodes.asked(node, self.sources),
                read_own_mark(node) is not None and released(node),
                ended_since(node, self.bad, now, self._conditions.of(node, now)) if OVERRULED in annotations_of(node)
                else {},
                work_moved(node) and not unheard([node]), str(node["metadata"].get("uid") or ""),
                device_plugin(node),
            )
            for node in nodes
        }  # fmt: skip
        self._kept = kept if names is None else {**self._kept, **kept}
        return nodes

    def _all(self) -> List[Dict[str, Any]]:
        for name in list(self.changed):
            self._followed.put(self.changed.pop(name))
        return sorted(self._followed.all(), key=_name)

    def _renewed(self, nodes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Nodes as the watch has them, those that matter read anew."""
        behind = {_name(node) for node in nodes if self._matters(node)} if self._followed.following else set()
        many = len(behind) > len(nodes) * ONE_BY_ONE
        anew = super().objects(None if many else sorted(behind)) if behind else []
        for node in anew:
            self._followed.put(node)
        return anew if many else sorted([*anew, *(node for node in nodes if _name(node) not in behind)], key=_name)

    def _matters(self, node: Mapping[str, Any]) -> bool:
        state = self.state(node)
        return not state.available or state.mark is not None or state.silence is not None

    def state(self, node: Mapping[str, object], busy: bool = False) -> NodeState:
        """As the base's; but a person's request in HyperPod's words is no mark of HyperPod's, where we read them."""
        foreign = self.foreign
        if "hyperpod" in self.sources and asks_hyperpod(node) is not None:
            foreign = tuple(mark for mark in foreign if mark.owner != "hyperpod")
        return node_state(node, foreign, self.topologies, busy, self.places)

    def show_steps(self, steps: Sequence[NodeStep]) -> List[str]:
        """Each step as an event about its node; the last of each node as a label and an annotation.

        A node that is back in service, or was left to somebody, shows nothing more; one that is for a person does.
        """
        for step in steps:
            if not step.waits:
                reason = "NhcRemedy" + "".join(part.capitalize() for part in step.state.split("-"))
                uid = self._kept[step.node].uid if step.node in self._kept else ""
                kind = WARNING if step.alarm else NORMAL
                self._events.say(kind, step.node, reason, f"episode {step.episode}: {step.why}", uid)
        problems: List[str] = []
        self._events.flush_quietly(problems.append)
        last = {step.node: step for step in steps}
        over = {name: step.ends and not step.alarm for name, step in last.items()}

        def show(name: str) -> Applied:
            return self._apply(name, lambda node: plan_step(node, None if over[name] else last[name]))

        done = self.each([name for name in last if name in self._kept], show)
        problems += [f"{step.node}: the step is not shown: {step.message}" for step in done
                     if step.effect is Effect.FAILED]  # fmt: skip
        return problems + self._show_lifecycle([name for name in last if name in self._kept])

    def _show_lifecycle(self, names: Sequence[str]) -> List[str]:
        """What the loop does to these nodes, in their lifecycle's conditions; a line for each that is not taken."""
        if not self.lifecycle:
            return []

        def show(name: str) -> str:
            try:
                node = self.changed.get(name) or self.client.find(node_path(name)) or {}
                changes = lifecycle_changes(node, time.time())
                if changes:
                    self.changed[name] = write_conditions(self.client, name, changes)
            except AdapterError as error:
                return f"{name}: its lifecycle conditions are not shown: {error}"
            return ""

        return [line for line in self.each(names, show) if line]

    def tidy(self) -> List[Applied]:
        """Take the rest of our mark off nodes that a person uncordoned, and overrule what is bad on them until it has
        ended, as `nhc serve kubernetes` does; as `nhc.marks.ports.adapter`.
        """
        back = [name for name, kept in self._kept.items() if kept.put_back]
        ended = {name: kept.ended for name, kept in self._kept.items() if kept.ended and not kept.put_back}
        done = self.release(back, self.bad, time.time()) if back else []
        heard = [name for name, kept in self._kept.items() if kept.heard and not kept.put_back]
        done += self.work_back(heard) if heard else []
        done += self.annotate(ended) if ended else ()
        for name, line in self._devices.tidy(self._kept, self._healthy) if self._devices is not None else ():
            self._events.say(NORMAL, name, "NhcRemedyDeviceRule", line, self._kept[name].uid)
        return done

    def clear(
        self,
        names: Sequence[str],
        seen: Optional[Iterable[NodeState]] = None,
        *,
        judged: Optional[Mapping[str, Mapping[str, Any]]] = None,
    ) -> List[Applied]:
        """As the base's. What a preflight found of a node has ended once the loop has proved that node."""
        if self.owner == REMEDY_OWNER:
            self.each(list(names), self._end_preflight)
        return super().clear(names, seen, judged=judged)

    def _end_preflight(self, name: str) -> None:
        """Where that cannot be written, the mark stays: the base says why."""
        try:
            node = self.client.find(node_path(name)) or {}
            standing = read_conditions(node).get(PREFLIGHT_FAILED)
            if (
                standing is not None
                and standing.status == TRUE
                and may_clear(self.state(node), self.owner)[0] is Effect.CHANGED
            ):
                now = time.time()
                acknowledge_on(self.client, name, (PREFLIGHT_FAILED,), now)
                proved = Condition(PREFLIGHT_FAILED, FALSE, "Proved", "repaired, and proved healthy", now, now)
                write_conditions(self.client, name, [proved])
        except AdapterError:
            return

    # Single devices (nhc.marks.ports.adapter: MarksDevices).

    def device_states(self, nodes: Optional[Sequence[str]] = None) -> Sequence[DeviceState]:
        """The devices that ResourceSlices name, of the nodes that were read last; as `nhc.marks.ports.adapter`."""
        known = [name for name in self._kept if nodes is None or name in nodes]
        plugins = [name for name in known if self._kept[name].plugin]
        return self._marker().states(known, plugins, anew=nodes is not None)

    def mark_device(self, node: str, device: DeviceId, mark: Mark) -> Applied:
        """Take one device out by DeviceTaintRules; as `nhc.marks.ports.adapter`."""
        return self._marker().mark(node, device, mark)

    def clear_device(self, node: str, device: DeviceId) -> Applied:
        """Delete our rules about one device; as `nhc.marks.ports.adapter`."""
        done = self._marker().clear(node, device)
        if done.effect is Effect.CHANGED:
            self._offer_restart(node, device)
        return done

    def _offer_restart(self, node: str, device: DeviceId) -> None:
        """Say how a device that is proved is given out again where its driver's own taint stays: NVIDIA's does until
        the driver's kubelet plugin restarts (dra-driver-nvidia-gpu, issue 1455).
        """
        try:
            left = self._marker().left_by_driver(node, device)
            plugins = [
                f"kubectl -n {namespace} delete pod {name}"
                for namespace, _slash, name in (pod_name(pod).partition("/") for pod in pods_on(self.client, node))
                if "dra-driver" in name and "kubelet-plugin" in name
            ] if left else []  # fmt: skip
        except AdapterError:
            return  # it is an offer
        if left:
            how = plugins[0] if plugins else "restart its kubelet plugin on this node"
            text = f"{device} is proved, and its driver's taint {left} still keeps it out: {how}"
            self._events.say(
                NORMAL, node, "NhcRemedyDriverTaint", text, self._kept[node].uid if node in self._kept else ""
            )

    def _marker(self) -> DeviceMarker:
        if self._devices is None:
            self._devices = DeviceMarker(self.client, self.owner)
        return self._devices

    # What the remedy loop asks (nhc.marks.ports.repair: KnowsMachines, NodeRequests, OtherActors).

    def machines(self) -> Mapping[str, Machine]:
        """The machines of the nodes that were read last."""
        return {name: kept.machine for name, kept in self._kept.items()}

    def requests(self) -> Tuple[Mapping[str, Request], Sequence[str]]:
        """What persons ask for on the nodes that were read last."""
        read = {name: kept.read for name, kept in self._kept.items()}
        requests = {name: asked.request for name, asked in read.items() if asked.request is not None}
        return requests, [asked.problem for asked in read.values() if asked.problem]

    def answer(self, node: str, request: Request, text: str, returned: bool) -> str:
        """Take a request off its node, with the answer."""
        try:
            apply(self.client, node, lambda seen: requests_on_nodes.answer(seen, request, text, returned))
        except AdapterError as error:
            return str(error)
        return ""

    def claims(self, machine: Machine) -> Sequence[Claim]:
        """Everybody else at work on a node, as it and the kinds of others show it now. Raises AdapterError."""
        return self._others.claims(machine.node)

    def rights(self) -> Sequence[Right]:
        """What the loop needs of this adapter. Raises AdapterError."""
        return self._others.rights()

    def condition_reports(self) -> List[ConditionReport]:
        """What the conditions of the spoken vocabularies say of each node that has any; as
        `nhc.marks.ports.adapter`.
        """
        faults = tuple(dict.fromkeys(fault for entry in self.treatment.vocabularies for fault in entry.faults))
        reports, now = [], time.time()
        for node in self._all():
            heard = self._conditions.of(node, now)
            judged = judge(node, faults, now, accelerators_of=_accelerators_of(node), heard=heard)
            conditions = heard.conditions
            report = judged.report
            failures = [(cause_of(entry), kind) for entry, kind in zip(report.failures(), judged.types)]
            since = {cause: conditions[kind].since for cause, kind in failures if kind in conditions}
            at = reported_at(judged, conditions, now)
            boot = self._boots.of(report.host, report.boot_id, at, now)
            standing = frozenset(cause for cause, kind in failures if kind in NEVER_STALE)
            # That a mark's own source has not been taken back says nothing of the node: whoever marked it clears it.
            # That devices can be given out proves nothing of a node whose agent never said anything.
            nothing = (NEVER, NOT_TAKEN_BACK)
            results = tuple(
                entry for entry in report.results if entry.outcome.reason not in nothing and entry.check != ALL_OFFERED
            )
            if results:
                current = report._replace(results=results, started=at, boot_id=boot)
                reports.append(ConditionReport(current, since, standing))
        self._healthy = {entry.report.host for entry in reports if entry.report.verdict is Verdict.OK}
        return reports

    def evict(self, names: Sequence[str]) -> Mapping[str, str]:
        """One step of the drain of each node, through the Eviction API; as `nhc.marks.ports.adapter`."""
        for name in [name for name in self._drains if name not in names]:
            self._drains.pop(name).withdraw()
        self._drains = {name: self._drains.get(name) or Drain(self.client, name, self.rules) for name in names}
        return dict(zip(self._drains, self.each(list(self._drains), self._evict)))

    def _evict(self, name: str) -> str:
        try:
            node = self.client.find(node_path(name))
        except AdapterError as error:  # of this node alone: the others' steps are taken all the same
            return f"{name}: nothing is evicted: {error}"
        if node is None:
            return f"{name}: nothing is evicted: the cluster does not know it any more"
        state = self.state(node)
        if state.hold or state.available or state.mark is None or not state.mark.ours:
            return f"{name}: nothing is evicted: {state.hold or 'our mark does not keep it out any more'}"
        step = self._drains[name].step()
        return "" if step.clean else step.state()  # without the time: it is another only where something has changed

    def close(self) -> None:
        """End its connections."""
        self._followed.close()
        if self._devices is not None:
            self._devices.close()
        self._others.close()
        super().close()

    @staticmethod
    def commands() -> Any:
        """What stands behind `nhc kubernetes`."""
        from nhc_adapters.kubernetes import commands

        return commands


def _accelerators_of(node: Mapping[str, Any]) -> Accelerators:
    """What a node is to give out: what it had registered when it was marked, and what it shows itself."""
    before = offered_before(node)
    expected = dict(expected_accelerators(node, {}))
    wanted = {name: max(before.get(name, 0), expected.get(name, 0)) for name in {**expected, **before}}
    return Accelerators(sorted(wanted.items()), asked=bool(before))


def _name(node: Mapping[str, Any]) -> str:
    return str(node["metadata"]["name"])


def _places(text: str) -> Dict[str, str]:
    """The kind of blast radius that each label of NHC_KUBE_GROUPS names. Raises AdapterError."""
    places = {}
    for part in filter(None, text.split(",")):
        kind, equals, label = part.strip().partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z0-9_]*", kind) or not KEY.fullmatch(label):
            raise AdapterError(f"NHC_KUBE_GROUPS: {printable(part, 60)!r} is not KIND=LABEL, as rack=example.com/rack")
        places[label] = kind
    return places


def _words(settings: Mapping[str, str], name: str, known: Sequence[str], default: str) -> Tuple[str, ...]:
    """A setting of words with commas. Raises AdapterError."""
    values = tuple(value for value in settings.get(name, default).split(",") if value)
    wrong = [value for value in values if value not in known]
    if wrong:
        raise AdapterError(f"{name}: {printable(wrong[0], 40)!r} is not one of {', '.join(known)}")
    return values
