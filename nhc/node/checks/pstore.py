"""A kernel that died and left a record."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.timestamps import utc
from nhc.core.units import seconds, show_number, show_seconds
from nhc.node.facts import crashes
from nhc.node.facts.history import first_seen

if TYPE_CHECKING:
    from typing import Tuple

    from nhc.node.facts.crashes import Crash

_MEMORY = "pstore"


@check(
    "check_pstore_panic",
    opt("-f --for", "news", seconds, "how long a record is news after it was first seen (0: until it is removed)",
        86400.0),
    flag("-d --dumps", "dumps", "look at kdump's images in /var/crash too"),
    flag("-c --critical", "critical", "a record that is news is CRIT, not WARN"),
    every=600,
)  # fmt: skip
def check_pstore_panic(host: Host, news: float = 86400.0, dumps: bool = False, critical: bool = False) -> Judged:
    """The kernel has not died lately.

    Reads the records that a panic or an oops left in /sys/fs/pstore, and what systemd-pstore(8) moved from there to
    /var/lib/systemd/pstore; with -d also kdump's /var/crash. The message quotes the kernel's own line about the
    cause. A record is WARN for a day from when nhc first saw it, so that a node which panicked and came back by
    itself is looked at; then it is only counted. Removing the record ends it at once, which is how to acknowledge
    it; it comes from an earlier boot, so a reboot does not. What was seen is remembered in the state directory:
    where that does not last (/run/nhc), a reboot makes old records news again. SKIP where there is no such place;
    UNKNOWN where it may not be read, as without root.

    Example: * |every 10m| check_pstore_panic --for 7d -d
    """
    if not crashes.there(host):
        return skip("NoPstore", "this node has no place where a dying kernel leaves a record")
    try:
        records = crashes.crashes(host) + (crashes.dumps(host) if dumps else ())
    except OSError as error:
        return unknown("NotPermitted", f"{error.filename or crashes.PSTORE}: {error.strerror}")
    now = host.time()
    seen = first_seen(host, _MEMORY, {crash.identity: now for crash in records})
    fresh = [crash for crash in records if not news or now - seen[crash.identity] < news]
    metrics = (Metric("crash_records", len(records)), Metric("crash_records_new", len(fresh)))
    if fresh:
        return [_outcome(crash, critical, metrics) for crash in fresh[-10:]]
    if records:
        message = f"{show_number(len(records), 'record')} of a crash, none first seen within {show_seconds(news)}"
        return ok(message, metrics=metrics)
    return ok("no record of a crash", metrics=metrics)


def _outcome(crash: Crash, critical: bool, metrics: Tuple[Metric, ...]) -> Outcome:
    at = utc(crash.at)
    what = {
        "Panic": "the kernel panicked",
        "Oops": "the kernel met a fault",
        "Dump": "the kernel crashed and was dumped",
    }
    message = f"{what.get(crash.kind, 'the kernel stopped')} before this boot"
    message += f": {crash.cause}" if crash.cause else ""
    message += f" [{at}, {crash.path}]"
    reason = "KernelDumped" if crash.kind == "Dump" else "KernelDied"
    say = crit if critical else warn
    return say(reason, message, target=crash.path, metrics=metrics, action=Action.INSPECT)
