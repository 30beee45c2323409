"""Repairs by a privileged Job that is pinned to the node: the program of `repairers.node`, without SSH.

    [repairers.kubernetes]
    image = "registry.example.com/nhc@sha256:..."   # this nhc; by digest, so that it is always the same
    namespace = "nhc-system"
    services = "trainer.service"                     # what restart-app starts again
    stoppable = "site-gpu-monitor.service"

The Job is named by the order's key. Creating it is the one call that does something: a name that is taken is the same
order, and is looked at. What became of it is the program's own answer, which the kubelet keeps with the pod; another
boot id of the node proves a reboot.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, List, Mapping, Sequence

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import (
    Answer,
    EvidenceBudget,
    Exhibit,
    Machine,
    Order,
    Progress,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)
from nhc_adapters.kubernetes.api.client import namespaced
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair import jobs
from nhc_adapters.kubernetes.repair.cluster import JOBS, KubeNode, RepairCluster
from nhc_adapters.kubernetes.repair.evidence_job import EvidenceJobs
from nhc_adapters.kubernetes.repair.handover import booted
from nhc_adapters.kubernetes.repair.jobs import HandSettings, JobSeen, OrderJobs, job_name
from nhc_adapters.kubernetes.repair.pinned_job import PLACE, labels_of, read_place, whole_seconds
from nhc_adapters.node.repairer import RUNGS, asked_of, units_of, unnamed
from nhc_adapters.repair.calls import accepted, send_once, untouched
from nhc_adapters.repair.settings import AdapterSettings, Given

KNOWN = (
    *PLACE, "kubeconfig", "context", "services", "stoppable", "node-kubeconfig", "wait", "deadline", "enter", "path",
    "evidence",
)  # fmt: skip


class KubernetesJobs:
    """As `nhc.marks.ports.repair.Repairer`, Completes, EvidenceSource."""

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        table = AdapterSettings(settings, KNOWN)
        self.services, self.stoppable = units_of(table, "services"), units_of(table, "stoppable")
        self.kubeconfig = table.text("node-kubeconfig")
        self.wait = whole_seconds(table, "wait", 300)
        self.place = read_place(table)
        self.hand = HandSettings(
            table.text("enter", jobs.ENTER), table.text("path"), whole_seconds(table, "deadline", 1200)
        )
        self.cluster = RepairCluster.of(table, environ, timeout)
        self.orders = OrderJobs(self.cluster, self.place, self.hand)
        self.shows = table.flag("evidence", True)

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" where it is. Asks nobody: the node's own program decides in the Job."""
        if rung not in RUNGS:
            return f"a Job on the node cannot {rung.value} it"
        if not self.place.image:
            return "no image is set up (image)"
        if not (machine.provider_id or machine.uuid or machine.boot_id):
            return f"nothing is known by which {machine.node} could be told from another machine of that name"
        return unnamed(rung, device, self.services)

    def look(self, machine: Machine) -> Sighting:
        """The node, and a Job of ours that works on it. Raises AdapterError."""
        seen = self.cluster.sighting(machine.node)
        active = [job for job in self._of_node(machine.node) if jobs.is_active(job)]
        if active:
            return seen._replace(actor="nhc", doing=f"the Job {active[0]['metadata']['name']} works on it")
        return seen

    # Sending.

    def send(self, order: Order) -> Sent:
        """Create the Job, once. Never raises."""
        why = self.can(order.machine, order.rung, order.device)
        if why:
            return Sent(Answer.REFUSED, f"not sent: {why}")
        return send_once(lambda: self.cluster.compare_ready(order.machine), lambda node: self._create(order, node))

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Put back what a repair that was killed had stopped: a Job of its own. Never raises."""
        return send_once(lambda: self.cluster.compare(order.machine), lambda node: self._create(order, node, True))

    def _create(self, order: Order, node: KubeNode, restore: bool = False) -> Sent:
        """Raises CallFailed."""
        machine = order.machine._replace(boot_id=order.machine.boot_id or node.boot)
        asked = asked_of(order._replace(machine=machine), self.services, self.stoppable, self.kubeconfig, self.wait)
        args = ("restore" if restore else "start", jobs.order_text(asked))
        name = job_name(order.key, restore)
        when = "is created" if self.orders.create(order, args, restore) else "was created before"
        return accepted(f"the Job {self.place.namespace}/{name} {when}", name)

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """What the node and the Job show. Raises AdapterError."""
        if order.rung is Rung.REBOOT:
            done = booted(before, order, self.cluster.node(order.machine.node))
            if done is not None:
                return done
        seen = self.orders.seen(order)
        if seen is None:
            return untouched(sent, before, "the Job is not there (yet)")
        return self._judged(order, seen)

    def _judged(self, order: Order, seen: JobSeen) -> Progress:
        stage, message = seen.text("stage"), seen.text("message") or seen.text("problem")
        if seen.text("answer") == "refused" or seen.text("problem"):
            return Progress(Stage.FAILED, f"the node refused: {message}")
        if stage == "failed" or (stage == "done" and order.rung is not Rung.REBOOT):
            return Progress(Stage.DONE if stage == "done" else Stage.FAILED, message)
        if not seen.ended:
            return Progress(Stage.WORKING, seen.why or "the Job runs")
        if not seen.started and seen.answer is None:
            return Progress(Stage.FAILED, f"nothing was begun: no pod was started ({seen.why})")
        if order.rung is Rung.REBOOT:
            return Progress(Stage.WORKING, message or f"no other boot yet ({seen.why})")
        return self._killed(order, message or seen.why)

    def _killed(self, order: Order, why: str) -> Progress:
        """The program was ended before it could answer: what it took away is put back by another Job."""
        restore = self.orders.seen(order, restore=True)
        if restore is None:
            return Progress(Stage.HALFWAY, f"the repair was killed: {why}")
        if not restore.ended:
            return Progress(Stage.WORKING, "what the killed repair stopped is being put back")
        if restore.complete and restore.text("answer") == "accepted":
            return Progress(Stage.FAILED, "the repair was killed; what it had stopped was put back")
        reason = restore.text("message") or restore.text("problem") or restore.why
        return Progress(Stage.FAILED, f"the repair was killed, and what it stopped was not put back: {reason}")

    def _of_node(self, node: str) -> List[Mapping[str, Any]]:
        selector = ",".join(f"{key}={value}" for key, value in
                            labels_of(jobs.COMPONENT, node).items())  # fmt: skip
        return list(self.cluster.items(namespaced(self.place.namespace, "jobs", group=JOBS), labelSelector=selector))

    # Evidence, rights.

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """The kernel's log and what the drivers say, by a Job on the node. Raises AdapterError."""
        if not self.shows:
            return
        if not self.place.image:
            raise AdapterError("no image is set up (image)")
        yield from EvidenceJobs(self.cluster, self.place, self.hand).collect(machine, budget)

    def rights(self) -> Sequence[Right]:
        """Its rights; and a Job as it would be created, in a dry run of the API server's. Raises AdapterError."""
        return [*self.cluster.rights(needed(self.place.namespace, self.shows)), self._dry_run()]

    def _dry_run(self) -> Right:
        name = "create a repair's Job (dry run)"
        if not self.place.image:
            return Right(name, False, "no image is set up (image)")
        order = Order("doctor", "0", 0, Machine("doctor"), Rung.REBOOT, "a dry run")
        body = jobs.manifest(order, self.place, self.hand, ("look",))
        try:
            self.cluster.create_job(self.place.namespace, body, dryRun="All")
        except AdapterError as error:
            return Right(name, False, str(error))
        pinned = bool(re.search(r"@sha256:[0-9a-f]{64}$", self.place.image))
        return Right(name, True, "" if pinned else "the image is named by a tag, which may be another one tomorrow")


def needed(namespace: str, evidence: bool = True) -> List[ClusterRight]:
    """What it must be allowed to do; `evidence` says whether it collects evidence too."""
    log = ClusterRight("get", "pods/log", "", namespace, purpose="to read the evidence that a Job has collected")
    return [
        ClusterRight("get", "nodes", purpose="to compare the machine, and to see its boot id"),
        *(ClusterRight(verb, "jobs", "batch", namespace, purpose="to repair by a Job, and to watch it")
          for verb in ("create", "get", "list")),
        ClusterRight("list", "pods", "", namespace, purpose="to read what became of a repair"),
        *([log] if evidence else []),
    ]  # fmt: skip
