"""Whatever stands on nodes and in Jobs is read without a failure, and asks for nothing by chance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.marks.ports.repair import Rung
from nhc_adapters.kubernetes.repair.cluster import machine_of, read_node
from nhc_adapters.kubernetes.repair.pinned_job import label_of, read_job
from nhc_adapters.kubernetes.repair.requests_on_nodes import REQUEST, RUNGS, answer, asked
from nhc_adapters.kubernetes.repair.shown_on_nodes import SIGNS, of_kured, of_node

TEXT = st.text(max_size=30)
KEYS = st.sampled_from([one.key.rstrip("*") for one in SIGNS]) | TEXT
TEXTS = st.dictionaries(KEYS, TEXT, max_size=4)
CONDITION = st.fixed_dictionaries({"type": TEXT, "status": st.sampled_from(["True", "False", "Unknown"])})
NODES = st.fixed_dictionaries({
    "metadata": st.fixed_dictionaries({"name": TEXT, "uid": TEXT, "resourceVersion": TEXT},
                                      optional={"labels": TEXTS, "annotations": TEXTS}),
    "spec": st.fixed_dictionaries({}, optional={"providerID": TEXT, "taints": st.lists(
        st.fixed_dictionaries({"key": KEYS}, optional={"value": TEXT}), max_size=3)}),
    "status": st.fixed_dictionaries({}, optional={"conditions": st.lists(CONDITION, max_size=3)}),
})  # fmt: skip


@pytest.mark.thorough
@given(NODES)
def test_a_node_is_read(node: Any) -> None:
    for claim in of_node(node, karpenter_repairs=True):
        assert claim.actor
        assert claim.source
        assert "\n" not in claim.source
    assert read_node(node).name == node["metadata"]["name"]
    assert machine_of(node).node == node["metadata"]["name"]


@given(NODES, TEXT)
def test_a_request_is_one_of_the_known_words_or_none(node: Any, words: str) -> None:
    node["metadata"].setdefault("annotations", {})[REQUEST] = words
    found = asked(node, ("nhc",))
    known = words.strip().split(" ")[0].lower() in RUNGS
    if found.request is not None:
        assert known
        assert found.request.rung not in (Rung.ESCALATE, Rung.POWER_CYCLE)
    else:
        assert bool(found.problem) == bool(words.strip())


@given(NODES, st.sampled_from(sorted(RUNGS)), TEXT)
def test_an_answer_makes_the_same_words_a_new_request(node: Any, words: str, text: str) -> None:
    notes = node["metadata"].setdefault("annotations", {})
    notes.pop("nhc/answered", None)
    notes[REQUEST] = words
    first = asked(node, ("nhc",)).request
    assert first is not None
    assert asked(node, ("nhc",)).request == first
    ops = answer(node, first, f"episode 1 {text}", True)
    assert [op["op"] for op in ops] == ["test", "add", "remove"]
    notes["nhc/answered"] = ops[1]["value"]
    again = asked(node, ("nhc",)).request
    assert again is not None
    assert again.key != first.key
    assert answer(node, first, "late", True) == [], "another request stands by now"


@pytest.mark.thorough
@given(st.text(max_size=300))
def test_any_node_has_a_label(name: str) -> None:
    assert len(label_of(name)) <= 63


@given(TEXT)
def test_any_lock_is_read(text: str) -> None:
    assert len(of_kured({"metadata": {"annotations": {"weave.works/kured-node-lock": text}}}, "n1")) <= 1


ENDED = st.fixed_dictionaries({}, optional={"exitCode": st.integers(0, 255), "message": TEXT, "reason": TEXT})
STATES = st.fixed_dictionaries({}, optional={"terminated": ENDED, "running": st.just({}),
                                             "waiting": st.fixed_dictionaries({"reason": TEXT})})  # fmt: skip
PODS = st.lists(st.fixed_dictionaries({"metadata": st.just({}), "status": st.fixed_dictionaries(
    {}, optional={"reason": TEXT, "containerStatuses": st.lists(
        st.fixed_dictionaries({"state": STATES}), max_size=2)})}), max_size=3)  # fmt: skip


@given(st.lists(st.fixed_dictionaries({"type": st.sampled_from(["Complete", "Failed", "Suspended"]),
                                       "status": st.sampled_from(["True", "False"])}), max_size=3), PODS)  # fmt: skip
def test_a_job_is_read(conditions: Any, pods: Any) -> None:
    seen = read_job({"status": {"conditions": conditions}}, pods)
    over = any(one["status"] == "True" and one["type"] in ("Complete", "Failed") for one in conditions)
    assert seen.ended == over
    assert "\n" not in seen.why
