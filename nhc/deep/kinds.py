"""What a node is called in tables of expected figures: its types as profiles know them, then its processors."""

from __future__ import annotations

from typing import List

from nhc.core.host import Host
from nhc.node.planning import node_type


def kinds(host: Host, ask: bool = True) -> List[str]:
    """Names for this node, the most exact first. `ask` lets a cloud's metadata service be asked, once a boot."""
    known, _new = node_type.known(host, ask)
    return [*known.names, *_processors(host)]


def _processors(host: Host) -> List[str]:
    """`cpu-amd-epyc-9654-96-core-processor-192`: the model, and how many the kernel sees."""
    model, count = "", 0
    try:
        text = host.read("/proc/cpuinfo", 8 << 20)
    except OSError:
        return []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "processor":
            count += 1
        elif name.strip() == "model name" and not model:
            model = value.strip()
    slug = "-".join("".join(char if char.isalnum() else " " for char in model.lower()).split())
    return [f"cpu-{slug}-{count}"] if slug and count else []
