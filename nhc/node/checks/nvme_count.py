"""NVMe namespaces: as many as the node should have."""

from __future__ import annotations

import re

from nhc.core.check import arg, check
from nhc.core.host import Host
from nhc.core.model import Metric, Outcome, crit, ok, unknown
from nhc.core.units import whole

_FIRST_NAMESPACE = re.compile(r"nvme\d+n1")


@check("check_nvme_count", arg("count", whole, "how many NVMe drives the node has", required=True), timeout=5)
def check_nvme_count(host: Host, count: int) -> Outcome:
    """The node has all its NVMe drives.

    Counts first namespaces (nvme0n1, nvme1n1 ...) in /sys/class/block, as Azure's check of this name counts
    /dev/nvme*n1. UNKNOWN where sysfs cannot be read.

    Example: nd96isr* || check_nvme_count 8
    """
    try:
        drives = [name for name in host.listdir("/sys/class/block") if _FIRST_NAMESPACE.fullmatch(name)]
    except OSError as error:
        return unknown("Unreadable", f"/sys/class/block: {error.strerror}")
    metrics = (Metric("nvme_count", len(drives)), Metric("nvme_expected", count))
    if len(drives) != count:
        message = f"Expected to see {count} NVMe drives but found {len(drives)}"
        return crit("NvmeCountMismatch", message, metrics=metrics, evidence=tuple(drives))
    return ok(f"{count} NVMe drives", metrics=metrics)
