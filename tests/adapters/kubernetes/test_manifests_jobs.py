"""What runs the job loop in a cluster: taken by a real API server, and the loop under its account."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest
import yaml

from nhc.jobs import settings as job_settings
from tests.adapters.kubernetes.test_manifests import IMAGE, MANIFESTS, SYSTEM, TEMPLATE, chart, helm
from tests.adapters.kubernetes.test_manifests_remedy import plain, taken
from tests.support.crds import install
from tests.support.kube import Kube, environment

ON = ("--set=jobs.enabled=true,store.secret=nhc-store",)
LOGS = ("--set=jobs.readLogs=true",)


def documents(text: str) -> Dict[str, Any]:
    found = [doc for doc in yaml.safe_load_all(text) if doc]
    return {f"{doc['kind']}/{doc['metadata']['name']}": doc for doc in found
            if doc["metadata"]["name"].startswith("nhc-jobs")}  # fmt: skip


def kustomized(plane: Any, folder: str = "jobs") -> str:
    return str(plane.kubectl("kustomize", str(MANIFESTS / folder)).stdout)


@pytest.mark.parametrize(("folder", "options", "count"), [("jobs", (), 6), ("jobs-logs", LOGS, 8)])
def test_the_chart_and_kustomize_make_the_same_and_the_api_server_takes_both(
    installed: Any, folder: str, options: Tuple[str, ...], count: int
) -> None:
    made = []
    for text in (kustomized(installed, folder), chart(installed, *ON, *options)):
        assert "statefulset.apps/nhc-jobs serverside-applied (server dry run)" in taken(installed, text)
        found = {name: plain(doc) for name, doc in documents(text).items() if doc["kind"] != "ConfigMap"}
        for volume in found["StatefulSet/nhc-jobs"]["spec"]["template"]["spec"]["volumes"]:
            volume.pop("configMap", None)  # kustomize's names have a hash
        made.append(found)
    assert len(made[0]) == count
    assert made[0] == made[1]
    spec = made[0]["StatefulSet/nhc-jobs"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not [one for one in spec["volumes"] if "hostPath" in one]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set=store.secret=",), "store.secret"),
        (("--set=jobs.replicas=0",), "/jobs/replicas"),
        (("--set=jobs.setings=x",), "setings"),
    ],
)
def test_the_chart_refuses_values_that_make_no_sense(plane: Any, options: tuple[str, ...], said: str) -> None:
    done = helm(plane, *TEMPLATE, f"--set=image.repository={IMAGE}", *ON, *options)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_loop_runs_as_the_manifest_starts_it(kube: Kube, installed: Any, tmp_path: Path) -> None:
    """The container's own command, once, with the account's token, the Secret's store and each default's settings."""
    install(kube)
    text = chart(installed, *ON)
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    wanted = [doc for doc in documents(text).values() if doc["kind"] in kinds]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
    installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=body)
    try:
        account = kube.kubeconfig(tmp_path, kube.token("nhc-jobs", SYSTEM))
        (container,) = documents(text)["StatefulSet/nhc-jobs"]["spec"]["template"]["spec"]["containers"]
        for number, made in enumerate((text, kustomized(installed))):
            (settings,) = [doc["data"]["jobs.toml"] for doc in documents(made).values() if doc["kind"] == "ConfigMap"]
            assert job_settings.parse(settings).restart.value == "dry-run"
            (tmp_path / "jobs.toml").write_text(settings)
            argv = ["nhc", *container["args"][:-1], "127.0.0.1:0", "--once"]
            argv[argv.index("/etc/nhc/jobs.toml")] = str(tmp_path / "jobs.toml")
            done = subprocess.run(
                [sys.executable, "-m", *argv], capture_output=True, text=True, check=False, timeout=120,
                env=environment(KUBECONFIG=str(account), NHC_STORE=f"sqlite:///{tmp_path}/store{number}.db"),
                cwd=os.path.dirname(MANIFESTS.parent),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert "0 would be restarted" in done.stdout
            assert (tmp_path / f"store{number}.db").exists()
        for verb, what in (
            ("delete", "nodes"),
            ("patch", "nodes"),
            ("delete", "pods"),
            ("get", "secrets"),
            ("get", "pods/log"),
            ("list", "events"),
        ):
            said = kube.plane.kubectl("auth", "can-i", verb, what,
                                      f"--as=system:serviceaccount:{SYSTEM}:nhc-jobs", check=False)  # fmt: skip
            assert said.stdout.strip() == "no", (verb, what)
    finally:
        installed.kubectl("delete", "--wait=false", "-f", "-", stdin=body)
