"""The gang of a pod, by the pod's own fields, and where the number of the gang's pods is. Pure.

Kubernetes' PodGroups (`schedulingGroup`, 1.36; `workloadRef`, 1.35), Volcano's, Kueue's groups of plain pods, JobSets.
The annotation `nhc/preflight-gang` says the number of pods itself, or is `off`.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple

from nhc.core.json_values import object_of, objects_of, text_of
from nhc_adapters.kubernetes.api.objects import get, texts

GANG = "nhc/preflight-gang"
"""Annotation of a pod: how many pods of its gang take part, or OFF."""
OFF = "off"
AUDIENCE = "nhc-preflight"
"""Whom a pod's token is for."""

_SCHEDULING = ("v1beta1", "v1alpha3", "v1alpha2")
"""Versions in which PodGroups are served: 1.37, and 1.36."""
_MANY = 100_000


class GangName(NamedTuple):
    """A gang. `pods` is how many it has, 0 if an object says it: the first of the API paths `at` that exists.

    `part` is the pod group within that object, "" for all of it.
    """

    key: str
    pods: int = 0
    at: Tuple[str, ...] = ()
    part: str = ""


def gang_of(pod: Mapping[str, Any], namespace: str) -> Optional[GangName]:
    """The gang of a pod, None for one without."""
    metadata, spec = object_of(pod.get("metadata")), object_of(pod.get("spec"))
    annotations, labels = texts(metadata.get("annotations")), texts(metadata.get("labels"))
    asked = annotations.get(GANG, "")
    found = None if asked == OFF else _by_scheduler(spec, annotations, labels, namespace)
    if found is None or not asked:
        return found
    return found._replace(pods=_number(asked), at=())


def _by_scheduler(
    spec: Mapping[str, Any], annotations: Mapping[str, str], labels: Mapping[str, str], namespace: str
) -> Optional[GangName]:
    def at(group: str, versions: Tuple[str, ...], plural: str, name: str) -> Tuple[str, ...]:
        return tuple(f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}" for version in versions)

    name = text_of(get(spec, "schedulingGroup", "podGroupName"))
    if name:
        return GangName(f"{namespace}/podgroup/{name}", at=at("scheduling.k8s.io", _SCHEDULING, "podgroups", name))
    reference = object_of(spec.get("workloadRef"))
    name, part = text_of(reference.get("name")), text_of(reference.get("podGroup"))
    if name:
        replica = text_of(reference.get("podGroupReplicaKey"))
        where = at("scheduling.k8s.io", ("v1alpha1",), "workloads", name)
        return GangName(f"{namespace}/workload/{name}/{part}/{replica}", at=where, part=part)
    name = annotations.get("scheduling.k8s.io/group-name", "")
    if name:
        return GangName(f"{namespace}/volcano/{name}", at=at("scheduling.volcano.sh", ("v1beta1",), "podgroups", name))
    name = labels.get("kueue.x-k8s.io/pod-group-name", "")
    if name:
        return GangName(
            f"{namespace}/kueue/{name}", _number(annotations.get("kueue.x-k8s.io/pod-group-total-count", ""))
        )
    name = labels.get("jobset.sigs.k8s.io/jobset-name", "")
    if name:
        attempt = labels.get("jobset.sigs.k8s.io/restart-attempt", "0")
        where = at("jobset.x-k8s.io", ("v1alpha2",), "jobsets", name)
        return GangName(f"{namespace}/jobset/{name}/{attempt}", at=where)
    return None


def count_in(found: Mapping[str, Any], gang: GangName, takes_part: Callable[[Mapping[str, Any]], bool]) -> int:
    """The pods of a gang by the object that says it, 0 if that says nothing.

    `takes_part` tells for a pod template whether its pods get a preflight: pods of a JobSet without one do not count.
    """
    spec = object_of(found.get("spec"))
    if found.get("kind") == "JobSet":
        return sum(
            _positive(one.get("replicas", 1)) * _positive(get(one, "template", "spec", "parallelism") or 1)
            for one in objects_of(spec.get("replicatedJobs"))
            if takes_part(object_of(get(one, "template", "spec", "template")))
        )
    if found.get("kind") == "Workload":
        groups = [one for one in objects_of(spec.get("podGroups")) if one.get("name") == gang.part]
        return _positive(get(groups[0], "policy", "gang", "minCount")) if groups else 0
    return _positive(spec.get("minMember") or get(spec, "schedulingPolicy", "gang", "minCount"))


def _number(text: str) -> int:
    return min(int(text), _MANY) if text.isdecimal() and len(text) < 9 else 0


def _positive(value: object) -> int:
    return min(value, _MANY) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
