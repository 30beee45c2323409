"""Every test here may ask for `kube`: its own corner of a real control plane."""

from __future__ import annotations

import json
import sys
from typing import Any, Iterator

import pytest
import yaml

from tests.support.kube import REPOSITORY, kube, plane

__all__ = ["kube", "plane"]

# AWS on loopback needs moto, which has no release for Python 3.9 beside urllib3 2.
collect_ignore = ["test_cloud_labels.py"] if sys.version_info < (3, 10) else []

MANIFESTS = REPOSITORY / "adapters/kubernetes"


@pytest.fixture(scope="session")
def installed(plane: Any) -> Iterator[Any]:
    """The plane with the base installed, for real."""
    rendered = plane.kubectl("kustomize", str(MANIFESTS / "base")).stdout
    # The controller itself is not started: no image can be pulled here, and the tests run it as a process.
    wanted = [doc for doc in yaml.safe_load_all(rendered) if doc["kind"] not in ("Deployment", "PodDisruptionBudget")]
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(_list(wanted)))
    yield plane
    plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", stdin=json.dumps(_list(wanted)))


def _list(items: list[Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}
