"""Words that variables of nhc take: what a job can leave behind, and what resource managers are called."""

from __future__ import annotations

PROCESSES, GPU, SHM, TMP = "processes", "gpu", "shm", "tmp"
KINDS = (PROCESSES, GPU, SHM, TMP)
"""What NHC_EPILOG_FIND and its kin name."""

INSTEAD = {
    "kubernetes": "no hook marks a Kubernetes node: the agent does, with [sinks.kubernetes] in agent.toml, or "
    "`nhc kubernetes publish` (docs/kubernetes.md)"
}
"""Adapters that a hook cannot use, and what to use in their place. Their names are no resource managers of a node."""
