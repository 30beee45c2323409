"""On a real cluster: an operator's hand wins. A node put back stays back, a drain by hand stays a drain."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nhc.core.timestamps import from_utc
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from nhc_adapters.kubernetes.nodes.drain import DrainRules
from tests.adapters.kubernetes.test_commands import nhc, scope
from tests.adapters.kubernetes.test_controller import (
    Running,
    cordoned,
    heal,
    marked,
    running,
    settings,
    sicken,
)
from tests.adapters.kubernetes.test_drain import budget, deployment
from tests.adapters.kubernetes.test_drain import running as running_pods
from tests.support.kube import Kube
from tests.support.waiting import until

__all__ = ["nhc"]

XID48 = "check_gpu_lost: gpu5: double bit error [action: reset-device]"


def annotations(kube: Kube, node: str) -> dict[str, str]:
    return dict(kube.get(node)["metadata"].get("annotations") or {})


def remains(kube: Kube, node: str) -> list[str]:
    """What is left of our mark."""
    found = kube.get(node)
    taints = [taint["key"] for taint in found["spec"].get("taints") or ()]
    every = [*taints, *(found["metadata"].get("labels") or {}), *annotations(kube, node)]
    return sorted(key for key in every if key.startswith("nhc/") and key != "nhc/overruled")


def settled(kube: Kube, controller: Running, node: str) -> None:
    """The controller has seen the node as it is now and has done all that it makes of it.

    Twice: a round that looks at the second change has ended the one that looked at the first.
    """
    for _change in range(2):
        now = str(time.monotonic_ns())
        kube.admin.patch(node_path(node), {"metadata": {"labels": {"seen": now}}}, MERGE_PATCH)

        def seen(now: str = now) -> bool:
            labels = controller.nodes.objects.get(node, {}).get("metadata", {}).get("labels", {})
            idle = not controller.rounds.fleet.agenda.wake.is_set() and not controller.rounds.fleet.agenda._changed
            return controller.leading.is_set() and labels.get("seen") == now and idle

        until(seen)


def put_back(kube: Kube, nhc: Any, how: str, node: str) -> None:
    if how == "kubectl":
        kube.put_back(node)
    else:
        done = nhc("kubernetes", "uncordon", "--by", "alice", node)
        assert (done.returncode, done.stdout) == (0, f"{node}: changed\n"), done.stderr


@pytest.mark.parametrize("how", ["kubectl", "nhc"])
def test_a_node_put_back_by_hand_is_back_and_its_fault_overruled_until_it_has_ended_once(
    kube: Kube, nhc: Any, how: str
) -> None:
    node = kube.node(fake=False)
    with running(kube) as controller:
        sicken(kube, node)
        until(lambda: marked(kube) == {node})

        put_back(kube, nhc, how, node)

        until(lambda: not remains(kube, node))
        assert not cordoned(kube, node)
        (row,) = json.loads(nhc("status", "kubernetes", "-f", "json", *scope(kube)).stdout)
        assert (row["verdict"], row["mark"], row["due"]) == ("WARN", "", "")
        assert row["overruled"].startswith("overruled by alice at " if how == "nhc" else "overruled at ")
        overruled = json.loads(annotations(kube, node)["nhc/overruled"])
        assert overruled["faults"] == {"NhcHealthy": ["Xid79 check_gpu_lost gpu3", 0]}
        assert overruled.get("by") == ("alice" if how == "nhc" else None)
        sicken(kube, node)  # the same fault, said again
        settled(kube, controller, node)
        assert not cordoned(kube, node)
        # Another fault is news.
        kube.set_condition(node, "NhcHealthy", "False", "Xid48", XID48)
        until(lambda: cordoned(kube, node))
        heal(kube, node)
        until(lambda: not cordoned(kube, node) and "nhc/overruled" not in annotations(kube, node))
        # It has ended: the next time it counts.
        sicken(kube, node)
        until(lambda: cordoned(kube, node))


def test_what_was_overruled_stays_so_for_the_next_controller_and_while_nothing_is_said(kube: Kube) -> None:
    node = kube.node(fake=False)
    with running(kube):
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
    kube.put_back(node)  # no controller sees it
    with running(kube):
        until(lambda: not remains(kube, node))
    with running(kube) as controller:
        kube.set_condition(node, "NhcHealthy", "Unknown", "NvmlTimeout")
        settled(kube, controller, node)
        sicken(kube, node)
        settled(kube, controller, node)
        assert not cordoned(kube, node)


def test_one_more_fault_beside_an_overruled_one_is_news_and_one_less_is_not(kube: Kube) -> None:
    def says(more: int, first: str = "check_gpu_lost: gpu3: fell off the bus", reason: str = "Xid79") -> None:
        text = first + (f" (and {more} more)" if more else "")
        kube.set_condition(node, "NhcHealthy", "False", reason, f"{text} [action: reboot]")

    node = kube.node(fake=False)
    with running(kube) as controller:
        says(1)
        until(lambda: marked(kube) == {node})
        kube.put_back(node)
        until(lambda: not remains(kube, node))
        says(0, "check_fs_free: / has only 3% free", "FilesystemFull")  # the one that was only counted before
        settled(kube, controller, node)
        assert not cordoned(kube, node)
        says(1, "check_fs_free: / has only 3% free", "FilesystemFull")
        until(lambda: cordoned(kube, node))


def test_a_node_put_back_whose_fault_has_ended_keeps_no_memory_of_it(kube: Kube) -> None:
    node = kube.node(fake=False)
    with running(kube):
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
    heal(kube, node)
    kube.put_back(node)
    with running(kube):
        until(lambda: not remains(kube, node))
        assert "nhc/overruled" not in annotations(kube, node)


def test_a_dry_run_leaves_a_node_that_was_put_back(kube: Kube) -> None:
    node = kube.node(fake=False)
    with running(kube):
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
    kube.put_back(node)
    before = remains(kube, node)
    with running(kube, settings(kube, apply=False)) as controller:
        until(lambda: controller.rounds.fleet.judgement(node))
        settled(kube, controller, node)
        assert not controller.says("would mark")
        assert remains(kube, node) == before != []


# Drains by hand.


def test_a_drain_by_hand_has_an_owner_and_is_not_undone(kube: Kube, nhc: Any) -> None:
    node = kube.node()
    kube.ready(node)
    heal(kube, node)
    kube.pod("work", node)
    with running(kube, settings(kube, drain=True, rules=DrainRules())) as controller:
        until(controller.leading.is_set)
        done = nhc("kubernetes", "drain", "--apply", "--force", "--reason", "new DIMM", "--by", "alice", node)
        assert (done.returncode, done.stderr) == (0, "")
        assert kube.pods() == []
        heal(kube, node)
        settled(kube, controller, node)
        assert cordoned(kube, node)
        said = annotations(kube, node)
        assert (said["nhc/source"], json.loads(said["nhc/drained-by"])["by"]) == ("operator", "alice")
        shown = nhc("status", "kubernetes", *scope(kube)).stdout.splitlines()
        (line,) = [line for line in shown if line.startswith(node)]
        assert "alice" in line
        assert "new DIMM" in line
        assert "nhc/drain" not in said  # the controller's own drain, with its rules, is not on it
        sicken(kube, node)
        settled(kube, controller, node)
        assert annotations(kube, node)["nhc/mark"].startswith("NHC: new DIMM ")
        heal(kube, node)

        assert nhc("kubernetes", "uncordon", node).returncode == 0
        until(lambda: not remains(kube, node))
        assert not cordoned(kube, node)


def test_a_drain_by_hand_ends_at_its_end(kube: Kube, nhc: Any) -> None:
    well, sick, quiet = kube.node("well"), kube.node("sick"), kube.node("quiet")
    kube.ready(well, sick, quiet)
    heal(kube, well)
    assert (
        nhc("kubernetes", "drain", "--apply", "--for", "1s", "--reason", "new DIMM", well, sick, quiet).returncode == 0
    )
    sicken(kube, sick)
    with running(kube):
        until(lambda: not cordoned(kube, well) and not cordoned(kube, quiet))
        until(lambda: annotations(kube, sick).get("nhc/source") == "NhcHealthy=False")
        assert cordoned(kube, sick)
        assert "fell off the bus" in annotations(kube, sick)["nhc/mark"]
        heal(kube, sick)
        until(lambda: not cordoned(kube, sick))


def test_a_drain_by_hand_is_gone_on_with_and_given_an_end_by_its_owner(kube: Kube, nhc: Any) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("work", node)
    assert (
        nhc("kubernetes", "drain", "--apply", "--by", "alice", node).returncode == 1
    )  # nothing would start the pod again
    assert kube.pods() == ["work"]

    again = nhc("kubernetes", "drain", "--apply", "--force", "--by", "alice", "--for", "4h", node)

    assert (again.returncode, again.stderr) == (0, "")
    assert f"{node}: drained by alice until " in again.stdout
    assert kube.pods() == []
    other = nhc("kubernetes", "drain", "--apply", "--by", "bob", "--for", "1s", node)
    assert (other.returncode, "drained by alice until " in other.stdout) == (0, True)
    said = json.loads(annotations(kube, node)["nhc/drained-by"])
    assert said["by"] == "alice"
    assert 3.9 * 3600 < from_utc(said["until"]) - time.time() < 4.1 * 3600


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        ({"spec": {"unschedulable": None, "taints": None}}, "somebody has put it back: its drain ends"),
        ({"metadata": {"annotations": {"nhc/hold": "memory test"}}}, "its drain ends: nhc/hold: memory test"),
    ],
)
def test_a_drain_by_hand_ends_when_somebody_else_decides_about_the_node(
    kube: Kube, nhc: Any, decision: dict[str, Any], why: str
) -> None:
    node = kube.node()
    kube.ready(node)
    deployment(kube, 1)
    budget(kube, 1)
    until(lambda: len(running_pods(kube)) == 1)
    with ThreadPoolExecutor(1) as pool:
        drain = pool.submit(nhc, "kubernetes", "drain", "--apply", "--by", "alice", "--deadline", "50s", node)
        until(lambda: cordoned(kube, node))

        kube.admin.patch(node_path(node), decision, MERGE_PATCH, fieldManager="kubectl")

        done = drain.result()
    assert (done.returncode, done.stderr) == (1, f"nhc kubernetes: {node}: {why}\n")
    assert len(running_pods(kube)) == 1


def test_a_node_that_is_held_is_not_drained(kube: Kube, nhc: Any) -> None:
    node = kube.node()
    kube.ready(node)
    kube.admin.patch(node_path(node), {"metadata": {"annotations": {"nhc/hold": "memory test"}}}, MERGE_PATCH)
    kube.pod("work", node)

    done = nhc("kubernetes", "drain", "--apply", "--force", node)

    assert done.returncode == 1
    assert f"{node}: not drained: left alone: nhc/hold: memory test" in done.stderr
    assert kube.pods() == ["work"]
    assert not cordoned(kube, node)


def test_a_node_that_somebody_else_cordoned_is_drained_and_keeps_its_cordon(kube: Kube, nhc: Any) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("work", node)
    kube.plane.kubectl("cordon", node)

    done = nhc("kubernetes", "drain", "--apply", "--force", node)

    assert done.returncode == 0
    assert "not marked: already" in done.stdout
    assert kube.pods() == []
    assert (cordoned(kube, node), remains(kube, node)) == (True, [])


def test_a_duration_that_is_none_is_refused(nhc: Any) -> None:
    done = nhc("kubernetes", "drain", "--apply", "--for", "soon", "n1")
    assert done.returncode == 2
    assert "--for" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_ours_is_left_and_nothing_missed_after_a_storm_in_which_nodes_are_put_back(kube: Kube) -> None:
    chance = random.Random(11)
    nodes = [kube.node(f"n{number:02}", fake=False) for number in range(20)]
    back = {"spec": {"unschedulable": None, "taints": None}}
    with running(kube) as controller:
        for _ in range(600):
            node, what = chance.choice(nodes), chance.random()
            if what < 0.35:
                sicken(kube, node)
            elif what < 0.7:
                heal(kube, node)
            elif what < 0.8:
                kube.set_condition(node, "NhcHealthy", "Unknown")
            else:
                kube.admin.patch(node_path(node), back, MERGE_PATCH, fieldManager="kubectl")
        heal(kube, *nodes)

        def clean() -> bool:
            return not any(
                cordoned(kube, node) or remains(kube, node) or "nhc/overruled" in annotations(kube, node)
                for node in nodes
            )

        until(clean, 60)
        sicken(kube, *nodes)  # what was overruled has ended once: each counts again
        until(lambda: marked(kube) == set(nodes), 60)
        assert not controller.says("internal error")
