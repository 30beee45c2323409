"""`--from kubernetes` and `--mark kubernetes` against a real control plane, over a real sshd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fleet.conftest import Site
from tests.support.kube import kube, plane  # noqa: F401 (fixtures)

# ruff: noqa: F811 (the fixture's name is its argument's)


@pytest.fixture
def cloud(kube, fleet, tmp_path):
    """Three nodes of this test's own in the cluster."""
    names = tuple(kube.node(name) for name in ("a", "b", "c"))
    kube.ready(*names)
    return Site(fleet, tmp_path, names, {"KUBECONFIG": str(kube.kubeconfig(tmp_path))})


def unschedulable(kube, name):
    return bool(kube.get(name)["spec"].get("unschedulable"))


def test_a_sick_node_of_a_cluster_is_cordoned_once_and_put_back(cloud, kube):
    _a, b, c = cloud.names
    kube.admin.patch(f"/api/v1/nodes/{c}", {"spec": {"unschedulable": True}}, "application/merge-patch+json")
    words = ("--from", "kubernetes", "-w", ",".join(cloud.names), "--mark", "kubernetes", "--set", "max-drained=none")
    cloud.sick(b)
    done = cloud.check(*words)
    assert f"kubernetes: would mark  {b}  check_file_test: " in done.stdout
    assert not unschedulable(kube, b)

    done = cloud.check(*words, "--apply")
    assert "kubernetes: 1 of 1 done" in done.stdout, done.stdout + done.stderr
    assert [unschedulable(kube, name) for name in cloud.names] == [False, True, True]
    before = kube.get(b)["metadata"]["resourceVersion"], kube.get(b)["metadata"].get("annotations")
    assert "kubernetes: 0 of 0 done" in cloud.check(*words, "--apply").stdout
    assert kube.get(b)["metadata"].get("annotations") == before[1]

    done = cloud.check(*words, "--apply", "--set", "port=1")  # nobody answers: nothing moves
    assert [unschedulable(kube, name) for name in cloud.names] == [False, True, True]

    cloud.sick()
    assert cloud.check(*words, "--apply").returncode == 0
    assert [unschedulable(kube, name) for name in cloud.names] == [False, False, True]  # c is an operator's


def test_a_cluster_that_cannot_be_asked_is_one_line(cloud, tmp_path):
    done = cloud.check("--from", "kubernetes", KUBECONFIG="/no/such/kubeconfig")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "/no/such/kubeconfig" in done.stderr
    done = cloud.check("-w", cloud.names[0], "--mark", "kubernetes", KUBECONFIG="/no/such/kubeconfig")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stdout == ""  # found before any node was asked
    down = json.loads(Path(cloud.env["KUBECONFIG"]).read_text())
    down["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "down").write_text(json.dumps(down))
    done = cloud.check("--from", "kubernetes", KUBECONFIG=str(tmp_path / "down"))
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
