"""HyperPod on Slurm: its reason on a real slurmctld, where its own agent reads it."""

from __future__ import annotations

import pytest

from nhc.marks.ports.repair import Answer, Machine, Order, Rung
from nhc_adapters.cloud.aws.repairer import AwsRepairer


@pytest.mark.parametrize(("rung", "reason"), [(Rung.REBOOT, "Action:Reboot"), (Rung.REPLACE, "Action:Replace")])
def test_hyperpod_is_asked_by_a_nodes_reason(cluster, rung, reason):
    mine = AwsRepairer({"scheduler": "slurm", "region": "us-east-1"}, cluster.env)
    machine = Machine("n1", "i-0123456789abcdef0", settings={"hyperpod": "yes"})
    assert mine.can(machine, rung) == ""
    order = Order("6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a", "1", 1, machine, rung, "Xid79: gpu3")
    sent = mine.send(order)
    assert sent.answer is Answer.ACCEPTED, sent
    assert cluster.state("n1") == "fail"
    assert cluster.reason("n1") == reason
    asked = mine.requested(machine._replace(settings={"hyperpod": "yes", "reason": cluster.reason("n1")}))
    assert asked is not None
    assert asked.rung is rung
    unknown = mine.send(order._replace(machine=machine._replace(node="nobody")))
    assert unknown.answer is not Answer.ACCEPTED
