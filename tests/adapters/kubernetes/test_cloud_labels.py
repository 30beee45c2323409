"""Repairs that are asked for by a node's label (HyperPod, GKE), on a real API server."""

from __future__ import annotations

import pytest

from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Stage
from nhc_adapters.cloud.aws.repairer import AwsRepairer
from nhc_adapters.cloud.google.repairer import GoogleRepairer
from nhc_adapters.kubernetes.repair.cluster import RepairCluster
from tests.support.clouds.aws import FakeAws
from tests.support.clouds.google import FakeGoogle

HEALTH = "sagemaker.amazonaws.com/node-health-status"
AWS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "x" * 40, "AWS_REGION": "us-east-1"}


@pytest.fixture
def aws():
    made = FakeAws()
    yield made
    made.close()
    assert made.wrong == []


@pytest.fixture
def google():
    made = FakeGoogle()
    yield made
    made.close()
    assert made.wrong == []


def order(machine, rung, because="Xid79: gpu3 fell off the bus"):
    return Order("6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a", "17", 1, machine, rung, because)


def labels(kube, node):
    return kube.get(node)["metadata"]["labels"]


def hyperpod(kube, aws, tmp_path):
    one = aws.node()
    provider = f"aws:///use1-az1/sagemaker/cluster/hyperpod-abcdefghijkl-{one}"
    node = kube.node("hp", fake=False, spec={"providerID": provider})
    mine = AwsRepairer({"endpoint": aws.url, "kubeconfig": str(kube.kubeconfig(tmp_path))}, AWS)
    return mine, Machine(node, provider)


@pytest.mark.parametrize(
    ("rung", "value"),
    [(Rung.REBOOT, "UnschedulablePendingReboot"), (Rung.REPLACE, "UnschedulablePendingReplacement")],
)
def test_hyperpod_is_asked_by_its_label_and_acts_itself(kube, aws, tmp_path, rung, value):
    mine, machine = hyperpod(kube, aws, tmp_path)
    aws.recovery = "Automatic"
    before = mine.look(machine)
    todo = order(machine, rung)
    sent = mine.send(todo)
    assert sent.answer is Answer.ACCEPTED
    assert labels(kube, machine.node)[HEALTH] == value
    assert mine.progress(todo, sent, before).stage is Stage.WORKING
    asked = machine._replace(labels=labels(kube, machine.node))
    assert [claim.actor for claim in mine.claims(asked)] == ["hyperpod"]
    assert aws.calls == [], "a label is all that is sent"


def test_without_node_recovery_a_label_tells_people_and_nobody_acts(kube, aws, tmp_path):
    mine, machine = hyperpod(kube, aws, tmp_path)
    aws.recovery = "None"
    todo, before = order(machine, Rung.REPLACE), mine.look(machine)
    sent = mine.send(todo)
    assert (sent.answer, aws.calls) == (Answer.ACCEPTED, [])
    seen = mine.progress(todo, sent, before)
    assert (seen.stage, "nobody acts" in seen.message) == (Stage.FAILED, True)


def test_another_node_under_the_name_is_not_labelled(kube, aws, tmp_path):
    mine, machine = hyperpod(kube, aws, tmp_path)
    old = aws.node()
    stale = machine._replace(provider_id=f"aws:///use1-az1/sagemaker/cluster/hyperpod-abcdefghijkl-{old}")
    assert mine.send(order(stale, Rung.REBOOT)).answer is Answer.REFUSED
    assert HEALTH not in labels(kube, machine.node)


def test_a_node_that_changed_meanwhile_is_not_labelled(kube, tmp_path):
    node = kube.node("n", fake=False)
    nodes = RepairCluster(str(kube.kubeconfig(tmp_path)), "", 10.0)
    seen = nodes.compare(Machine(node))
    kube.set_condition(node, "Other", "True")
    with pytest.raises(Exception, match="409") as caught:
        nodes.label(seen, {HEALTH: "UnschedulablePendingReboot"})
    sent = caught.value.sent()
    assert (sent.answer, sent.retry_after > 0) == (Answer.REFUSED, True)
    assert HEALTH not in labels(kube, node)


def test_gke_is_asked_by_its_label_and_the_instances_start_proves_it(kube, google, tmp_path):
    reserved = {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}
    name = google.instance(**reserved)
    provider = f"gce://p1/us-central1-a/{name}"
    pool = {"cloud.google.com/gke-nodepool": "a3"}
    node = kube.node("gke", fake=False, labels=pool, spec={"providerID": provider})
    config = str(kube.kubeconfig(tmp_path))
    mine = GoogleRepairer({"endpoint": google.url, "metadata": google.url, "kubeconfig": config}, {})
    machine = Machine(node, provider, labels=pool)
    before, todo = mine.look(machine), order(machine, Rung.REPLACE)
    sent = mine.send(todo)
    assert sent.answer is Answer.ACCEPTED
    assert labels(kube, node)["cloud.google.com/fault-behavior"] == "XID"
    status = "cloud.google.com/report-and-replace-status"
    patch = {"metadata": {"labels": {status: "OperationRUNNING"}}}
    kube.admin.patch(f"/api/v1/nodes/{node}", patch, "application/merge-patch+json")
    seen = mine.progress(todo, sent, before)
    assert (seen.stage, "OperationRUNNING" in seen.message) == (Stage.WORKING, True)
    google.instances[name]["lastStartTimestamp"] = google.now()
    assert mine.progress(todo, sent, before).stage is Stage.DONE
    assert google.calls == [], "a label is all that is sent"
