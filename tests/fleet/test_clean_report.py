"""A report that is taken as it is reads as one that is judged in full, and what is not in order is judged in full."""

from __future__ import annotations

import json
import time

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Metric, Report, crit, ok
from nhc.core.render.json import render, to_dict
from nhc.fleet.clean_report import clean_report
from nhc.fleet.node_result import NodeResult, findings, line, metrics, read_report
from nhc.fleet.transport import Node

NODE = Node("gpu01")
GOOD = to_dict(Report("gpu01", "b", time.time(), 0.1, (CheckResult("check_x", ok("fine")),)))
words = st.sampled_from(["", "ok", "a  b", 'say "no"', "back\\slash", "é", "x" * 64, "/dev/sda", "😀"])
hostile = st.text(max_size=12) | st.sampled_from(["x" * 1001, "a\n", "\u2028", "disk-is-bad", "\x1b[31m"])
numbers = st.floats(-1e12, 1e12) | st.integers(-(10**6), 10**6)
results = st.fixed_dictionaries({
    "check": st.sampled_from(["check_x", "check_y"]),
    "verdict": st.sampled_from(["OK", "WARN", "CRIT", "SKIP", "UNKNOWN"]),
    "reason": st.sampled_from(["", "DiskFull", "Disk_Is_Bad"]), "message": words, "target": words,
    "action": st.sampled_from(["none", "reboot"]),
    "metrics": st.lists(st.fixed_dictionaries({"name": words, "value": numbers, "unit": st.just("B")}), max_size=2),
    "evidence": st.lists(words, max_size=3), "elapsed": st.floats(0, 1), "line": words,
    "tags": st.lists(words, max_size=3), "strike": st.integers(-3, 3), "strikes": st.integers(0, 3),
    "source": words | st.sampled_from([f"/var/cache/{'0f' * 32}/etc/nhc.conf:3", f"/x/{'ab' * 32}"]),
})  # fmt: skip
FIELDS = tuple(GOOD["results"][0])


@given(st.lists(results, max_size=4), st.lists(words, max_size=2), st.dictionaries(words, words, max_size=2),
       st.floats(-130, 130), st.sampled_from([False, False, False, True]), st.sampled_from([None, 1]),
       st.none() | st.tuples(st.sampled_from(("check", "reason", "message", "source", "line")), hostile))  # fmt: skip
def test_a_report_that_is_taken_as_it_is_reads_as_one_judged_in_full(
    given, notes, labels, late, escaped, indent, changed
):
    rows = [{name: one[name] for name in FIELDS} for one in given]
    if rows and changed:
        rows[-1][changed[0]] = changed[1]
    value = {**GOOD, "results": rows, "notes": notes, "labels": labels, "started": 1.7e9 + late}
    text = json.dumps(value, ensure_ascii=escaped, indent=indent) + "\n"
    taken = clean_report(text, NODE.name, 1.7e9)
    hypothesis.event(f"taken as it is: {taken is not None and len(given)}")
    if taken is None:
        return
    full = read_report(text, NODE, 1.7e9)
    assert line(NodeResult(NODE, taken)) == line(NodeResult(NODE, full))
    assert (taken.findings, taken.metrics) == (findings(full), metrics(full))
    assert (taken.verdict, taken.labels) == (int(full.verdict), full.labels)


@pytest.mark.parametrize("indent", [0, 2])
def test_what_nhc_writes_is_taken_as_it_is(indent):
    rich = CheckResult("check_x", crit("DiskFull", 'is "full"', target="/", metrics=(Metric("free", 0, "B"),),
                                       evidence=("é",)), 0.25, "nhc.conf:1", "check_x", ("fs",), 1, 2)  # fmt: skip
    report = Report(NODE.name, "b", time.time(), 0.1, (rich, rich), ("a note",), 1, "0.1.0", {"profile": "gpu"})
    taken = clean_report(render(report, indent), NODE.name, time.time())
    assert taken is not None
    assert (len(taken.findings), taken.metrics[0]) == (2, ("check_x", "/", "free", "B", 0.0))


@pytest.mark.parametrize(("old", "new"), [
    ('"is full"', r'"is\u001b full"'), ('"is full"', r'"is\n full"'), ('"is full"', '"is\u202e full"'),
    ('"is full"', f'"{"x" * 1001}"'), ('"host":"gpu01"', '"host":"gpu02"'), ('"schema":1', '"schema":2'),
    ('"schema":1', '"schema":true'), ('"strike":0', '"strike":true'), ('"elapsed":0.1', '"elapsed":1e999'),
    ('"reason":"DiskFull"', '"reason":"disk full"'), ('"not_run":0', '"not_run":-1'),
])  # fmt: skip
def test_what_is_out_of_the_ordinary_is_judged_in_full(old, new):
    now = time.time()
    report = Report(NODE.name, "b", now, 0.1, (CheckResult("check_x", crit("DiskFull", "is full")),))
    text = render(report, 0)
    assert clean_report(text, NODE.name, now) is not None
    assert old in text
    assert clean_report(text.replace(old, new), NODE.name, now) is None
    assert clean_report(text, NODE.name, now + 1000) is None
