"""Vocabularies as data: reports into conditions, conditions into faults, marks into labels that the API accepts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.check import find_all
from nhc.core.model import Action, CheckResult, Outcome, Report, crit, ok, skip, unknown, warn
from nhc.marks.ports.adapter import Mark
from nhc_adapters.kubernetes.nodes.conditions import Condition
from nhc_adapters.kubernetes.nodes.marks import Treatment
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint, conditions_of, label_value, parse_taint
from nhc_adapters.kubernetes.nodes.vocabulary_file import BadVocabulary, known, load
from nhc_adapters.kubernetes.sink import condition_rules

LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


def report(*results: tuple[str, Outcome]) -> Report:
    return Report("n1", "boot", 0.0, 0.0, tuple(CheckResult(check, outcome) for check, outcome in results))


def said(names: str, *results: tuple[str, Outcome]) -> dict[str, Condition]:
    found = conditions_of(report(*results), condition_rules([load(name) for name in names.split()]))
    return {condition.type: condition for condition in found}


@pytest.mark.parametrize("name", known())
def test_every_vocabulary_that_is_shipped_can_be_read_and_says_where_it_is_from(name: str) -> None:
    loaded = load(name)
    assert loaded.name == name
    assert loaded.summary
    raw = json.loads((Path(load.__code__.co_filename).parents[2] / f"data/kubernetes/{name}.json").read_text())
    assert raw["source"]


def test_every_check_is_of_one_family_in_nhcs_own_words() -> None:
    families = [one for one in load("nhc").conditions if one.type != "NhcHealthy"]
    found = {
        check.name: [one.type for one in families if one.covers(CheckResult(check.name, ok()))] for check in find_all()
    }
    del found["check_kmsg"]  # its findings are filed by their reasons
    assert {name: types for name, types in found.items() if len(types) != 1} == {}
    assert found["check_hw_ib"] == ["NhcFabricProblem"]
    assert found["check_mount_responds"] == ["NhcStorageProblem"]
    assert found["check_ps_loadavg"] == ["NhcSystemProblem"]


def test_a_report_becomes_one_verdict_and_the_families_that_were_judged() -> None:
    found = said(
        "nhc",
        ("check_gpu_lost", crit("GpuLost", "fell off the bus", target="gpu3", action=Action.REBOOT)),
        ("check_fs_free", ok("plenty")),
        ("check_hw_ib", skip("NoInfiniBand", "no port")),
    )
    assert (found["NhcHealthy"].status, found["NhcHealthy"].reason) == ("False", "GpuLost")
    assert found["NhcHealthy"].message == "check_gpu_lost: gpu3: fell off the bus [action: reboot]"
    assert found["NhcGpuProblem"].status == "True"
    assert found["NhcStorageProblem"].status == "False"
    assert "NhcFabricProblem" not in found


def test_what_could_not_be_told_is_unknown_unless_something_is_worse() -> None:
    unsure = ("check_gpu_ecc", unknown("NvmlTimeout", "NVML does not answer"))
    assert said("nhc", unsure, ("check_fs_free", ok()))["NhcHealthy"].status == "Unknown"
    assert said("nhc", unsure, ("check_gpu_lost", crit("GpuLost", "x")))["NhcHealthy"].status == "False"
    assert said("nhc", ("check_fs_free", warn("Filling", "80%")))["NhcHealthy"].status == "True"


@pytest.mark.parametrize(
    ("check", "outcome", "kind", "reason"),
    [
        ("check_gpu_count", crit("GpuCountMismatch", "7 of 8"), "GpuCount", "GpuCountBad"),
        ("check_kmsg", crit("Xid79", "off the bus"), "GpuXid", "GpuXidBad"),
        ("check_gpu_ecc", crit("GpuSramThreshold", "x"), "GpuEcc", "GpuEccBad"),
        ("check_nvlink_status", crit("LinkDown", "x"), "GpuNvlink", "GpuNvlinkBad"),
        ("check_hw_ib", crit("LinkDown", "x"), "IbDev", "IbDevBad"),
    ],
)
def test_draino_finds_the_conditions_that_it_is_told_of(check: str, outcome: Outcome, kind: str, reason: str) -> None:
    found = said("aks", (check, outcome))[kind]
    assert (found.status, found.reason) == ("True", reason)


def test_a_kernel_log_without_findings_clears_the_conditions_that_come_from_it() -> None:
    assert said("npd", ("check_kmsg", ok()))["ReadonlyFilesystem"].reason == "FilesystemIsNotReadOnly"
    found = said("neuron", ("check_kmsg", crit("NeuronHasError_DMA_ERROR", "x")))["NeuronHealth"]
    assert (found.status, found.reason) == ("True", "NeuronHasError_DMA_ERROR")


def test_kernel_log_findings_are_filed_by_their_reasons() -> None:
    found = said("nhc", ("check_kmsg", crit("NodeOom", "x")), ("check_kmsg", crit("Xid79", "x")))
    assert (found["NhcSystemProblem"].reason, found["NhcGpuProblem"].reason) == ("NodeOom", "Xid79")


def test_hyperpod_tells_a_reboot_from_a_replacement() -> None:
    reboot = said("hyperpod", ("check_kmsg", crit("Xid79", "x", action=Action.REBOOT)))
    assert (reboot["NvidiaErrorReboot"].status, reboot["NvidiaErrorTerminate"].status) == ("True", "False")
    replace = said("hyperpod", ("check_kmsg", crit("Xid64", "x", action=Action.REPLACE)))
    assert (replace["NvidiaErrorReboot"].status, replace["NvidiaErrorTerminate"].status) == ("False", "True")


def test_one_fault_that_two_conditions_tell_of_is_named_once() -> None:
    state = Treatment((load("hyperpod"),)).state("faulty", Mark("x"), ["Xid79", "Xid79", "Xid48"], ["A", "B", "A"])
    prefix = "sagemaker.amazonaws.com/fault-"
    assert (state.labels[f"{prefix}reasons"], state.labels[f"{prefix}types"]) == ("Xid79_Xid48", "A_B")


# Values.


@pytest.mark.thorough
@given(st.text(max_size=200))
def test_any_text_becomes_a_label_value_that_the_api_takes(text: str) -> None:
    value = label_value(text)
    assert LABEL.fullmatch(value)
    assert len(value) <= 63


@given(st.text(max_size=100), st.sampled_from(list(Action)), st.lists(st.text(max_size=30), max_size=3))
def test_no_text_of_a_finding_breaks_a_vocabularys_values(why: str, action: Action, reasons: list[str]) -> None:
    treatment = Treatment(tuple(load(name) for name in known()))
    state = treatment.state("faulty", Mark(why, action), reasons, reasons)
    assert all(LABEL.fullmatch(value) and len(value) <= 63 for value in state.labels.values())
    details = json.loads(state.annotations["sagemaker.amazonaws.com/fault-details"])
    assert details[0]["message"] == why


@pytest.mark.parametrize("text", ["key=value:NoSchedule", "example.com/key:NoExecute"])
def test_a_taint_is_read_as_kubectl_writes_it(text: str) -> None:
    assert str(parse_taint(text)) == text


@pytest.mark.parametrize("text", ["key", "key=value", "key=value:Sometimes", ":NoSchedule", "a b:NoSchedule"])
def test_what_is_no_taint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a taint"):
        parse_taint(text)


GOOD: dict[str, Any] = {"name": "x", "conditions": [], "states": {}, "faults": [], "foreign": []}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": 3}, "name"),
        ({"condition": []}, "condition"),
        ({"conditions": [{"type": "A", "bad": "Maybe", "good": {"reason": "r"}}]}, "conditions[0].bad"),
        ({"conditions": [{"type": "A"}]}, "conditions[0].good.reason"),
        ({"conditions": [{"type": "DiskPressure", "good": {"reason": "r"}}]}, "conditions[0].type"),
        ({"faults": [{"type": "A", "action": "explode"}]}, "faults[0].action"),
        ({"faults": [{"type": "A", "for": -1}]}, "faults[0].for"),
        ({"faults": [{"type": "A", "for": "soon"}]}, "faults[0].for"),
        ({"states": {"faulty": {"taints": [{"key": "a"}]}}}, "states.faulty.taints[0]"),
        ({"states": {"faulty": {"labels": {"a": "{what}"}}}}, "states.faulty.labels.a"),
        ({"states": {"faulty": {"labels": {"no good": "x"}}}}, "states.faulty.labels.no good"),
    ],
)
def test_a_mistake_in_a_vocabulary_is_named_by_its_place(tmp_path: Path, change: dict[str, Any], place: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(BadVocabulary) as caught:
        load(str(path))
    assert f"{path}: {place}" in str(caught.value) or f"{path}: .{place}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_vocabulary_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(BadVocabulary, match="nvsentinel"):
        load("klingon")


def test_a_sites_own_vocabulary_is_used_like_ours(tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    path.write_text(
        json.dumps({**GOOD, "states": {"faulty": {"taints": [{"key": "site/bad", "effect": "NoExecute"}]}}})
    )
    state = Treatment((load(str(path)),)).state("faulty", Mark("x"))
    assert state.taints == (NodeTaint("site/bad", "", "NoExecute"),)
