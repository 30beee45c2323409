"""Kinds of other controllers on a test's plane: the CustomResourceDefinitions that their projects publish.

`tests/kube/published.json` names the modules and their checksums. The descriptions are left out, nothing else is.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
from pathlib import Path
from typing import Any, Dict, Sequence, Set, Tuple

from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from tests.support.kube import WHAT, load
from tests.support.require import missing
from tests.support.waiting import until

SERVED: Set[Tuple[str, str]] = set()
"""What was installed: the server, and the definition's name."""

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def directory() -> Path:
    """Where the published definitions lie; skips (or fails) where they cannot be had."""
    build = load("build")
    try:
        return Path(build.kinds())
    except build.Unavailable as error:
        missing(WHAT, str(error))


@functools.cache
def published(name: str) -> Dict[str, Any]:
    """The definition of a name such as `jobsets.jobset.x-k8s.io`."""
    found: Dict[str, Any] = json.loads((directory() / f"{name}.json").read_text())
    return found


def install(client: Client, definitions: Sequence[Dict[str, Any]]) -> None:
    """Have the API server serve these kinds, unless it was asked before; returns once each is there for clients."""
    wanted = [one for one in definitions if _key(client, one) not in SERVED]
    for one in wanted:
        client.post(DEFINITIONS, one)
    # The server asks for a second's patience while it prepares a kind; all of them take theirs together.
    with concurrent.futures.ThreadPoolExecutor(max(len(wanted), 1)) as threads:
        list(threads.map(lambda one: until(lambda: _is_served(client, one), 60), wanted))
    SERVED.update(_key(client, one) for one in wanted)


def _key(client: Client, one: Dict[str, Any]) -> Tuple[str, str]:
    return client.access.server, str(one["metadata"]["name"])


def remove(client: Client, definitions: Sequence[Dict[str, Any]]) -> None:
    """Take the kinds away, with all objects of them; returns once they are gone."""
    for one in definitions:
        client.delete(f"{DEFINITIONS}/{one['metadata']['name']}")
        SERVED.discard(_key(client, one))
    for one in definitions:
        until(lambda one=one: not _is_there(client, one), 60)  # type: ignore[misc]


def _is_there(client: Client, one: Dict[str, Any]) -> bool:
    with contextlib.suppress(ApiError):
        return bool(client.get(f"{DEFINITIONS}/{one['metadata']['name']}"))
    return False


def _is_served(client: Client, one: Dict[str, Any]) -> bool:
    """It can be listed, and the server names it, which it may do later: clients ask for the names first."""
    spec = one["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    try:
        for version in spec["versions"]:
            path = f"/apis/{group}/{version['name']}"
            client.get(f"{path}/{plural}", limit="1")
            if plural not in {kind["name"] for kind in client.get(path)["resources"]}:
                return False
        return group in {named["name"] for named in client.get("/apis")["groups"]}
    except ApiError as error:
        if error.status != 404:
            raise
        return False
