"""check_scheduler_ping and check_scheduler_node against a real Slurm."""

from __future__ import annotations

from typing import Any

from nhc.core.host import Host
from nhc.core.model import Verdict
from tests.support.judge import judge


def test_a_real_slurm_answers_and_says_what_it_thinks_of_a_node(cluster: Any) -> None:
    host = Host(settings={"SLURM_CONF": str(cluster.conf)})
    assert judge(host, "check_scheduler_ping -r slurm").verdict is Verdict.OK
    found = judge(host, "check_scheduler_node -r slurm -n n1")
    assert (found.verdict, found.message) == (Verdict.OK, "slurm has n1 as idle"), found

    cluster.update("n1", State="DRAIN", Reason="a person's")
    assert "taken out (drain): a person's" in judge(host, "check_scheduler_node -r slurm -n n1").message
    cluster.update("n1", State="DOWN", Reason="bad DIMM")
    found = judge(host, "check_scheduler_node -r slurm -n n1")
    assert (found.verdict, found.reason) == (Verdict.WARN, "NodeNotInService"), found
    assert "bad DIMM" in found.message
    cluster.update("n1", State="RESUME")
    assert judge(host, "check_scheduler_node -r slurm -n no-such-node").reason == "NodeUnknown"


def test_a_slurm_that_is_gone_is_a_warning(cluster: Any) -> None:
    host = Host(settings={"SLURM_CONF": str(cluster.conf)})
    cluster.lose_controller()
    try:
        found = judge(host, "check_scheduler_ping -r slurm")
        assert (found.verdict, found.reason) == (Verdict.WARN, "SchedulerSilent"), found
        assert judge(host, "check_scheduler_node -r slurm -n n1").verdict is Verdict.UNKNOWN
    finally:
        cluster.reset()  # what slurmctld had not yet written down is lost: a node may be as it was before
