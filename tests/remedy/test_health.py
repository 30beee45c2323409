"""How nodes are, as the store's reports and an adapter's together say."""

from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.marks.ports.adapter import ConditionReport
from nhc.remedy import health
from nhc.store import reports
from nhc.store.intake import Incoming

NOW = 1_000_000.0


def test_a_failure_that_two_sources_report_is_one_fault_however_long_its_target_is(store):
    target = "/mnt/" + "deep/" * 80
    result = CheckResult("check_fs_mount", Outcome(Verdict.CRIT, "NotMounted", "it is not mounted", target))
    report = Report("n1", "b", NOW, 1.0, (result,))
    with store.write() as connection:
        reports.receive(connection, [Incoming(report, "agent", NOW)])
    names = NodeNames(["n1"], ["n1"])
    with store.read() as connection:
        found = [
            health.stored(connection, names),
            health.reported([ConditionReport(report, {})], names, "adapter"),
        ]
    (fault,) = health.together(found)["n1"].faults
    assert fault.target == target
