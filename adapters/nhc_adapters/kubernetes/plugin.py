"""The plugin `kubernetes`: the adapter made from nhc's settings, and its commands."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import DeviceId, printable
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
    Operation,
)
from nhc.marks.ports.job_control import WorkList
from nhc.marks.ports.marks import may_clear
from nhc.marks.ports.repair import Claim, Machine, Request, Right
from nhc_adapters.kubernetes.api.access import find
from nhc_adapters.kubernetes.api.client import READ_TIMEOUT, Client, node_path
from nhc_adapters.kubernetes.api.events import NORMAL, WARNING, EventRecorder
from nhc_adapters.kubernetes.controller.detections import acknowledge_on
from nhc_adapters.kubernetes.devices.marker import DeviceMarker
from nhc_adapters.kubernetes.nodes.adapter import IN_FLIGHT, Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import (
    FALSE,
    PREFLIGHT_FAILED,
    TRUE,
    Condition,
    read_conditions,
    write_conditions,
)
from nhc_adapters.kubernetes.nodes.drain import Drain, DrainRules
from nhc_adapters.kubernetes.nodes.maintenance import lifecycle_changes
from nhc_adapters.kubernetes.nodes.marks import Treatment, apply, plan_step
from nhc_adapters.kubernetes.nodes.pods import pod_name, pods_on
from nhc_adapters.kubernetes.nodes.view import PLACES
from nhc_adapters.kubernetes.nodes.vocabulary import KEY, Foreign
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load
from nhc_adapters.kubernetes.readings import NodeReadings
from nhc_adapters.kubernetes.repair import requests_on_nodes
from nhc_adapters.kubernetes.repair.requests_on_nodes import SOURCES, asks_hyperpod
from nhc_adapters.kubernetes.repair.shown_on_nodes import ClusterClaims


class Adapter:
    """A cluster from nhc's settings, and what the remedy loop needs from it besides marks.

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
        sources = _words(given, "NHC_KUBE_REQUESTS", SOURCES, "nhc")
        if "hyperpod" in sources and any(name.startswith("hyperpod") for name in names):
            raise AdapterError("NHC_KUBE_REQUESTS: hyperpod: marks in HyperPod's words (NHC_KUBE_VOCABULARY) would "
                               "write over the label by which persons ask")  # fmt: skip

        def is_foreign(node: Mapping[str, Any], mark: Foreign) -> bool:
            """A person's request by HyperPod's label is no mark of HyperPod's, if nhc reads these requests."""
            return not (mark.owner == "hyperpod" and "hyperpod" in sources and asks_hyperpod(node) is not None)

        self.cluster = Kubernetes(
            Client(access, connections=IN_FLIGHT, read_timeout=timeout), Treatment(spoken),
            places={**PLACES, **_places(given.get("NHC_KUBE_GROUPS", ""))}, owner=given.get(OWNER_SETTING, OWNER),
            own_pod=given.get("NHC_KUBE_OWN_POD", ""), is_foreign=is_foreign,
        )  # fmt: skip
        self.readings = NodeReadings(self.cluster, sources)
        self.lifecycle = given.get("NHC_KUBE_LIFECYCLE", "") == "1"
        self._drains: Dict[str, Drain] = {}
        self._devices: Optional[DeviceMarker] = None
        """Created at the first request for devices: to mark only nodes needs no right to read devices."""
        self._events = EventRecorder(self.cluster.client, "nhc-remedy", host=os.uname().nodename)
        evict = _words(given, "NHC_KUBE_EVICT", ("force", "delete-emptydir-data"), "")
        waits = tuple(pattern.strip() for pattern in given.get("NHC_KUBE_EVICT_NOT", "").split(",") if pattern.strip())
        self.rules = DrainRules(force="force" in evict, empty_dir="delete-emptydir-data" in evict, waits=waits)
        self._others = ClusterClaims(
            kubeconfig, given.get("NHC_KUBE_CONTEXT", ""), timeout, given.get("NHC_KUBE_KURED", "kube-system/kured"),
            given.get("NHC_KUBE_KARPENTER_REPAIRS", "") == "1",
        )  # fmt: skip

    @property
    def owner(self) -> str:
        """For which part of nhc it marks (nhc.marks.ports.adapter)."""
        return self.cluster.owner

    # Nodes (nhc.marks.ports.adapter: Marker, Power, MovesWork; nhc.marks.ports.job_control).

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        """The states of these nodes, of all where None. Raises AdapterError."""
        nodes = self.readings.read(names)
        silent = frozenset(node.state.name for node in nodes if node.silent)
        return self.cluster.with_work([node.state for node in nodes], silent, all_of_them=names is None)

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Take nodes out of service."""
        return self.cluster.mark(marks, seen)

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Put nodes back that carry our mark. What a preflight found of one has ended once the loop has proved it."""
        if self.cluster.owner == REMEDY_OWNER:
            self.cluster.each(list(names), self._end_preflight)
        return self.cluster.clear(names, seen)

    def repairs(self) -> FrozenSet[Operation]:
        """The operations that one of the spoken vocabularies can ask a platform for."""
        return self.cluster.repairs()

    def repair(self, operation: Operation, names: Sequence[str], because: str) -> List[Applied]:
        """Ask the platform to reboot or replace nodes that carry our mark. Raises AdapterError."""
        return self.cluster.repair(operation, names, because)

    def move_work(self, names: Sequence[str]) -> List[Applied]:
        """Let the work of dead nodes start elsewhere."""
        return self.cluster.move_work(names)

    def work_on(self, node: str) -> WorkList:
        """The pods on a node."""
        return self.cluster.work_on(node)

    def show_steps(self, steps: Sequence[NodeStep]) -> List[str]:
        """Each step as an event about its node; the last of each node as a label and an annotation.

        A node that is back in service, or was left to somebody, shows nothing more; one that is for a person does.
        """
        for step in steps:
            if not step.waits:
                reason = "NhcRemedy" + "".join(part.capitalize() for part in step.state.split("-"))
                uid = self._uid(step.node)
                kind = WARNING if step.alarm else NORMAL
                self._events.say(kind, step.node, reason, f"episode {step.episode}: {step.why}", uid)
        problems: List[str] = []
        self._events.flush_quietly(problems.append)
        last = {step.node: step for step in steps}
        over = {name: step.ends and not step.alarm for name, step in last.items()}

        def show(name: str) -> Applied:
            return self.cluster.apply(name, lambda node: plan_step(node, None if over[name] else last[name]))

        done = self.cluster.each([name for name in last if name in self.readings.nodes], show)
        problems += [f"{step.node}: the step is not shown: {step.message}" for step in done
                     if step.effect is Effect.FAILED]  # fmt: skip
        return problems + self._show_lifecycle([name for name in last if name in self.readings.nodes])

    def _show_lifecycle(self, names: Sequence[str]) -> List[str]:
        """What the loop does to these nodes, in their lifecycle's conditions; a line for each that is not taken."""
        if not self.lifecycle:
            return []

        def show(name: str) -> str:
            try:
                node = self.cluster.changed.get(name) or self.cluster.client.find(node_path(name)) or {}
                changes = lifecycle_changes(node, time.time())
                if changes:
                    self.cluster.changed[name] = write_conditions(self.cluster.client, name, changes)
            except AdapterError as error:
                return f"{name}: its lifecycle conditions are not shown: {error}"
            return ""

        return [line for line in self.cluster.each(names, show) if line]

    def tidy(self) -> List[Applied]:
        """Take the rest of our mark off nodes that a person uncordoned, and overrule what is bad on them until it has
        ended, as `nhc serve kubernetes` does; as `nhc.marks.ports.adapter`.
        """
        back = [name for name, kept in self.readings.nodes.items() if kept.put_back]
        ended = {name: kept.ended for name, kept in self.readings.nodes.items() if kept.ended and not kept.put_back}
        done = self.cluster.release(back, self.readings.bad, time.time()) if back else []
        heard = [name for name, kept in self.readings.nodes.items() if kept.heard_again and not kept.put_back]
        done += self.cluster.work_back(heard) if heard else []
        done += self.cluster.annotate(ended) if ended else ()
        for name, line in (
            self._devices.tidy(self.readings.nodes, self.readings.healthy) if self._devices is not None else ()
        ):
            self._events.say(NORMAL, name, "NhcRemedyDeviceRule", line, self._uid(name))
        return done

    def _end_preflight(self, name: str) -> None:
        """If that cannot be written, the mark stays, and `clear` says why."""
        try:
            node = self.cluster.client.find(node_path(name)) or {}
            standing = read_conditions(node).get(PREFLIGHT_FAILED)
            if (
                standing is not None
                and standing.status == TRUE
                and may_clear(self.cluster.state(node), self.cluster.owner)[0] is Effect.CHANGED
            ):
                now = time.time()
                acknowledge_on(self.cluster.client, name, (PREFLIGHT_FAILED,), now)
                proved = Condition(PREFLIGHT_FAILED, FALSE, "Proved", "repaired, and proved healthy", now, now)
                write_conditions(self.cluster.client, name, [proved])
        except AdapterError:
            return

    # Single devices (nhc.marks.ports.adapter: MarksDevices).

    def device_states(self, nodes: Optional[Sequence[str]] = None) -> Sequence[DeviceState]:
        """The devices that ResourceSlices name, of the nodes that were read last; as `nhc.marks.ports.adapter`."""
        known = [name for name in self.readings.nodes if nodes is None or name in nodes]
        plugins = [name for name in known if self.readings.nodes[name].plugin]
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
            names = [pod_name(pod) for pod in pods_on(self.cluster.client, node)] if left else []
            plugins = [
                f"kubectl -n {namespace} delete pod {name}"
                for namespace, _slash, name in (found.partition("/") for found in names)
                if "dra-driver" in name and "kubelet-plugin" in name
            ]
        except AdapterError:
            return  # it is an offer
        if left:
            how = plugins[0] if plugins else "restart its kubelet plugin on this node"
            text = f"{device} is proved, and its driver's taint {left} still keeps it out: {how}"
            self._events.say(NORMAL, node, "NhcRemedyDriverTaint", text, self._uid(node))

    def _uid(self, node: str) -> str:
        known = self.readings.nodes.get(node)
        return known.state.uid if known is not None else ""

    def _marker(self) -> DeviceMarker:
        if self._devices is None:
            self._devices = DeviceMarker(self.cluster.client, self.cluster.owner)
        return self._devices

    # What the remedy loop asks (nhc.marks.ports.repair: KnowsMachines, NodeRequests, OtherActors).

    def machines(self) -> Mapping[str, Machine]:
        """The machines of the nodes that were read last."""
        return {name: kept.machine for name, kept in self.readings.nodes.items()}

    def requests(self) -> Tuple[Mapping[str, Request], Sequence[str]]:
        """What persons ask for on the nodes that were read last."""
        read = {name: kept.asked for name, kept in self.readings.nodes.items()}
        requests = {name: asked.request for name, asked in read.items() if asked.request is not None}
        return requests, [asked.problem for asked in read.values() if asked.problem]

    def answer(self, node: str, request: Request, text: str, returned: bool) -> str:
        """Take a request off its node, with the answer."""
        try:
            apply(self.cluster.client, node, lambda seen: requests_on_nodes.answer(seen, request, text, returned))
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
        """What the conditions of the spoken vocabularies say of each node that has any."""
        return self.readings.reports()

    def evict(self, names: Sequence[str]) -> Mapping[str, str]:
        """One step of the drain of each node, through the Eviction API; as `nhc.marks.ports.adapter`."""
        for name in [name for name in self._drains if name not in names]:
            self._drains.pop(name).withdraw()
        self._drains = {name: self._drains.get(name) or Drain(self.cluster.client, name, self.rules) for name in names}
        return dict(zip(self._drains, self.cluster.each(list(self._drains), self._evict)))

    def _evict(self, name: str) -> str:
        try:
            node = self.cluster.client.find(node_path(name))
        except AdapterError as error:  # of this node alone: the others' steps are taken all the same
            return f"{name}: nothing is evicted: {error}"
        if node is None:
            return f"{name}: nothing is evicted: the cluster does not know it any more"
        state = self.cluster.state(node)
        if state.hold or state.available or state.mark is None or not state.mark.ours:
            return f"{name}: nothing is evicted: {state.hold or 'our mark does not keep it out any more'}"
        step = self._drains[name].step()
        return "" if step.clean else step.state()  # without the time: it is another only where something has changed

    def close(self) -> None:
        """End its connections."""
        self.readings.close()
        if self._devices is not None:
            self._devices.close()
        self._others.close()
        self.cluster.close()

    @staticmethod
    def commands() -> Any:
        """The commands of `nhc kubernetes`."""
        from nhc_adapters.kubernetes import commands

        return commands


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
