"""Whom a sweep tests for a job: the nodes that it ran on, and its suspects, in the order that its evidence gives them.

The nodes are those that the job's scheduler still shows, else those that `nhc job run` last saw it on, else those that
`nhc job watch --store` was given. The order is the one that `nhc job watch --store` kept in the audit log.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.cli.deep_sweep_plan import RefusedSweep
from nhc.job_control import JobName
from nhc.jobs.settings import PATH, JobControllerSettings, load
from nhc.jobs.site import open_controller
from nhc.matching.nodeset import BadRange, expand
from nhc.plugins import JOB_CONTROLLERS
from nhc.store import audit, jobs
from nhc.store.database import Store

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
    nodes, source = _shown(name, launcher, settings), launcher
    if not nodes and store is not None:
        with store.read() as connection:
            rows = jobs.find(connection, name)
        nodes, source = next((row.node_names for row in rows if row.nodes), ()), "nhc job run"
    if not nodes:
        nodes, source = _nodes(kept), "nhc job watch"
    if not nodes:
        where = f"{launcher} shows none" if launcher in JOB_CONTROLLERS else f"{launcher} knows no jobs"
        raise RefusedSweep(f"--job {name}: nobody knows its nodes: {where}, and the store has none; name them with -n")
    return JobSuspicion(nodes, tuple(node for node in suspects if node in nodes), source)


def _shown(name: str, launcher: str, settings: Mapping[str, str]) -> Tuple[str, ...]:
    """The nodes that the job's scheduler shows, () where it shows none. Raises AdapterError, SettingsError."""
    if launcher not in JOB_CONTROLLERS:
        return ()
    *before, last = name.split("/")
    if launcher == "kubernetes" and len(before) != 2:
        return ()  # a name alone is one of several in a cluster: the store knows which was watched
    kind, namespace = before if launcher == "kubernetes" else (before[0] if before else "batch", "")
    found = open_controller(_controller(launcher, settings)).look(JobName(kind, namespace, last))
    return () if found is None else found.nodes


def _controller(launcher: str, settings: Mapping[str, str]) -> JobControllerSettings:
    """How jobs.toml reaches the scheduler, else how the launcher does."""
    if os.path.exists(PATH):
        for one in load(PATH).controllers:
            if one.type == launcher:
                return one
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
    return [str(one.get("node", "")) for one in kept.get("suspects") or ()]


def _nodes(kept: Mapping[str, Any]) -> Tuple[str, ...]:
    try:
        return tuple(expand(str(kept.get("nodes") or "")))
    except BadRange:
        return ()
