"""Whom a sweep tests for a job: the nodes that it ran on, and its suspects, in the order that its evidence gives them.

The nodes are those that the job's scheduler still shows, else those that `nhc serve job` last saw it on, else those
that `nhc job watch --store` was given. Kubernetes deletes the pods that still ran when their job failed, and with them
says where they were: there all of these count. The order is what `nhc job watch --store` kept in the audit log.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.matching.node_ranges import expand
from nhc.core.matching.nodeset import BadRange
from nhc.deep.commands.deep_sweep_plan import RefusedSweep
from nhc.jobs.settings import PATH, JobControllerSettings, load
from nhc.jobs.site import open_controller
from nhc.marks.plugins import JOB_CONTROLLERS
from nhc.marks.ports.adapter import AdapterError, SettingError
from nhc.marks.ports.jobs import JobName, JobView
from nhc.store import audit, jobs
from nhc.store.database import Store

FORGETTING = ("kubernetes",)
"""Launchers whose scheduler shows of a failed job only the nodes of the pods that failed."""
WATCHES = 1000
"""Newest results of `nhc job watch` in the audit log among which a job's is looked for."""


class JobSuspicion(NamedTuple):
    """The nodes of a job, the suspects among them, the first to be tested first, and who said which nodes they are."""

    nodes: Tuple[str, ...]
    suspects: Tuple[str, ...]
    source: str


def suspicion(name: str, launcher: str, settings: Mapping[str, str], store: Optional[Store]) -> JobSuspicion:
    """What is known of a job: `17`, `Job/team/llama`. `settings` are the launcher's.

    Raises RefusedSweep where nobody knows its nodes, and AdapterError, StoreError, SettingsError.
    """
    kept = _watched(name, store)
    suspects = tuple(node for node in _suspects(kept) if not node.startswith("rank "))
    view, problem = _asked(name, launcher, settings)
    witnesses = [(launcher, view.nodes if view is not None else ())]
    if not witnesses[0][1] or launcher in FORGETTING:
        witnesses.append(_remembered(name, kept, store, view))
    nodes = tuple(dict.fromkeys(node for _source, each in witnesses for node in each))
    if not nodes:
        if problem is not None:
            raise problem
        where = f"{launcher} shows none" if launcher in JOB_CONTROLLERS.ours else f"{launcher} knows no jobs"
        raise RefusedSweep(f"--job {name}: nobody knows its nodes: {where}, and the store has none; name them with -n")
    source = " and ".join(by for by, each in witnesses if each)
    if problem is not None:
        source += f" ({launcher} could not be asked: {problem})"
    return JobSuspicion(nodes, tuple(node for node in suspects if node in nodes), source)


def _remembered(
    name: str, kept: Mapping[str, object], store: Optional[Store], view: Optional[JobView]
) -> Tuple[str, Tuple[str, ...]]:
    """Who in the store knows the job's nodes, and which: of the object that is shown, not of one of its name before."""
    rows = []
    if store is not None:
        with store.read() as connection:
            rows = jobs.find(connection, name)
    for row in rows:
        if row.nodes and (view is None or row.uid == view.job.uid):
            return "nhc serve job", row.node_names
    return "nhc job watch", _nodes(kept)


def _asked(name: str, launcher: str, settings: Mapping[str, str]) -> Tuple[Optional[JobView], Optional[AdapterError]]:
    """The job as its scheduler shows it, None where it shows none; and why it could not be asked."""
    try:
        return _look_up(name, launcher, settings), None
    except SettingError:
        raise
    except AdapterError as error:
        return None, error


def _look_up(name: str, launcher: str, settings: Mapping[str, str]) -> Optional[JobView]:
    """Raises AdapterError, SettingsError."""
    if launcher not in JOB_CONTROLLERS.ours:
        return None
    *before, last = name.split("/")
    if launcher == "kubernetes" and len(before) != 2:
        return None  # a name alone is one of several in a cluster: the store knows which was watched
    kind, namespace = before if launcher == "kubernetes" else (before[0] if before else "batch", "")
    return open_controller(_controller(launcher, settings)).look(JobName(kind, namespace, last))


def _controller(launcher: str, settings: Mapping[str, str]) -> JobControllerSettings:
    """How jobs.toml reaches the scheduler, else how the launcher does."""
    if os.path.exists(PATH):
        for controller in load(PATH).controllers:
            if controller.type == launcher:
                return controller
    same = {key: settings[key] for key in ("path", "kubeconfig", "context") if key in settings}
    return JobControllerSettings(launcher, launcher, 30.0, same)


def _watched(name: str, store: Optional[Store]) -> Dict[str, Any]:
    """What `nhc job watch` last kept of a job, {} for nothing."""
    if store is None:
        return {}
    with store.read() as connection:
        rows = audit.entries(connection, what="job.suspects", limit=WATCHES, newest=True)
    last = name.rpartition("/")[2]
    for row in reversed(rows):
        detail = json.loads(row.detail)
        if detail.get("job") in (name, last):
            return dict(detail)
    return {}


def _suspects(kept: Mapping[str, Any]) -> List[str]:
    return [str(suspect.get("node", "")) for suspect in kept.get("suspects") or ()]


def _nodes(kept: Mapping[str, object]) -> Tuple[str, ...]:
    try:
        return tuple(expand(str(kept.get("nodes") or "")))
    except BadRange:
        return ()
