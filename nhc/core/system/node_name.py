"""What this node is called: the one place that decides it, for every door. Pure.

Two names. By the target name a configuration's targets are matched; it is the host name, as LBNL NHC has it, which a
site may set (HOSTNAME in /etc/default/nhc). By the scheduler's name a node is asked for and marked.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Mapping


def target_name(environ: Mapping[str, str], settings: Mapping[str, str], hostname: str) -> str:
    """What the configuration's targets are matched against. `hostname` is the kernel's.

    Where slurmd calls the node otherwise than its host (several slurmd share it), it is the node's name: HOSTNAME in
    the site's settings is the host's.
    """
    own = settings.get("HOSTNAME") or hostname
    node = environ.get("SLURMD_NODENAME", "")
    return own if not node or node in _names_of(own, hostname) else node


def scheduler_name(
    environ: Mapping[str, str], settings: Mapping[str, str], hostname: str, read: Callable[[str], str]
) -> str:
    """What the scheduler calls this node. `read` gives a file's text, "" for none.

    slurmd sets SLURMD_NODENAME for all its hooks; several slurmd may share a host, so nothing outranks it.
    Else NHC_NODE_NAME, else NHC_NODE_MAP (`host=name host2=name2`, or a file with such pairs), else the host's
    short name.
    """
    name = environ.get("SLURMD_NODENAME") or settings.get("NHC_NODE_NAME") or environ.get("NHC_NODE_NAME")
    if name:
        return name
    own = settings.get("HOSTNAME") or hostname
    hosts = _names_of(own, hostname)
    pairs = settings.get("NHC_NODE_MAP") or environ.get("NHC_NODE_MAP", "")
    if pairs.startswith("/"):
        pairs = read(pairs)
    for line in pairs.splitlines():
        for pair in line.partition("#")[0].split():
            host, equals, name = pair.partition("=")
            if equals and host in hosts:
                return name
    return own.partition(".")[0]


def _names_of(own: str, hostname: str) -> tuple[str, str, str, str]:
    return own, own.partition(".")[0], hostname, hostname.partition(".")[0]
