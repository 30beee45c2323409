"""What the `nhc kubernetes` commands do, apart from their options: each returns its exit status.

0 done, 1 something failed or is still in the way, 2 wrong usage, 3 the cluster cannot be used.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from dataclasses import replace
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from nhc.model import Report, printable
from nhc.ports.adapter import AdapterError, Effect, Operation
from nhc.settings.settings_file import SettingsError
from nhc.timestamps import utc
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.cluster import Cluster
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.controller.controller import Controller, kept_types
from nhc_adapters.kubernetes.controller.detections import acknowledge_on
from nhc_adapters.kubernetes.controller.device_rounds import RoundResult
from nhc_adapters.kubernetes.controller.http_server import ControllerServer
from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
from nhc_adapters.kubernetes.controller.reload import Fitting, WatchedSettings
from nhc_adapters.kubernetes.controller.rounds import Fleet
from nhc_adapters.kubernetes.controller.settings import ControllerSettings, make, read
from nhc_adapters.kubernetes.controller.status import as_json, as_text, look
from nhc_adapters.kubernetes.devices.hand import release_device
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import (
    ALLOCATABLE,
    CLUSTER_SIDE,
    FALSE,
    JOB_ERROR,
    KERNEL_LOG,
    Condition,
    read_conditions,
    write_conditions,
)
from nhc_adapters.kubernetes.nodes.drain import DrainRules
from nhc_adapters.kubernetes.nodes.hand import drain, drain_one, known_nodes, uncordon
from nhc_adapters.kubernetes.nodes.known_types import KUBELET, bad_statuses, strangers
from nhc_adapters.kubernetes.nodes.marks import apply, plan_state
from nhc_adapters.kubernetes.nodes.view import trim
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load
from nhc_adapters.kubernetes.sink.reporter import Reporter

__all__ = ["Cluster", "DrainRules", "drain", "make", "read", "release_device", "replace", "uncordon"]

DONE, FAILED, USAGE, UNUSABLE = 0, 1, 2, 3
VERBS = {Operation.MARK: "mark", Operation.CLEAR: "clear", Operation.REBOOT: "reboot", Operation.REPLACE: "replace"}


def guarded(cluster: Cluster, work: Callable[[], int]) -> int:
    """Run a command; a cluster that cannot be used, or settings that make no sense, are one line."""
    try:
        return work()
    except (SettingsError, BadVocabulary) as error:
        cluster.complain(error)
        return USAGE
    except AdapterError as error:
        cluster.complain(error)
        return UNUSABLE


def sync(cluster: Cluster, settings: ControllerSettings, form: str = "text") -> int:
    """One round over all nodes: conditions into cordons, taints, labels, and drains waited for."""
    client = cluster.client(connections=32)
    lease = Lease(client, settings.namespace)
    if settings.apply and not lease.attempt():
        cluster.complain(
            f"{lease.other or 'another nhc'} holds the lease {settings.namespace}/{lease.name}: it acts here"
        )
        return UNUSABLE
    try:
        return _sync(cluster, client, settings, lease, form)
    finally:
        lease.release()


def _sync(cluster: Cluster, client: Client, settings: ControllerSettings, lease: Lease, form: str) -> int:
    adapter = Kubernetes(client, settings.treatment, topologies=settings.topologies, selector=settings.selector)
    ledger = ClusterLedger(client, settings.namespace, settings.policy)
    types = kept_types(settings)
    objects = {str(node["metadata"]["name"]): trim(node, types) for node in adapter.objects()}
    _refuse_strangers(settings, objects)
    if settings.policy.rates or settings.policy.repairs:
        ledger.load()
    fleet = Fleet(settings, adapter, ledger, objects, time.time, _renewing(lease), log=cluster.complain)
    _attend_devices(fleet, client)
    for name in objects:
        fleet.changed(name)
    done = fleet.round()
    cluster.out.write(show_round(done, settings, fleet, form))
    failed = any(one.effect is Effect.FAILED for _operation, one in done.applied)
    if settings.apply and settings.treatment.drain:
        marked = [
            one.node for operation, one in done.applied if operation is Operation.MARK and one.effect is Effect.CHANGED
        ]
        for name in marked:
            failed |= not drain_one(cluster, client, name, settings.rules, _renewing(lease))
    return FAILED if failed else DONE


def _attend_devices(fleet: Fleet, client: Client) -> None:
    """Read the devices and their rules, where the settings ask for that. Raises AdapterError."""
    if fleet.settings.devices.on:
        watch = DeviceWatch(client)
        watch.load()
        fleet.attend_devices(watch, client)


def _refuse_strangers(settings: ControllerSettings, objects: Mapping[str, Mapping[str, Any]]) -> None:
    """A condition that nobody ever heard of is a typing error: it would count for health. Raises SettingsError."""
    unknown = strangers(settings.faults, objects.values(), settings.vocabularies)
    if unknown:
        raise SettingsError("; ".join(unknown))


def _renewing(lease: Lease) -> Callable[[], bool]:
    """Whether we may act: the Lease is renewed as it gets old, since a single round has no thread for it."""

    def allowed() -> bool:
        if not lease.fresh():
            try:
                lease.attempt()
            except AdapterError:
                return lease.held()
        return lease.held()

    return allowed


def show_round(done: RoundResult, settings: ControllerSettings, fleet: Fleet, form: str) -> str:
    """A round as text or JSON."""
    effects = {(one.node, operation): one for operation, one in done.applied}
    if form == "json":
        value = {
            "dry_run": not settings.apply,
            "nodes": len(fleet.states),
            "remedies": [_planned(one, effects.get((one.node, one.operation))) for one in done.operations],
            "withheld": [{"node": w.node, "deed": w.operation.value, "why": w.why} for w in done.withheld],
        }
        return json.dumps(value, indent=2) + "\n"
    lines = []
    for one in done.operations:
        applied = effects.get((one.node, one.operation))
        how = "would " if applied is None else "" if applied.effect is Effect.CHANGED else f"{applied.effect.value}: "
        note = f" ({applied.message})" if applied is not None and applied.message else ""
        lines.append(f"{how}{VERBS[one.operation]} {one.node}: {printable(one.because)}{note}")
    lines += [f"not {VERBS[w.operation]} {w.node}: {printable(w.why)}" for w in done.withheld]
    sick = len(fleet.sick())
    lines.append(
        f"{len(fleet.states)} nodes, {sick} sick, {fleet.unknown()} unknown, {len(fleet.marked())} marked before"
    )
    if not settings.apply and done.operations:
        lines.append("Nothing was changed: say --apply to carry this out.")
    return "\n".join(lines) + "\n"


def _planned(planned: Any, applied: Any) -> Dict[str, str]:
    said = {"node": planned.node, "deed": planned.operation.value, "because": planned.because}
    if applied is not None:
        said.update(effect=applied.effect.value, message=applied.message)
    return said


def controller(cluster: Cluster, read: Callable[[], ControllerSettings], listen: str = "") -> int:
    """Follow the cluster until SIGTERM or SIGINT, under settings that are read again as they change."""
    fitting = Fitting(read, lambda: Kubernetes(cluster.client()).objects())
    watched = WatchedSettings(fitting.read, lambda line: cluster.say(_logged(line)))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: watched.asked.set())
    server: Optional[ControllerServer] = None
    try:
        while not stop.is_set():
            chosen = watched.settings
            running = Controller(cluster.client(connections=36), chosen, log=lambda line: cluster.say(_logged(line)))
            if server is not None:
                server.serve(running)
            elif listen:
                server = ControllerServer(listen, running, watched)
                server.start()
            acting = "acting" if chosen.apply else "dry run"
            cluster.say(_logged(f"starting, {acting}, server {running.client.access.server}"))
            try:
                running.start()
                fitting.controller_started()
                sick = _until_changed(running, watched, stop)
            finally:
                running.close()
            if running.refused:
                cluster.complain(running.refused)
                return USAGE
            if sick:
                cluster.complain(sick)
                return FAILED
        return DONE
    finally:
        if server is not None:
            server.close()


def _until_changed(running: Controller, watched: WatchedSettings, stop: threading.Event) -> str:
    """Until settings have changed or `stop` is set; why the controller cannot go on, where it cannot."""
    while not stop.wait(1.0):
        sick = running.healthy()
        if sick:
            return sick
        if watched.changed() is not None:
            return ""
    return ""


def _logged(line: str) -> str:
    return f"{utc(time.time())} {printable(line)}"


def publish(cluster: Cluster, reports: Sequence[Report], vocabularies: Sequence[str], node: str = "") -> int:
    """Write reports as conditions of their nodes, without an agent."""
    spoken = [load(name) for name in vocabularies]
    client = cluster.client()
    failed = False
    for report in reports:
        reporter = Reporter(client, node or report.host, spoken, log=cluster.complain)
        reporter.submit(report)
        try:
            reporter.flush()
        except ApiError as error:
            if error.status != 404:
                raise
            cluster.complain(f"{reporter.node}: there is no such node (--node names one)")
            failed = True
            continue
        shown = " ".join(f"{one.type}={one.status}" for one in reporter.conditions.standing.values())
        cluster.say(f"{reporter.node}: {shown}")
    return FAILED if failed else DONE


def state(cluster: Cluster, names: Sequence[str], wanted: str, settings: ControllerSettings) -> int:
    """Put nodes in one of a vocabulary's states: checking, passed, failed."""
    if not settings.treatment.knows(wanted):
        known = sorted({name for one in settings.vocabularies for name in one.states})
        raise SettingsError(f"no vocabulary in use knows a state {wanted!r} (they know: {', '.join(known) or 'none'})")
    client = cluster.client()
    known, failed = known_nodes(cluster, Kubernetes(client), names)
    for name in known:
        done = apply(client, name, lambda node: plan_state(node, wanted, settings.treatment))
        cluster.say(f"{name}: {wanted if done is not None else 'already so'}")
    return FAILED if failed else DONE


def ack(cluster: Cluster, names: Sequence[str], types: Sequence[str], by: str) -> int:
    """End conditions that the controller found and nothing shows to be gone (job errors, kernel logs from Loki)."""
    for kind in types:
        if kind in KUBELET or kind == ALLOCATABLE or (kind, FALSE) in bad_statuses(()):
            raise SettingsError(f"{kind} cannot be acknowledged: it says how the node is at this moment")
    client = cluster.client()
    wanted = tuple(types) or (JOB_ERROR, KERNEL_LOG)
    adapter = Kubernetes(client)
    known, failed = known_nodes(cluster, adapter, names)
    for node in adapter.objects(known):
        name, now = str(node["metadata"]["name"]), time.time()
        ended = [
            Condition(one.type, FALSE, "Acknowledged", printable(f"by {by}; was: {one.message}", 400), now, now)
            for one in read_conditions(node).values()
            if one.type in wanted and one.status != FALSE
        ]
        if ended:
            # First what is covered for good: the controller may read the same lines again at any moment.
            acknowledge_on(client, name, [one.type for one in ended if one.type in CLUSTER_SIDE], now)
            write_conditions(client, name, ended)
        cluster.say(f"{name}: {', '.join(one.type for one in ended) or 'nothing to acknowledge'}")
    return FAILED if failed else DONE


def status(cluster: Cluster, settings: ControllerSettings, form: str = "text") -> int:
    """What is sick and why, what is marked and by whom, what is withheld, and what is still asked of each drain."""
    client = cluster.client()
    adapter = Kubernetes(client, settings.treatment, topologies=settings.topologies, selector=settings.selector)
    types = kept_types(settings)
    objects = {str(node["metadata"]["name"]): trim(node, types) for node in adapter.objects()}
    _refuse_strangers(settings, objects)
    ledger = ClusterLedger(client, settings.namespace, settings.policy)
    now = time.time()
    fleet = Fleet(settings, adapter, ledger, objects, lambda: now)
    _attend_devices(fleet, client)
    for name in objects:
        fleet.changed(name)
    rows, unknown = look(fleet, now)
    cluster.out.write(as_json(rows) if form == "json" else as_text(rows, fleet, now, unknown))
    if unknown and form == "json":
        cluster.complain(unknown)
    return DONE


def doctor(cluster: Cluster, settings: ControllerSettings, form: str = "text") -> int:
    """What would keep the installation in this namespace from working. 1 where there is a problem."""
    from nhc_adapters.kubernetes.doctor import doctor as asked

    found = asked.examine(cluster.client(connections=8), settings.namespace, settings)
    cluster.out.write(asked.as_json(found) if form == "json" else asked.as_text(found))
    return FAILED if asked.sick(found) else DONE
