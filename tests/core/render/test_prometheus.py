"""What a node's series promise: few, each with one unit, and a fault that neither ends nor begins another's."""

from __future__ import annotations

import ast
import re
import subprocess
from shutil import which

import pytest

from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict
from nhc.core.render import prometheus
from tests.support.require import need
from tests.support.run import ROOT


def result(verdict, reason="", target="", source="nhc.conf:3", metrics=(), check="check_gpu"):
    outcome = Outcome(verdict, reason, "said", target, tuple(metrics), Action.NONE, ())
    return CheckResult(check, outcome, 0.5, source)


def render(*results):
    return prometheus.render(Report("n1", "boot", 1700000000.0, 1.0, results, version="1"))


def series(text, name):
    return [line for line in text.splitlines() if re.match(rf"{name}[{{ ]", line)]


def test_a_fault_changes_the_value_of_a_verdict_and_not_its_series():
    well = render(result(Verdict.OK, target="gpu0"))
    sick = render(result(Verdict.CRIT, "GpuLost", "gpu0", source="nhc.conf:9"))
    assert series(well, "nhc_check_verdict") == ['nhc_check_verdict{check="check_gpu",target="gpu0"} 1']
    assert series(sick, "nhc_check_verdict") == ['nhc_check_verdict{check="check_gpu",target="gpu0"} 4']
    assert series(well, "nhc_problem") == []
    assert series(sick, "nhc_problem") == ['nhc_problem{check="check_gpu",target="gpu0",reason="GpuLost"} 1']


def test_a_log_that_names_a_thousand_devices_stays_small_and_is_counted():
    many = [result(Verdict.OK, "", f"sd{number:04}", metrics=[Metric("errors", 1)]) for number in range(1000)]
    many += [result(Verdict.WARN, f"Reason{number}", f"bad{number:03}") for number in range(500)]
    many += [result(Verdict.CRIT, "DiskLost", "zz")]
    text = render(*many)
    assert len([line for line in text.splitlines() if not line.startswith("#")]) < 80
    verdicts = series(text, "nhc_check_verdict")
    assert len(verdicts) == 16
    assert verdicts[0] == 'nhc_check_verdict{check="check_gpu",target="zz"} 4'
    assert series(text, "nhc_check_targets") == ['nhc_check_targets{check="check_gpu"} 1501']
    assert series(text, "nhc_check_problems") == ['nhc_check_problems{check="check_gpu"} 501']
    assert 'reason="DiskLost"' in series(text, "nhc_problem")[0]
    assert len(series(text, "nhc_problem")) == 16


def test_each_metric_has_one_unit_the_base_one():
    metrics = [Metric("rate", 200, "Gb/s"), Metric("share", 12.5, "%"), Metric("offset", 250, "us"), Metric("n", 3)]
    text = render(result(Verdict.OK, metrics=metrics))
    where = 'check="check_gpu",target=""'
    assert f'nhc_check_value_bits_per_second{{{where},name="rate"}} 200000000000\n' in text
    assert f'nhc_check_value_ratio{{{where},name="share"}} 0.125\n' in text
    assert f'nhc_check_value_seconds{{{where},name="offset"}} 0.00025\n' in text
    assert f'nhc_check_value{{{where},name="n"}} 3\n' in text


def test_a_unit_of_a_site_makes_a_name_that_prometheus_takes():
    text = render(result(Verdict.OK, metrics=[Metric("x", 1, 'm²/"h\n')]))
    assert 'nhc_check_value_unit_m___h_{check="check_gpu",target="",name="x"} 1\n' in text


def test_the_values_of_one_target_are_bounded():
    text = render(result(Verdict.OK, metrics=[Metric(f"m{number}", number) for number in range(500)]))
    assert len(series(text, "nhc_check_value")) == 32


@pytest.mark.thorough
def test_every_unit_of_a_built_in_check_has_a_base_unit():
    found = set()
    for path in (ROOT / "nhc/node/checks").glob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            place = {"Metric": 2, "known": 0}.get(getattr(call.func, "id", ""), len(call.args))
            for unit in call.args[place : place + 1]:
                found |= {one.value for one in ast.walk(unit) if isinstance(one, ast.Constant)}
    assert {"s", "%", "Gb/s"} <= found <= set(prometheus.UNITS)


def test_lines_of_one_check_take_their_time_together():
    text = render(result(Verdict.OK, target="a"), result(Verdict.OK, target="b"), result(Verdict.OK, source="x:1"))
    assert series(text, "nhc_check_elapsed_seconds") == ['nhc_check_elapsed_seconds{check="check_gpu"} 1']


def test_promtool_has_nothing_to_say():

    promtool = which("promtool")
    need("promtool", promtool, "apt-get install prometheus")
    text = render(result(Verdict.CRIT, "GpuLost", 'a"\\\n', metrics=[Metric("t", 30, "Cel"), Metric("n", 1)]))
    run = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_check_that_is_still_to_be_judged_has_no_problems_and_no_verdict():
    page = prometheus.render(Report("n1", "b", 0.0, 0.0, ()), ["check_a", "check_a"])
    assert page.count('nhc_check_problems{check="check_a"} 0\n') == 1
    assert "nhc_check_verdict{" not in page
