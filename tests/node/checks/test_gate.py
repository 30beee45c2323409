"""check_gate reads the gate's record: what lets a job in, and what does not."""

import json

import pytest

from nhc.core.model import Verdict
from nhc.core.state.gate_record import PATH, GateRecord, GateState
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.gate import check_gate

BOOT = {"/proc/sys/kernel/random/boot_id": "b1\n"}
KEPT = GateRecord(GateState.PASSED, "quick", "gpu", 1000.0, "b1", {}, "quick passed")


def host(kept=KEPT, settings=None, now=1000.0 + 86400, **files):
    text = json.dumps({**kept._asdict(), "state": kept.state.value})
    made = FakeHost(files={**BOOT, PATH: text, **files}, settings=settings or {})
    made.system.now = now
    return made


@pytest.mark.parametrize("state", list(GateState))
def test_only_passed_and_opened_let_work_in(state):
    found = check_gate(host(KEPT._replace(state=state)))
    good = state in (GateState.PASSED, GateState.OPENED)
    assert (found.verdict, found.reason) == ((Verdict.OK, "") if good else (Verdict.CRIT, "GateClosed"))


def test_without_a_record_nothing_is_known():
    nothing = FakeHost(files=BOOT)
    assert (check_gate(nothing).verdict, check_gate(nothing).reason) == (Verdict.UNKNOWN, "GateUntold")
    assert check_gate(nothing, closed=True).verdict is Verdict.CRIT
    torn = FakeHost(files={**BOOT, PATH: '{"state": "passed"'})
    assert check_gate(torn).verdict is Verdict.UNKNOWN
    assert check_gate(torn, closed=True).verdict is Verdict.CRIT


def test_a_verdict_of_another_boot_is_none():
    found = check_gate(host(KEPT._replace(boot="b0")), closed=True)
    assert (found.verdict, found.reason) == (Verdict.CRIT, "GateUntold")
    assert check_gate(host(KEPT._replace(boot="b0", each_boot=False))).verdict is Verdict.OK


def test_an_old_verdict_keeps_the_node_out_of_large_jobs_alone():
    week, old = 7 * 86400.0, 1000.0 + 8 * 86400
    large, small = {"NHC_JOB_NODES": "64"}, {"NHC_JOB_NODES": "16"}
    assert check_gate(host(settings=large, now=old), max_age=week, nodes=16).reason == "GateTooOld"
    assert check_gate(host(settings=small, now=old), max_age=week, nodes=16).verdict is Verdict.OK
    assert check_gate(host(settings=large), max_age=week, nodes=16).verdict is Verdict.OK
    assert check_gate(host(now=old), max_age=week, nodes=16).verdict is Verdict.SKIP
    later = KEPT._replace(at=KEPT.at + 400 * 86400)  # the clock was wrong, and has been set right since
    found = check_gate(host(later, settings=large), max_age=week, nodes=16)
    assert (found.reason, "from now: the clock was wrong" in found.message) == ("GateTooOld", True)
    assert check_gate(host(later, settings=small), max_age=week, nodes=16).verdict is Verdict.OK
