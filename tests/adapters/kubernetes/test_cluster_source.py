"""A cluster in the console and in nhc top, without a store: conditions are verdicts, and no word is no health."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nhc.console.snapshot import fold_causes
from nhc.console.sources import ClusterSource, SourceError
from nhc.marks.ports.adapter import Mark, NodeState
from nhc_adapters.kubernetes.plugin import Adapter
from tests.support.kube import Kube
from tests.support.run import nhc
from tests.support.waiting import until


def test_conditions_are_verdicts(kube: Kube, tmp_path: Path) -> None:
    sick, well, unjudged = kube.node("sick"), kube.node("well"), kube.node("unjudged")
    kube.ready(sick, well, unjudged)
    kube.set_condition(sick, "NhcHealthy", "False", "Xid79", "check_gpu_xid: GPU 3 fell off the bus [action: reboot]")
    kube.set_condition(well, "NhcHealthy", "True", "NodeIsHealthy")
    adapter = Adapter({"NHC_KUBECONFIG": str(kube.kubeconfig(tmp_path))})
    adapter.cluster.selector = f"test={kube.prefix}"
    try:
        source = ClusterSource("kubernetes", adapter, stale=600, keep=0)
        snapshot = source.snapshot()
        letters = dict(zip(snapshot.names, snapshot.letters))
        assert letters == {sick: "c", well: "o", unjudged: "n"}
        (cause,) = fold_causes(snapshot)
        assert (cause.reason, cause.nodes, cause.affected) == ("Xid79", sick, 1)
        assert source.report(sick) is not None
        assert source.report(unjudged) is None
        kube.set_condition(sick, "NhcHealthy", "True", "NodeIsHealthy")
        until(lambda: source.snapshot().letters == "ono")
    finally:
        adapter.close()


def test_nhc_top_over_the_cluster(kube: Kube, tmp_path: Path) -> None:
    sick = kube.node("sick")
    kube.ready(sick)
    kube.set_condition(sick, "NhcHealthy", "False", "Xid79", "check_gpu_xid: GPU 3 fell off the bus [action: reboot]")
    done = nhc("top", "--adapter", "kubernetes", "--once", env={"KUBECONFIG": str(kube.kubeconfig(tmp_path))})
    assert done.returncode == 0, done
    assert re.search(rf"^CRIT \d+ Xid79 \(\S+\) .*{sick}", done.stdout, re.MULTILINE), done.stdout


class Gone:
    """An adapter that cannot be asked."""

    def nodes(self, names: Any = None) -> Any:
        from nhc.marks.ports.adapter import AdapterError

        raise AdapterError("the API server does not answer")


def test_a_cluster_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(SourceError, match="the API server does not answer"):
        ClusterSource("kubernetes", Gone(), stale=600).snapshot()


class KeepsReasons:
    """A scheduler that keeps a node's reason when the node is put back, as slurmctld 23.11 to 25.11 do."""

    def nodes(self, names: Any = None) -> Any:
        mark = Mark("new DIMM on Tuesday", owner="")
        return [NodeState("n1", "drained", False, False, mark), NodeState("n2", "idle", True, False, mark)]


def test_a_node_that_is_back_in_service_is_no_problem_whatever_reason_is_left_on_it() -> None:
    snapshot = ClusterSource("slurm", KeepsReasons(), stale=600).snapshot()
    assert dict(zip(snapshot.names, snapshot.letters)) == {"n1": "c", "n2": "n"}
    (cause,) = fold_causes(snapshot)
    assert (cause.reason, cause.nodes) == ("OutOfService", "n1")
