"""A suite, or the proof of one GPU, on another node by a Job that is pinned to it: nhc in a pod, without SSH.

    [verify.job]
    image = "registry.example.com/nhc@sha256:..."   # this nhc with the suite's tools
    namespace = "nhc-system"                        # must allow privileged pods
    runtime-class = "nvidia"

The Job's name is made of the node, the suite and `since`, or the GPU and the seed: it is created once, and whoever asks
again (another controller, after a restart) follows the one that runs or reads the one that has ended. A Job that could
not tell makes room for a next number, at most TRIES. The report is the pod's log: a termination message is too small.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Right
from nhc.marks.ports.suites import PROOF, DeviceProof, SuiteOrder
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import Object, RepairCluster
from nhc_adapters.kubernetes.repair.pinned_job import JobPlace, PinnedJob, pinned_job
from nhc_adapters.kubernetes.repair.repair_job import is_active, read_job
from nhc_adapters.node.suite import InstalledNhc, suite_words
from nhc_adapters.repair import CallFailed

# The Job that runs a suite of deep checks, or proves a GPU, on a node: what it is made of, what is read from it. Pure.
#
# The pod is the gate's (adapters/kubernetes/overlays/gate): privileged, with the node's processes and network, and with
# the node's own /var/lib/nhc, where `nhc deep run` keeps its reports. The pod sees all GPUs of the node, and proves one
# by its UUID: its rule keeps work away from it. With a claim it would wait for the scheduler and for the DRA driver.


COMPONENT = CONTAINER = "suite"
ORDER = "nhc/suite-order"
"""Annotation: which run a Job is. The name has a part of its hash only."""
STARTING = 300
"""Seconds for what comes before the program: the image is pulled (a vendor's image with CUDA has gigabytes)."""
ENDING = 60
"""Seconds that the program has to end its tools, as for a gate."""


SuiteJobOrder = Union[SuiteOrder, DeviceProof]


class SuiteProgram(NamedTuple):
    """What runs the suite: the command in the image, and the pod's RuntimeClass where it needs one."""

    nhc: str = "nhc"
    runtime_class: str = ""


def name_of(order: SuiteJobOrder) -> str:
    """What is run."""
    return order.suite if isinstance(order, SuiteOrder) else PROOF


def order_key(order: SuiteJobOrder) -> str:
    """The same for the same run: who asks again, after a restart too, finds the Job that is there."""
    which = f"{order.since:.3f}" if isinstance(order, SuiteOrder) else f"{order.device}\n{order.seed}"
    text = f"{order.machine.node}\n{name_of(order)}\n{which}"
    return hashlib.sha256(text.encode()).hexdigest()


def job_name(order: SuiteJobOrder, number: int) -> str:
    """The Job of a run; `number` counts those that could not tell."""
    return f"nhc-suite-{order_key(order)[:24]}-{number}"


def command(order: SuiteJobOrder, nhc: str) -> List[str]:
    """What the container runs. Raises AdapterError."""
    if isinstance(order, SuiteOrder):
        return [nhc, *suite_words(order, "--adapter", "kubernetes")]
    return ["/bin/sh", "-c", InstalledNhc(nhc).proof(order)]


def manifest(order: SuiteJobOrder, place: JobPlace, program: SuiteProgram, number: int) -> Dict[str, Any]:
    """The Job of a run. Raises AdapterError."""
    node = order.machine.node
    notes = {ORDER: order_key(order), "nhc/node": node, "nhc/suite": name_of(order)}
    env: List[Dict[str, Any]] = [
        # Else the node would count as busy because of this very pod.
        {"name": "NHC_KUBE_OWN_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "TMPDIR", "value": "/var/lib/nhc"},
    ]
    container = {
        "name": CONTAINER, "env": env,
        "command": command(order, program.nhc),
        "volumeMounts": [
            {"name": "state", "mountPath": "/var/lib/nhc"}, {"name": "run", "mountPath": "/run/nhc"},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 (collectives within the node)
        ],
    }  # fmt: skip
    pod: Dict[str, Any] = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if program.runtime_class:
        pod["runtimeClassName"] = program.runtime_class
    volumes = [
        {"name": "state", "hostPath": {"path": "/var/lib/nhc", "type": "DirectoryOrCreate"}},
        {"name": "run", "hostPath": {"path": "/run/nhc", "type": "DirectoryOrCreate"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    seconds = round(order.seconds) + STARTING + ENDING
    job = PinnedJob(job_name(order, number), node, COMPONENT, notes, seconds, ENDING)
    return pinned_job(job, place, container, pod, volumes)


class SuiteEnd(NamedTuple):
    """How a Job ended: the pod, and its program's exit status, None where neither is there any more."""

    pod: str
    status: Optional[int]
    why: str


def read_end(job: Mapping[str, object], pods: Sequence[Mapping[str, Any]]) -> SuiteEnd:
    """How an ended Job ended; of several pods (Kubernetes does not promise one a Job) the first that gave a verdict."""
    why = read_job(job, pods).why
    end = SuiteEnd("", None, why)
    for pod in sorted(pods, key=lambda pod: str(pod.get("metadata", {}).get("creationTimestamp", ""))):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            status = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
            if isinstance(status, int) and (end.status is None or end.status not in (0, 1)):
                end = SuiteEnd(str(pod["metadata"]["name"]), status, why)
    return end


def report_in(log: str) -> str:
    """The last whole report in a pod's log, "" where there is none: what the program said besides stands around it."""
    report, at, decoder = "", 0, json.JSONDecoder()
    while at < len(log):
        if log[at] == "{":
            try:
                value, end = decoder.raw_decode(log, at)
            except (ValueError, RecursionError):
                value, end = None, at
            if isinstance(value, dict) and "host" in value:
                report = log[at:end]
            at = max(end, at)
        line = log.find("\n", at)
        at = len(log) if line < 0 else line + 1
    return report


TRIES = 3
"""Jobs of one run that may tell nothing; as many as the remedy loop's own tries."""
EVERY = 2.0
"""Seconds between two looks at a Job that runs."""
LOG = 10 << 20
"""Bytes of a log that are asked for: kubelet keeps 10 MiB of it (containerLogMaxSize)."""
VERDICTS = (0, 1)
"""Exit statuses of `nhc deep run` that are verdicts: good, bad."""
UNSURE = 3


class _SuiteRead(NamedTuple):
    """A Job that has ended, and the report that it left, "" for none."""

    end: SuiteEnd
    report: str


@declared.settings
class SuiteJobSettings(NamedTuple):
    """The table [verify.job]."""

    place: JobPlace = declared.part(
        "", JobPlace, default=JobPlace(account="nhc-remedy-suite"),
        account=declared.text("service-account", "nhc-remedy-suite"),
    )  # fmt: skip
    cluster: ClusterSettings = declared.part("", ClusterSettings)
    runtime_class: str = declared.text("runtime-class")
    nhc: str = declared.text("nhc", "nhc", "the image's nhc")

    def checked(self, table: Table) -> SuiteJobSettings:
        """The same. Raises SettingsError."""
        if not self.place.image:
            raise table.error("image", "missing: which image has nhc and the suite's tools?")
        return self


class SuiteJobs:
    """As `nhc.marks.ports.suites.SuiteRunner` and `ProvesDevices`. Safe to use from several threads."""

    SETTINGS = SuiteJobSettings

    def __init__(
        self, settings: Mapping[str, str], environ: Given = None, timeout: float = 30.0, every: float = EVERY
    ) -> None:
        own = read(SuiteJobSettings, settings)
        self.place = own.place
        self.program = SuiteProgram(own.nhc, own.runtime_class)
        self.cluster = RepairCluster.of(own.cluster, environ, timeout)
        self._every = every

    def run(self, order: SuiteOrder) -> str:
        """The report. Raises AdapterError."""
        suite_words(order)  # a name that is none is refused before the cluster is asked
        return self._report(order)

    def prove(self, order: DeviceProof) -> str:
        """The report of a proof of one device. Raises AdapterError."""
        return self._report(order)

    def _report(self, order: SuiteJobOrder) -> str:
        node, suite = order.machine.node, name_of(order)
        until = time.monotonic() + order.seconds + STARTING + 2 * ENDING
        reason = ""
        for number in range(1, TRIES + 1):
            name = job_name(order, number)
            job = self._find(order, name)
            if job is None:
                job = self._create(order, number)
            followed = is_active(job)
            if followed:
                job = self._follow(order, name, until)
            ended = self._read(job, name)
            judged = ended.end.status in VERDICTS or (followed and ended.end.status == UNSURE)
            if judged and ended.report:
                return ended.report
            reason = f"the Job {self.place.namespace}/{name} gave no report: {_why(ended.end)}"
            if followed:
                raise AdapterError(f"{node}: {suite}: {reason}")
        raise AdapterError(f"{node}: {suite} could not tell in {TRIES} Jobs; of the last: {reason}")

    # The Job.

    def _find(self, order: SuiteJobOrder, name: str) -> Optional[Object]:
        """Raises AdapterError where the name is taken by what is none of this run."""
        return self.cluster.own_job(self.place.namespace, name, (ORDER, order_key(order)))

    def _create(self, order: SuiteJobOrder, number: int) -> Object:
        """The Job, created now or a moment ago by another. Raises AdapterError."""
        # The machine's boot is another than the one that was judged: the repair came in between.
        self.cluster.compare_ready(order.machine._replace(boot_id=""))
        body = manifest(order, self.place, self.program, number)
        return self.cluster.create_once(body, (ORDER, order_key(order)))[0]

    def _follow(self, order: SuiteJobOrder, name: str, until: float) -> Object:
        """The Job, once it has ended. An API server that does not answer is waited for. Raises AdapterError."""
        reason = ""
        while True:
            try:
                job = self._find(order, name)
                if job is None:
                    raise AdapterError(f"{order.machine.node}: the Job {name} was deleted while it ran")
                if not is_active(job):
                    return job
                reason = read_job(job, self.cluster.pods_of(self.place.namespace, name)).why
            except CallFailed as error:
                if error.answer is not Answer.AMBIGUOUS:
                    raise
                reason = str(error)
            if time.monotonic() >= until:
                raise AdapterError(f"{order.machine.node}: the Job {name} has not ended: {reason or 'it runs'}")
            time.sleep(self._every)

    def _read(self, job: Mapping[str, object], name: str) -> _SuiteRead:
        """Raises AdapterError where the API server does not give what it has."""
        end = read_end(job, self.cluster.pods_of(self.place.namespace, name))
        if end.status not in (*VERDICTS, UNSURE):
            return _SuiteRead(end, "")
        return _SuiteRead(end, report_in(self.cluster.log(self.place.namespace, end.pod, CONTAINER, LOG)))

    # Rights.

    def rights(self) -> Sequence[Right]:
        """Its rights, each asked of the API server. Raises AdapterError."""
        return self.cluster.rights(needed(self.place.namespace))

    def close(self) -> None:
        """End its connections."""
        self.cluster.close()


def needed(namespace: str) -> List[ClusterRight]:
    """What it must be allowed to do."""
    return [
        ClusterRight("get", "nodes", purpose="to compare the machine"),
        *(ClusterRight(verb, "jobs", "batch", namespace, purpose="to run a suite by a Job, and to follow it")
          for verb in ("create", "get")),
        ClusterRight("list", "pods", "", namespace, purpose="to see how a suite ended"),
        ClusterRight("get", "pods/log", "", namespace, purpose="to read a suite's report"),
    ]  # fmt: skip


def _why(end: SuiteEnd) -> str:
    meanings: Dict[int, str] = {UNSURE: "it could not tell", 2: "wrong usage, or no such suite in the image"}
    if end.status in VERDICTS:
        return "its log is gone, or holds no whole report"
    parts = [f"status {end.status}" if end.status is not None else "", meanings.get(end.status or 0, ""), end.why]
    return printable(", ".join(part for part in parts if part), 300) or "nothing of it is left"
