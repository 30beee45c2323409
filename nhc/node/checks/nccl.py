"""No setting overrides what NCCL chooses best by itself."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import ok, unknown, warn
from nhc.core.units import text

if TYPE_CHECKING:
    from typing import Dict, Sequence

LEFT_ALONE = ("NCCL_ALGO", "NCCL_MIN_NCHANNELS", "NCCL_PROTO")
"""What NCCL's documentation warns of setting in production; ClusterMAX's criteria name the same."""


def parse(content: str) -> Dict[str, str]:
    """The settings of an nccl.conf: lines NAME=VALUE, `#` begins a comment, the first of a name counts."""
    settings: Dict[str, str] = {}
    for line in content.splitlines():
        name, equals, value = line.partition("#")[0].partition("=")
        if equals and name.strip():
            settings.setdefault(name.strip(), value.strip())
    return settings


@check(
    "check_nccl_conf",
    opt("-f --file", "file", text, "the configuration file", "/etc/nccl.conf"),
    rest("names", text, "variables that it must not set (default: NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS)"),
)
def check_nccl_conf(host: Host, names: Sequence[str] = (), file: str = "/etc/nccl.conf") -> Judged:
    """The node's nccl.conf leaves to NCCL what it tunes by itself.

    Reads /etc/nccl.conf, which holds for every job. Algorithm, protocol and number of channels that are right for one
    size of message and one version are wrong for others: set there, they are WARN. A topology file that it names
    (NCCL_TOPO_FILE) and that is not there is WARN too: NCCL goes on without it.

    Example: *gpu* |every 1d| check_nccl_conf
    """
    try:
        settings = parse(host.read(file, 1 << 20))
    except FileNotFoundError:
        return ok(f"there is no {file}")
    except OSError as error:
        return unknown("Unreadable", f"{file}: {error.strerror}")
    outcomes = [
        warn("NcclOverride", f"{file} sets {name}={settings[name]} for every job", target=name)
        for name in (names or LEFT_ALONE)
        if name in settings
    ]
    topology = settings.get("NCCL_TOPO_FILE", "")
    if topology and not host.exists(topology):
        outcomes.append(warn("NcclTopologyMissing", f"{file} names {topology}, which is not there", target=topology))
    return outcomes or ok(f"{file} sets none of what NCCL tunes by itself")
