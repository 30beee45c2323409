"""nhc taken off a cluster to the letter of its page: nothing of it stays, and what others did stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nhc.marks.ports.adapter import REMEDY_OWNER, Mark
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.known_types import bad_statuses
from tests.support.documents import blocks
from tests.support.kube import REPOSITORY, Kube, environment, started

pytestmark = pytest.mark.slow
PAGE = REPOSITORY / "docs/kubernetes.md"


def told() -> str:
    """The commands of the page's last part."""
    heading = PAGE.read_text().splitlines().index("## Taking nhc off a cluster")
    (block,) = [block for block in blocks(PAGE) if block.line > heading]
    return block.text


def test_nothing_of_nhc_stays_on_a_cluster_that_it_is_taken_off(tmp_path: Path) -> None:
    with started(tmp_path / "plane") as plane:
        kube = Kube(plane, None, "t", "default")  # type: ignore[arg-type]
        kube.admin = kube.client(plane.token)
        marked, remedied, released, theirs, held = (
            kube.node(name) for name in ("marked", "remedied", "released", "theirs", "held")
        )
        for node in kube.nodes:
            kube.set_condition(node, "NhcHealthy", "False", "Xid79")
            kube.set_condition(node, "NhcGpuProblem", "True", "Xid79")
        adapter = Kubernetes(kube.admin)
        adapter.mark({name: Mark("x") for name in (marked, released, held)})
        adapter.release([released], bad_statuses(()), 1.0, "alice")
        adapter.owner = REMEDY_OWNER
        adapter.mark({remedied: Mark("x")})
        shown = {
            "labels": {"nhc/remedy": "escalated"},
            "annotations": {"nhc/remedy": "episode 1", "nhc/answered": "no"},
        }
        kube.admin.patch(node_path(remedied), {"metadata": shown}, MERGE_PATCH)
        kube.admin.patch(node_path(held), {"metadata": {"annotations": {"nhc/hold": "test"}}}, MERGE_PATCH)
        plane.kubectl("cordon", theirs)
        install(plane, tmp_path)

        command = f"set -o pipefail\n{told()}"
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=reader(plane, tmp_path), text=True,
                              capture_output=True, timeout=300, check=False)  # fmt: skip

        assert done.returncode == 0, done.stderr
        for name in kube.nodes:
            node = kube.get(name)
            left = {**node["metadata"].get("labels", {}), **node["metadata"].get("annotations", {})}
            assert [key for key in left if key.startswith("nhc/")] == [], name
            assert [c["type"] for c in node["status"]["conditions"] if c["type"].startswith("Nhc")] == [], name
            assert bool(node["spec"].get("unschedulable")) == (name == theirs), name
            assert [taint["key"] for taint in node["spec"].get("taints", []) if "nhc" in taint["key"]] == [], name
        kinds = (
            "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,role,rolebinding"
        )
        names = plane.kubectl("get", kinds, "-A", "-o", "name").stdout.splitlines()
        assert [name for name in names if "/nhc" in name] == []


def install(plane: Any, place: Path) -> None:
    """As the page on Kubernetes says."""
    (place / "adapters").symlink_to(REPOSITORY / "adapters")
    (place / "deployed").mkdir()
    (place / "deployed/kustomization.yaml").write_text("resources: [../adapters/kubernetes/overlays/cpu]\n")
    plane.kubectl("apply", "-k", str(place / "deployed"))


def reader(plane: Any, place: Path) -> dict[str, str]:
    """Has kubectl and nhc on the path."""
    (place / "bin").mkdir()
    for name, line in (
        ("kubectl", f'exec {plane.binaries}/nhc-kube kubectl "$@"'),
        ("nhc", f'exec {sys.executable} -m nhc "$@"'),
    ):
        (place / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (place / "bin" / name).chmod(0o755)
    return environment(
        KUBECONFIG=str(plane.kubeconfig), PATH=f"{place}/bin:{os.environ['PATH']}", HOME=str(place), USER="reader"
    )
