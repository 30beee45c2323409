"""Nodes whose clocks are wrong: what counts is when we saw what they said, and what lies ahead of us proves nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from nhc.core.model import Verdict
from nhc.core.timestamps import utc
from nhc_adapters.kubernetes.api.client import STRATEGIC, node_path
from nhc_adapters.kubernetes.controller.node_report import judge
from nhc_adapters.kubernetes.nodes.condition_times import ConditionsSeen
from nhc_adapters.kubernetes.nodes.vocabulary import Fault
from tests.adapters.kubernetes.test_commands import nhc, scope
from tests.adapters.kubernetes.test_controller import heal, marked, running, settings
from tests.adapters.kubernetes.test_hand import settled
from tests.support.kube import Kube
from tests.support.waiting import until

__all__ = ["nhc"]

NOW = 1_700_000_000.0
MINUTES = 60.0
HEALTHY = (Fault("NhcHealthy", "False"),)


def says(kube: Kube, node: str, status: str, ahead: float) -> None:
    """What an agent writes whose node's clock is so many seconds ahead."""
    when = utc(time.time() + ahead)
    condition = {"type": "NhcHealthy", "status": status, "reason": "Xid79", "message": "check_kmsg: Xid 79 on gpu3",
                 "lastHeartbeatTime": when, "lastTransitionTime": when}  # fmt: skip
    kube.admin.patch(f"{node_path(node)}/status", {"status": {"conditions": [condition]}}, STRATEGIC)


def shown(kube: Kube, nhc: Any, node: str) -> str:
    lines = nhc("status", "kubernetes", *scope(kube)).stdout.splitlines()
    return next((line for line in lines if line.startswith(node)), "")


@pytest.mark.parametrize("ahead", [20 * MINUTES, -20 * MINUTES, 86400.0])
def test_a_fault_counts_from_when_we_saw_it(kube: Kube, ahead: float) -> None:
    node = kube.node(fake=False)
    says(kube, node, "True", ahead)
    with running(kube, settings(kube, faults=["NhcHealthy=False"])) as controller:
        until(lambda: controller.rounds.fleet.judgement(node))
        says(kube, node, "False", ahead)
        until(lambda: marked(kube) == {node}, 30)
        says(kube, node, "True", ahead)
        until(lambda: not marked(kube), 30)


def test_a_fault_that_stood_before_we_looked_counts_whatever_its_clock_ahead(kube: Kube) -> None:
    node = kube.node(fake=False)
    says(kube, node, "False", 20 * MINUTES)
    with running(kube):
        until(lambda: marked(kube) == {node}, 30)


def test_a_node_ahead_of_us_is_in_the_status_with_its_clock(kube: Kube, nhc: Any) -> None:
    ahead, well = kube.node("ahead", fake=False), kube.node("well", fake=False)
    says(kube, ahead, "False", 20 * MINUTES)
    heal(kube, well)
    assert "its clock is 20 min ahead" in shown(kube, nhc, ahead)
    assert shown(kube, nhc, well) == ""
    rows = {row["node"]: row for row in json.loads(nhc("status", "kubernetes", "-f", "json", *scope(kube)).stdout)}
    assert (rows[ahead]["verdict"], rows[ahead]["clock"]) == ("CRIT", "its clock is 20 min ahead")
    says(kube, ahead, "True", 20 * MINUTES)
    rows = {row["node"]: row for row in json.loads(nhc("status", "kubernetes", "-f", "json", *scope(kube)).stdout)}
    assert rows[ahead]["verdict"] == "UNKNOWN"  # it may have died since
    assert (rows[well]["verdict"], rows[well]["clock"]) == ("OK", "")


@pytest.mark.parametrize("ahead", [20 * MINUTES, -20 * MINUTES])
def test_a_node_that_speaks_is_heard_and_one_that_has_died_is_not_whatever_its_clock(kube: Kube, ahead: float) -> None:
    speaks, dies = kube.node("speaks", fake=False), kube.node("dies", fake=False)
    for node in (speaks, dies):
        says(kube, node, "True", ahead)
    with running(kube, settings(kube, silent_after=4.0)) as controller:
        until(lambda: controller.rounds.fleet.judgement(node))

        def silent() -> bool:
            says(kube, speaks, "True", ahead)
            return (kube.condition(dies, "NhcHealthy") or {})["reason"] == "NoReport"

        until(silent, 60, 0.5)
        began = time.monotonic()

        def spoke() -> bool:
            says(kube, speaks, "True", ahead)
            assert (kube.condition(speaks, "NhcHealthy") or {})["status"] == "True"
            return time.monotonic() - began > 6.0  # longer than a silence

        until(spoke, 60, 0.5)
        settled(kube, controller, speaks)
        assert controller.rounds.fleet.judgement(speaks).report.verdict is Verdict.OK
        words = "ahead" if ahead > 0 else "behind"
        assert controller.rounds.fleet.nodes[speaks].heard.clock_text() == f"its clock is 20 min {words}"


# Pure.


def node(
    seen: float, status: str = "True", since: float = NOW - 3600, boot: str = "b", uid: str = "u"
) -> dict[str, Any]:
    entry = {"type": "NhcHealthy", "status": status, "reason": "R", "message": "m",
             "lastHeartbeatTime": utc(seen), "lastTransitionTime": utc(since)}  # fmt: skip
    return {"metadata": {"name": "n", "uid": uid}, "status": {"conditions": [entry], "nodeInfo": {"bootID": boot}}}


def test_what_stood_before_we_looked_has_its_own_stamps() -> None:
    for seen, verdict in ((NOW - 10, Verdict.OK), (NOW - 3600, Verdict.UNKNOWN), (NOW + 1200, Verdict.UNKNOWN),
                          (NOW + 30, Verdict.OK)):  # fmt: skip
        found = judge(node(seen), HEALTHY, NOW, verdict="NhcHealthy")
        assert found.report.verdict is verdict, seen
    assert "its clock is 20 min ahead" in found.report.results[0].outcome.message or found.report.verdict is Verdict.OK


def test_a_clock_that_was_set_right_is_no_more_spoken_of_and_one_late_word_is_no_wrong_clock() -> None:
    seen = ConditionsSeen()
    assert seen.of(node(NOW - 1200), NOW).clock == 0.0
    assert seen.of(node(NOW - 900), NOW + 300).clock == 0.0  # one word from behind: it may have come late
    assert seen.of(node(NOW - 600), NOW + 600).clock == -1200.0
    assert seen.of(node(NOW - 600), NOW + 700).clock == -1200.0
    assert seen.of(node(NOW + 900), NOW + 900).clock == 0.0


def test_how_long_a_fault_has_lasted_is_counted_by_our_clock() -> None:
    """A condition that must stand for five minutes, of a node 20 minutes behind and of one 20 minutes ahead."""
    faults = (Fault("NhcHealthy", "False", 300.0),)
    for apart in (-1200.0, 1200.0):
        seen = ConditionsSeen()
        seen.of(node(NOW + apart), NOW)
        for after, verdict in ((300.0, Verdict.WARN), (600.0, Verdict.CRIT)):
            now = NOW + after
            said = node(now + apart, "False", NOW + 300 + apart)
            assert judge(said, faults, now, heard=seen.of(said, now)).report.verdict is verdict


def test_a_node_that_registered_anew_is_another() -> None:
    seen = ConditionsSeen()
    seen.of(node(NOW), NOW)
    assert seen.of(node(NOW - 5000, uid="v"), NOW + 1).conditions["NhcHealthy"].seen == NOW - 5000
    seen.forget("n")
    assert seen.of(node(NOW + 5000), NOW + 2).clock == 4998.0


def test_what_was_said_before_a_boot_is_known_for_it() -> None:
    seen = ConditionsSeen()
    seen.of(node(NOW), NOW)
    assert seen.of(node(NOW, boot="c"), NOW + 60).before_boot == {"NhcHealthy"}
    assert seen.of(node(NOW + 90, boot="c"), NOW + 90).before_boot == set()


def test_what_the_agent_said_before_a_boot_puts_no_node_back() -> None:
    """The kubelet is there after seconds, the agent's pod after a minute: until then its word is of the boot before."""
    seen = ConditionsSeen()
    faults = [Fault("NhcHealthy", "False"), Fault("KernelDeadlock")]

    def verdict(said: dict[str, Any], now: float) -> Verdict:
        return judge(said, faults, now, verdict="NhcHealthy", heard=seen.of(said, now)).report.verdict

    assert verdict(node(NOW, "True"), NOW) is Verdict.OK
    assert verdict(node(NOW, "True", boot="c"), NOW + 60) is Verdict.UNKNOWN
    assert verdict(node(NOW + 90, "True", boot="c"), NOW + 90) is Verdict.OK
