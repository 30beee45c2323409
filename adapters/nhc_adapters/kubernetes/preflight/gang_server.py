"""The pods of a gang meet at the webhook's server. Each pod proves itself by its token; the API server gives the rest.

A pod can only report the result of a test that it was told to run. Its identity, node, gang and the gang's size are
read from the cluster. A pod whose preflight was changed is refused, as in the controller.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from nhc.core.json_values import object_from, object_of, objects_of, text_of, texts_of
from nhc.core.model import printable
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.gangs import GangMember, Gangs
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.objects import get, texts
from nhc_adapters.kubernetes.preflight.gang_names import AUDIENCE, count_in, gang_of
from nhc_adapters.kubernetes.preflight.webhook import (
    CONTAINER,
    PREFLIGHT,
    PreflightSettings,
    accelerators_of,
    altered,
    in_no_gang,
    preflight_of,
)

KNOWN_FOR = 30.0
"""Seconds for which a pod is known by its token: then the API server is asked again."""
MOST_KNOWN = 20_000


class PodRefused(Exception):
    """Why a pod is refused, with the HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class GangServer:
    """Answers the pods of gangs. Safe to use from several threads."""

    client: Client
    gangs: Gangs
    clock: Callable[[], float] = time.monotonic
    _known: Dict[bytes, Tuple[GangMember, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, authorization: str, body: bytes, settings: PreflightSettings) -> Dict[str, Any]:
        """What a pod is to do. Raises PodRefused."""
        scheme, _blank, token = authorization.partition(" ")
        if not settings.gang.command:
            raise PodRefused(404, "there are no gangs")
        if scheme != "Bearer" or not token:
            raise PodRefused(401, "expected a pod's token")
        try:
            said = object_from(body)
        except ValueError as error:
            raise PodRefused(400, str(error)) from None
        member = self._member(token, settings)
        return self.gangs.step(member, settings.gang.rules(), said)

    def _member(self, token: str, settings: PreflightSettings) -> GangMember:
        key, now = hashlib.sha256(token.encode()).digest(), self.clock()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now < known[1]:
            return known[0]
        try:
            member = self._read(token, settings)
        except AdapterError as error:
            raise PodRefused(503, printable(f"the API server: {error}", 200)) from None
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known = {one: held for one, held in self._known.items() if now < held[1]}
            self._known[key] = member, now + KNOWN_FOR
        return member

    def _read(self, token: str, settings: PreflightSettings) -> GangMember:
        """The pod of a token. Raises PodRefused, AdapterError."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                "spec": {"token": token, "audiences": [AUDIENCE]}}  # fmt: skip
        status = object_of(self.client.post("/apis/authentication.k8s.io/v1/tokenreviews", body).get("status"))
        extra = object_of(get(status, "user", "extra"))
        user = text_of(get(status, "user", "username")).split(":")
        name, uid = (
            "".join(texts_of(extra.get(f"authentication.kubernetes.io/pod-{what}"))) for what in ("name", "uid")
        )
        if status.get("authenticated") is not True or AUDIENCE not in texts_of(status.get("audiences")):
            raise PodRefused(401, "the token is nobody's")
        if len(user) != 4 or user[:2] != ["system", "serviceaccount"] or not name or not uid:
            raise PodRefused(403, "the token is no pod's")
        namespace = user[2]
        pod = self.client.find(namespaced(namespace, "pods", name))
        if pod is None or get(pod, "metadata", "uid") != uid:
            raise PodRefused(403, "there is no such pod")
        why = _not_believed(pod, settings)
        if why:
            raise PodRefused(403, why)
        gang = gang_of(pod, namespace)
        assert gang is not None  # altered() has seen it
        node, address = text_of(get(pod, "spec", "nodeName")), text_of(get(pod, "status", "podIP"))
        if not node or not address:
            raise PodRefused(503, "the pod has no address yet")
        count = gang.pods
        for path in gang.at:
            found = self.client.find(path)
            if found is not None:
                count = count_in(found, gang, lambda template: bool(preflight_of(template, settings).suite))
                break
        if count < 2:
            raise PodRefused(
                403, f"how many pods the gang {gang.key} has is not known, or it is one: set nhc/preflight-gang"
            )
        host = node if get(pod, "spec", "hostNetwork") else text_of(get(pod, "spec", "hostname")) or name
        return GangMember(gang.key, count, uid, name, node, address, host, accelerators_of(pod))


def _not_believed(pod: Mapping[str, Any], settings: PreflightSettings) -> str:
    """Why a pod is no gang's pod whose preflight runs now, "" if it is one."""
    if PREFLIGHT not in texts(get(pod, "metadata", "labels")):
        return "it has no preflight"
    changed = altered(pod, settings)
    if changed:
        return f"its preflight is not the webhook's: {printable(changed, 80)}"
    own = [one for one in objects_of(get(pod, "status", "initContainerStatuses")) if one.get("name") == CONTAINER]
    if not own or get(own[0], "state", "running") is None:
        return "its preflight does not run"
    if not any(one.get("name") == "NHC_GANG_SERVER" for one in _environment(pod)):
        return "it is of no gang"
    return in_no_gang(pod)


def _environment(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    containers = objects_of(get(pod, "spec", "initContainers"))
    found = next((one for one in containers if one.get("name") == CONTAINER), {})
    return objects_of(found.get("env"))
