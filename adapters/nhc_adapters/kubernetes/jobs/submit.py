"""Jobs in Kubernetes as they are submitted, so that infrastructure faults do not eat their users' retries. Pure.

A pod that is taken away with its node carries the condition DisruptionTarget. A Job ignores such a pod by a rule of its
podFailurePolicy; a JobSet fails the Job by such a rule, and restarts itself without counting by a rule of its own.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import Wish
from nhc_adapters.kubernetes.api.objects import get
from nhc_adapters.kubernetes.jobs.kinds import CHECKPOINT, WISH, JobKind
from nhc_adapters.kubernetes.jobs.placement import at

DISRUPTED = [{"type": "DisruptionTarget"}]
RULE = "nhcInfrastructure"
VARIABLE = "NHC_CHECKPOINT"


def wished(document: Mapping[str, object], kind: JobKind, wish: Optional[Wish]) -> Dict[str, Any]:
    """The job with what was wished for, if anything: our annotations, the checkpoint in its containers, rules for
    disruptions.

    Raises AdapterError for a job that is no such thing.
    """
    job: Dict[str, Any] = dict(document)
    if not isinstance(job.get("spec"), dict) or not get(job, "metadata", "name"):
        raise AdapterError(f"the {kind.kind} has no metadata.name or no spec")
    if wish is None:
        return job
    notes = job["metadata"].setdefault("annotations", {})
    notes[WISH] = "" if wish.max_restarts is None else str(wish.max_restarts)
    if wish.checkpoint:
        notes[CHECKPOINT] = wish.checkpoint
        _pass_on(job, kind, wish.checkpoint)
    if kind.kind in RULES:
        RULES[kind.kind](job)
    return job


def _pass_on(job: Dict[str, Any], kind: JobKind, checkpoint: str) -> None:
    variable = {"name": VARIABLE, "value": checkpoint}
    if kind.kind == "TrainJob":
        _set(job["spec"].setdefault("trainer", {}).setdefault("env", []), variable)
    for path in kind.templates(job):
        for container in get(at(job, path), "spec", "containers") or ():
            _set(container.setdefault("env", []), variable)


def _set(variables: List[Dict[str, Any]], variable: Dict[str, Any]) -> None:
    if all(other.get("name") != variable["name"] for other in variables):
        variables.append(variable)


def _job(job: Dict[str, Any]) -> None:
    """Disrupted pods count against no backoffLimit. The API takes such rules only where pods are never restarted."""
    if get(job, "spec", "template", "spec", "restartPolicy") == "Never":
        _first(job["spec"], {"action": "Ignore", "onPodConditions": DISRUPTED})


def _jobset(job: Dict[str, Any]) -> None:
    changed = False
    for row in get(job, "spec", "replicatedJobs") or ():
        inner = get(row, "template", "spec") or {}
        if get(inner, "template", "spec", "restartPolicy") == "Never":
            _first(inner, {"action": "FailJob", "onPodConditions": DISRUPTED})
            changed = True
    rules: List[Dict[str, Any]] = job["spec"].setdefault("failurePolicy", {}).setdefault("rules", []) if changed else []
    if changed and all(rule.get("name") != RULE for rule in rules):
        action = {
            "name": RULE,
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        }
        rules.insert(0, action)


def _first(spec: Dict[str, Any], rule: Dict[str, Any]) -> None:
    rules: List[Dict[str, Any]] = spec.setdefault("podFailurePolicy", {}).setdefault("rules", [])
    if all(other.get("onPodConditions") != DISRUPTED for other in rules):
        rules.insert(0, rule)


RULES: Mapping[str, Callable[[Dict[str, Any]], None]] = {"Job": _job, "JobSet": _jobset}


def kind_of(document: object, kinds: Mapping[str, JobKind]) -> Optional[JobKind]:
    """The kind of a document, None for one that is no job."""
    version, name = str(get(document, "apiVersion") or ""), str(get(document, "kind") or "")
    return next((kind for kind in kinds.values() if kind.api == f"apis/{version}" and name == kind.name), None)
