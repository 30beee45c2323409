"""Lustre, as a client sees its servers."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.node.facts import lustre
from nhc.node.facts.mounts import mounts

if TYPE_CHECKING:
    from typing import List

_SERVES = ("FULL", "IDLE")
"""IDLE: a connection that was not needed for a while, and comes back with the first request."""
_GONE = ("DISCONN", "EVICTED")


@check(
    "check_lustre_imports",
    flag("-s --servers", "servers", "ask the servers, too (lfs check servers)"),
    timeout=20,
    samples=("LustreDisconnected", "LustreEvicted"),
)
def check_lustre_imports(host: Host, servers: bool = False) -> Judged:
    """The node is connected to every target of its Lustre file systems.

    Reads the state of each import in /proc/fs/lustre, on newer Lustre in /sys/kernel/debug/lustre: FULL, or IDLE where
    it is not needed now. DISCONN and EVICTED are CRIT when two looks in a row find them, as a server that fails over
    shows them too; what lies between (CONNECTING, REPLAY, RECOVER) is WARN. -s asks with `lfs check servers`, and so
    does a node with a mounted Lustre whose imports cannot be found. A file system that hangs is
    check_mount_responds' to find: this one says which server it waits for. SKIP without Lustre.

    Example: * |every 1m| check_lustre_imports
    """
    found = lustre.imports(host)
    mounted = any(mount.type == "lustre" for mount in mounts(host))
    if not found and not mounted:
        return skip("NoLustre", "no Lustre file system is mounted on this node")
    outcomes: List[Outcome] = [each for one in found for each in _judge(one)]
    if servers or not found:
        outcomes += _asked(host)
    connected = sum(one.state in _SERVES for one in found)
    text = f"{connected} connections to Lustre's targets stand" if found else "every Lustre server answers"
    return outcomes or ok(text, metrics=(Metric("lustre_imports", len(found)),))


def _judge(one: lustre.LustreImport) -> List[Outcome]:
    where = f" (last by {one.server})" if one.server else ""
    if one.unread:
        return [unknown("LustreUnreadable", f"{one.target}: {one.unread}", target=one.target)]
    if one.state in _SERVES:
        return []
    message = f"the connection to {one.target} is {one.state}{where}"
    if one.state in _GONE:
        reason = "LustreEvicted" if one.state == "EVICTED" else "LustreDisconnected"
        return [crit(reason, message, target=one.target, action=Action.INSPECT)]
    return [warn("LustreConnecting", message, target=one.target, action=Action.INSPECT)]


def _asked(host: Host) -> List[Outcome]:
    """What the servers answer."""
    try:
        ended = host.run(["lfs", "check", "servers"], timeout=15)
    except OSError as error:
        return [unknown("LustreUnreadable", f"lfs: {error.strerror}")]
    answers = lustre.parse_servers(f"{ended.stdout}\n{ended.stderr}")
    if ended.timed_out or not answers:
        why = "does not answer within 15 s" if ended.timed_out else ended.complaint
        return [unknown("LustreUnreadable", f"lfs check servers: {why}")]
    return [crit("LustreDisconnected", f"{name} does not answer: {error}", target=name, action=Action.INSPECT)
            for name, error in answers.items() if error]  # fmt: skip
