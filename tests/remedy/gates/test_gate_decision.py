"""The decision of a gate: what opens it, what closes it, and that it comes to an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Outcome, Report, crit, ok, skip, unknown
from nhc.core.render.json import render
from nhc.core.state.gate_record import GateRecord, GateState
from nhc.lab.testing.fake_host import FakeHost
from nhc.marks.ports.gates import GateStanding
from nhc.remedy.gates.gate_decision import ADOPTION, NEW, GateDecision, GateStep, GateView, after, decide
from nhc.remedy.gates.identity import changed, is_another, marks
from nhc.remedy.gates.settings import GateRules, Trigger
from nhc.remedy.gates.suite_process import judged

EVERYTHING = GateRules("gpu", ("*",))
MARKS = st.dictionaries(st.sampled_from(["kernel", "driver nvidia", "machine", "suite"]), st.sampled_from(["1", "2"]))
STANDINGS = st.one_of(
    st.none(),
    st.builds(
        GateStanding, held=st.booleans(), busy=st.booleans(), other=st.sampled_from(["", "anna: DIMM"]),
        asked=st.sampled_from([0.0, 50.0, 150.0]), opened=st.booleans(), shown=st.just("idle"),
        adopted=st.booleans(),
    ),
)  # fmt: skip
RULES = st.builds(
    GateRules, name=st.just("gpu"), nodes=st.just(("*",)), suite=st.sampled_from(["quick", "burn"]),
    on=st.frozensets(st.sampled_from(list(Trigger))), max_age=st.sampled_from([0.0, 30.0]), closed=st.booleans(),
    tries=st.integers(1, 3), pause=st.sampled_from([0.0, 60.0]),
)  # fmt: skip
RECORDS = st.one_of(
    st.none(),
    st.builds(
        GateRecord, state=st.sampled_from(list(GateState)), suite=st.sampled_from(["quick", "burn"]),
        group=st.just("gpu"), at=st.sampled_from([10.0, 100.0]), boot=st.sampled_from(["a", "b"]), marks=MARKS,
        why=st.just("why"), tries=st.integers(0, 4), asked=st.sampled_from([0.0, 100.0]),
    ),
)  # fmt: skip
SEEN = st.builds(
    GateView, now=st.sampled_from([100.0, 200.0]), boot=st.sampled_from(["a", "b"]), marks=MARKS, record=RECORDS,
    standing=STANDINGS, scheduler=st.booleans(),
)  # fmt: skip
OPENS = (GateStep.NOTHING, GateStep.RELEASE, GateStep.ADOPT, GateStep.GIVE_WAY)


@pytest.mark.thorough
@given(RULES, SEEN)
def test_work_comes_in_only_by_a_verdict_a_person_or_the_policy(rules: GateRules, seen: GateView) -> None:
    step = decide(rules, seen).step
    if step not in OPENS:
        return
    record, standing = seen.record, seen.standing
    if step is GateStep.ADOPT:
        assert record is None
        assert Trigger.NEW not in rules.on or (standing is not None and standing.adopted)
    elif step is GateStep.GIVE_WAY:
        assert record is not None
        person = standing is not None and (standing.opened or (standing.adopted and record.due == NEW))
        spent = record.tries + 1 >= rules.tries and not rules.closed
        assert person or spent
    else:
        assert record is not None
        assert record.state.lets_in


@pytest.mark.thorough
@given(RULES, SEEN)
def test_a_verdict_of_another_boot_or_another_machine_opens_nothing(rules: GateRules, seen: GateView) -> None:
    if seen.record is None or decide(rules, seen).step not in OPENS:
        return
    assert not (Trigger.START in rules.on and seen.record.boot != seen.boot)
    assert not (Trigger.UPDATE in rules.on and changed(seen.record.marks, seen.marks))
    assert not (Trigger.NEW in rules.on and is_another(seen.record.marks, seen.marks))


@given(RULES, SEEN)
def test_no_suite_beside_work_and_none_where_nobody_can_be_asked(rules: GateRules, seen: GateView) -> None:
    if decide(rules, seen).step is GateStep.TEST:
        assert seen.standing is None or not seen.standing.busy
        assert seen.standing is not None or not seen.scheduler


@given(RULES, SEEN, st.sampled_from(["OK", "WARN", "CRIT", "UNKNOWN"]))
def test_a_gate_comes_to_an_end(rules: GateRules, seen: GateView, verdict: str) -> None:
    """However a gate begins and whatever the suite says, after `tries` runs nothing more is begun."""
    standing = GateStanding(True, False)
    runs, now = 0, 1000.0
    record = seen.record
    for _ in range(3 * rules.tries + 3):
        looked = GateView(now, seen.boot, seen.marks, record, standing, True)
        found = decide(rules._replace(max_age=0.0), looked)
        now += 100.0
        if found.step is GateStep.TEST:
            runs += 1
            if found.due or record is None:
                record = GateRecord(GateState.HELD, rules.suite, "gpu", now, seen.boot, seen.marks, found.why)
            elif record.state is GateState.TESTING:
                record = record._replace(tries=record.tries + 1)
            record = after(record._replace(state=GateState.TESTING), verdict, "why", now)
        elif found.step in (GateStep.ADOPT, GateStep.GIVE_WAY):
            record = GateRecord(GateState.OPENED, rules.suite, "gpu", now, seen.boot, seen.marks, found.why)
        elif found.step is GateStep.RELEASE:
            standing = standing._replace(held=False)
        elif found.step is GateStep.HOLD:
            standing = standing._replace(held=True)
    assert runs <= rules.tries
    assert decide(rules._replace(max_age=0.0), GateView(now, seen.boot, seen.marks, record, standing, True)).step in (
        GateStep.NOTHING, GateStep.KEEP,
    )  # fmt: skip


def a_record(state: GateState, **more: object) -> GateRecord:
    kept = GateRecord(state, "quick", "gpu", 100.0, "a", {"kernel": "1"}, "why")
    return kept._replace(**more)  # type: ignore[arg-type]


def look(record: "GateRecord | None", **more: object) -> GateView:
    seen = GateView(200.0, "a", {"kernel": "1"}, record, GateStanding(False, False), True)
    return seen._replace(**more)  # type: ignore[arg-type]


def test_why_a_suite_runs_is_said() -> None:
    passed = a_record(GateState.PASSED)
    assert decide(EVERYTHING, look(None)) == GateDecision(
        GateStep.TEST, "no verdict: a new node", "no verdict: a new node"
    )
    assert decide(EVERYTHING, look(passed, marks={"kernel": "2"})).why == "updated: kernel 1 -> 2"
    assert decide(EVERYTHING, look(passed, marks={})).why == "updated: kernel 1 -> none"
    assert decide(EVERYTHING._replace(suite="burn"), look(passed)).why == "the suite is burn now, not quick"
    assert decide(EVERYTHING._replace(max_age=50.0), look(passed)).why == "the verdict is older than 50s"
    later = passed._replace(at=passed.at + 400 * 86400)  # set right since: it would be young for a year
    assert "its age is not known" in decide(EVERYTHING._replace(max_age=50.0), look(later)).why
    assert "its age is not known" not in decide(EVERYTHING, look(later)).why
    assert decide(EVERYTHING, look(passed, boot="b")).why == "the node has started anew"


def test_a_failed_node_that_somebody_resumed_is_held_again() -> None:
    assert decide(EVERYTHING, look(a_record(GateState.FAILED))).step is GateStep.HOLD
    out = GateStanding(False, False, "anna: DIMM")
    assert decide(EVERYTHING, look(a_record(GateState.FAILED), standing=out)).step is GateStep.KEEP


def test_a_busy_run_is_no_try() -> None:
    kept = after(a_record(GateState.TESTING, tries=1), "BUSY", "a process holds gpu0", 1.0)
    assert (kept.state, kept.tries, kept.state.lets_in) == (GateState.HELD, 1, False)


def test_an_upgrade_of_nhc_and_of_its_suites_closes_no_gate() -> None:
    """Records of an earlier version have nhc's own version, and a digest of the suite that came with it."""
    host = FakeHost({"/proc/sys/kernel/osrelease": "6.1\n", "/sys/module/nvidia/version": "580.1\n"})
    now = marks(host, "")
    assert "nhc" not in now
    assert not any("suite" in name for name in now)
    before = {**now, "nhc": "0.0.9", "suite": "0123456789abcdef"}
    assert changed(before, now) == []
    assert changed(before, marks(host, "* || check_deep_cpu")) == []  # a site's own, whose digest was of another kind
    own = marks(host, "* || check_deep_cpu")
    assert changed(own, marks(host, "* || check_deep_cpu -t 5m")) != []
    assert changed({**before, "driver nvidia": "570.1"}, now) == ["driver nvidia 570.1 -> 580.1"]


def test_a_fleet_that_works_is_adopted_as_it_is() -> None:
    """Where gates come to a fleet, no node has a record: all of them would be held at once."""
    adopts = GateStanding(False, False, adopted=True, asked=150.0)
    found = decide(EVERYTHING, look(None, standing=adopts))
    assert (found.step, found.why) == (GateStep.ADOPT, "adopted as it is: a person asked")
    held = a_record(GateState.HELD, due=NEW)  # its gate ran before the order came
    assert decide(EVERYTHING, look(held, standing=adopts)).step is GateStep.GIVE_WAY
    late = look(None, standing=adopts, now=150.0 + ADOPTION)
    assert decide(EVERYTHING, late).step is GateStep.TEST  # a machine that comes later under the name
    for state in (GateState.FAILED, GateState.UNTOLD):
        assert decide(EVERYTHING, look(a_record(state), standing=adopts)).step not in OPENS
    moved = a_record(GateState.PASSED, marks={"machine": "1"})
    assert decide(EVERYTHING, look(moved, standing=adopts, marks={"machine": "2"})).step is GateStep.TEST


# What a report means.


def suite_report(*results: "tuple[str, Outcome]", **labels: str) -> Report:
    return Report("n1", "b", 10.0, 1.0, tuple(CheckResult(check, one) for check, one in results),
                  labels={"suite": "quick", **labels})  # fmt: skip


FINE, LATE = ok("fine", target="gpu0"), unknown("DeepTimeout", "dcgmi had not ended")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (suite_report(("check_deep_gemm", FINE), ("check_deep_dcgm", LATE)), "OK"),
        (suite_report(("check_gpu_proof", FINE), ("check_deep_dcgm", LATE)), "OK"),
        (suite_report(("check_deep_cpu", ok()), ("check_deep_dcgm", LATE), unproved="gpu0 gpu1"), "UNKNOWN"),
        (suite_report(("check_deep_cpu", ok()), unproved="gpu1"), "UNKNOWN"),
        (suite_report(("check_edac_errors", ok()), ("check_deep_cpu", LATE)), "UNKNOWN"),  # nothing was under load
        (suite_report(("check_deep_gemm", FINE), ("nhc_deep_run", unknown("NotRun", "ended by signal 15"))), "UNKNOWN"),
        (suite_report(("check_deep_gemm", FINE), ("check_gpu_ecc", crit("GpuEcc", "x")), unproved="gpu1"), "CRIT"),
        (suite_report(("nhc_deep_run", unknown("DeepNodeBusy", "process 17"))), "BUSY"),
        (suite_report(("check_deep_cpu", skip("CommandMissing", "stress-ng is not installed"))), "UNKNOWN"),
        # What is on its way in the first minutes of a boot opens no gate, and is none of its tries.
        (suite_report(("check_deep_gemm", FINE), ("check_gpu_fabric", unknown("BootWindow", "too early"))), "BUSY"),
        (suite_report(("check_gpu_fabric", unknown("BootWindow", "too early"))), "BUSY"),
        (
            suite_report(("check_gpu_ecc", crit("GpuEcc", "x")), ("check_ib_state", unknown("BootWindow", "early"))),
            "CRIT",
        ),
    ],
)
def test_a_gate_asks_for_a_proof_of_each_device_and_not_for_every_tool(found: Report, verdict: str) -> None:
    assert judged(render(found), "quick", "n1", 5.0).verdict == verdict


@pytest.mark.parametrize(("at", "step"), [(100.0, GateStep.TEST), (170.0, GateStep.WAIT), (90000.0, GateStep.TEST)])
def test_a_clock_that_was_set_back_makes_no_pause_longer_than_itself(at: float, step: GateStep) -> None:
    rules = GateRules("gpu", ("*",), on=frozenset(), tries=3, pause=60.0)
    record = GateRecord(GateState.UNTOLD, "quick", "gpu", at, "a", {}, "why", tries=1)
    standing = GateStanding(held=True, busy=False, shown="idle")
    assert decide(rules, GateView(200.0, "a", {}, record, standing, True)).step is step
