"""The Host of the node to judge: this machine, or the node whose root directory is mounted in this container."""

from __future__ import annotations

from nhc.core.host import BadRoot, Host, root_of
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional

    from nhc.core.host import Memory


def live_host(asked: str, memory: Optional[Memory]) -> Host:
    """The node to judge: this machine, unless `asked` or $NHC_ROOT names another root.

    Raises nhc.core.host.BadRoot, whose line says which of the two named it.
    """
    root = root_of(asked)
    if not root:
        return Host(memory=memory)
    from nhc.node.hosts.container import NodeHost

    try:
        return NodeHost(root, memory=memory)
    except BadRoot as error:
        raise BadRoot(f"{'root' if asked else 'NHC_ROOT'} {error}") from None
