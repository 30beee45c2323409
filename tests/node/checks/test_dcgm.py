"""What DCGM's background watches say, in the JSON that dcgmi of 3.3 and 4.6 writes (dcgmi/Health.cpp)."""

import json

import pytest

from nhc.core.check import find
from nhc.core.model import Action, Verdict
from nhc.node.facts.dcgm import parse_health

ASKED = "dcgmi health -g 0 -c -j"
OK, WARN, CRIT, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.CRIT, Verdict.UNKNOWN


def answer(overall="Healthy", **groups):
    """GPU={"3": {"Memory system": ("Failure", "text")}}."""
    body = {"Overall Health": {"value": overall}}
    for group, entities in groups.items():
        children = {}
        for entity, systems in entities.items():
            errors = {system: {"value": health, "overflow": text.split("|")}
                      for system, (health, text) in systems.items()}  # fmt: skip
            children[entity] = {"value": overall, "children": {"Errors": {"children": errors}}}
        body[group] = {"children": children}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=3) + "\n"


def told(nvml, said, *faults, base="h100", check="check_dcgm_health"):
    return nvml.one(base, check, *faults, commands={ASKED: said})


def bad(outcomes):
    return [(one.verdict, one.reason, one.target) for one in outcomes if one.verdict > OK]


def test_healthy(nvml):
    (outcome,) = told(nvml, answer())
    assert (outcome.verdict, outcome.message) == (OK, "DCGM finds 8 GPUs healthy")


def test_a_failure_and_a_warning_are_of_their_gpus(nvml):
    said = answer("Failure", GPU={
        "3": {"Memory system": ("Failure", "A pending retired page has been|detected in GPU 3."),
              "PCIe system": ("Warning", "Detected more than 8 PCIe replays per minute")},
        "5": {"Thermal system": ("Warning", "GPU 5 is hot")},
    })  # fmt: skip
    outcomes = told(nvml, said)
    assert sorted(bad(outcomes)) == [(WARN, "DcgmWarning", "gpu3"), (WARN, "DcgmWarning", "gpu5"),
                                     (CRIT, "DcgmFailure", "gpu3")]  # fmt: skip
    (failure,) = [one for one in outcomes if one.verdict is CRIT]
    assert "A pending retired page has been detected in GPU 3." in failure.message
    assert failure.action is Action.INSPECT
    assert bad(told(nvml, said, check="check_dcgm_health -d 5")) == [(WARN, "DcgmWarning", "gpu5")]


def test_a_failure_counts_at_the_second_look():
    assert find("check_dcgm_health").samples == ("DcgmFailure",)


def test_nvlinks_that_lead_nowhere_are_left_out_and_those_that_are_up_are_not(nvml):
    said = answer("Failure", GPU={"0": {"NVLINK system": ("Failure", "GPU 0's NvLink link 3 is currently down")}})
    assert bad(told(nvml, said)) == [(CRIT, "DcgmFailure", "gpu0")]
    (outcome,) = told(nvml, said, "*.link.state 0")
    assert (outcome.verdict, "1 of NVLink left out" in outcome.message) == (OK, True)


def test_a_switch_is_judged_wherever_it_is(nvml):
    said = answer("Failure", Switch={"0": {"NVLINK system": ("Failure", "fatal error on link 12")}})
    assert bad(told(nvml, said)) == [(CRIT, "DcgmFailure", "Switch 0")]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ((1, "Error: Health watches not enabled. Please enable watches. \n", ""), "DcgmNotWatching"),
        ((1, "Error: unable to establish a connection to the specified host: localhost\n", ""), "DcgmSilent"),
        (answer("Internal error"), "DcgmSilent"),
        (answer("Failure", GPU={"1": {"SM system": ("Internal error", "?")}}), "DcgmSilent"),
        ("Overall Health: Healthy\n", "DcgmSilent"),
        ('{"body": {}}\n', "DcgmSilent"),
        ('{"body": {"Overall Health": {"value": "Healthy"}, "GPU": []}}\n', "DcgmSilent"),
        ('{"body": {"Overall Health": {"value": "Failure"}, "GPU": {"children": {"0": 7}}}}\n', "DcgmSilent"),
    ],
)
def test_what_does_not_tell_is_unknown(nvml, said, reason):
    [(verdict, why, _target)] = bad(told(nvml, said))
    assert (verdict, why) == (UNKNOWN, reason)


def test_without_dcgm_and_without_gpus(nvml):
    (outcome,) = nvml.one("h100", "check_dcgm_health")
    assert (outcome.verdict, outcome.reason) == (UNKNOWN, "CommandMissing")
    (outcome,) = nvml.one("h100", "check_dcgm_health", files={})
    assert outcome.verdict is Verdict.SKIP


SHAPE = r"JSON of another shape: (body|Overall Health|value) is (NoneType|int), not an? \w+"


@pytest.mark.parametrize("text", ["", "{}", '{"body": 1}', '{"body": {"Overall Health": {}}}'])
def test_another_text_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=rf"^(no JSON object in it|{SHAPE})$"):
        parse_health(text)
