"""Pushes that come twice, late or from two machines: by boot and number, whatever the clocks say."""

import pytest

from nhc.console.sources import StoreSource
from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import CheckResult, DeviceId, Outcome, Report, Scope, Verdict
from nhc.jobs.faults import of_store
from nhc.jobs.settings import RestartSettings
from nhc.marks import push
from nhc.remedy import health
from nhc.store import nodes, problems
from nhc.store.intake import IntakeSettings
from nhc.store.reports import receive
from nhc.store.server.app import dated

NOW = 1_700_000_000.0
OK = CheckResult("check_gpu", Outcome(Verdict.OK))
XID = CheckResult("check_gpu", Outcome(Verdict.CRIT, "Xid79", "lost", "gpu3"))
SKIP = CheckResult("check_gpu", Outcome(Verdict.SKIP, "", "the driver is being reloaded"))
OTHER = CheckResult("check_mem", Outcome(Verdict.OK))


class Machine:
    """One that pushes as n1. Its boot began at `booted` by the server's clock; its own clock is `ahead`."""

    def __init__(self, store, boot="b1", booted=NOW - 1000.0, ahead=0.0):
        self.store, self.boot, self.booted, self.ahead = store, boot, booted, ahead

    def made(self, at, *results, **more):
        """A push as it leaves the machine."""
        seq = int((at - self.booted) * 1000)
        report = Report("n1", self.boot, at + self.ahead, 0.1, (*results, OTHER), **more)
        return push.Push("n1", (push.Pushed(report, True, at + self.ahead, seq=seq),), 0, self.boot, seq)

    def came(self, pushed, at):
        with self.store.write() as connection:
            return [one.receipt.value for one in receive(connection, dated(pushed, at).reports, IntakeSettings())]

    def push(self, at, *results, **more):
        return self.came(self.made(at, *results, **more), at)


def stands(store):
    with store.read() as connection:
        return [one.reason for one in problems.list_problems(connection)]


def row(store):
    with store.read() as connection:
        return nodes.get(connection, "n1")


def healthy(store):
    with store.read() as connection:
        return health.stored(connection, NodeNames(["n1"], ()), ["n1"])["n1"]


def shown(store, now=NOW + 300):
    """The console's letter of the node, and what it says of the whole fleet."""
    snapshot = StoreSource(store, 600.0, lambda: now).snapshot()
    return snapshot.letters, " ".join(snapshot.notes)


def faults_of_jobs(store, now=NOW + 300):
    with store.read() as connection:
        return [fault.node for fault in of_store(connection, ["n1"], RestartSettings(), now) if fault.ended is None]


AHEAD = pytest.mark.parametrize("ahead", [0.0, 1200.0, -1200.0])


@AHEAD
@pytest.mark.parametrize("held", [0.0, 5.0, 59.0, 300.0, 86400.0])
def test_a_push_that_comes_again_or_was_held_back_reopens_nothing(store, ahead, held):
    machine = Machine(store, ahead=ahead)
    old = machine.made(NOW, XID)
    assert machine.came(old, NOW) == ["changed"]
    assert machine.push(NOW + 60, OK) == ["changed"]
    assert stands(store) == []
    assert machine.came(old, NOW + 61 + held) == ["late"]  # byte for byte
    held_back = machine.made(NOW + 30, XID)
    assert machine.came(held_back, NOW + 62 + held) == ["late"]
    assert machine.came(held_back, NOW + 63 + held) == ["late"]
    assert (stands(store), row(store).verdict, row(store).is_contested) == ([], "OK", False)
    with store.read() as connection:
        history = nodes.history(connection, "n1")
    assert max(one.started for one in history if one.verdict == "CRIT") < NOW + 60


@AHEAD
@pytest.mark.parametrize("boots", [1, 3])
def test_a_push_of_a_boot_that_was_left_reopens_nothing(store, ahead, boots):
    machine = Machine(store, ahead=ahead)
    machine.push(NOW, XID)
    old, held_back = machine.made(NOW, XID), machine.made(NOW + 30, XID)
    for number in range(boots):
        machine = Machine(store, f"b{number + 2}", NOW + 100 + 200 * number, ahead)
        assert machine.push(NOW + 200 + 200 * number, OK) == ["changed"]
    at = NOW + 260 + 200 * boots
    assert machine.came(old, at) == ["late"]
    assert machine.came(held_back, at + 1) == ["late"]
    assert (stands(store), row(store).boot_id, row(store).is_contested) == ([], f"b{boots + 1}", False)
    assert machine.push(at + 60, XID) == ["changed"]
    assert stands(store) == ["Xid79"]


@AHEAD
def test_a_machine_that_was_put_back_to_a_snapshot_is_heard_by_its_second_push_at_the_latest(store, ahead):
    machine = Machine(store, ahead=ahead)
    machine.push(NOW, OK)
    machine.booted = NOW + 500.0  # its number begins again
    machine.push(NOW + 600, XID)
    machine.push(NOW + 660, XID)
    assert (stands(store), row(store).is_contested) == (["Xid79"], False)


@AHEAD
@pytest.mark.parametrize("boot", ["b2", "b1"])
def test_two_machines_under_one_name_are_said_and_neither_is_believed(store, ahead, boot):
    """A cloned image, a copied token, a snapshot that runs twice: they push in turn."""
    one, two = Machine(store, ahead=ahead), Machine(store, boot, NOW - 500.0)
    for minute in range(4):
        one.push(NOW + 60 * minute, XID)
        two.push(NOW + 60 * minute + 30, OK)
    assert row(store).is_contested
    assert (healthy(store).verdict, healthy(store).faults) == (Verdict.UNKNOWN, ())
    assert (shown(store)[0], "n1" in shown(store)[1], faults_of_jobs(store)) == ("u", True, [])
    two.push(NOW + 215, XID)
    assert (stands(store), shown(store)[0], faults_of_jobs(store)) == (["Xid79"], "u", [])
    with store.write() as connection:
        pushed = dated(one.made(NOW + 240, XID), NOW + 240)
        messages = [each.message for each in receive(connection, pushed.reports, IntakeSettings())]
    with store.write() as connection:
        pushed = dated(two.made(NOW + 270, OK), NOW + 270)
        messages += [each.message for each in receive(connection, pushed.reports, IntakeSettings())]
    assert any("two machines push as n1" in message for message in messages)
    for minute in range(5, 20):  # one of them is found, and ends
        two.push(NOW + 60 * minute, OK)
    assert not row(store).is_contested
    assert healthy(store).verdict is Verdict.OK
    assert shown(store, NOW + 1200) == ("o", "")
    two.push(NOW + 1260, XID)
    assert (shown(store, NOW + 1260)[0], faults_of_jobs(store, NOW + 1260)) == ("c", ["n1"])


def test_reports_that_waited_in_the_spool_over_a_boot_are_no_second_machine(store):
    machine = Machine(store)
    machine.push(NOW, OK)
    after = Machine(store, "b2", NOW + 100)
    spooled = [machine.made(NOW + at, XID).reports[0] for at in (30, 60)]
    own = after.made(NOW + 200, OK)
    assert after.came(own._replace(reports=(*spooled, *own.reports)), NOW + 200) == ["changed", "same", "changed"]
    late = own._replace(reports=(machine.made(NOW + 70, XID).reports[0],), seq=own.seq + 60_000)
    assert after.came(late, NOW + 260) == ["late"]
    after.push(NOW + 320, OK)
    assert (stands(store), row(store).is_contested) == ([], False)


@pytest.mark.parametrize("between", [SKIP, CheckResult("check_gpu", Outcome(Verdict.UNKNOWN, "Timeout"))])
def test_a_check_that_ran_and_did_not_see_it_ends_the_problem_whatever_came_between(store, between):
    """And every report after that says that nothing changed."""
    machine = Machine(store)
    start = NOW - NOW % 300 + 10
    machine.booted = start - 1000
    for second, result in enumerate((XID, between, OK)):
        machine.push(start + 20 * second, result)
    assert [reason for reason in stands(store) if reason == "Xid79"] == []
    assert machine.push(start + 80, OK) == ["same"]


@pytest.mark.parametrize("change", ["scope", "device", "notes", "version", "judged"])
def test_what_a_report_says_besides_is_new(store, change):
    machine = Machine(store)
    start = NOW - NOW % 300 + 10
    before, results, more = XID, (XID,), {}
    if change == "scope":
        results = (XID._replace(outcome=XID.outcome._replace(scope=Scope.BOARD)),)
    elif change == "device":
        results = (XID._replace(outcome=XID.outcome._replace(device=DeviceId("0000:3b:00.0"))),)
    elif change == "judged":
        results = (XID, CheckResult("check_fs", Outcome(Verdict.OK)))
    else:
        more = {"notes": ("a setting is wrong",)} if change == "notes" else {"version": "2"}
    assert machine.push(start, before) == ["changed"]
    assert machine.push(start + 10, *results, **more) == ["changed"]
    assert machine.push(start + 20, *results, **more) == ["same"]
    with store.read() as connection:
        (problem,) = problems.list_problems(connection)
        kept = nodes.latest(connection, ["n1"])["n1"]
    assert problem.scope == (Scope.BOARD.value if change == "scope" else "")
    assert problem.device_id().pci == ("0000:3b:00.0" if change == "device" else "")
    assert (kept.notes, kept.version) == (more.get("notes", ()), more.get("version", ""))


def test_figures_in_notes_are_nothing_new(store):
    machine = Machine(store)
    machine.push(NOW, OK, notes=("it took 3.1 s",))
    assert machine.push(NOW + 60, OK, notes=("it took 12.7 s",)) == ["same"]
