"""A policy is played against recorded history: the same loop, another answer, and the bounds that held."""

import json

import pytest

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.core.timestamps import utc_milliseconds
from nhc.lab.commands.remedy_simulate import Assumed, differences, play
from nhc.remedy.recorded_events import BadHistory, FleetHistory, of_events, of_files, of_store
from nhc.remedy.remedy_file import parse
from nhc.store import reports
from nhc.store.intake import Incoming

BEGAN = 1_700_000_000.0
HOUR = 3600.0
ALL = "\n".join(
    f'{name} = "on"' for name in ("mark", "reset-device", "reload-driver", "reboot", "power-cycle", "replace")
)


def policy(out, more=""):
    return parse(f"""
[actions]
{ALL}
[sources]
settle = "0s"
[bounds.fleet]
out = "{out}"
repairing = "9"
[bounds.fleet.rate]
mark = "100 per 1h"
repair = "100 per 1h"
[limits]
first-run = "9"
[breaker]
faults = "50"
blind = "100%"
{more}""")


def report(name, at, *failures):
    results = tuple(CheckResult("check_gpu", Outcome(Verdict.CRIT, one, one, action=Action.REBOOT)) for one in failures)
    return Report(name, "b", BEGAN + at, 0.1, results or (CheckResult("check_gpu", Outcome(Verdict.OK)),))


def history(*found):
    ordered = tuple(sorted(found, key=lambda one: one.started))
    return FleetHistory({one.host: {"rack": "r1"} for one in found}, ordered)


def actions(played, node):
    return [one.action for one in played.done if one.node == node]


THREE = history(*(report(f"n{number}", 60.0 * number, "GpuLost") for number in range(3)), report("n9", 0.0))


@pytest.mark.slow
def test_a_tighter_bound_does_less_and_says_which_bound_held():
    wide, narrow = play(THREE, policy(3), Assumed()), play(THREE, policy(1), Assumed(), extra=1200.0)
    assert [actions(wide, f"n{number}") for number in range(3)] == [["mark", "reboot", "return"]] * 3
    found = differences(wide, narrow)
    assert [one.node for one in found] == ["n1", "n2"]
    assert found[0].held_after == ("fleet.out",)
    assert [one.bound for one in narrow.waits if one.node == "n2"] == ["fleet.out"]


@pytest.mark.slow
def test_repairs_that_do_not_help_go_up_the_ladder():
    played = play(history(report("n1", 0.0, "GpuLost")), policy(3), Assumed(cures=False), extra=6 * HOUR)
    assert actions(played, "n1") == ["mark", "reboot", "power-cycle", "replace", "escalate"]


@pytest.mark.slow
def test_what_comes_again_after_it_ended_is_a_new_fault():
    past = history(report("n1", 0, "GpuLost"), report("n1", 3 * HOUR), report("n1", 5 * HOUR, "GpuLost"))
    assert actions(play(past, policy(3), Assumed()), "n1") == ["mark", "reboot", "return"] * 2


@pytest.mark.slow
def test_a_dry_policy_does_nothing_unless_it_is_taken_as_enabled():
    assert play(THREE, parse(""), Assumed()).done == ()
    enabled = play(THREE, parse("[breaker]\nfaults = 50"), Assumed(enabled=True))
    order = [one.action for one in enabled.done if one.action in ("mark", "return")]
    assert order == ["mark", "return"] * 3  # the first run takes one out at a time


@pytest.mark.thorough
def test_history_comes_from_the_store(world):
    with world.plain.write() as connection:
        for one in THREE.reports:
            reports.receive(connection, [Incoming(one, "agent", one.started)])
    past = of_store(world, BEGAN - 1, BEGAN + HOUR)
    assert [one.host for one in past.reports] == ["n0", "n1", "n2"]
    assert past.groups["n0"] == {"rack": "r0"}
    assert play(past, policy(3), Assumed()).done


def test_history_comes_from_files_and_event_logs(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps([to_dict(one) for one in THREE.reports]))

    def line(kind, at, verdict):
        return json.dumps({"schema": 1, "event": f"problem.{kind}", "time": utc_milliseconds(BEGAN + at), "host": "n5",
                           "boot_id": "b", "check": "check_gpu", "target": "gpu1", "reason": "Xid79", "message": "lost",
                           "verdict": verdict, "before": "OK", "action": "reboot", "since": ""})  # fmt: skip

    (tmp_path / "events.jsonl").write_text(line("began", 0, "CRIT") + "\n\n" + line("ended", 9, "OK") + "\n")
    past = of_files([str(tmp_path / "r.json")], [str(tmp_path / "events.jsonl")])
    assert [(one.host, one.verdict.name) for one in past.reports if one.host == "n5"] == [("n5", "CRIT"), ("n5", "OK")]
    assert len(past.reports) == 6


@pytest.mark.parametrize("line", ["{", '{"event": "problem.began"}', "[]", '{"event": "problem.began", "host": "n"}'])
def test_what_is_no_event_is_named_with_its_line(line):
    with pytest.raises(BadHistory, match="log:2: is no event"):
        of_events(["", line], "log")
    assert of_events(['{"event": "agent.started", "host": "n1", "time": "x"}'], "log") == []


@pytest.mark.thorough
def test_what_a_policy_costs_is_counted():
    """One node reboots in ten minutes and is proved for ten; another is left to a person, and stays out to the end."""
    past = history(report("n1", 0.0, "GpuLost"), report("n2", 0.0), report("n2", 10 * HOUR))
    played = play(past, policy(9), Assumed())
    assert actions(played, "n1") == ["mark", "reboot", "return"]
    cost = played.cost
    assert (cost.repairs, cost.escalations, cost.borrowed) == (1, 0, 0)
    assert 0.3 <= cost.node_hours_out <= 1.0
    left = play(past, policy(9, '[effect]\nreboot = "10m"\n'), Assumed(cures=False)).cost
    assert (left.repairs, left.escalations) == (3, 1)
    assert left.node_hours_out > 10.0


@pytest.mark.thorough
def test_a_fault_that_a_real_repair_ended_is_no_merit_of_a_policy_that_does_nothing():
    past = history(report("n1", 0.0, "GpuLost"), report("n1", HOUR), report("n2", 0.0, "GpuLost"), report("n2", HOUR))
    past = past._replace(repairs={"n1": (BEGAN + 1800.0,)})
    waits = '[quiet-hours]\nhours = ["daily 00:00-24:00"]\nactions = ["mark"]\n'
    played = play(past, policy(9, waits), Assumed())
    assert [(one.node, one.action, one.borrowed) for one in played.done] == [
        ("n1", "withdraw", True), ("n2", "withdraw", False)
    ]  # fmt: skip
    assert played.cost.borrowed == 1
    repairs = play(past, policy(9), Assumed())
    assert not any(one.borrowed for one in repairs.done)


@pytest.mark.thorough
def test_times_in_which_nothing_is_open_are_passed_over():
    """44 reports of a week: 2,040 rounds of five minutes took 15 s."""
    found = [
        report(f"n{number % 8}", number * 14_000.0, *(["GpuLost"] if number % 11 == 0 else [])) for number in range(44)
    ]
    played = play(history(*found), policy(9), Assumed())
    assert sum(one.action == "reboot" for one in played.done) == 4
    assert played.rounds < 400
