"""The client against a real API server: requests, pages, watches, credentials."""

from __future__ import annotations

import threading

import pytest

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from tests.support.kube import Kube
from tests.support.waiting import until


def test_what_is_created_can_be_read_patched_and_deleted(kube: Kube) -> None:
    node = kube.node()

    changed = kube.admin.patch(node_path(node), {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)

    assert changed["metadata"]["labels"]["a"] == "b"
    kube.admin.delete(node_path(node))
    with pytest.raises(ApiError) as caught:
        kube.admin.get(node_path(node))
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")


def test_a_collection_longer_than_a_page_comes_whole(kube: Kube) -> None:
    names = {kube.node(f"n{number}", fake=False) for number in range(7)}

    found = kube.admin.items("/api/v1/nodes", limit="3", labelSelector=f"test={kube.prefix}")

    assert {node["metadata"]["name"] for node in found} == names


def test_a_watch_tells_what_happens_from_the_version_on(kube: Kube) -> None:
    first = kube.node("before", fake=False)
    page = next(kube.admin.pages("/api/v1/nodes", labelSelector=f"test={kube.prefix}"))
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        version = page["metadata"]["resourceVersion"]
        for event in kube.admin.watch("/api/v1/nodes", version, labelSelector=f"test={kube.prefix}"):
            if event.kind != "MODIFIED":  # controllers add an annotation of theirs
                seen.append((event.kind, event.object["metadata"].get("name", "")))
            if event.kind == "DELETED":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    second = kube.node("after", fake=False)
    kube.admin.delete(node_path(first))
    thread.join(60)

    assert seen == [("ADDED", second), ("DELETED", first)]


def test_a_token_that_the_server_refuses_is_asked_for_anew_once(kube: Kube) -> None:
    good = kube.token("default", kube.namespace)
    client = kube.client("stale")
    handed = ["Bearer stale", f"Bearer {good}"]
    client.access.credentials.header = lambda: handed[0]  # type: ignore[union-attr, method-assign]
    client.access.credentials.forget = lambda: handed.pop(0) and None  # type: ignore[union-attr, method-assign]

    with pytest.raises(ApiError) as caught:
        client.get(namespaced(kube.namespace, "pods"))

    # Who we are is known now; what this account may do is another matter.
    assert caught.value.status == 403
    until(lambda: handed == [f"Bearer {good}"])
