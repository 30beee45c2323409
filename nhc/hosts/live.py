"""The Host of the node to judge: this machine, or the node whose root directory is mounted in this container."""

from __future__ import annotations

import os

from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional

    from nhc.host import Host, Memory


def root_of(asked: str) -> str:
    """Where the root of the node to judge is: as asked, else $NHC_ROOT; "" for this process's own."""
    found = (asked or os.environ.get("NHC_ROOT", "")).rstrip("/")
    return os.path.abspath(found) if found else ""


def live_host(asked: str, memory: Optional[Memory]) -> Host:
    """The node to judge: this machine, unless `asked` or $NHC_ROOT names another root.

    Raises nhc.host.BadRoot, whose line says which of the two named it.
    """
    root = root_of(asked)
    if not root:
        from nhc.host import Host

        return Host(memory=memory)
    from nhc.host import BadRoot
    from nhc.hosts.container import NodeHost

    try:
        return NodeHost(root, memory=memory)
    except BadRoot as error:
        raise BadRoot(f"{'root' if asked else 'NHC_ROOT'} {error}") from None
