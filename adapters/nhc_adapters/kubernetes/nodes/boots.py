"""In which boot of its node a condition was written. A node's object has a boot id, conditions have none."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple

from nhc_adapters.kubernetes.api.objects import get


def boot_id(node: Mapping[str, Any]) -> str:
    """The boot id that a node's kubelet has read, "" if it gives none."""
    return str(get(node, "status", "nodeInfo", "bootID") or "")


def booted_since(node: Mapping[str, Any], boot: str) -> bool:
    """Whether a node is in another boot than this one, as far as both are known."""
    now = boot_id(node)
    return bool(boot and now) and boot != now


class _Boot(NamedTuple):
    """A boot id, and when (Unix time) the node was first seen to have it."""

    name: str
    since: float


class BootsSeen:
    """The boot id of each node as it was read last. A reader that starts now has seen no boot begin."""

    def __init__(self) -> None:
        self._seen: Dict[str, _Boot] = {}

    def of(self, node: str, boot: str, at: float, now: float) -> str:
        """The boot in which a condition was written at `at`, on a node whose boot is `boot` now; "" if it may have
        been the one before.
        """
        before = self._seen.get(node)
        if before is None or before.name != boot:
            before = self._seen[node] = _Boot(boot, now)
        return boot if at > before.since else ""
