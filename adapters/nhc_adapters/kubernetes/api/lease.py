"""Leader election through a Lease: at most one controller acts, and it knows when it no longer may.

The protocol is client-go's (tools/leaderelection): a Lease counts as held until it has not changed for its duration as
measured by our own clock, so that no two clocks have to agree. The holder stops acting when it could not renew for
`renew_within`, well before another candidate may take over.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from typing import Any, Callable, Dict, Optional

from nhc.core.timestamps import utc_microseconds
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError

GROUP = "apis/coordination.k8s.io/v1"


def identity() -> str:
    """Who we are among the candidates: the pod's name, and a part that differs after each restart."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class Lease:
    """One candidate for one Lease."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str = "nhc-controller",
        *,
        duration: float = 15.0,
        renew_within: float = 10.0,
        every: float = 4.0,
        holder: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.namespace, self.name = client, namespace, name
        self.duration, self.renew_within, self.every = duration, renew_within, every
        self.holder = holder or identity()
        self._clock = monotonic
        self._seen: Optional[tuple[str, str]] = None
        self._seen_at = 0.0
        self._renewed = float("-inf")
        self._lease: Optional[Dict[str, Any]] = None
        self.other = ""
        """Who holds the Lease, when it is not us."""

    def held(self) -> bool:
        """Whether we may act now."""
        return self._clock() - self._renewed < self.renew_within

    def fresh(self) -> bool:
        """Whether it was renewed so lately that it need not be renewed yet."""
        return self._clock() - self._renewed < self.every

    def attempt(self) -> bool:
        """Take or renew the Lease if that can be done now. Returns whether it is ours; raises AdapterError."""
        # The time before the request: the Lease is ours from when the server wrote it, which is later.
        now = self._clock()
        path = self._path(self.name)
        ours, self._lease = self._lease, None
        # Without reading: the version that we wrote last makes it fail if anybody has written since.
        if ours is not None and self._write(path, dict(ours), self.holder, now):
            return True
        lease = self.client.find(path)
        if lease is None:
            return self._create(now)
        spec = lease.get("spec") or {}
        holder, renewed = str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or "")
        if self._seen != (holder, renewed):
            self._seen, self._seen_at = (holder, renewed), now
        if holder and holder != self.holder:
            length = float(spec.get("leaseDurationSeconds") or self.duration)
            if now - self._seen_at < length:
                self.other = holder
                self._renewed = float("-inf")
                return False
        return self._write(path, lease, holder, now)

    def _write(self, path: str, lease: Dict[str, Any], holder: str, now: float) -> bool:
        """Write the Lease over this version of it. False if another was faster, or it is gone."""
        lease["spec"] = self._spec(lease.get("spec") or {}, holder)
        try:
            self._won(now, self.client.put(path, lease))
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def release(self) -> None:
        """Give it up, so that the next holder need not wait. Best effort."""
        if not self.held():
            return
        self._renewed, self._lease = float("-inf"), None
        path = self._path(self.name)
        try:
            lease = self.client.get(path)
            if (lease.get("spec") or {}).get("holderIdentity") != self.holder:
                return
            lease["spec"].update(holderIdentity="", leaseDurationSeconds=1, renewTime=utc_microseconds(time.time()))
            self.client.put(path, lease)
        except AdapterError:
            return

    def keep(
        self, stop: threading.Event, changed: Callable[[bool], None], report: Callable[[str], None] = lambda cause: None
    ) -> None:
        """Hold the Lease until `stop`; `changed` is called at every gain and loss. For a thread of its own.

        `report` is called after each attempt with why it failed, "" if it did not.
        """
        was = False
        while not stop.is_set():
            try:
                self.attempt()
                report("")
            except AdapterError as error:
                report(str(error))  # held() runs out by itself
            if self.held() != was:
                was = not was
                changed(was)
            stop.wait(self.every)
        self.release()
        if was:
            changed(False)

    def _create(self, now: float) -> bool:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec({}, ""),
        }
        try:
            made = self.client.post(self._path(), body)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        self._won(now, made)
        return True

    def _path(self, name: str = "") -> str:
        return namespaced(self.namespace, "leases", name, GROUP)

    def _won(self, now: float, lease: Dict[str, Any]) -> None:
        self._lease, self._renewed = lease, now
        self._seen, self._seen_at = (self.holder, str((lease.get("spec") or {}).get("renewTime"))), now
        self.other = ""

    def _spec(self, before: Dict[str, Any], holder: str) -> Dict[str, Any]:
        moved = holder != self.holder
        now = utc_microseconds(time.time())
        return {
            **before,
            "holderIdentity": self.holder,
            "leaseDurationSeconds": max(1, round(self.duration)),
            "renewTime": now,
            "acquireTime": now if moved else before.get("acquireTime") or now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (1 if moved and holder else 0),
        }
