"""What settings name and no node has: condition types of pools at zero, typing errors, bounds that hold nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nhc.marks.policy.policy_file import load as load_policy
from nhc_adapters.kubernetes.nodes.known_types import strangers
from nhc_adapters.kubernetes.nodes.vocabulary import Fault
from tests.adapters.kubernetes.test_commands import nhc, scope
from tests.adapters.kubernetes.test_controller import heal, marked, running, settings, sicken
from tests.support.kube import Kube
from tests.support.waiting import until

__all__ = ["nhc"]


@pytest.mark.parametrize("kind", ["GPUMissing", "AcceleratedHardwareReady", "SiteFan"])
def test_a_type_of_a_pool_that_has_no_node_now_is_no_typing_error(kube: Kube, kind: str, nhc: Any) -> None:
    """AKS and EKS put some of their conditions on GPU nodes alone, and a pool may be at zero."""
    node, later = kube.node(fake=False), f"{kind}=True"
    heal(kube, node)
    published = kind != "SiteFan"
    with running(kube, settings(kube, faults=[later, "NhcHealthy=False"])) as controller:
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
        assert (controller.refused, controller.healthy()) == ("", "")
        assert controller.says(kind) is not published
        assert controller.unseen_types() == int(not published)
        if kind == "SiteFan":
            kube.set_condition(node, "SiteFan", "True", "Slow", "fan 2")
            until(lambda: "SiteFan=True" in kube.get(node)["metadata"]["annotations"]["nhc/source"].split())
            assert controller.unseen_types() == 0
    done = nhc("sync", "kubernetes", "--set", "faults=SiteFan", "--set", "faults=SitePump", *scope(kube))
    assert done.returncode == 0
    assert ("SitePump" in done.stderr, "SiteFan" in done.stderr) == (True, published)


@pytest.mark.parametrize(("kind", "known"), [
    ("GPUXid", "GpuXid"), ("NhcHealhty", "NhcHealthy"), ("GPUMising", "GPUMissing"), ("AcceleratedHardwareRedy",
    "AcceleratedHardwareReady"),
])  # fmt: skip
def test_a_type_that_is_nearly_a_known_one_is_refused(kind: str, known: str) -> None:
    node = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    strange = strangers([Fault(kind)], [node])
    assert f"did you mean {known!r}" in strange.refused[0]
    assert strange.unseen == []


@pytest.mark.parametrize("kind", ["SiteFan", "GpuProblem", "OcpNode"])
def test_a_type_that_resembles_no_known_one_is_not_refused(kind: str) -> None:
    node = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert strangers([Fault(kind)], [node]).refused == []
    assert len(strangers([Fault(kind)], [node]).unseen) == 1


def test_a_bound_that_holds_no_node_is_said_by_the_controller_and_by_sync(kube: Kube, nhc: Any, tmp_path: Path) -> None:
    """`pool` on nodes with a label of the site's own; a name that no node has; a kind that nobody has."""
    node = kube.node(fake=False, labels={"site.example/pool": "a"})
    text = (
        '[bounds.gadget]\nout = 1\n[bounds.pool]\nout = 1\n[bounds.named]\n"site.example/pool=*" = 1\n"other=b" = 1\n'
    )
    policy = tmp_path / "policy.toml"
    policy.write_text(text)
    (tmp_path / "kubernetes.toml").write_text('policy = "policy.toml"\ntopologies = ["site.example/pool"]\n')
    chosen = settings(kube, topologies=("site.example/pool",))._replace(policy=load_policy(str(policy)).policy)
    expected = ["bounds.gadget", "bounds.pool", "bounds.named.other=b"]
    with running(kube, chosen) as controller:
        heal(kube, node)
        until(lambda: controller.rounds.fleet.judgement(node))
        until(lambda: controller.rounds.log.no_effect)
        said = [line for line in controller.said if "no node is in such a group" in line]
        assert [line.partition(":")[0] for line in said] == expected
    done = nhc("sync", "kubernetes", "-s", str(tmp_path / "kubernetes.toml"), *scope(kube))
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if "no node is in such a group" in line]
    assert len(said) == len(expected)
