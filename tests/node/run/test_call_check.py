"""Whatever a check returns, what reaches the report is an outcome that every format can carry."""

import json
import math
import re

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict, crit, ok, reason_key
from nhc.core.render import json as as_json
from nhc.core.render.plain import EVIDENCE_WIDTH, decode
from nhc.node.run.engine import encode_all
from tests.support.run import ROOT

EVIL = 'gpu\x1b[31m0\n\x00"\\\u202e\udcff\u2028' + "x" * 5000


def portable(outcome):
    """What arrives of an outcome, and that outcome's report is valid."""
    (found,) = [decode(value) for value in encode_all("check_x", [outcome])]
    report = Report("node", "boot", 1.0, 0.1, (CheckResult("check_x", found),))
    shown = json.loads(as_json.render(report), parse_constant=pytest.fail)
    jsonschema.validate(shown, json.loads((ROOT / "docs/report.schema.json").read_text()))
    return found


@pytest.mark.parametrize(
    "wrong",
    [
        ok("x", metrics=(Metric("m", "abc"),)), ok("x", metrics=("abcd",)), ok("x", metrics=(Metric("m", 10**400),)),
        Outcome(7), Outcome(None), crit("A", "b")._replace(action="detonate"), crit("A", "b", evidence=None),
    ],
)  # fmt: skip
def test_what_is_no_outcome_is_the_checks_bug(wrong):
    found = portable(wrong)
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "CheckBroken")
    assert found.message.startswith("check_x has a bug: ")


@pytest.mark.parametrize(
    ("word", "reason", "message"),
    [
        ("GpuLost", "GpuLost", "b"), ("Disk_Is_Bad", "Disk_Is_Bad", "b"),
        ("NeuronHasError_DMA_ERROR", "NeuronHasError_DMA_ERROR", "b"),
        ("disk-is-bad", "DiskIsBad", "disk-is-bad: b"), ("lower", "Lower", "b"), ("Rea son", "ReaSon", "Rea son: b"),
        ("\u00c4h", "H", "\u00c4h: b"), ("A\n", "A", "A: b"), ("_x", "X", "_x: b"), ("79", "Reason79", "79: b"),
        ("\u00c4\u00d6", "Unnamed", "\u00c4\u00d6: b"), ("__", "Unnamed", "__: b"), ("_1", "Reason1", "_1: b"),
        ("x" * 300, "X" + "x" * 127, "x" * 127 + "\u2026: b"),
    ],
)  # fmt: skip
def test_a_foreign_reason_costs_no_verdict(word, reason, message):
    found = portable(crit(word, "b"))
    assert (found.verdict, found.reason, found.message) == (Verdict.CRIT, reason, message)


@pytest.mark.thorough
@given(st.text(max_size=300))
def test_every_word_has_a_reason_that_every_format_takes(word):
    key = reason_key(word)
    assert re.fullmatch(r"[A-Z][A-Za-z0-9_]{0,127}", key)
    assert reason_key(key) == key


def test_one_outcome_that_is_none_hides_no_other():
    found = [decode(value) for value in encode_all("check_x", [crit("A", "a"), Outcome(7), crit("B", "b")])]
    assert [outcome.reason for outcome in found] == ["A", "CheckBroken", "B"]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_left_out(number):
    found = portable(crit("A", "b", metrics=(Metric("m", number), Metric("n", 3))))
    assert (found.verdict, found.metrics) == (Verdict.CRIT, (Metric("n", 3),))


def test_text_is_bounded_everywhere():
    found = portable(crit("Evil", EVIL, target=EVIL, metrics=(Metric(EVIL, 1),), evidence=(EVIL,) * 1000))
    texts = [found.message, found.target, found.metrics[0].name, *found.evidence]
    assert max(map(len, texts)) == EVIDENCE_WIDTH
    assert len(found.evidence) == 50


def test_an_action_may_be_given_as_text():
    assert portable(crit("A", "b")._replace(action="reboot")).action is Action.REBOOT
