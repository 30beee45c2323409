"""On a real cluster: what nobody says is no health, and a moment of too few accelerators is no fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, node_path
from nhc_adapters.kubernetes.controller.loki import LokiSettings
from nhc_adapters.kubernetes.controller.reload import Fitting, WatchedSettings
from nhc_adapters.kubernetes.nodes.conditions import ALLOCATABLE, KERNEL_LOG
from tests.adapters.kubernetes.test_commands import nhc, scope
from tests.adapters.kubernetes.test_controller import cordoned, heal, marked, running, settings, sicken
from tests.support.kube import Kube
from tests.support.waiting import until

__all__ = ["nhc"]

GPU = "nvidia.com/gpu"


def looked_at(controller: Any, node: str, verdict: str) -> bool:
    found = controller.rounds.fleet.judgement(node)
    return found is not None and found.report.verdict.name == verdict


def drop_conditions(kube: Kube, node: str, *types: str) -> None:
    gone = [{"type": kind, "$patch": "delete"} for kind in types]
    kube.admin.patch(f"{node_path(node)}/status", {"status": {"conditions": gone}}, STRATEGIC)


def test_a_marked_node_whose_condition_disappears_stays_marked_until_the_word_is_good(kube: Kube) -> None:
    node = kube.node(fake=False, capacity={GPU: "8"})
    with running(kube) as controller:
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
        assert kube.get(node)["metadata"]["annotations"]["nhc/source"] == "NhcHealthy=False"
        drop_conditions(kube, node, "NhcHealthy")
        until(lambda: looked_at(controller, node, "UNKNOWN"))
        assert marked(kube) == {node}
        heal(kube, node)
        until(lambda: marked(kube) == set())


def test_a_mark_outlives_other_settings_and_ends_with_its_own_sources_word(kube: Kube) -> None:
    node = kube.node(fake=False)
    heal(kube, node)
    with running(kube, settings(kube, faults=["GpuXid"])):
        kube.set_condition(node, "GpuXid", "True", "Xid79")
        until(lambda: marked(kube) == {node})
    with running(kube) as controller:  # today's settings look at NhcHealthy alone
        until(lambda: looked_at(controller, node, "UNKNOWN"))
        assert marked(kube) == {node}
        kube.set_condition(node, "GpuXid", "False", "NoXid")
        until(lambda: marked(kube) == set())


def test_a_restart_without_loki_leaves_what_loki_found(kube: Kube) -> None:
    node, withheld = kube.node(fake=False), kube.node("w", fake=False)
    heal(kube, node, withheld)
    kube.set_condition(node, KERNEL_LOG, "True", "Xid79", "off the bus")
    with running(kube, settings(kube, loki=LokiSettings("http://127.0.0.1:9", "{}"))):
        until(lambda: marked(kube) == {node})
    kube.set_condition(withheld, KERNEL_LOG, "True", "Xid79", "off the bus")
    with running(kube) as controller:
        until(lambda: looked_at(controller, node, "UNKNOWN"))
        until(lambda: looked_at(controller, withheld, "UNKNOWN"))
        assert marked(kube) == {node}
        kube.set_condition(node, KERNEL_LOG, "False", "Acknowledged")
        until(lambda: marked(kube) == set())


def test_a_typing_error_in_a_condition_is_refused_and_clears_nothing(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False, capacity={GPU: "8"})
    kube.set_condition(node, "GpuXid", "True", "Xid79")
    kube.set_condition(node, "SiteFan", "False")
    assert (
        nhc(
            "sync", "kubernetes", "--apply", "--set", "max-marked=100%", "--set", "faults=GpuXid", *scope(kube)
        ).returncode
        == 0
    )
    assert marked(kube) == {node}

    for words in (["sync", "kubernetes", "--apply"], ["status", "kubernetes"], ["serve", "kubernetes", "--apply"]):
        done = nhc(*words, "--set", "faults=GpuXidd", *scope(kube))
        assert done.returncode == 2, done
        assert "no node has a condition 'GpuXidd', and no vocabulary knows it: did you mean 'GpuXid'?" in done.stderr
        assert "Traceback" not in done.stderr
    assert marked(kube) == {node}
    # A type that a node carries is one, whoever made it.
    assert nhc("status", "kubernetes", "--set", "faults=SiteFan", *scope(kube)).returncode == 0


def test_a_node_that_was_never_heard_of_is_listed_and_not_healthy(kube: Kube, nhc: Any) -> None:
    quiet, well = kube.node("quiet", fake=False, capacity={GPU: "8"}), kube.node("well", fake=False)
    heal(kube, well)
    shown = nhc("status", "kubernetes", *scope(kube)).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith(quiet)]
    assert "UNKNOWN" in line
    assert not any(line.startswith(well) and "UNKNOWN" in line for line in shown.splitlines())


# Accelerators.


def offers(kube: Kube, node: str, allocatable: str, capacity: str = "8") -> None:
    status = {"allocatable": {GPU: allocatable}, "capacity": {GPU: capacity}}
    kube.admin.patch(f"{node_path(node)}/status", {"status": status}, STRATEGIC)


def test_a_plugin_that_restarts_takes_nobody_out_and_is_told(kube: Kube) -> None:
    node = kube.node(capacity={GPU: "8"})
    kube.ready(node)
    heal(kube, node)
    with running(kube):
        offers(kube, node, "0")
        until(lambda: (kube.condition(node, ALLOCATABLE) or {}).get("status") == "True")
        said = kube.condition(node, ALLOCATABLE) or {}
        assert (said["reason"], said["message"]) == ("AllocatableBelowExpected", f"0 of 8 {GPU} can be given out")
        assert not cordoned(kube, node)
        offers(kube, node, "8")
        until(lambda: (kube.condition(node, ALLOCATABLE) or {}).get("status") == "False")
        assert marked(kube) == set()


def test_too_few_accelerators_for_longer_than_the_grace_mark_the_node_across_restarts(kube: Kube) -> None:
    node, well = kube.node("sick", capacity={GPU: "8"}), kube.node("well", capacity={GPU: "8"})
    kube.ready(node, well)
    heal(kube, node, well)
    with running(kube):
        offers(kube, node, "7")
        until(lambda: (kube.condition(node, ALLOCATABLE) or {}).get("status") == "True")
    assert marked(kube) == set()
    with running(kube, settings(kube, allocatable_grace=1.0)):
        until(lambda: marked(kube) == {node})
        annotations = kube.get(node)["metadata"]["annotations"]
        assert f"7 of 8 {GPU} can be given out" in annotations["nhc/mark"]
        assert annotations["nhc/source"] == f"{ALLOCATABLE}=True"
        offers(kube, node, "8")
        until(lambda: marked(kube) == set())


def test_a_plugin_that_never_registered_is_judged_where_the_settings_expect_it(kube: Kube) -> None:
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    node, other = kube.node("sick", labels=labels), kube.node("other")
    kube.ready(node, other)
    heal(kube, node, other)
    chosen = settings(kube, expected={"p5.48xlarge": {GPU: 8}}, allocatable_grace=0.5)
    with running(kube, chosen) as controller:
        until(lambda: marked(kube) == {node})
        assert "its device plugin is not registered" in kube.get(node)["metadata"]["annotations"]["nhc/mark"]
        until(lambda: looked_at(controller, other, "OK"))


def test_one_more_device_lost_on_a_node_that_was_put_back_is_another_fault(kube: Kube) -> None:
    node = kube.node(capacity={GPU: "8"})
    kube.ready(node)
    heal(kube, node)
    with running(kube, settings(kube, allocatable_grace=0.0)) as controller:
        offers(kube, node, "6")
        until(lambda: marked(kube) == {node})
        kube.put_back(node)
        until(lambda: marked(kube) == set())
        offers(kube, node, "7")  # better, and not yet good
        until(lambda: (kube.condition(node, ALLOCATABLE) or {}).get("message", "").startswith("7 of 8"))
        until(lambda: looked_at(controller, node, "WARN"))
        assert marked(kube) == set()
        offers(kube, node, "6")
        until(lambda: marked(kube) == {node})


def test_allocatable_can_be_left_out(kube: Kube) -> None:
    node = kube.node(capacity={GPU: "8"})
    kube.ready(node)
    heal(kube, node)
    offers(kube, node, "0")
    with running(kube, settings(kube, watch_allocatable=False, allocatable_grace=0.0)) as controller:
        until(lambda: looked_at(controller, node, "OK"))
        assert kube.condition(node, ALLOCATABLE) is None


def test_an_operators_text_where_our_mark_would_be_stays(kube: Kube) -> None:
    """Written before the cordon: on a well node, on one that falls sick meanwhile, and when that one is well again."""
    well, sick = kube.node("well", fake=False), kube.node("sick", fake=False)
    heal(kube, well, sick)
    with running(kube) as controller:
        for node in (well, sick):
            text = {"metadata": {"annotations": {"nhc/mark": "memory test by alice"}}}
            kube.admin.patch(node_path(node), text, MERGE_PATCH)
        sicken(kube, sick)
        until(lambda: cordoned(kube, sick))
        until(lambda: looked_at(controller, well, "OK"))
        assert kube.get(well)["metadata"]["annotations"]["nhc/mark"] == "memory test by alice"
        heal(kube, sick)
        until(lambda: kube.get(sick)["metadata"]["annotations"]["nhc/mark"] == "memory test by alice")
        # Somebody wants it out: the cordon, which theirs would have been, stays for it; our taint goes.
        assert cordoned(kube, sick)
        assert not any(taint["key"].startswith("nhc/") for taint in kube.get(sick)["spec"].get("taints") or ())
        kube.plane.kubectl("uncordon", sick)
        until(lambda: controller.rounds.fleet.nodes[sick].state.available)
        assert not cordoned(kube, sick)


def test_a_typing_error_in_new_settings_leaves_the_old_ones_in_force(kube: Kube, tmp_path: Path) -> None:
    node = kube.node(fake=False)
    kube.set_condition(node, "GpuXid", "False")
    now, listed = [0.0], []

    def nodes() -> list[dict[str, Any]]:
        listed.append(1)
        return [kube.get(node)]

    faults = ["GpuXid"]
    fitting = Fitting(lambda: settings(kube, faults=faults), nodes, monotonic=lambda: now[0])
    said: list[str] = []
    watched = WatchedSettings(fitting.read, said.append)
    fitting.started = True
    faults[:] = ["GpuXidd"]
    for _look in range(2):
        watched.asked.set()
        assert watched.changed() is None
    assert "settings refused, the ones in force stay: no node has a condition 'GpuXidd'" in said[0]
    assert len(listed) == 1  # however often the files are looked at
    assert [fault.type for fault in watched.settings.faults] == ["GpuXid"]
    kube.set_condition(node, "GpuXidd", "False")
    now[0] = 60.0
    watched.asked.set()
    assert watched.changed() is not None
