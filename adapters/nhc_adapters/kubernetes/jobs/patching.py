"""Changes of a job's object, each one patch under the version that was read."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, Mapping, Optional

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.objects import Object, get, name_of
from nhc_adapters.kubernetes.jobs.kinds import JobKind


def path_of(kind: JobKind, job: Object) -> str:
    """Where the object is."""
    return namespaced(str(get(job, "metadata", "namespace")), kind.plural, name_of(job), kind.api)


def change(client: Client, kind: JobKind, job: Object, make: Callable[[Dict[str, Any]], None]) -> None:
    """One patch of spec and annotations; built anew where somebody wrote first. Raises ApiError, Unreachable."""

    def plan(seen: Object) -> List[Dict[str, Any]]:
        now: Dict[str, Any] = copy.deepcopy(dict(seen))
        make(now)
        meta = now["metadata"]
        return [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "replace", "path": "/spec", "value": now["spec"]},
            {"op": "add", "path": "/metadata/annotations", "value": meta.get("annotations", {})},
        ]

    client.change(path_of(kind, job), plan, job)


def annotate(client: Client, kind: JobKind, job: Object, notes: Mapping[str, Optional[str]]) -> None:
    """Set annotations, and take away those that are None. Raises ApiError, Unreachable."""
    client.patch(path_of(kind, job), {"metadata": {"annotations": dict(notes)}}, MERGE_PATCH)
