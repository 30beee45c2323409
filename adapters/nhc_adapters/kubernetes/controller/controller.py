"""`nhc serve kubernetes`: follows every node and keeps marks and drains in step with their conditions.

Threads: one follows the nodes, one holds the Lease, one decides and acts, one sends events, and one each reads pod logs
and Loki if the settings ask for it. Only the holder of the Lease acts; the others follow the nodes, so that they can
take over at once.
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
from nhc_adapters.kubernetes.controller.context import Log, RoundContext
from nhc_adapters.kubernetes.controller.controller_rounds import ControllerRounds
from nhc_adapters.kubernetes.controller.detections import Detections
from nhc_adapters.kubernetes.controller.device_rounds import node_of
from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
from nhc_adapters.kubernetes.controller.maintenance_requests import MaintenanceRequests
from nhc_adapters.kubernetes.controller.rights import RightsWatch
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import CLUSTER_SIDE
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


class Threads:
    """The threads of one controller, by name. `stop` ends them."""

    def __init__(self, log: Log) -> None:
        self.stop = threading.Event()
        self._log = log
        self._threads: List[threading.Thread] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Start one. It must not end before `stop` is set."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                if not self.stop.is_set():
                    self._log(problem(f"{name}: {failure(error)}"))

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def ended(self) -> str:
        """A thread that has ended by itself, "" if all run."""
        dead = (thread.name for thread in self._threads if not thread.is_alive())
        return "" if self.stop.is_set() else next(dead, "")

    def join(self) -> None:
        for thread in self._threads:
            if thread.name != "nodes":  # that one waits for the server; closing the connection ends it
                thread.join(10.0)


class OperationLog:
    """What was done on nodes: logged, counted, and sent as events."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context
        self.counts: Counter[str] = Counter()
        self._recorder = EventRecorder(context.client, "nhc-controller", queue=8192)
        self._waiting = threading.Event()
        """Set when there are events to be sent."""
        self._failing: Dict[Tuple[str, Operation], str] = {}
        """What was logged of operations that failed when they were tried last."""

    def note(self, done: SyncResult) -> None:
        """Log a round, count it, and queue its events."""
        because = {(planned.node, planned.operation): planned.because for planned in done.operations}
        if not self.context.settings.apply:
            for planned in done.operations:
                self.context.log(f"dry run: would {planned.operation.value} {planned.node}: {planned.because}")
            return
        for operation, applied in done.applied:
            why = because.get((applied.node, operation), "")
            self.counts[f"{operation.value}_{applied.effect.value}"] += 1
            if applied.effect is Effect.CHANGED:
                self.context.log(problem(f"{applied.node}: {operation.value}: {why}"))
                kind = NORMAL if operation is Operation.CLEAR else WARNING
                node, _slash, device = applied.node.partition("/")
                text = f"{device}: {why}" if device else why
                self._recorder.say(kind, node, EVENT_REASONS[operation], text, self._uid(node))
            key, trouble = (applied.node, operation), f"{operation.value} {applied.effect.value}: {applied.message}"
            if applied.effect in (Effect.CHANGED, Effect.UNCHANGED):
                self._failing.pop(key, None)
            elif self._failing.get(key) != trouble:  # tried every few seconds for as long as it fails
                known = {key: text for key, text in self._failing.items() if node_of(key[0]) in self.context.objects}
                self._failing = {**known, key: trouble}
                self.context.log(problem(f"{applied.node}: {trouble}"))
        if self._recorder.waiting:
            self._waiting.set()

    def _uid(self, name: str) -> str:
        return str((self.context.objects.get(name) or {}).get("metadata", {}).get("uid", ""))

    def drained(self, name: str, progress: DrainProgress, state: str) -> None:
        """A drain has ended."""
        self.counts[f"drain_{state}"] += 1
        self.context.log(f"drain {state}: {progress.line()}")
        kind = NORMAL if progress.clean else WARNING
        self._recorder.say(kind, name, f"NhcDrain{state.capitalize()}", progress.line(), self._uid(name))
        self._waiting.set()

    def send_events(self, stop: threading.Event) -> None:
        """Until `stop` is set. For a thread of its own."""
        while not stop.is_set():
            self._waiting.wait(30.0)
            self._waiting.clear()
            while self._recorder.waiting and not stop.is_set():
                # A few at a time: a thousand marks must not wait for a thousand events.
                self._recorder.flush_quietly(self.context.log, EVENTS_AT_ONCE)
                stop.wait(EVENTS_PAUSE)

    def wake(self) -> None:
        """Have `send_events` see that it is to stop."""
        self._waiting.set()

    def close(self) -> None:
        """Send what waits."""
        self._recorder.flush_quietly()


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
        self.refused = ""
        """Why these settings do not fit this cluster; then nothing was done, and nothing will be."""
        self.lease = lease or Lease(client, settings.namespace, settings.object_name("controller"))
        self.leading = threading.Event()
        self.threads = Threads(log)
        self.outages = Outages(log, "the API server")
        self.rights = RightsWatch(client, settings, self.outages, log)
        types = kept_types(settings)
        self.nodes = Reflector(
            watch_client or client,
            "/api/v1/nodes",
            lambda name, _node: self.rounds.fleet.changed(name),
            trim=lambda node: trim(node, types),
            selector=settings.selector,
            report=lambda cause: self.outages.report("following the nodes", cause),
        )
        self.context = context = RoundContext(
            settings,
            Kubernetes(client, settings.treatment, topologies=settings.topologies),
            ClusterLedger(client, settings.namespace, settings.object_name("ledger"), settings.policy),
            self.nodes.objects,
            clock,
            log,
            self.lease.held,
            self.nodes.followed_for,
        )
        self.rounds = ControllerRounds(context)
        if settings.devices.on:
            changed = self.rounds.fleet.changed
            self.rounds.attend_devices(DeviceWatch(watch_client or client, changed, self.outages.report))
        self.operations = OperationLog(context)
        self.drains = Drains(
            client, settings.rules, self.nodes.objects.get, allowed=self.lease.held, ended=self.operations.drained
        )
        self.detections = Detections(context)

    # Start and end.

    def start(self) -> None:
        """Start all threads; returns at once."""
        settings, fleet, stop = self.context.settings, self.rounds.fleet, self.threads.stop
        start = self.threads.start
        start("nodes", lambda: self.nodes.run(stop))
        if self.rounds.devices is not None:
            devices = self.rounds.devices.view.watch
            start("devices", lambda: devices.run(stop))
        if fleet.requests is not None:
            requests = fleet.requests
            start("maintenance", lambda: self._read_requests(requests))
        if settings.slurm:
            start("slurm", self._read_slurm)
        start("rights", lambda: self.rights.run(stop))
        start("lease", lambda: self.lease.keep(stop, self._led, self._report_lease))
        start("rounds", self._rounds)
        start("events", lambda: self.operations.send_events(stop))
        if settings.podlogs.namespaces:
            start("podlogs", lambda: self._read_logs(self.detections.read_pods))
        if settings.preflight.on:
            start("preflights", lambda: self._read_logs(self.detections.read_preflights))
        if self.detections.loki is not None:
            loki = self.detections.loki
            start("loki", lambda: self._read_logs(loki.run))

    def run(self) -> None:
        """Work until `stop` is set."""
        self.start()
        self.threads.stop.wait()
        self.close()

    def close(self) -> None:
        """End everything; the Lease is given up so that the next need not wait."""
        self.threads.stop.set()
        self.rounds.fleet.agenda.wake.set()
        self.operations.wake()
        self.drains.close()
        self.threads.join()
        self.operations.close()
        self.nodes.client.close()
        self.context.adapter.close()

    def healthy(self) -> str:
        """Why this controller should be restarted, "" while it works."""
        ended = self.threads.ended()
        return self.refused or (f"thread {ended} has ended" if ended else "")

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

    # Nodes.

    def _report_lease(self, cause: str) -> None:
        where = f"{self.lease.namespace}/{self.lease.name}"
        self.outages.report(f"holding the Lease {where}", cause)

    def _led(self, leading: bool) -> None:
        if leading:
            self.context.log(f"leading as {self.lease.holder}")
            self.leading.set()
            for name in list(self.nodes.objects):  # everything again, with the right to act
                self.rounds.fleet.changed(name)
        else:
            self.leading.clear()
            self.context.log("no longer leading")

    def _rounds(self) -> None:
        stop, fleet, settings = self.threads.stop, self.rounds.fleet, self.context.settings
        while not stop.is_set() and not self.nodes.synced.wait(0.5):
            continue
        while not stop.is_set() and fleet.requests is not None and not fleet.requests.known:
            stop.wait(0.2)  # a maintenance would be taken for one that has ended
        while not stop.is_set() and settings.slurm and not fleet.slurm.known:
            stop.wait(0.2)  # a drain would be taken for one that has ended
        devices = self.rounds.devices
        while not stop.is_set() and devices is not None and not devices.view.watch.settled.wait(0.5):
            continue  # a fault of a device would be taken for its node's
        if not stop.is_set():
            strange = self._strange_types()
            self.refused = "; ".join(strange.refused)
            for line in strange.unseen:
                self.context.log(line)
            if self.refused:
                self.context.log(problem(f"these settings are refused: {self.refused}"))
                stop.wait()
        loaded = False
        while not stop.is_set():
            if not self.leading.is_set():
                loaded = False
                self.leading.wait(0.5)
                continue
            fleet.agenda.wake.clear()
            try:
                if not loaded:
                    self.context.ledger.load()
                    loaded = True
                self._note(self.rounds.round())
                self._start_drains()
                self.detections.clear_after_restart(fleet.sick())
                self.outages.works("this round")
            except Exception as error:  # any error: a thread that has ended would mark no node any more
                # Nothing was done that is not written down; what changed is looked at again.
                loaded = False
                self.outages.failed("this round", failure(error))
                for name in list(fleet.nodes):
                    fleet.changed(name)
                stop.wait(1.0)
                continue
            fleet.agenda.wake.wait(max(fleet.agenda.due(self.context.clock()), 0.01))

    def _strange_types(self) -> StrangeTypes:
        return strangers(
            self.context.settings.faults, list(self.nodes.objects.values()), self.context.settings.vocabularies
        )

    def unseen_types(self) -> int:
        """How many of the condition types that are faults no node carries and no vocabulary knows."""
        return len(self._strange_types().unseen)

    def _note(self, done: SyncResult) -> None:
        """Take over what a round changed, and tell of it."""
        adapter = self.context.adapter
        for name in list(adapter.changed):
            self.nodes.put(adapter.changed.pop(name))
        self.operations.note(done)

    # Drains.

    def _start_drains(self) -> None:
        settings = self.context.settings
        if not (settings.apply and (settings.treatment.drain or settings.maintenance)):
            return
        for name in self.rounds.fleet.marked():
            node = self.nodes.objects.get(name)
            manual = read_manual(node) if node is not None else None
            if not settings.treatment.drain and not (manual is not None and manual.asked):
                continue
            if node is not None and self.drains.wanted(name, node):
                self.drains.start(name)

    # What the cluster's side finds itself.

    def _read_requests(self, requests: MaintenanceRequests) -> None:
        while not self.threads.stop.is_set():
            self.threads.stop.wait(requests.look())

    def _read_slurm(self) -> None:
        while not self.threads.stop.is_set():
            try:
                self.rounds.fleet.look_at_slurm()
                self.outages.works("reading Slurm's pods")
            except Exception as error:  # active findings stay: nothing is known to have ended
                self.outages.failed("reading Slurm's pods", failure(error))
            self.threads.stop.wait(SLURM_EVERY)

    def _read_logs(self, read: Callable[[threading.Event], None]) -> None:
        while not self.threads.stop.is_set() and not self.nodes.synced.wait(0.5):
            continue  # what is found of a node that is not known yet would be lost
        while not self.threads.stop.is_set():
            try:
                read(self.threads.stop)
            except Exception as error:  # what somebody else wrote must not end the reading of all that come after
                self.context.log(problem(f"logs cannot be read: {failure(error)}"))
