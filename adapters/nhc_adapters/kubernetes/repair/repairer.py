"""Repairs by a privileged Job that is pinned to the node: the program of `repairers.node`, without SSH.

    [repairers.kubernetes]
    image = "registry.example.com/nhc@sha256:..."   # this nhc; by digest, so that it is always the same
    namespace = "nhc-system"
    services = "trainer.service"                     # what restart-app starts again
    stoppable = "site-gpu-monitor.service"

The Job is named by the order's key. Creating it is the only call that acts: if the name is taken, it is the same order,
and its Job is read. The result is the program's own answer, which the kubelet keeps with the pod; another boot id of
the node proves a reboot.
"""

from __future__ import annotations

import base64
import re
import time
import uuid
import zlib
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.bounded_read import parse_json
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
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
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.client import namespaced
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.nodes.own_marks import COLLECTS
from nhc_adapters.kubernetes.repair import pinned_job
from nhc_adapters.kubernetes.repair.cluster import JOBS, KubeNode, Object, RepairCluster
from nhc_adapters.kubernetes.repair.handover import booted
from nhc_adapters.kubernetes.repair.pinned_job import (
    HandSettings,
    JobPlace,
    JobSeen,
    OrderJobs,
    PinnedJob,
    hand_job,
    is_active,
    job_name,
    labels_of,
    read_job,
)
from nhc_adapters.node.hand.evidence import LOG, NAMES
from nhc_adapters.node.repairer import RUNGS, HeldSettings, asked_of, unnamed
from nhc_adapters.repair import CallFailed, EvidenceCollector, accepted, send_once, untouched

# Evidence of a node by a Job that is pinned to it: its kernel log, and what its drivers say. No SSH.
#
# The program is that of the repairs (`nhc_adapters.node.hand`), which prints a line of JSON a piece. The pod's log has
# each as soon as it is there: what came before the time was over is kept. Nothing on the node is repaired or stopped.


COMPONENT = "evidence"
"""Not that of repairs: a Job that collects is none that another must wait for."""
KEEP = 600
"""Seconds that an ended Job stays: its log holds what only the evidence of the episode should, and unredacted."""
ENDING = 10
"""Seconds that the program has to end. It has nothing to put back."""
READING = 0.1
"""Part of the time that is left for reading the log."""
EVERY = 1.0
"""Seconds between two looks at a Job that runs."""
OVERHEAD = 64 << 10
"""Bytes of a log beside what the pieces take: names, problems, what was printed besides."""


class LoggedPieces(NamedTuple):
    """The content of a log. `whole`: the program ran to its end."""

    content: Mapping[str, Tuple[bytes, bool]]
    problems: Mapping[str, str]
    whole: bool


def pieces_in(log: str, size: int) -> LoggedPieces:
    """The pieces in a pod's log, unpacked to `size` bytes in all; what is none is passed over. Pure."""
    content: Dict[str, Tuple[bytes, bool]] = {}
    problems: Dict[str, str] = {}
    whole, left = False, size
    for line in log.splitlines():
        if not line.startswith("{"):
            continue
        try:
            value = parse_json(line)
        except ValueError:
            continue
        if not isinstance(value, dict):
            continue
        whole = whole or "looked_for" in value
        name = value.get("piece")
        if not isinstance(name, str) or name not in NAMES or name in content:
            continue
        if "problem" in value:
            problems[name] = printable(str(value["problem"]), 300)
            continue
        try:
            content[name] = _unpacked(str(value.get("content", "")), left, value.get("cut") is True)
        except (ValueError, zlib.error) as error:
            problems[name] = f"what came cannot be unpacked: {error}"
            continue
        left -= len(content[name][0])
    return LoggedPieces(content, problems, whole)


def _unpacked(packed: str, most: int, cut: bool) -> Tuple[bytes, bool]:
    """At most so many bytes, however small they were packed, and whether there was more. Raises ValueError."""
    if most <= 0:
        return b"", True
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(base64.b64decode(packed, validate=True), most)
    more = bool(unpacking.unconsumed_tail)
    if not more and not unpacking.eof:
        raise ValueError("it ends early")
    return content, cut or more


class EvidenceJobs:
    """Collects; one Job a collection. `place` and `hand` are those of the repairer's Jobs."""

    def __init__(self, cluster: RepairCluster, place: JobPlace, hand: HandSettings) -> None:
        self.cluster, self.place, self.hand = cluster, place._replace(keep=KEEP), hand

    def collect(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """The pieces, within the budget. Raises AdapterError where there is none, or not all came."""
        until = time.monotonic() + budget.seconds * (1 - READING)
        name = self._create(machine, budget)
        pods, why = self._follow(name, until)
        log = "".join(
            self.cluster.log(self.place.namespace, pod, pinned_job.REPAIR, LOG + OVERHEAD) for pod in pods[:1]
        )
        pieces, collector = pieces_in(log, budget.size), EvidenceCollector(budget)
        for piece, (content, cut) in pieces.content.items():
            for exhibit in collector.take(piece, NAMES[piece], content):
                yield exhibit._replace(cut=exhibit.cut or cut)
        problems = "; ".join(f"{piece}: {problem}" for piece, problem in pieces.problems.items())
        if not pieces.whole:
            problems = f"the Job {self.place.namespace}/{name} did not come to its end: {why or 'its log is not whole'}"
        if not pieces.whole or not collector.taken:
            raise AdapterError(printable(problems or "the node gave nothing", 900))

    def _create(self, machine: Machine, budget: EvidenceBudget) -> str:
        """The Job's name. Raises AdapterError."""
        self.cluster.compare_ready(machine)
        name = f"nhc-evidence-{uuid.uuid4().hex[:24]}"
        notes = {"nhc/node": machine.node, COLLECTS: COMPONENT}
        job = PinnedJob(name, machine.node, COMPONENT, notes, max(1, round(budget.seconds)), ENDING)
        arguments = ("collect", str(budget.size), f"{budget.seconds * (1 - 2 * READING):.1f}")
        body = hand_job(job, self.place, self.hand, arguments)
        try:
            self.cluster.create_job(self.place.namespace, body)
        except CallFailed as error:
            if error.answer is not Answer.AMBIGUOUS:  # else the next look says whether it is there
                raise
        return name

    def _follow(self, name: str, until: float) -> Tuple[List[str], str]:
        """The pods whose container has run, once the Job has ended or its time is over, and what it says."""
        while True:
            late = time.monotonic() >= until
            try:
                job, pods = self._look(name)
            except CallFailed as error:
                if late or error.answer is not Answer.AMBIGUOUS:
                    raise
                # An API server that is away is waited for.
            else:
                reason = read_job(job, pods).why
                if late or not is_active(job):
                    why = f"its time is over. {reason}".rstrip(". ") if late else reason
                    return [str(pod["metadata"]["name"]) for pod in pods if _ran(pod)], why
            time.sleep(min(EVERY, max(until - time.monotonic(), 0.0)))

    def _look(self, name: str) -> Tuple[Object, List[Object]]:
        """The Job and its pods. Raises AdapterError."""
        where = self.place.namespace
        job = self.cluster.job(where, name)
        if job is None:
            raise AdapterError(f"the Job {where}/{name} is not there, or was deleted while it ran")
        return job, self.cluster.pods_of(where, name)


def _ran(pod: Mapping[str, Any]) -> bool:
    """Whether there can be a log: one of a container that waits for its image is refused."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(set(status.get("state") or {}) & {"running", "terminated"} for status in statuses)


@declared.settings
class KubernetesRepairSettings(NamedTuple):
    """The table of a repairer of this kind."""

    place: JobPlace = declared.part("", JobPlace)
    cluster: ClusterSettings = declared.part("", ClusterSettings)
    held: HeldSettings = declared.part("", HeldSettings)
    node_kubeconfig: str = declared.text("node-kubeconfig", "", "the node's own: pods that hold a GPU are found by it")
    deadline: float = declared.seconds("deadline", 1200.0, "of one Job", least=1.0)
    enter: str = declared.text("enter", pinned_job.ENTER, "how the Job's program enters the node")
    path: str = declared.text("path", "", "where the node's programs are")
    evidence: bool = declared.flag("evidence", True, "whether a Job collects what the node's programs show")


class KubernetesJobs:
    """As `nhc.marks.ports.repair.Repairer`, Completes, EvidenceSource."""

    SETTINGS = KubernetesRepairSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        own = read(KubernetesRepairSettings, settings)
        self.services, self.stoppable = list(own.held.services), list(own.held.stoppable)
        self.kubeconfig, self.wait, self.place = own.node_kubeconfig, round(own.held.wait), own.place
        self.hand = HandSettings(own.enter, own.path, round(own.deadline))
        self.cluster = RepairCluster.of(own.cluster, environ, timeout)
        self.orders = OrderJobs(self.cluster, self.place, self.hand)
        self.shows = own.evidence

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" if it is. Sends no request: the node's own program decides in the Job."""
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
        active = [job for job in self._of_node(machine.node) if pinned_job.is_active(job)]
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
        args = ("restore" if restore else "start", pinned_job.order_text(asked))
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
                            labels_of(pinned_job.REPAIR, node).items())  # fmt: skip
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
        body = pinned_job.manifest(order, self.place, self.hand, ("look",))
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
