"""systemd's units."""

import pytest

from nhc.core.host import Completed
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

BOOTED = {"/run/systemd/system/": ""}


def unit(name, load="loaded", active="active", sub="running", result="success"):
    return f"Result={result}\nNRestarts=0\nId={name}\nLoadState={load}\nActiveState={active}\nSubState={sub}\n"


def node(*units, failed=""):
    return FakeHost(BOOTED, {"systemctl show": "\n".join(units), "systemctl list-units": failed})


def test_active_units():
    host = node(unit("slurmd.service"), unit("munge.service"))

    assert judge(host, "check_systemd_units slurmd munge").verdict is Verdict.OK
    assert host.system.ran[0][-3:] == ("--", "slurmd.service", "munge.service")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"active": "failed", "sub": "failed", "result": "exit-code"}, "UnitNotActive"),
        ({"active": "inactive", "sub": "dead"}, "UnitNotActive"),
        ({"active": "activating", "sub": "auto-restart"}, "UnitNotActive"),
        ({"load": "not-found", "active": "inactive", "sub": "dead"}, "UnitMissing"),
        ({"load": "masked", "active": "inactive", "sub": "dead"}, "UnitMasked"),
        ({"load": "bad-setting", "active": "inactive", "sub": "dead"}, "UnitBroken"),
    ],
)
def test_a_unit_that_is_not_active(state, reason):
    found = judge_all(node(unit("a.service"), unit("b.timer", **state)), "check_systemd_units a b.timer")

    assert [(each.verdict, each.reason, each.target) for each in found] == [(Verdict.CRIT, reason, "b.timer")]


def test_result_is_told_and_restart_suggested():
    found = judge(node(unit("a.service", active="failed", sub="failed", result="oom-kill")), "check_systemd_units a")

    assert "oom-kill" in found.message
    assert found.action is Action.RESTART_APP


def test_a_unit_on_its_way_is_a_warning():
    host = node(unit("a.service", active="activating", sub="start-pre"))

    assert judge(host, "check_systemd_units a").verdict is Verdict.WARN


def test_failed_units_are_warnings_unless_critical_or_ignored():
    lines = "a.service loaded failed failed A\nfwupd.service loaded failed failed B\n"

    assert [o.verdict for o in judge_all(node(failed=lines), "check_systemd_failed")] == [Verdict.WARN] * 2
    found = judge_all(node(failed=lines), "check_systemd_failed -i 'fwupd*' -c 'a.*'")
    assert [(o.verdict, o.target) for o in found] == [(Verdict.CRIT, "a.service")]
    assert judge(node(failed=""), "check_systemd_failed").verdict is Verdict.OK


@pytest.mark.parametrize("line", ["check_systemd_units slurmd", "check_systemd_failed"])
def test_skip_and_unknown(line):
    assert judge(FakeHost({}, {"systemctl": ""}), line).verdict is Verdict.SKIP
    assert judge(FakeHost(BOOTED), line).reason == "CommandMissing"
    lost = Completed(1, "", "Failed to connect to bus: Connection refused\n")
    found = judge(FakeHost(BOOTED, {"systemctl": lost}), line)
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "SystemdUnreachable")
    assert judge(FakeHost(BOOTED, {"systemctl": Completed(124, "", "", True)}), line).verdict is Verdict.UNKNOWN


def test_an_answer_about_fewer_units_is_no_answer():
    assert judge(node(unit("a.service")), "check_systemd_units a b").verdict is Verdict.UNKNOWN
