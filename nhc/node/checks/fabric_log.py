"""Errors in the log of NVIDIA's fabric manager."""

from __future__ import annotations

import re
import time

from nhc.core.check import check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import seconds, show_seconds, text
from nhc.node.facts.kmsg import boot_time, log_tail

if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Sequence, Tuple

LOGS = ("/var/log/fabricmanager.log", "/var/log/nvidia-fabricmanager.log")
_SETTINGS = ("/usr/share/nvidia/nvswitch/fabricmanager.cfg", "/etc/nvidia/fabricmanager.cfg")
"""The file whose LOG_FILE_NAME sets another log (Fabric Manager guide, "Fabric Manager Startup Options")."""
_TAIL = 1 << 20
_LINE = re.compile(r"\[(\w{3} +\d{1,2} \d{4} \d\d:\d\d:\d\d)\] \[(\w+)\] \[tid \d+\] (.*)")
"""NVIDIA's Fabric Manager guide, "Fabric Manager log"."""


def errors(log: str) -> Iterator[Tuple[Optional[float], str]]:
    """The lines of level ERROR and CRITICAL, each with its Unix time, None if its stamp cannot be read."""
    for line in log.split("\n"):
        match = _LINE.match(line)
        if match and match[2] in ("ERROR", "CRITICAL"):
            try:
                when: Optional[float] = time.mktime(time.strptime(match[1], "%b %d %Y %H:%M:%S"))
            except (ValueError, OverflowError):
                when = None
            yield when, match[3].strip()


def _configured(host: Host) -> List[str]:
    """The log that the fabric manager is configured to write."""
    lines = [line.partition("=") for path in _SETTINGS for line in host.read_or(path).splitlines()]
    return [value.strip() for name, _, value in lines if name.strip() == "LOG_FILE_NAME" and value.strip()[:1] == "/"]


@check(
    "check_fabric_log",
    opt("-w --within", "within", seconds, "how far back lines count", 3600.0),
    flag("-c --critical", "critical", "CRIT, not WARN"),
    rest("logs", text, "the log; where none is given /var/log/fabricmanager.log"),
    timeout=10,
)
def check_fabric_log(host: Host, within: float = 3600.0, critical: bool = False, logs: Sequence[str] = ()) -> Outcome:
    """The fabric manager has logged no error within the last hour.

    Reads the end of /var/log/fabricmanager.log, or of the LOG_FILE_NAME of its configuration: lines of level ERROR and
    CRITICAL of this boot, as of an NVSwitch that does not come up, a trunk link that trains badly, a GPU that is taken
    out of its partition. WARN, -c CRIT. UNKNOWN where a log that was named cannot be read, or its stamps cannot. SKIP
    without such a log.

    Example: *h100* || check_fabric_log
    """
    paths = list(logs) or [path for path in dict.fromkeys((*_configured(host), *LOGS)) if host.exists(path)]
    if not paths:
        return skip("NoFabricLog", "no log of a fabric manager on this node")
    now, since = host.time(), max(host.time() - within, boot_time(host))
    found = []
    for path in paths:
        try:
            size = host.stat(path).size
            found += list(errors(log_tail(host, path, max(0, size - _TAIL), _TAIL)[0]))
        except OSError as error:
            return unknown("LogUnreadable", f"{path} cannot be read: {error.strerror}", target=path)
    recent = [said for when, said in found if when is not None and since <= when <= now + 60]
    metrics = (Metric("fabric_log_errors", len(recent)),)
    if recent:
        message = f"the fabric manager logged {len(recent)} errors within {show_seconds(within)}: {recent[-1][:200]}"
        say = crit if critical else warn
        return say("FabricLogError", message, metrics=metrics, action=Action.INSPECT, evidence=tuple(recent[-10:]))
    if any(when is None for when, _said in found):
        return unknown("LogStampUnknown", f"{paths[0]} has errors whose time cannot be read", target=paths[0])
    return ok(f"the fabric manager logged no error within {show_seconds(within)}", metrics=metrics)
