"""GKE itself repairs a node that has a label for it: the labels, their progress, and their claims. Pure.

It needs a patch of the node and no credentials of Google's. GKE evicts (respecting disruption budgets), taints, calls
the API, waits, and takes the label off again [Google, "Manage AI-optimized GKE clusters"; from 1.32.3-gke.1057001 on].
"""

from __future__ import annotations

from typing import List, Mapping

from nhc.marks.ports.repair import Claim, Progress, Rung, Stage

PREFIX = "cloud.google.com/"
NODE_POOL = f"{PREFIX}gke-nodepool"
FAULT = f"{PREFIX}fault-behavior"
REBOOT = f"{PREFIX}perform-reboot"
MAINTENANCE = f"{PREFIX}perform-maintenance"
STATUS = f"{PREFIX}report-and-replace-status"
SCHEDULED = f"{PREFIX}scheduled-maintenance-time"
ACTIVE = f"{PREFIX}active-node-maintenance"

_WORDS = {"SILENT_DATA_CORRUPTION": "SDC", "PERFORMANCE": "PERFORMANCE", "UNRECOVERABLE_GPU_ERROR": "XID"}


def wanted(rung: Rung, behavior: str) -> Mapping[str, str]:
    """The labels that ask for a repair, {} if none does."""
    if rung is Rung.REBOOT:
        return {REBOOT: "true"}
    if rung is Rung.REPLACE:
        return {FAULT: _WORDS.get(behavior, "unspecified")}
    return {}


def progress(labels: Mapping[str, str], asked: Mapping[str, str]) -> Progress:
    """What GKE says of its progress. It never says DONE: the instance's own start shows that."""
    status = labels.get(STATUS, "")
    if status.lower() == "error":  # spelled Error and ERROR
        return Progress(Stage.FAILED, "GKE says Error: set the label again to retry")
    if any(key in labels for key in asked):
        return Progress(Stage.WORKING, f"GKE: {status or 'has not begun'}")
    return Progress(Stage.WORKING, f"GKE: {status or 'the label is taken off'}")


def claims(labels: Mapping[str, str], auto_repair: bool) -> List[Claim]:
    """What GKE does to a node, or has announced."""
    announced: List[Claim] = []
    for key, doing in ((FAULT, "reports and replaces its host"), (REBOOT, "reboots it"), (MAINTENANCE, "maintains it")):
        if labels.get(key):
            announced.append(Claim("gke", doing, f"label {key}={labels[key]}"))
    if labels.get(ACTIVE, "").lower() not in ("", "false"):
        announced.append(Claim("gke", "maintenance is under way", f"label {ACTIVE}={labels[ACTIVE]}"))
    if labels.get(SCHEDULED):
        announced.append(Claim("gke", f"maintenance is scheduled for {labels[SCHEDULED]}", f"label {SCHEDULED}"))
    if auto_repair and NODE_POOL in labels:
        announced.append(
            Claim("gke-auto-repair", "recreates nodes that are not ready", "repairers.google.gke-auto-repair")
        )
    return announced
