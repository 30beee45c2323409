"""Whatever a check returns, what reaches the report is an outcome that every format can carry."""

import json
import math

import jsonschema
import pytest

from nhc.model import Action, CheckResult, Metric, Outcome, Report, Verdict, crit, ok
from nhc.render import json as as_json
from nhc.work import EVIDENCE_WIDTH, decode, encode_all
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
        crit("Rea son", "b"), crit("\u00c4h", "b"), crit("lower", "b"), crit("A\n", "b"),
    ],
)  # fmt: skip
def test_what_is_no_outcome_is_the_checks_bug(wrong):
    found = portable(wrong)
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "CheckBroken")
    assert found.message.startswith("check_x has a bug: ")


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
