"""What the kinds of jobs in Kubernetes have in common, and how they differ: where each is suspended, how it ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.ports.jobs import Phase

WISH = "nhc/restart"
"""Annotation of a job's user: restart it after infrastructure faults, at most so often ("3"; "" or "true": the site's
number)."""
CHECKPOINT = "nhc/checkpoint"
MAIL = "nhc/mail"
"""Annotation of a job's user, on its pods: where they are written to about why the job failed."""
NUMBER = "nhc/restarts"
"""Annotation of ours: the number of our newest restart."""
HELD = "nhc/held"
"""Annotation of ours, while we hold it: why."""
AVOIDS = "nhc/avoids"
"""Annotation of ours: the nodes that we have put into its affinity, so that they, and nothing else, are taken out."""
RELEASED = "nhc/released"
"""Annotation of ours: when we let it start (Unix seconds). Pods that were lost before belong to an older run."""
NOTE = "nhc/note"

HYPERPOD = "sagemaker.amazonaws.com/enable-job-auto-resume"

Path = Tuple[str, ...]
Object = Mapping[str, Any]


class JobEnding(NamedTuple):
    """How a job ended, by its own status. `limit`: by a limit of its own."""

    phase: Phase
    at: Optional[float]
    detail: str
    limit: bool = False


class JobKind(NamedTuple):
    """One kind. `api` is its group's path (`apis/batch/v1`); `suspend` where its switch is, () where it has none.

    `selector` finds the pods of a job by its name; `templates` are the pod templates in its spec. `affinity` says that
    these may be changed while it is suspended. `gang`: its pods are worth nothing without one another.
    """

    kind: str
    api: str
    plural: str
    suspend: Path
    selector: Callable[[Object], str]
    templates: Callable[[Object], List[Path]]
    ending: Callable[[Object], Optional[JobEnding]]
    counter: Callable[[Object], str]
    pods: Callable[[Object], int]
    affinity: bool
    gang: bool
    clear_start: bool = False
    """Its scheduling can be changed only once its status has no start time (`batch/v1`)."""
    child_jobs: bool = False
    """It runs as the Jobs of a JobSet of its name, whose scheduling can be changed in its stead."""


def get(value: object, *path: str) -> Any:
    """The value at a path of nested objects, None where it is missing."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def name_of(value: Object) -> str:
    return str(get(value, "metadata", "name") or "")


def notes_of(value: Object) -> Dict[str, str]:
    """Its annotations."""
    annotations = get(value, "metadata", "annotations")
    return {str(key): str(text) for key, text in annotations.items()} if isinstance(annotations, Mapping) else {}


def conditions_of(value: Object) -> Dict[str, Mapping[str, Any]]:
    """Its conditions that are true, by type."""
    conditions = get(value, "status", "conditions")
    rows = conditions if isinstance(conditions, list) else []
    return {str(row.get("type")): row for row in rows if isinstance(row, Mapping) and row.get("status") == "True"}


def by_conditions(good: Sequence[str], bad: Sequence[str]) -> Callable[[Object], Optional[JobEnding]]:
    """The ending of a kind that says it in conditions of these types."""

    def ending(value: Object) -> Optional[JobEnding]:
        conditions = conditions_of(value)
        for kind in bad:
            if kind in conditions:
                reason = str(conditions[kind].get("reason") or "")
                text = ": ".join(part for part in (reason, str(conditions[kind].get("message") or "")) if part)
                limit = "deadline" in reason.lower()
                return JobEnding(Phase.FAILED, moment(conditions[kind].get("lastTransitionTime")), text or kind, limit)
        for kind in good:
            if kind in conditions:
                return JobEnding(Phase.SUCCEEDED, moment(conditions[kind].get("lastTransitionTime")), "")
        return None

    return ending


def replica_templates(*path: str) -> Callable[[Object], List[Path]]:
    """The templates of a kind that has a table of replica specs at this path."""

    def templates(value: Object) -> List[Path]:
        replicas = get(value, *path)
        return [(*path, str(role), "template") for role in replicas] if isinstance(replicas, Mapping) else []

    return templates


def replica_pods(*path: str) -> Callable[[Object], int]:
    """How many pods such a kind wants."""

    def pods(value: Object) -> int:
        table = get(value, *path)
        return sum(count(get(row, "replicas"), 1) for row in table.values()) if isinstance(table, Mapping) else 0

    return pods


def labelled(label: str) -> Callable[[Object], str]:
    """A selector of pods that carry their job's name in a label."""
    return lambda value: f"{label}={name_of(value)}"


def count(value: object, default: int = 0) -> int:
    """A whole number of an object, the default where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def moment(text: object) -> Optional[float]:
    """A time of the API as Unix seconds; None for what is none."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
