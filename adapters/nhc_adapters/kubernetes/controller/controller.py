"""`nhc serve kubernetes`: follows every node and keeps marks and drains in step with their conditions.

Threads: one follows the nodes, one holds the Lease, one decides and acts, one sends events, and one each looks
at pod logs and at Loki where that is asked for. Only the holder of the Lease acts; the others follow along, so
that they are in sync when their turn comes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Callable, Dict, List, Optional, Tuple

from nhc.core.system.service_log import failure, problem
from nhc.marks.policy.reconcile import SyncResult
from nhc.marks.ports.adapter import Effect, Operation
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.events import NORMAL, WARNING, EventRecorder
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.api.reflector import Reflector
from nhc_adapters.kubernetes.controller.controller_rounds import Fleet, Log
from nhc_adapters.kubernetes.controller.detections import Detections
from nhc_adapters.kubernetes.controller.device_rounds import node_of
from nhc_adapters.kubernetes.controller.kernlogs import KernelLogs
from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
from nhc_adapters.kubernetes.controller.loki_watch import Cursor, LokiWatch
from nhc_adapters.kubernetes.controller.maintenance_requests import MaintenanceRequests
from nhc_adapters.kubernetes.controller.rights import RightsWatch
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import CLUSTER_SIDE, KERNEL_LOG
from nhc_adapters.kubernetes.nodes.drain import DrainProgress
from nhc_adapters.kubernetes.nodes.drains import Drains
from nhc_adapters.kubernetes.nodes.known_types import StrangeTypes, strangers
from nhc_adapters.kubernetes.nodes.maintenance import LIFECYCLE
from nhc_adapters.kubernetes.nodes.manual import read_manual
from nhc_adapters.kubernetes.nodes.view import trim

EVENT_REASONS = {
    Operation.MARK: "NhcMarked",
    Operation.CLEAR: "NhcCleared",
    Operation.REBOOT: "NhcReboot",
    Operation.REPLACE: "NhcReplace",
}

SLURM_EVERY = 10.0
"""Seconds between two looks at slurmd pods."""

EVENTS_AT_ONCE = 10
EVENTS_PAUSE = 0.2


def kept_types(settings: ControllerSettings) -> frozenset[str]:
    """The condition types that decide anything."""
    return frozenset(
        {"Ready", *CLUSTER_SIDE, *LIFECYCLE, settings.verdict, *(fault.type for fault in settings.faults)} - {""}
    )


class Controller:
    """The whole of it. `run` returns when `stop` is set."""

    def __init__(
        self,
        client: Client,
        settings: ControllerSettings,
        *,
        lease: Optional[Lease] = None,
        log: Log = lambda line: None,
        clock: Callable[[], float] = time.time,
        watch_client: Optional[Client] = None,
    ) -> None:
        self.client, self.settings, self.log, self.clock = client, settings, log, clock
        self.stop = threading.Event()
        self.refused = ""
        """Why these settings do not fit this cluster; then nothing was done, and nothing will be."""
        self.lease = lease or Lease(client, settings.namespace, settings.object_name("controller"))
        self.adapter = Kubernetes(client, settings.treatment, topologies=settings.topologies)
        self.ledger = ClusterLedger(client, settings.namespace, settings.object_name("ledger"), settings.policy)
        self.outages = Outages(log, "the API server")
        self.rights = RightsWatch(client, settings, self.outages, log)
        types = kept_types(settings)
        self.nodes = Reflector(
            watch_client or client,
            "/api/v1/nodes",
            lambda name, _node: self.fleet.changed(name),
            trim=lambda node: trim(node, types),
            selector=settings.selector,
            report=lambda cause: self.outages.report("following the nodes", cause),
        )
        self.fleet = Fleet(
            settings, self.adapter, self.ledger, self.nodes.objects, clock, self.lease.held, log,
            self.nodes.followed_for,
        )  # fmt: skip
        self.devices: Optional[DeviceWatch] = None
        if settings.devices.on:
            self.devices = DeviceWatch(watch_client or client, self.fleet.changed, self.outages.report)
            self.fleet.attend_devices(self.devices, client)
        if "nvsentinel" in settings.maintenance:
            self.fleet.attend_requests(client)
        self.recorder = EventRecorder(client, "nhc-controller", queue=8192)
        self.drains = Drains(
            client, settings.rules, self.nodes.objects.get, allowed=self.lease.held, ended=self._drained
        )
        self.counts: Counter[str] = Counter()
        self._failing: Dict[Tuple[str, Operation], str] = {}
        """What was logged of operations that failed when they were tried last."""
        self.leading = threading.Event()
        self._threads: List[threading.Thread] = []
        self._events = threading.Event()
        self.detections = Detections(client, settings, self.nodes.objects, self.lease.held, clock, log)
        self.loki: Optional[LokiWatch] = None
        if settings.loki.url:
            self.loki = LokiWatch(
                Cursor(client, settings.namespace, settings.object_name("cursors"), settings.loki.query),
                settings.loki,
                self.lease.held,
                self.detections.say,
                log,
                clock,
                remember=settings.apply,
                logs=KernelLogs(self.detections.acknowledged_of(KERNEL_LOG), self.detections.standing_of(KERNEL_LOG)),
            )

    # Start and end.

    def start(self) -> None:
        """Start all threads; returns at once."""
        self._thread("nodes", lambda: self.nodes.run(self.stop))
        if self.devices is not None:
            devices = self.devices
            self._thread("devices", lambda: devices.run(self.stop))
        if self.fleet.requests is not None:
            requests = self.fleet.requests
            self._thread("maintenance", lambda: self._read_requests(requests))
        if self.settings.slurm:
            self._thread("slurm", self._read_slurm)
        self._thread("rights", lambda: self.rights.run(self.stop))
        self._thread("lease", lambda: self.lease.keep(self.stop, self._led, self._report_lease))
        self._thread("rounds", self._rounds)
        self._thread("events", self._send_events)
        if self.settings.podlogs.namespaces:
            self._thread("podlogs", lambda: self._read_logs(self.detections.read_pods))
        if self.settings.preflight.on:
            self._thread("preflights", lambda: self._read_logs(self.detections.read_preflights))
        if self.loki is not None:
            loki = self.loki
            self._thread("loki", lambda: self._read_logs(loki.run))

    def run(self) -> None:
        """Work until `stop` is set."""
        self.start()
        self.stop.wait()
        self.close()

    def close(self) -> None:
        """End everything; the Lease is given up so that the next need not wait."""
        self.stop.set()
        self.fleet.wake.set()
        self._events.set()
        self.drains.close()
        for thread in self._threads:
            if thread.name != "nodes":  # that one waits for the server; closing the connection ends it
                thread.join(10.0)
        self.recorder.flush_quietly()
        self.nodes.client.close()
        self.adapter.close()

    def healthy(self) -> str:
        """Why this controller should be restarted, "" while it works."""
        if self.refused:
            return self.refused
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        if dead and not self.stop.is_set():
            return f"thread {dead[0]} has ended"
        return ""

    def unready(self) -> str:
        """Why this controller cannot do its work now, "" while it can."""
        missing = self.rights.blocking()
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            return f"{missing[0].missing()}{more}"
        standing = self.outages.standing()
        if standing:
            what, why = next(iter(standing.items()))
            return f"{what} fails: {why}"
        if not self.nodes.synced.is_set():
            return f"not in sync: {self.nodes.error or 'still listing the nodes'}"
        return ""

    def _thread(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception as error:
                if not self.stop.is_set():
                    self.log(problem(f"{name}: {failure(error)}"))

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # Nodes.

    def _report_lease(self, cause: str) -> None:
        where = f"{self.lease.namespace}/{self.lease.name}"
        self.outages.report(f"holding the Lease {where}", cause)

    def _led(self, leading: bool) -> None:
        if leading:
            self.log(f"leading as {self.lease.holder}")
            self.leading.set()
            for name in list(self.nodes.objects):  # everything anew, with the right to act
                self.fleet.changed(name)
        else:
            self.leading.clear()
            self.log("no longer leading")

    def _rounds(self) -> None:
        while not self.stop.is_set() and not self.nodes.synced.wait(0.5):
            continue
        while not self.stop.is_set() and self.fleet.requests is not None and not self.fleet.requests.known:
            self.stop.wait(0.2)  # a maintenance would be taken for one that has ended
        while not self.stop.is_set() and self.settings.slurm and not self.fleet.slurm_known:
            self.stop.wait(0.2)  # a drain would be taken for one that has ended
        while not self.stop.is_set() and self.devices is not None and not self.devices.settled.wait(0.5):
            continue  # a fault of a device would be taken for its node's
        if not self.stop.is_set():
            strange = self._strange_types()
            self.refused = "; ".join(strange.refused)
            for line in strange.unseen:
                self.log(line)
            if self.refused:
                self.log(problem(f"these settings are refused: {self.refused}"))
                self.stop.wait()
        loaded = False
        while not self.stop.is_set():
            if not self.leading.is_set():
                loaded = False
                self.leading.wait(0.5)
                continue
            self.fleet.wake.clear()
            try:
                if not loaded:
                    self.ledger.load()
                    loaded = True
                self._after(self.fleet.round())
                self._start_drains()
                self.detections.clear_after_restart(self.fleet.sick())
                self.outages.works("this round")
            except Exception as error:  # whatever it is: a thread that has ended would mark no node any more
                # Nothing was done that is not written down; what changed is looked at again.
                loaded = False
                self.outages.failed("this round", failure(error))
                for name in list(self.fleet.judged):
                    self.fleet.changed(name)
                self.stop.wait(1.0)
                continue
            self.fleet.wake.wait(max(self.fleet.due(self.clock()), 0.01))

    def _strange_types(self) -> StrangeTypes:
        return strangers(self.settings.faults, list(self.nodes.objects.values()), self.settings.vocabularies)

    def unseen_types(self) -> int:
        """How many of the condition types that are faults no node carries and no vocabulary knows."""
        return len(self._strange_types().unseen)

    def _after(self, done: SyncResult) -> None:
        """Log a round, count it, and queue its events."""
        for name in list(self.adapter.changed):
            self.nodes.put(self.adapter.changed.pop(name))
        because = {(planned.node, planned.operation): planned.because for planned in done.operations}
        if not self.settings.apply:
            for planned in done.operations:
                self.log(f"dry run: would {planned.operation.value} {planned.node}: {planned.because}")
            return
        for operation, applied in done.applied:
            why = because.get((applied.node, operation), "")
            self.counts[f"{operation.value}_{applied.effect.value}"] += 1
            if applied.effect is Effect.CHANGED:
                self.log(problem(f"{applied.node}: {operation.value}: {why}"))
                kind = NORMAL if operation is Operation.CLEAR else WARNING
                node, _slash, device = applied.node.partition("/")
                text = f"{device}: {why}" if device else why
                self.recorder.say(kind, node, EVENT_REASONS[operation], text, self._uid(node))
            key, trouble = (applied.node, operation), f"{operation.value} {applied.effect.value}: {applied.message}"
            if applied.effect in (Effect.CHANGED, Effect.UNCHANGED):
                self._failing.pop(key, None)
            elif self._failing.get(key) != trouble:  # tried every few seconds for as long as it fails
                known = {key: text for key, text in self._failing.items() if node_of(key[0]) in self.nodes.objects}
                self._failing = {**known, key: trouble}
                self.log(problem(f"{applied.node}: {trouble}"))
        if self.recorder.waiting:
            self._events.set()

    def _uid(self, name: str) -> str:
        return str((self.nodes.objects.get(name) or {}).get("metadata", {}).get("uid", ""))

    # Drains.

    def _start_drains(self) -> None:
        if not (self.settings.apply and (self.settings.treatment.drain or self.settings.maintenance)):
            return
        for name in self.fleet.marked():
            node = self.nodes.objects.get(name)
            manual = read_manual(node) if node is not None else None
            if not self.settings.treatment.drain and not (manual is not None and manual.asked):
                continue
            if node is not None and self.drains.wanted(name, node):
                self.drains.start(name)

    def _drained(self, name: str, progress: DrainProgress, state: str) -> None:
        self.counts[f"drain_{state}"] += 1
        self.log(f"drain {state}: {progress.line()}")
        kind = NORMAL if progress.clean else WARNING
        self.recorder.say(kind, name, f"NhcDrain{state.capitalize()}", progress.line(), self._uid(name))
        self._events.set()

    # Events, and what the cluster's side finds itself.

    def _send_events(self) -> None:
        while not self.stop.is_set():
            self._events.wait(30.0)
            self._events.clear()
            while self.recorder.waiting and not self.stop.is_set():
                # A few at a time: a thousand marks must not wait for a thousand events.
                self.recorder.flush_quietly(self.log, EVENTS_AT_ONCE)
                self.stop.wait(EVENTS_PAUSE)

    def _read_requests(self, requests: MaintenanceRequests) -> None:
        while not self.stop.is_set():
            self.stop.wait(requests.look())

    def _read_slurm(self) -> None:
        while not self.stop.is_set():
            try:
                self.fleet.look_at_slurm(self.client)
                self.outages.works("reading Slurm's pods")
            except Exception as error:  # what stands stays: nothing is known to have ended
                self.outages.failed("reading Slurm's pods", failure(error))
            self.stop.wait(SLURM_EVERY)

    def _read_logs(self, read: Callable[[threading.Event], None]) -> None:
        while not self.stop.is_set() and not self.nodes.synced.wait(0.5):
            continue  # what is found of a node that is not known yet would be lost
        while not self.stop.is_set():
            try:
                read(self.stop)
            except Exception as error:  # what somebody else wrote must not end the reading of all that come after
                self.log(problem(f"logs cannot be read: {failure(error)}"))
