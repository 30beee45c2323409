"""Evidence of a node by a Job that is pinned to it: its kernel log, and what its drivers say. No SSH.

The program is that of the repairs (`nhc_adapters.node.hand`), which prints a line of JSON a piece. The pod's log has
each as soon as it is there: what came before the time was over is kept. Nothing on the node is repaired or stopped.
"""

from __future__ import annotations

import base64
import time
import uuid
import zlib
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Tuple

from nhc.core.model import printable
from nhc.core.system.bounded_read import parse_json
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, EvidenceBudget, Exhibit, Machine
from nhc_adapters.kubernetes.nodes.own_marks import COLLECTS
from nhc_adapters.kubernetes.repair.cluster import Object, RepairCluster
from nhc_adapters.kubernetes.repair.jobs import CONTAINER, HandSettings, hand_job, is_active, read_job
from nhc_adapters.kubernetes.repair.pinned_job import JobPlace, PinnedJob
from nhc_adapters.node.hand.evidence import LOG, NAMES
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.evidence import EvidenceCollector

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
    """What a log holds. `whole`: the program came to its end."""

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
        log = "".join(self.cluster.log(self.place.namespace, pod, CONTAINER, LOG + OVERHEAD) for pod in pods[:1])
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
