"""What pods say of a job's end, and which nodes fit one: pure functions, against what the API writes."""

import pytest

from nhc.marks.ports.job_control import LossCause
from nhc_adapters.kubernetes.jobs.placement import fitting, keep_off, without
from nhc_adapters.kubernetes.jobs.view import losses

AT = "2026-01-01T00:00:00Z"


def pod(phase="Failed", reason="", message="", target="", ended=None, deleted=False):
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": target, "lastTransitionTime": AT}]
    status = {"phase": phase, "reason": reason, "message": message, "conditions": conditions if target else []}
    if ended:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": AT, **ended}}}]
    meta = {"name": "p", "creationTimestamp": AT, **({"deletionTimestamp": AT} if deleted else {})}
    return {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (pod(ended={"exitCode": 1, "reason": "Error"}), LossCause.EXIT),
        (pod(ended={"exitCode": 137, "reason": "OOMKilled"}), LossCause.LIMIT),
        (pod(reason="Evicted", message="The node was low on resource: memory."), LossCause.EVICTED),
        (pod(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit"), LossCause.LIMIT),
        (pod(reason="DeadlineExceeded"), LossCause.LIMIT),
        (pod(reason="NodeLost"), LossCause.NODE),
        (pod("Running", reason="NodeLost", deleted=True), LossCause.NODE),
        (pod(reason="UnexpectedAdmissionError", message="no GPU is healthy"), LossCause.NODE),
        (pod(reason="OutOfnvidia.com/gpu"), LossCause.NODE),
        (pod(target="DeletionByTaintManager"), LossCause.EVICTED),
        (pod(target="DeletionByDeviceTaintManager"), LossCause.EVICTED),
        (pod("Running", target="EvictionByEvictionAPI", deleted=True), LossCause.EVICTED),
        (pod(target="DeletionByPodGC"), LossCause.NODE),
        (pod(target="PreemptionByScheduler"), LossCause.PREEMPTED),
        (pod(), LossCause.UNKNOWN),
    ],
)
def test_why_a_pod_was_lost(seen, cause):
    (loss,) = losses([seen])
    assert (loss.cause, loss.node, loss.at) == (cause, "n1", 1767225600.0)


def test_pods_that_run_or_ended_well_are_no_losses():
    assert losses([pod("Running"), pod("Succeeded", ended={"exitCode": 0}), pod("Running", deleted=True)]) == []


def node(name, *, ready=True, labels=None, **spec):
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": f"host-{name}", **(labels or {})}},
            "spec": spec, "status": {"conditions": conditions}}  # fmt: skip


def test_the_nodes_that_fit_are_in_service_and_as_the_pod_asks():
    taint = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    nodes = [
        node("a", labels={"kind": "h100", "slot": "3"}), node("b", labels={"kind": "h100"}, ready=False),
        node("c", labels={"kind": "h100"}, unschedulable=True), node("d", labels={"kind": "a100"}),
        node("e", labels={"kind": "h100", "slot": "9"}, taints=taint),
    ]  # fmt: skip
    asked = {"spec": {"nodeSelector": {"kind": "h100"}}}
    assert fitting(nodes, asked, ()) == {"a"}
    tolerant = {"spec": {**asked["spec"], "tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes"}]}}
    assert fitting(nodes, tolerant, ()) == {"a", "e"}
    terms = [{"matchExpressions": [{"key": "slot", "operator": "Gt", "values": ["5"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert fitting(nodes, {"spec": {**tolerant["spec"], "affinity": {"nodeAffinity": required}}}, ()) == {"e"}


def test_what_we_put_into_an_affinity_is_taken_out_and_nothing_else():
    hosts = {"a": "host-a", "b": "host-b"}
    row = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["host-a"]}
    term = {"matchExpressions": [row]}
    theirs = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    for before in (None, theirs, {"podAffinity": {"x": 1}}):
        for nodes in (["a"], ["a", "b"], []):
            assert without(keep_off(before, nodes, hosts), nodes, hosts) == before
    assert keep_off(theirs, ["a"], hosts) != theirs
    assert fitting([node("a"), node("b")], {"spec": {"affinity": keep_off(None, ["a"], hosts)}}, ()) == {"b"}
    assert fitting([node("a"), node("b")], {"spec": {"affinity": keep_off(None, ["a"], hosts)}}, ["a"]) == {"a", "b"}


def test_an_empty_term_chooses_no_node_before_and_after():
    """As the scheduler has it: a condition of ours in such a term would let the job onto nearly all nodes."""
    terms = [{}, {"matchExpressions": [{"key": "kind", "operator": "In", "values": ["h100"]}]}]
    theirs = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    nodes = [node(name, labels={"kubernetes.io/hostname": name, "kind": "h100"}) for name in "ab"] + [node("c")]
    assert fitting(nodes, {"spec": {"affinity": theirs}}, ()) == {"a", "b"}
    assert fitting(nodes, {"spec": {"affinity": keep_off(theirs, ["a"], {})}}, ()) == {"b"}
    assert without(keep_off(theirs, ["a"], {}), ["a"], {}) == theirs
