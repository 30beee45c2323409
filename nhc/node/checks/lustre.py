"""Lustre's servers as this client sees them: each target of a file system has an import, and the client shows its
state.

Sources: lustre/obdclass/lprocfs_status.c (lprocfs_import_seq_show) and lustre/include/lustre_import.h of Lustre; the
states are its ptlrpc_import_state_name.
"""

from __future__ import annotations

from nhc.core.check import Judged, check, flag
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.node.facts.mounts import mounts

if TYPE_CHECKING:
    from typing import Dict, List, Tuple

ROOTS = ("/proc/fs/lustre", "/sys/kernel/debug/lustre")
"""Where the imports are: Lustre before 2.11, and since then (root alone may look there)."""
_FIELD = regex(r"(?m)^\s*(state|target|current_connection):\s*\"?([^\s\"]+)")
_SERVERS = regex(r"(?m)^\s*(\S+?):? +(?:(active)\.?|(?:check )?error: *(.+)|(inactive)\.?)\s*$")


class LustreImport(NamedTuple):
    """One connection: its target, and its state (`FULL`, `DISCONN`, `EVICTED`, ...).

    `unread` says why nothing is known of it.
    """

    target: str
    state: str
    server: str = ""
    unread: str = ""


def parse_import(text: str, name: str) -> LustreImport:
    """One `import` file. `name` is its device's, for one that names no target."""
    fields: Dict[str, str] = dict(_FIELD.findall(text))
    target = fields.get("target", name)
    server = fields.get("current_connection", "")
    return LustreImport(target, fields.get("state", ""), server, "" if "state" in fields else "it has no state")


def imports(host: Host) -> Tuple[LustreImport, ...]:
    """The connections of this client, without those that were set inactive (`osc.*.active=0`)."""
    found: Dict[str, LustreImport] = {}
    for root in ROOTS:
        for path in (path for kind in ("mdc", "osc", "mgc") for path in host.glob(f"{root}/{kind}/*/import")):
            name = path.split("/")[-2]
            kind = path.split("/")[-3]
            active = (host.read_or(f"{place}/{kind}/{name}/active") for place in ("/sys/fs/lustre", *ROOTS))
            if "0" in active:
                continue
            text = host.read_or(path)
            why = "" if text else host.why_unread(path) or "it is empty"
            found[name] = LustreImport(name, "", "", why) if why else parse_import(text, name)
    return tuple(found[name] for name in sorted(found))


def parse_servers(text: str) -> Dict[str, str]:
    """What `lfs check servers` says of each connection: "" if it is active, else its error."""
    return {name: "" if active else error or "inactive" for name, active, error, _idle in _SERVERS.findall(text)}


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
    found = imports(host)
    mounted = any(mount.type == "lustre" for mount in mounts(host))
    if not found and not mounted:
        return skip("NoLustre", "no Lustre file system is mounted on this node")
    outcomes: List[Outcome] = [each for one in found for each in _judge(one)]
    if servers or not found:
        outcomes += _asked(host)
    connected = sum(one.state in _SERVES for one in found)
    text = f"{connected} connections to Lustre's targets stand" if found else "every Lustre server answers"
    return outcomes or ok(text, metrics=(Metric("lustre_imports", len(found)),))


def _judge(one: LustreImport) -> List[Outcome]:
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
    answers = parse_servers(f"{ended.stdout}\n{ended.stderr}")
    if ended.timed_out or not answers:
        why = "does not answer within 15 s" if ended.timed_out else ended.complaint
        return [unknown("LustreUnreadable", f"lfs check servers: {why}")]
    return [crit("LustreDisconnected", f"{name} does not answer: {error}", target=name, action=Action.INSPECT)
            for name, error in answers.items() if error]  # fmt: skip
