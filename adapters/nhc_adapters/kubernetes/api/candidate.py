"""A Kubernetes Lease that decides who leads a store (`nhc.store.rounds.leader.Candidate`).

A round of the loop takes longer than a Lease lasts, so a thread of its own renews it. A process that has lost the
Lease writes nothing more once another has begun: each write carries the leader's number in the store.
"""

from __future__ import annotations

import threading
from typing import NamedTuple, Optional, Sequence

from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Right
from nhc_adapters.kubernetes.api import access
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.api.rights import of_lease, tried

FIRST = 10.0
"""Seconds to wait for the first answer of the API server."""


@declared.settings
class LeaseSettings(NamedTuple):
    """The table [leader] of remedy.toml, by = "kubernetes"."""

    namespace: str = declared.text("namespace", "", "default: the pod's own")
    name: str = declared.text("name", "nhc-remedy", "the Lease's name")
    cluster: access.ClusterSettings = declared.part("", access.ClusterSettings)


class LeaseCandidate:
    """One of the processes that may hold a Lease."""

    SETTINGS = LeaseSettings

    def __init__(self, settings: Given = None, environ: Given = None) -> None:
        own = read(LeaseSettings, settings, "leader")
        cluster = own.cluster.find(environ)
        self._client = Client(cluster, retry_for=0.0, connections=1, read_timeout=5.0, agent="nhc-remedy")
        self.lease = Lease(self._client, own.namespace or cluster.namespace, own.name)
        self._stop, self._asked = threading.Event(), threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._cause = ""

    def attempt(self) -> bool:
        """Take the Lease or keep it. Raises AdapterError while the API server cannot be asked."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._renew, name="nhc-lease", daemon=True)
            self._thread.start()
        self._asked.wait(FIRST)
        if self.lease.held():
            return True
        if self._cause:
            raise AdapterError(f"the Lease {self.lease.namespace}/{self.lease.name}: {self._cause}")
        return False

    def held(self) -> bool:
        """Whether it was renewed lately, by our own clock."""
        return self.lease.held()

    def release(self) -> None:
        """Give it up, so that the next need not wait."""
        thread, self._thread = self._thread, None
        self._stop.set()
        if thread is not None:
            thread.join(FIRST)
        self._client.close()

    def rights(self) -> Sequence[Right]:
        """What it takes to lead; as `nhc.marks.ports.repair.HasRights`. Raises AdapterError."""
        return tried(self._client, of_lease(self.lease.namespace, self.lease.name, "this loop"))

    def _renew(self) -> None:
        self.lease.keep(self._stop, lambda _held: None, self._report)

    def _report(self, cause: str) -> None:
        self._cause = cause
        self._asked.set()
