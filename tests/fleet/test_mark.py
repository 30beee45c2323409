"""`--mark`: reports to an adapter, under the policy's ceilings, shown only unless --apply says otherwise; and what
counts as a report at all."""

from __future__ import annotations

import json
import time
import zlib
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Report, crit, ok
from nhc.core.render.json import to_dict
from nhc.fleet import mark
from nhc.fleet.history import SweepHistory
from nhc.fleet.node_result import NodeResult, line, read_report, unreached
from nhc.fleet.settings import FleetSettings
from nhc.fleet.sweep_request import SweepRequest
from nhc.fleet.transport import Node, Trouble
from nhc.marks.ports.adapter import Applied, Effect, NodeState


class Scheduler:
    """Ten nodes, all idle; remembers what was marked."""

    marked: ClassVar[dict] = {}

    def nodes(self, names=None):
        every = [f"gpu{n:02}" for n in range(10)]
        return [NodeState(n, "?", n not in self.marked, mark=self.marked.get(n)) for n in every]

    def mark(self, marks, seen=None):
        self.marked.update(marks)
        return [Applied(name, Effect.CHANGED) for name in marks]

    def clear(self, names, seen=None):
        return [Applied(name, Effect.UNCHANGED) for name in names]


@pytest.fixture
def swept(monkeypatch):
    """A sweep with four CRIT nodes and one that was not reached."""
    monkeypatch.setattr(mark, "open_adapter", lambda name: Scheduler())
    monkeypatch.setattr(Scheduler, "marked", {})
    kept = SweepHistory("")
    number = kept.begin("nhc fleet check", "0.1.0", time.time())
    for index in range(10):
        node = Node(f"gpu{index:02}")
        outcome = crit("GpuXid79", "fell off the bus") if index < 4 else ok()
        report = Report(node.name, "b", time.time(), 0.1, (CheckResult("check_gpu_xid", outcome),))
        if index == 9:
            report = unreached(node, Trouble("Refused", "refused"), time.time())
        text = line(NodeResult(node, report))
        kept.add(number, node.name, int(report.verdict), 0.1, zlib.compress(text.encode()))
    kept.end(number)
    yield kept, number
    kept.close()


def asked(apply=False, **settings):
    """A sweep that hands its reports to Slurm's adapter."""
    return SweepRequest(mark="slurm", apply=apply), FleetSettings(**settings)


def run(swept, tmp_path, capsys, apply=False):
    status = mark.prepare(*asked(apply, max_drained="2", ledger_path=str(tmp_path)))(*swept)
    return status, capsys.readouterr().out


def test_marks_are_only_shown_unless_asked_for(swept, tmp_path, capsys):
    status, said = run(swept, tmp_path, capsys)
    assert status == 0
    assert "slurm: would mark  gpu[00-01]  check_gpu_xid: fell off the bus" in said
    assert "2 to do, dry run: nothing changed" in said
    assert Scheduler.marked == {}
    assert not list(tmp_path.iterdir())


def test_marks_stay_under_the_ceiling_and_an_unreached_node_is_left_alone(swept, tmp_path, capsys):
    status, said = run(swept, tmp_path, capsys, apply=True)
    assert sorted(Scheduler.marked) == ["gpu00", "gpu01"]
    assert "not mark  gpu[02-03]  2 of 10 nodes in the fleet are out, at most" in said
    assert "gpu09" not in said
    assert status == 0
    assert (tmp_path / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    ("changed", "said"), [({"max_drained": "lots"}, "lots"), ({"policy_path": "/no/policy"}, "/no/policy")]
)
def test_a_policy_that_cannot_be_used_is_found_before_the_sweep(monkeypatch, changed, said):
    monkeypatch.setattr(mark, "open_adapter", lambda name: Scheduler())
    with pytest.raises(mark.BadMark, match=said):
        mark.prepare(*asked(**changed))


# What a node sends.

NODE = Node("gpu01")
GOOD = to_dict(Report("gpu01", "b", time.time(), 0.1, (CheckResult("check_x", ok("fine")),)))


def test_a_clock_that_is_wrong_is_noted():
    report = read_report(json.dumps({**GOOD, "started": time.time() - 3600}), NODE, time.time())
    assert "clock differs from this machine's by about -3600 s" in report.notes[0]
    assert read_report(json.dumps({**GOOD, "started": time.time()}), NODE, time.time()).notes == ()


@pytest.mark.parametrize("text", [
    "", "{}", "[]", "null", "nan", "[" * 100_000, '{"schema": 1e999}', json.dumps({**GOOD, "started": 10**400}),
    json.dumps({**GOOD, "results": [{"check": "x", "verdict": "GREAT"}]}), json.dumps({**GOOD, "results": {}}),
    json.dumps({**GOOD, "host": "gpu02"}), json.dumps({**GOOD, "schema": 2}),
], ids=[
    "nothing", "no field", "list", "null", "no number", "deep", "infinite schema", "start too large", "no verdict",
    "results of another type", "another node", "another schema",
])  # fmt: skip
def test_what_is_no_report_of_this_node_is_trouble(text):
    with pytest.raises(Trouble):
        read_report(text, NODE, time.time())


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.thorough
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), json_values), json_values, json_values)
def test_whatever_a_node_sends_is_a_clean_report_or_trouble(changed, verdict, number):
    result = {**GOOD["results"][0], "message": str(verdict), "elapsed": number, "evidence": [str(number)],
              "metrics": [{"name": "m", "value": number, "unit": ""}]}  # fmt: skip
    value = {**GOOD, "results": [result], **changed}
    try:
        report = read_report(json.dumps(value), NODE, time.time())
    except Trouble:
        return
    text = line(NodeResult(NODE, report))  # allow_nan is off: a number that is none would raise
    assert text.isprintable() or "\\u" in text
    json.loads(text)
