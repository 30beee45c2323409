"""Lustre's connections from a client's side: each target of a file system has an import, whose state the client shows.

Sources: lustre/obdclass/lprocfs_status.c (lprocfs_import_seq_show) and lustre/include/lustre_import.h of Lustre; the
states are its ptlrpc_import_state_name.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import Dict, Tuple

ROOTS = ("/proc/fs/lustre", "/sys/kernel/debug/lustre")
"""Where the imports are: Lustre before 2.11, and since then (root alone may look there)."""
_FIELD = regex(r"(?m)^\s*(state|target|current_connection):\s*\"?([^\s\"]+)")
_SERVERS = regex(r"(?m)^\s*(\S+?):? +(?:(active)\.?|(?:check )?error: *(.+)|(inactive)\.?)\s*$")


class LustreImport(NamedTuple):
    """One connection: the target that it leads to, and its state (`FULL`, `DISCONN`, `EVICTED`, ...).

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
    """The connections of this client. One that somebody has set inactive (`osc.*.active=0`) is left out."""
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
    """What `lfs check servers` says of each connection: "" where it is active, else its error."""
    return {name: "" if active else error or "inactive" for name, active, error, _idle in _SERVERS.findall(text)}
