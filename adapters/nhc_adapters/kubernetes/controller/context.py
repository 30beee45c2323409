"""What the controller's rounds work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping

if TYPE_CHECKING:
    from nhc_adapters.kubernetes.api.client import Client
    from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
    from nhc_adapters.kubernetes.controller.settings import ControllerSettings
    from nhc_adapters.kubernetes.nodes.adapter import Kubernetes

AGAIN = 30.0

Log = Callable[[str], None]
Node = Mapping[str, Any]


@dataclass
class RoundContext:
    """`objects` are the nodes as last seen, `allowed` says whether we may act at this moment (the Lease).

    `followed_for` are the seconds since the nodes were not followed: while the API server is away, no agent can report.
    """

    settings: ControllerSettings
    adapter: Kubernetes
    ledger: ClusterLedger
    objects: Mapping[str, Node]
    clock: Callable[[], float]
    log: Log = lambda line: None
    allowed: Callable[[], bool] = lambda: True
    followed_for: Callable[[], float] = lambda: float("inf")
    again: float = AGAIN
    """Seconds after which a blocked change is decided again: a rate has room again, or work has ended."""

    @property
    def client(self) -> Client:
        """Who asks the API server."""
        return self.adapter.client
