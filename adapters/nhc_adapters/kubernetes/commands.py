"""What the `nhc kubernetes` commands do, apart from their options: each returns its exit status.

0 done, 1 something failed or is still in the way, 2 wrong usage, 3 the cluster cannot be used.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import Any, Callable, Optional, Sequence

from nhc.core.model import Report, printable
from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.service_log import ServiceLog
from nhc.marks.policy.reconcile import SyncResult
from nhc.marks.ports.adapter import AdapterError, Effect, Operation
from nhc.marks.ports.gangs import Gangs
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.cluster import Cluster
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.controller import Controller, kept_types
from nhc_adapters.kubernetes.controller.controller_rounds import ControllerRounds
from nhc_adapters.kubernetes.controller.detections import acknowledge_on
from nhc_adapters.kubernetes.controller.http_server import ControllerServer
from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
from nhc_adapters.kubernetes.controller.preflights import fault_text as preflight_fault
from nhc_adapters.kubernetes.controller.reload import Fitting, WatchedSettings
from nhc_adapters.kubernetes.controller.settings import ControllerSettings, make, read
from nhc_adapters.kubernetes.controller.status import as_json, as_text, look
from nhc_adapters.kubernetes.devices.release import release_device
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import (
    ALLOCATABLE,
    CLUSTER_SIDE,
    FALSE,
    JOB_ERROR,
    KERNEL_LOG,
    KUBELET,
    PREFLIGHT_FAILED,
    Condition,
    read_conditions,
    write_conditions,
)
from nhc_adapters.kubernetes.nodes.drain import DrainRules
from nhc_adapters.kubernetes.nodes.known_types import bad_statuses, strangers
from nhc_adapters.kubernetes.nodes.marks import apply, plan_state
from nhc_adapters.kubernetes.nodes.operator_actions import drain, drain_one, known_nodes, uncordon
from nhc_adapters.kubernetes.nodes.view import trim
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, load
from nhc_adapters.kubernetes.preflight.certificate import FileCertificate, OwnCertificate
from nhc_adapters.kubernetes.preflight.gang_server import GangServer
from nhc_adapters.kubernetes.preflight.server import Certificates, ServedCertificate, Webhook, WebhookServer
from nhc_adapters.kubernetes.sink import Reporter

__all__ = ["Cluster", "DrainRules", "drain", "make", "preflight_fault", "read", "release_device", "uncordon"]

DONE, FAILED, USAGE, UNUSABLE = 0, 1, 2, 3


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


def sync(cluster: Cluster, settings: ControllerSettings, show: Callable[[SyncResult], None]) -> bool:
    """One round over all nodes: conditions into cordons, taints, labels; it is shown, and drains are waited for.
    Whether all went well. Raises AdapterError, SettingsError.
    """
    client = cluster.client(connections=32)
    lease = Lease(client, settings.namespace, settings.object_name("controller"))
    if settings.apply and not lease.attempt():
        by = lease.other or "another nhc"
        raise AdapterError(f"{by} holds the lease {settings.namespace}/{lease.name}: it acts here")
    try:
        rounds = _rounds(client, settings, time.time, cluster.complain, allowed=_renewing(lease))
        if settings.policy.rates or settings.policy.repairs:
            rounds.context.ledger.load()
        done = rounds.round()
        fleet = rounds.fleet
        nodes, before = len(fleet.nodes), len(fleet.marked())
        counts = f"{nodes} nodes, {len(fleet.sick())} sick, {fleet.unknown()} unknown, {before} marked before"
        show(done._replace(nodes=nodes, counts=counts))
        well = not done.failed
        if settings.apply and settings.treatment.drain:
            marked = [result for operation, result in done.applied if operation is Operation.MARK]
            for result in (result for result in marked if result.effect is Effect.CHANGED):
                well &= drain_one(cluster, rounds.context.adapter, result.node, settings.rules, _renewing(lease))
        return well
    finally:
        lease.release()


def _rounds(
    client: Client, settings: ControllerSettings, clock: Callable[[], float], log: Callable[[str], None], **options: Any
) -> ControllerRounds:
    """All nodes, and their devices where the settings ask for these, read once and to be looked at. Raises
    AdapterError, and SettingsError for a typing error in a condition, which would count as health.
    """
    adapter = Kubernetes(client, settings.treatment, topologies=settings.topologies, selector=settings.selector)
    types = kept_types(settings)
    objects = {str(node["metadata"]["name"]): trim(node, types) for node in adapter.objects()}
    strange = strangers(settings.faults, objects.values(), settings.vocabularies)
    if strange.refused:
        raise SettingsError("; ".join(strange.refused))
    for line in strange.unseen:
        log(line)
    ledger = ClusterLedger(client, settings.namespace, settings.object_name("ledger"), settings.policy)
    rounds = ControllerRounds(RoundContext(settings, adapter, ledger, objects, clock, log, **options))
    if settings.devices.on:
        watch = DeviceWatch(client)
        watch.load()
        rounds.attend_devices(watch)
    if rounds.fleet.requests is not None:
        rounds.fleet.requests.look()
    if settings.slurm:
        rounds.fleet.look_at_slurm()
    for name in objects:
        rounds.fleet.changed(name)
    return rounds


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


def controller(cluster: Cluster, read: Callable[[], ControllerSettings], listen: str = "") -> int:
    """Follow the cluster until SIGTERM or SIGINT, under settings that are read again as they change."""
    fitting = Fitting(read, lambda: Kubernetes(cluster.client()).objects())
    log = ServiceLog("serve kubernetes", dated=True)
    watched = WatchedSettings(fitting.read, log)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: watched.asked.set())
    server: Optional[ControllerServer] = None
    try:
        while not stop.is_set():
            chosen = watched.settings
            running = Controller(cluster.client(connections=36), chosen, log=log)
            if server is not None:
                server.serve(running)
            elif listen:
                server = ControllerServer(listen, running, watched)
            acting = "acting" if chosen.apply else "dry run"
            log(f"starting, {acting}, server {running.context.client.access.server}")
            try:
                running.start()
                fitting.controller_started()
                trouble = _until_changed(running, watched, stop)
            finally:
                running.close()
            if running.refused:
                log.error(running.refused)
                return USAGE
            if trouble:
                log.error(trouble)
                return FAILED
        return DONE
    finally:
        if server is not None:
            server.close()


def _until_changed(running: Controller, watched: WatchedSettings, stop: threading.Event) -> str:
    """Run until settings have changed or `stop` is set; returns why the controller cannot go on, if it cannot."""
    while not stop.wait(1.0):
        trouble = running.healthy()
        if trouble:
            return trouble
        if watched.changed() is not None:
            return ""
    return ""


def preflight(
    cluster: Cluster, read: Callable[[], ControllerSettings], listen: str, certificate: str, gangs: Gangs
) -> int:  # fmt: skip
    """Serve the preflight webhook until SIGTERM or SIGINT, under settings that are read again as they change.

    `certificate` is a directory with tls.crt and tls.key; without, it is self-made. `gangs` plays the tests of gangs.
    """
    log = ServiceLog("serve preflight", dated=True)
    watched = WatchedSettings(read, log)
    chosen = watched.settings
    if not chosen.preflight.on:
        raise SettingsError("[preflight] image is not set: no pod can get a preflight")
    name = chosen.object_name("preflight")
    client = cluster.client(connections=8)
    certificates: Certificates
    if certificate:
        certificates = FileCertificate(certificate)
    else:
        certificates = OwnCertificate(client, chosen.namespace, f"{name}-certificate", webhook=name, service=name)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: watched.asked.set())
    webhook = Webhook(lambda: (watched.settings.preflight, watched.settings.apply), log, GangServer(client, gangs))
    shown = ServedCertificate(certificates, webhook)
    server = WebhookServer(listen, webhook, shown.context)
    log(f"starting, {'acting' if chosen.apply else 'dry run'}, suite {chosen.preflight.suite}")
    threads = (
        threading.Thread(target=server.serve_forever, name="nhc-preflight-https", daemon=True),
        threading.Thread(target=shown.keep, args=(stop,), name="nhc-preflight-certificate", daemon=True),
    )
    try:
        for thread in threads:
            thread.start()
        while not stop.wait(1.0):
            watched.changed()
            if not all(thread.is_alive() for thread in threads):
                log.error("a thread has ended")
                return FAILED
    finally:
        if threads[0].is_alive():  # one that never began to serve would be waited for for ever
            server.shutdown()
        server.server_close()
    return DONE


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
        states = " ".join(f"{condition.type}={condition.status}" for condition in reporter.conditions.standing.values())
        cluster.say(f"{reporter.node}: {states}")
        if reporter.refused():
            cluster.complain(f"{reporter.node}: {reporter.refused()}")
            failed = True
    return FAILED if failed else DONE


def state(cluster: Cluster, names: Sequence[str], wanted: str, settings: ControllerSettings) -> int:
    """Put nodes in one of a vocabulary's states: checking, passed, failed."""
    if not settings.treatment.knows(wanted):
        known = sorted({name for vocabulary in settings.vocabularies for name in vocabulary.states})
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
    wanted = tuple(types) or (JOB_ERROR, KERNEL_LOG, PREFLIGHT_FAILED)
    adapter = Kubernetes(client)
    known, failed = known_nodes(cluster, adapter, names)
    for node in adapter.objects(known):
        name, now = str(node["metadata"]["name"]), time.time()
        ended = [
            Condition(bad.type, FALSE, "Acknowledged", printable(f"by {by}; was: {bad.message}", 400), now, now)
            for bad in read_conditions(node).values()
            if bad.type in wanted and bad.status != FALSE
        ]
        if ended:
            # First what is covered for good: the controller may read the same lines again at any moment.
            acknowledge_on(client, name, [condition.type for condition in ended if condition.type in CLUSTER_SIDE], now)
            write_conditions(client, name, ended)
        cluster.say(f"{name}: {', '.join(condition.type for condition in ended) or 'nothing to acknowledge'}")
    return FAILED if failed else DONE


def status(cluster: Cluster, settings: ControllerSettings, form: str = "text") -> int:
    """What is faulty and why, what is marked and by whom, what is blocked, and what each drain still waits for."""
    now = time.time()
    rounds = _rounds(cluster.client(), settings, lambda: now, cluster.complain)
    rows, unknown = look(rounds, now)
    cluster.out.write(as_json(rows) if form == "json" else as_text(rows, rounds, now, unknown))
    if unknown and form == "json":
        cluster.complain(unknown)
    return DONE


def doctor(cluster: Cluster, settings: ControllerSettings, form: str = "text") -> int:
    """What would keep the installation in this namespace from working. 1 where there is a problem."""
    from nhc_adapters.kubernetes.doctor import doctor as asked

    findings = asked.examine(cluster.client(connections=8), settings.namespace, settings)
    cluster.out.write(asked.as_json(findings) if form == "json" else asked.as_text(findings))
    return FAILED if asked.sick(findings) else DONE
