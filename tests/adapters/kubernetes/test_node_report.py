"""Conditions read back: who is sick, who is unknown, and from when on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Action, Verdict
from nhc.core.timestamps import from_utc, utc
from nhc_adapters.kubernetes.controller.node_report import Accelerators, judge, parse_fault
from nhc_adapters.kubernetes.nodes.accelerators import NOT_REGISTERED, SHORT, expected_accelerators
from nhc_adapters.kubernetes.nodes.vocabulary import Fault

NOW = 1_700_000_000.0
HEALTHY = (Fault("NhcHealthy", "False"),)


def node(*conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": more.pop("labels", {})},
        "status": {"conditions": list(conditions), **more},
    }


def condition(kind: str, status: str, since: float = NOW - 60, seen: float = NOW - 1, **more: str) -> dict[str, Any]:
    times = {"lastTransitionTime": utc(since), "lastHeartbeatTime": utc(seen)}
    return {"type": kind, "status": status, **times, "reason": "R", "message": "m", **more}


def verdict(one: dict[str, Any], faults: tuple[Fault, ...] = HEALTHY, **more: Any) -> Verdict:
    return judge(one, faults, NOW, **more).report.verdict


def test_a_bad_condition_is_crit_with_its_check_action_and_reason() -> None:
    said = "check_gpu_lost: gpu3: fell off the bus [action: replace]"
    found = judge(node(condition("NhcHealthy", "False", reason="GpuLost", message=said)), HEALTHY, NOW)
    (result,) = found.report.results
    assert (result.check, result.verdict, result.outcome.action) == ("check_gpu_lost", Verdict.CRIT, Action.REPLACE)
    assert result.outcome.message == "gpu3: fell off the bus"
    assert (found.reasons, found.types) == (("GpuLost",), ("NhcHealthy",))


@pytest.mark.parametrize(
    ("status", "wanted"), [("True", Verdict.OK), ("False", Verdict.CRIT), ("Unknown", Verdict.UNKNOWN)]
)
def test_each_status_has_its_verdict(status: str, wanted: Verdict) -> None:
    assert verdict(node(condition("NhcHealthy", status))) is wanted


def test_a_node_without_any_of_the_conditions_is_unknown() -> None:
    assert verdict(node()) is Verdict.UNKNOWN
    assert verdict(node(condition("Ready", "True"))) is Verdict.UNKNOWN


def test_a_fault_counts_after_the_time_it_must_last_and_says_when_to_look_again() -> None:
    faults = (Fault("GpuCount", "True", lasting=600.0),)
    young = judge(node(condition("GpuCount", "True", since=NOW - 599)), faults, NOW)
    assert (young.report.verdict, young.again) == (Verdict.WARN, NOW + 1)
    assert verdict(node(condition("GpuCount", "True", since=NOW - 600)), faults) is Verdict.CRIT


def test_what_a_silent_agent_said_last_no_longer_counts() -> None:
    said = node(condition("NhcHealthy", "False", seen=NOW - 901), condition("GpuXid", "True"))
    found = judge(said, (*HEALTHY, Fault("GpuXid")), NOW, verdict="NhcHealthy")
    assert (found.report.verdict, found.silent) == (Verdict.UNKNOWN, True)
    fresh = judge(node(condition("NhcHealthy", "True", seen=NOW - 890)), HEALTHY, NOW, verdict="NhcHealthy")
    assert (fresh.report.verdict, fresh.again) == (Verdict.OK, NOW + 10)


def test_a_kubelet_that_is_gone_makes_a_well_node_unknown_and_a_sick_one_no_better() -> None:
    gone = condition("Ready", "Unknown")
    assert verdict(node(condition("NhcHealthy", "True"), gone)) is Verdict.UNKNOWN
    assert verdict(node(condition("NhcHealthy", "False"), gone)) is Verdict.CRIT


# draino's arguments.


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("GpuXid", Fault("GpuXid")),
        ("Ready=Unknown", Fault("Ready", "Unknown")),
        ("Ready=Unknown,10m", Fault("Ready", "Unknown", 600.0)),
        ("GpuCount=True,0s", Fault("GpuCount", "True", 0.0)),
    ],
)
def test_conditions_are_written_as_draino_takes_them(text: str, wanted: Fault) -> None:
    assert parse_fault(text) == wanted


@pytest.mark.parametrize("text", ["", "=True", "A=Maybe", "A=True,", "A=True,soon", "two words"])
def test_what_draino_would_ignore_or_die_of_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_fault(text)


# Accelerators.

READY = condition("Ready", "True", since=NOW - 3600)


def gpus(allocatable: str, capacity: str = "8", ready: dict[str, Any] = READY, *more: dict[str, Any]) -> dict[str, Any]:
    """A node that shows so many GPUs."""
    return node(
        ready,
        *more,
        allocatable={"nvidia.com/gpu": allocatable},
        capacity={"nvidia.com/gpu": capacity} if capacity else {},
    )


def wanted(count: int = 8, since: float | None = NOW - 600, **more: Any) -> Accelerators:
    return Accelerators([("nvidia.com/gpu", count)], short_since=since, **more)


@pytest.mark.parametrize(
    ("allocatable", "expected", "verdict_wanted"),
    [
        ("7", 8, Verdict.CRIT),
        ("8", 8, Verdict.OK),
        ("9", 8, Verdict.OK),
        ("junk", 8, Verdict.UNKNOWN),
        ("0", 0, Verdict.OK),
    ],
)
def test_fewer_accelerators_than_expected_are_crit(allocatable: str, expected: int, verdict_wanted: Verdict) -> None:
    assert verdict(gpus(allocatable), (), accelerators_of=wanted(expected)) is verdict_wanted


def test_too_few_accelerators_count_once_that_has_lasted_and_the_kubelet_has_been_ready_for_so_long() -> None:
    young = judge(gpus("0"), (), NOW, accelerators_of=wanted(since=NOW - 599))
    assert (young.report.verdict, young.again) == (Verdict.WARN, NOW + 1)
    assert judge(gpus("0"), (), NOW, accelerators_of=wanted(since=None)).again == NOW + 600
    back = condition("Ready", "True", since=NOW - 60)
    assert judge(gpus("7", "8", back), (), NOW, accelerators_of=wanted()).again == NOW + 540
    # The node's own condition remembers since when, so that a new controller need not.
    told = condition("NhcAllocatableProblem", "True", since=NOW - 600)
    assert verdict(gpus("7", "8", READY, told), (), accelerators_of=wanted(since=None)) is Verdict.CRIT


@pytest.mark.parametrize("capacity", ["", "0"])
def test_a_plugin_that_is_not_registered_is_judged_where_it_is_asked_for(capacity: str) -> None:
    one = gpus("0", capacity)
    assert verdict(one, (), accelerators_of=wanted()) is Verdict.UNKNOWN
    found = judge(one, (), NOW, accelerators_of=wanted(asked=True))
    assert (found.report.verdict, found.reasons) == (Verdict.CRIT, (NOT_REGISTERED,))
    assert judge(gpus("7"), (), NOW, accelerators_of=wanted(asked=True)).reasons == (SHORT,)


def test_before_the_kubelet_has_spoken_nothing_is_missing() -> None:
    assert verdict(gpus("0", "8", condition("Ready", "False")), (), accelerators_of=wanted()) is Verdict.UNKNOWN
    assert verdict(gpus("0", "8", condition("Ready", "Unknown")), (), accelerators_of=wanted()) is Verdict.UNKNOWN


# No evidence is not health.


def test_a_node_that_offers_all_but_was_never_heard_of_is_unknown() -> None:
    found = judge(gpus("8"), HEALTHY, NOW, accelerators_of=wanted())
    assert found.report.verdict is Verdict.UNKNOWN
    assert any("nobody ever said NhcHealthy" in one.outcome.message for one in found.report.results)


@pytest.mark.parametrize("status", ["True", "False"])
def test_what_nobody_renews_is_unknown_whatever_it_said(status: str) -> None:
    faults = (Fault("GpuXid"),)
    assert verdict(node(condition("GpuXid", status, seen=NOW - 901)), faults) is Verdict.UNKNOWN
    said_once = condition("GpuXid", status)
    del said_once["lastHeartbeatTime"]
    assert verdict(node({**said_once, "lastTransitionTime": utc(NOW - 9999)}), faults) is not Verdict.UNKNOWN
    # The node controller speaks for a kubelet that does not: the heartbeat stays the kubelet's last.
    gone = condition("Ready", "Unknown", since=NOW - 700, seen=NOW - 9999)
    assert verdict(node(gone), (Fault("Ready", "Unknown", 600.0),)) is Verdict.CRIT


def mark_of(sources: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    """A node with our mark, which stands on these sources."""
    one = node(*conditions)
    one["metadata"]["annotations"] = {"nhc/mark": "NHC: x", "nhc/set": '{"cordon":true}', "nhc/source": sources}
    return {**one, "spec": {"unschedulable": True}}


GOOD = condition("NhcHealthy", "True")


@pytest.mark.parametrize(
    ("sources", "conditions", "wanted"),
    [
        ("NhcHealthy=False", [GOOD], Verdict.OK),
        ("NhcHealthy=False GpuXid=True", [GOOD], Verdict.UNKNOWN),
        ("GpuXid=True", [GOOD, condition("GpuXid", "True")], Verdict.UNKNOWN),
        ("GpuXid=True", [GOOD, condition("GpuXid", "Unknown")], Verdict.UNKNOWN),
        ("GpuXid=True", [GOOD, condition("GpuXid", "False", seen=NOW - 901)], Verdict.UNKNOWN),
        ("GpuXid=True", [GOOD, condition("GpuXid", "False")], Verdict.OK),
        ("NhcKernelLogFault=True", [GOOD, condition("NhcKernelLogFault", "False", seen=NOW - 9999)], Verdict.OK),
        ("NhcKernelLogFault=True", [GOOD], Verdict.UNKNOWN),
        ("report", [GOOD], Verdict.UNKNOWN),
        ("", [GOOD], Verdict.OK),
    ],
)
def test_a_marked_node_is_well_once_each_source_of_its_mark_takes_its_word_back(
    sources: str, conditions: list[dict[str, Any]], wanted: Verdict
) -> None:
    assert verdict(mark_of(sources, *conditions)) is wanted


def test_a_mark_for_too_few_accelerators_ends_where_no_agent_ever_spoke() -> None:
    """In a cluster whose controller runs without agents, nobody ever says NhcHealthy."""

    def offers(allocatable: str, status: str, marked: bool = True) -> Verdict:
        problem = condition("NhcAllocatableProblem", status, since=NOW - 900)
        one = gpus(allocatable, "8", READY, problem)
        if marked:
            as_marked = mark_of("NhcAllocatableProblem=True")
            one["metadata"]["annotations"] = as_marked["metadata"]["annotations"]
            one["spec"] = as_marked["spec"]
        return verdict(one, accelerators_of=wanted())

    assert offers("8", "False") is Verdict.OK
    assert offers("8", "True") is Verdict.UNKNOWN  # the controller has not taken its word back yet
    assert offers("0", "True") is Verdict.CRIT
    assert offers("8", "False", marked=False) is Verdict.UNKNOWN  # never heard of


def test_a_node_never_heard_of_is_named_by_a_condition_that_is_looked_at() -> None:
    found = judge(node(), [Fault("GpuXid")], NOW, verdict="NhcHealthy").report.results
    assert [(one.check, one.outcome.reason) for one in found] == [("GpuXid", "NeverReported")]


def test_a_mark_goes_on_standing_on_what_was_not_taken_back() -> None:
    sick = condition("NhcHealthy", "False")
    assert judge(mark_of("GpuXid=True", sick), HEALTHY, NOW).sources == ("GpuXid=True", "NhcHealthy=False")
    settled = mark_of("GpuXid=True", sick, condition("GpuXid", "False"))
    assert judge(settled, HEALTHY, NOW).sources == ("NhcHealthy=False",)


@pytest.mark.parametrize("kind", ["NhcKernelLogFault", "NhcJobDeviceError", "NhcAllocatableProblem"])
def test_a_finding_whose_source_is_switched_off_is_unknown_and_said(kind: str) -> None:
    found = judge(node(GOOD, condition(kind, "True")), HEALTHY, NOW)
    assert found.report.verdict is Verdict.UNKNOWN
    assert "switched off" in str([one.outcome.message for one in found.report.results])
    assert verdict(node(GOOD, condition(kind, "False"))) is Verdict.OK


def test_what_the_cluster_found_itself_counts_though_the_agent_is_silent() -> None:
    silent = condition("NhcHealthy", "True", seen=NOW - 901)
    found = judge(
        node(silent, condition("NhcKernelLogFault", "True", seen=NOW - 9999)),
        (*HEALTHY, Fault("NhcKernelLogFault")),
        NOW,
        verdict="NhcHealthy",
    )
    assert (found.report.verdict, found.silent, found.types) == (Verdict.CRIT, True, ("NhcKernelLogFault",))


@pytest.mark.parametrize(
    ("one", "configured", "wanted"),
    [
        (node(capacity={"nvidia.com/gpu": "8", "cpu": "96"}), {}, [("nvidia.com/gpu", 8)]),
        (node(capacity={"nvidia.com/gpu": "7"}, labels={"nvidia.com/gpu.count": "8"}), {}, [("nvidia.com/gpu", 8)]),
        (
            node(capacity={"aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8"}),
            {},
            [("aws.amazon.com/neuron", 16)],
        ),
        (node(capacity={"amd.com/gpu": "8"}), {"*": {"amd.com/gpu": 4}}, [("amd.com/gpu", 4)]),
        (
            node(capacity={}, labels={"node.kubernetes.io/instance-type": "p5.48xlarge"}),
            {"p5.48xlarge": {"nvidia.com/gpu": 8}},
            [("nvidia.com/gpu", 8)],
        ),
    ],
)
def test_how_many_accelerators_a_node_should_have(one: dict[str, Any], configured: Any, wanted: Any) -> None:
    assert expected_accelerators(one, configured) == wanted


# Whatever stands on a node.

anything = st.recursive(
    st.none() | st.booleans() | st.text(max_size=8) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
conditions = st.lists(
    st.dictionaries(
        st.sampled_from(["type", "status", "reason", "message", "lastTransitionTime", "lastHeartbeatTime"]), anything
    ),
    max_size=4,
)


@pytest.mark.thorough
@given(conditions)
def test_no_condition_makes_the_judge_fail(found: list[dict[str, Any]]) -> None:
    judge(node(*found), HEALTHY, NOW, verdict="NhcHealthy")


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_a_time_is_read_as_it_was_written(when: int) -> None:
    assert from_utc(utc(when)) == when


@pytest.mark.parametrize("text", ["", "null", None, "2024-13-45", "yesterday at noon, roughly"])
def test_a_time_that_makes_no_sense_is_the_default(text: object) -> None:
    assert from_utc(text, 7.0) == 7.0
