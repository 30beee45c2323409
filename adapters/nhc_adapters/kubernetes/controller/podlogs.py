"""Device errors that only a job sees: `invalid device ordinal` in the log of a pod that failed on a node.

A device that CUDA has lost may look good from outside; the job that uses it logs the error as it dies. Only pods that
requested an accelerator and failed count, and each failure counts once. If one job fails like this on several nodes at
the same time, the job is at fault, and no node is blamed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.service_log import failure
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import get
from nhc_adapters.kubernetes.controller.acknowledged import covers
from nhc_adapters.kubernetes.nodes.accelerators import is_accelerator
from nhc_adapters.kubernetes.nodes.conditions import JOB_ERROR, TRUE, Condition
from nhc_adapters.kubernetes.nodes.pods import resources_of

PATTERNS = (
    # CUDA's cudaErrorInvalidDevice; Konduktor's one pattern.
    r"(?i)invalid device ordinal",
    # cudaErrorDevicesUnavailable, cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorNoDevice
    r"(?i)CUDA-capable device\(s\) is/are busy or unavailable",
    r"(?i)uncorrectable (ECC|NVLink) error (encountered|detected during the execution)",
    r"(?i)no CUDA-capable device is detected",
    # HIP's names for the same
    r"hipError(InvalidDevice|NoDevice|ECCNotCorrectable)\b",
    # the Neuron runtime: hardware errors 1200 to 1205
    r"\bNRT_EXEC_HW_ERR_\w+",
)

JOB_LABELS = ("jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "batch.kubernetes.io/job-name")

TAIL = 200
"""Lines read of a log. The fatal error is at its end."""

TAIL_BYTES = 256 << 10
REMEMBERED = 20_000


def _pattern(text: str) -> str:
    """A pattern of a line. Raises ValueError."""
    try:
        if re.compile(text).search("") is not None:
            raise ValueError(f"{text!r} fits every line")
    except re.error as error:
        raise ValueError(f"{text!r} is no pattern: {error}") from None
    return text


@declared.settings
class PodLogs(NamedTuple):
    """What to look for and where. No namespaces means that pod logs are not read at all.

    `pods` different pods must have met an error on a node; a job that met one on more than `spread` nodes within
    `window` seconds does not count for these.
    """

    namespaces: Tuple[str, ...] = declared.texts("namespaces", (), "none: no logs are read", shown='["train"]')
    patterns: Tuple[str, ...] = declared.texts("patterns", PATTERNS, "what such an error looks like", each=_pattern)
    every: float = declared.seconds("every", 30.0)
    pods: int = declared.count("pods", 1, "so many different pods on a node")
    spread: int = declared.count("spread", 2, "a job that fails so on more nodes than this ...")
    window: float = declared.seconds("window", 600.0, "... within this time is itself at fault")


@dataclass(frozen=True)
class Ending:
    """One container of one pod that ended badly."""

    namespace: str
    pod: str
    uid: str
    container: str
    node: str
    owner: str
    restarts: int
    previous: bool
    when: float = 0.0
    """When it ended, by the node's clock (Unix time)."""

    @property
    def place(self) -> str:
        """Where, as an acknowledgement names it."""
        return f"{self.uid}/{self.container}/{self.restarts}"


@dataclass(frozen=True)
class Met:
    """A device error in a pod's log."""

    ending: Ending
    line: str


def endings(pod: Mapping[str, Any]) -> Iterator[Ending]:
    """The containers of a pod that ended with an error, now or before their last restart. Pure."""
    spec, status, metadata = pod.get("spec", {}), pod.get("status", {}), pod.get("metadata", {})
    node = spec.get("nodeName")
    if not node or not any(map(is_accelerator, resources_of(pod))):
        return
    owners = metadata.get("ownerReferences") or ()
    owner = f"{owners[0].get('kind')}/{owners[0].get('name')}" if owners else f"Pod/{metadata.get('name')}"
    # A job's pods belong to one Job or JobSet, no matter what created them.
    labels = metadata.get("labels") or {}
    owner = next((f"{label}={labels[label]}" for label in JOB_LABELS if labels.get(label)), owner)
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        restarts = int(container.get("restartCount") or 0)
        for state, previous in ((container.get("state"), False), (container.get("lastState"), True)):
            ended = (state or {}).get("terminated")
            if not ended or not ended.get("exitCode"):
                continue
            number = restarts - 1 if previous else restarts
            yield Ending(
                str(metadata.get("namespace")), str(metadata.get("name")), str(metadata.get("uid")),
                str(container.get("name")), str(node), owner, number, previous, from_utc(ended.get("finishedAt")),
            )  # fmt: skip


def find_line(log: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The first line of a log that one of the patterns finds, "" if there is none."""
    lines = (line for line in log.splitlines() if any(pattern.search(line) for pattern in patterns))
    return printable(next(lines, ""), 300)


def of_the_job(met: Sequence[Met], rules: PodLogs) -> List[Met]:
    """The errors that are their job's own: it met some on too many nodes at about the same time. Pure."""
    jobs: Dict[str, List[Met]] = {}
    for error in met:
        jobs.setdefault(f"{error.ending.namespace}/{error.ending.owner}", []).append(error)
    excused = []
    for errors in jobs.values():
        if len({error.ending.node for error in errors}) <= rules.spread:
            continue
        for error in errors:
            near = {other.ending.node for other in errors if abs(other.ending.when - error.ending.when) <= rules.window}
            if len(near) > rules.spread:
                excused.append(error)
    return excused


def blame(
    met: Sequence[Met], rules: PodLogs, acks: Callable[[str], Mapping[str, float]] = lambda node: {}
) -> Dict[str, Condition]:
    """The nodes that these errors speak against, with the condition to set. Pure.

    `acks` says what was acknowledged on a node, by place.
    """
    excused = {error.ending.place for error in of_the_job(met, rules)}
    by_node: Dict[str, List[Met]] = {}
    for error in met:
        ending = error.ending
        if ending.place not in excused and not covers(acks(ending.node), ending.place, ending.when):
            by_node.setdefault(ending.node, []).append(error)
    blamed = {}
    for node, errors in sorted(by_node.items()):
        if len({error.ending.uid for error in errors}) < rules.pods:
            continue
        first = max(errors, key=lambda error: error.ending.when)
        text = f"pod {first.ending.namespace}/{first.ending.pod}: {first.line}"
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        places = tuple((error.ending.place, error.ending.when) for error in errors)
        blamed[node] = Condition(JOB_ERROR, TRUE, "DeviceErrorInPodLog", text + more, findings=places)
    return blamed


@dataclass
class Reader:
    """Reads the pods of some namespaces periodically; a pod once read is not read again."""

    client: Client
    rules: PodLogs
    warn: Optional[Callable[[str], None]] = None
    acknowledged: Callable[[str], Mapping[str, float]] = lambda node: {}
    """Up to which time each place of a node was acknowledged."""
    excused: Dict[str, List[str]] = field(default_factory=dict)
    """Places whose errors turned out to be their job's own, by node."""
    _seen: Dict[str, None] = field(default_factory=dict)
    _failing: Dict[str, str] = field(default_factory=dict)
    _met: List[Met] = field(default_factory=list)

    def look(self) -> Dict[str, Condition]:
        """The nodes to blame for what is new since the last look. Never raises AdapterError."""
        patterns = [re.compile(pattern) for pattern in self.rules.patterns]
        fresh: List[Met] = []
        for namespace in self.rules.namespaces:
            problems: List[str] = []
            try:
                for pod in self.client.items(namespaced(namespace, "pods")):
                    try:
                        fresh += self._read(pod, patterns)
                    except Exception as error:  # an unexpected one must not hide the others
                        problems.append(f"{get(pod, 'metadata', 'name')}: {failure(error)}")
            except AdapterError as error:
                problems.append(str(error))
            self._report(namespace, "; ".join(problems[:3]))
        # Errors of the same job arrive over some time: the last few looks are weighed together.
        nodes = {met.ending.node for met in fresh}
        self._met = (self._met + fresh)[-1000:]
        if not fresh:
            return {}
        self.excused = {}
        for met in of_the_job(self._met, self.rules):
            self.excused.setdefault(met.ending.node, []).append(met.ending.place)
        blamed = blame(self._met, self.rules, self.acknowledged)
        return {node: condition for node, condition in blamed.items() if node in nodes}

    def _report(self, namespace: str, cause: str) -> None:
        """Why pods cannot be looked at, once for each cause, and that they can be again."""
        known = self._failing.get(namespace, "")
        self._failing[namespace] = cause
        if self.warn is not None and cause != known:
            self.warn(f"pods of {namespace}: {cause or 'looked at again'}")

    def _read(self, pod: Mapping[str, Any], patterns: Sequence[re.Pattern[str]]) -> List[Met]:
        errors = []
        for ending in endings(pod):
            if ending.place in self._seen:
                continue
            try:
                log = pod_log(self.client, ending)
            except ApiError as error:
                if error.status in (400, 404):  # the container or its log is gone already
                    self._remember(ending)
                continue
            except AdapterError:
                continue
            self._remember(ending)
            line = find_line(log, patterns)
            if line:
                errors.append(Met(ending, line))
        return errors

    def _remember(self, ending: Ending) -> None:
        self._seen[ending.place] = None
        while len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]


def pod_log(client: Client, ending: Ending) -> str:
    """The end of a container's log. Raises AdapterError."""
    query = {"container": ending.container, "tailLines": str(TAIL), "limitBytes": str(TAIL_BYTES)}
    if ending.previous:
        query["previous"] = "true"
    return client.text(f"{namespaced(ending.namespace, 'pods', ending.pod)}/log", retry=True, **query)
