"""Reports come in twice, late, out of order, from two sources: what stands is always what the newest one says."""

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nhc.core.model import Action, CheckResult, DeviceId, Outcome, Report, Scope, Verdict
from nhc.store import coverage, nodes, problems, schema
from nhc.store.connect import open_store
from nhc.store.intake import Incoming, IntakeSettings, Receipt
from nhc.store.reports import receive

NOW = 1_700_000_000.0
PACE = IntakeSettings()


def result(check, verdict=Verdict.OK, reason="", target="", message=""):
    action = Action.REBOOT if verdict is Verdict.CRIT else Action.NONE
    return CheckResult(check, Outcome(verdict, reason, message or f"{check} said so", target, action=action))


def report(at, *results, host="n1", boot="b1", **more):
    return Report(host, boot, at, 1.0, results or (result("check_mem"),), **more)


def take(store, *reports, source="agent", at=None, complete=True, pace=PACE):
    incoming = [Incoming(one, source, at or one.started + 1, complete) for one in reports]
    with store.write() as connection:
        return [one.receipt.value for one in receive(connection, incoming, pace)]


def standing(store, **which):
    with store.read() as connection:
        return [
            (one.check, one.reason, one.target, one.verdict, one.began, one.ended)
            for one in problems.list_problems(connection, **which)
        ]


def noted(store, node="n1"):
    with store.read() as connection:
        return [(row.started, row.verdict) for row in nodes.history(connection, node)]


XID = result("check_gpu_xid", Verdict.CRIT, "Xid79", "gpu3")


def test_a_node_is_what_its_newest_report_says(store):
    assert take(store, report(NOW), report(NOW + 60, XID), report(NOW + 120, XID)) == ["changed", "changed", "same"]
    with store.read() as connection:
        node = nodes.get(connection, "n1")
        kept = nodes.latest(connection, ["n1", "n2"])
    assert (node.verdict, node.since, node.reported_at, node.boot_id) == ("CRIT", NOW + 60, NOW + 120, "b1")
    assert kept["n1"] == report(NOW + 120, XID)
    assert standing(store) == [("check_gpu_xid", "Xid79", "gpu3", "CRIT", NOW + 60, None)]
    assert noted(store) == [(NOW, "OK"), (NOW + 60, "CRIT")]


def test_a_problem_ends_with_the_report_that_says_so_and_may_begin_again(store):
    good = report(NOW + 120, result("check_gpu_xid"))
    take(store, report(NOW, XID), good, report(NOW + 180, XID))
    assert standing(store, is_open=None) == [
        ("check_gpu_xid", "Xid79", "gpu3", "CRIT", NOW, NOW + 120),
        ("check_gpu_xid", "Xid79", "gpu3", "CRIT", NOW + 180, None),
    ]


def test_a_problem_says_what_it_speaks_of(store):
    gpu = DeviceId("0000:3b:00.0", "GPU-3", serial="165")
    of_gpu = XID._replace(outcome=XID.outcome._replace(scope=Scope.DEVICE, device=gpu))
    take(store, report(NOW, XID), report(NOW + 400, of_gpu))
    with store.read() as connection:
        (found,) = problems.list_problems(connection)
    assert (found.scope, found.device_id()) == ("device", gpu)
    assert found.about() == "device 0000:3b:00.0, GPU-3, serial 165"


def test_the_same_in_one_batch_as_in_many(store):
    sent = [report(NOW, XID), report(NOW + 120, result("check_gpu_xid")), report(NOW + 180, XID)]
    for one in sent:
        take(store, one)
    take(store, *[one._replace(host="n2") for one in sent])
    alone, together = standing(store, nodes=["n1"], is_open=None), standing(store, nodes=["n2"], is_open=None)
    assert alone == together
    assert noted(store) == noted(store, "n2")


def test_late_and_double_reports_change_nothing_that_stands(store):
    take(store, report(NOW + 600, XID))
    assert take(store, report(NOW + 600, XID)) == ["duplicate"]
    assert take(store, report(NOW, result("check_gpu_xid")), at=NOW + 700) == ["late"]
    assert take(store, report(NOW + 599, boot="b0"), at=NOW + 700) == ["late"]
    with store.read() as connection:
        node = nodes.get(connection, "n1")
    assert (node.verdict, node.reported_at, node.boot_id) == ("CRIT", NOW + 600, "b1")
    assert standing(store) == [("check_gpu_xid", "Xid79", "gpu3", "CRIT", NOW + 600, None)]
    assert noted(store) == [(NOW, "OK"), (NOW + 599, "OK"), (NOW + 600, "CRIT")]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (report(NOW + 1000), "stamped 700 s ahead of this clock"),
        (report(-5.0), "before 1970"),
        (report(NOW, host=""), "is no node's name"),
        (report(NOW, host="a\nb"), "is no node's name"),
        (report(NOW, host="x" * 300), "is no node's name"),
    ],
)
def test_what_is_refused_says_why_and_leaves_nothing(store, sent, said):
    with store.write() as connection:
        (got,) = receive(connection, [Incoming(sent, "agent", NOW + 300)])
    assert got.receipt is Receipt.REFUSED
    assert said in got.message
    with store.read() as connection:
        assert nodes.list_nodes(connection) == []


def test_an_incomplete_report_begins_problems_and_ends_none(store):
    take(store, report(NOW, XID))
    take(store, report(NOW + 60, result("check_fs", Verdict.WARN, "Full", "/")), complete=False)
    assert [row[:2] for row in standing(store)] == [("check_gpu_xid", "Xid79"), ("check_fs", "Full")]
    take(store, report(NOW + 120, result("check_mem")), complete=True)
    assert standing(store) == []


def test_a_run_that_stopped_at_its_first_failure_ends_nothing_it_did_not_look_at(store):
    take(store, report(NOW, XID))
    take(store, report(NOW + 60, result("check_fs", Verdict.CRIT, "Full", "/"), not_run=3))
    assert len(standing(store)) == 2


def test_another_source_ends_only_what_it_looked_at(store):
    take(store, report(NOW, XID))
    take(store, report(NOW + 60, result("check_mem")), source="sweep")
    assert len(standing(store)) == 1
    take(store, report(NOW + 120, result("check_gpu_xid")), source="sweep")
    assert standing(store) == []


def test_who_cannot_tell_ends_nothing(store):
    take(store, report(NOW, XID))
    unsure = result("check_gpu_xid", Verdict.UNKNOWN, "Timeout")
    take(store, report(NOW + 60, unsure))
    assert [row[1] for row in standing(store)] == ["Xid79", "Timeout"]
    take(store, report(NOW + 120, result("check_gpu_xid")))
    assert standing(store) == []


def test_what_stands_without_a_change_is_kept_once_a_refresh(store):
    sent = [report(NOW - NOW % 300 + at) for at in range(0, 601, 60)]
    take(store, *sent)
    with store.read() as connection:
        node = nodes.get(connection, "n1")
        kept = nodes.latest(connection, ["n1"])["n1"]
    assert node.reported_at == sent[-1].started
    assert kept.started == sent[-1].started  # 600 s are two refreshes
    take(store, report(sent[-1].started + 60))
    with store.read() as connection:
        assert nodes.latest(connection, ["n1"])["n1"].started == sent[-1].started
    assert len(noted(store)) == 1


def test_history_has_a_row_a_day_without_a_change(store):
    for day in range(3):
        take(store, *[report(NOW + day * 86400 + at) for at in (0, 40_000)])
    assert [at for at, _ in noted(store)] == [NOW, NOW + 86400, NOW + 2 * 86400]


def numbered(store, at, seq, *results, boot="b1", received=NOW, made=0.0):
    one = Incoming(report(at, *results, boot=boot), "agent", received, True, at, "", seq, made)
    with store.write() as connection:
        return receive(connection, [one], PACE)[0]


def test_within_a_boot_the_agents_numbers_decide_and_no_clock(store):
    """The node's clock is set back an hour: what it says then is its newest all the same."""
    numbered(store, NOW, 1000)
    assert numbered(store, NOW - 3600, 2000, XID).receipt == "changed"
    assert standing(store)[0][:4] == ("check_gpu_xid", "Xid79", "gpu3", "CRIT")
    assert numbered(store, NOW - 3000, 1500).receipt == "late"
    assert numbered(store, NOW - 3600, 2000, XID).receipt == "duplicate"
    with store.read() as connection:
        node = nodes.get(connection, "n1")
    assert (node.verdict, node.reported_at > NOW) == ("CRIT", True)
    assert [verdict for _, verdict in noted(store)].count("CRIT") == 1
    assert numbered(store, NOW - 3500, 3000, result("check_gpu_xid")).receipt == "changed"
    assert standing(store) == []


def test_a_late_report_says_that_it_is_late(store):
    numbered(store, NOW, 2000)
    assert "older than the newest report of n1" in numbered(store, NOW + 1, 1000).message
    assert "older than the newest report of n1" in numbered(store, NOW - 1, 0).message


def test_another_boot_begins_its_numbers_anew(store):
    numbered(store, NOW, 9_000_000)
    assert numbered(store, NOW + 60, 1000, XID, boot="b2").receipt == "changed"
    assert numbered(store, NOW + 50, 2000, boot="b2").receipt == "changed"


def test_a_sweep_between_two_reports_of_the_agent_does_not_forget_its_number(store):
    numbered(store, NOW, 2000)
    assert take(store, report(NOW + 10), source="sweep") == ["changed"]
    assert numbered(store, NOW - 600, 1000, XID).receipt == "late"
    assert numbered(store, NOW - 500, 3000, XID).receipt == "changed"


def test_a_machine_that_was_put_back_to_a_snapshot_is_heard(store):
    """Its numbers begin again within the same boot."""
    numbered(store, NOW, 9_000_000, received=NOW + 1)
    assert numbered(store, NOW + 60, 1000, received=NOW + 61, made=NOW - 5).receipt == "late"
    assert numbered(store, NOW + 60, 2000, XID, received=NOW + 61, made=NOW + 60).receipt == "changed"


def test_a_reboot_is_a_change(store):
    take(store, report(NOW), report(NOW + 60, boot="b2"))
    assert len(noted(store)) == 2


def test_gaps_are_seen_and_closed_by_late_reports(store):
    take(store, *[report(NOW + at) for at in (0, 300, 600, 3000, 3300)])
    with store.read() as connection:
        assert coverage.gaps(connection, "n1", NOW, NOW + 3300) == [(NOW + 600, NOW + 3000)]
        assert coverage.spans(connection, "n1", NOW, NOW + 1e6) == [(NOW, NOW + 600), (NOW + 3000, NOW + 3300)]
        assert coverage.gaps(connection, "n9", NOW, NOW + 10) == [(NOW, NOW + 10)]
    take(store, *[report(NOW + at) for at in range(900, 3000, 300)], at=NOW + 3400)
    with store.read() as connection:
        assert coverage.gaps(connection, "n1", NOW, NOW + 3300) == []


def test_labels_of_a_report_name_its_groups(store):
    with store.write() as connection:
        nodes.describe(
            connection, [nodes.NodeDescription("n1", kind="gpu", provider_id="aws:///x", labels={"team": "a"})]
        )
    take(store, report(NOW, labels={"rack": "r7", "profile": "dgx-h100"}))
    with store.read() as connection:
        node = nodes.get(connection, "n1")
    assert node.groups == {"rack": "r7"}
    assert node.labels == {"team": "a", "rack": "r7", "profile": "dgx-h100"}
    assert (node.kind, node.provider_id) == ("gpu", "aws:///x")


def labelled(store):
    with store.read() as connection:
        node = nodes.get(connection, "n1")
    return dict(node.labels), dict(node.groups)


def test_a_label_that_is_no_longer_reported_ends(store):
    with store.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("n1", labels={"team": "a"}, groups={"zone": "z1"})])
    for number in range(20):
        take(store, report(NOW + number, labels={f"run-{number}": "x", "rack": f"r{number}"}))
    assert labelled(store) == ({"team": "a", "run-19": "x", "rack": "r19"}, {"zone": "z1", "rack": "r19"})
    take(store, report(NOW + 50), source="sweep")
    assert labelled(store)[0]["rack"] == "r19"  # another source has none of the agent's labels
    take(store, report(NOW + 60))
    assert labelled(store) == ({"team": "a"}, {"zone": "z1"})


@pytest.mark.thorough
def test_the_labels_of_one_node_are_bounded(store):
    take(store, report(NOW, labels={f"l{number:06}{'x' * 500}": "y" * 5000 for number in range(5000)}))
    labels, _ = labelled(store)
    assert len(labels) == 100
    assert max(map(len, labels)) <= 200
    assert max(map(len, labels.values())) <= 500


@pytest.mark.thorough
def test_a_report_of_any_size_is_kept_so_that_it_can_be_read_again(store):
    """Each of these signs takes 4 bytes, and 12 where JSON writes it in ASCII: what came in as 29 MB was kept as 87."""
    huge = "\U0001f600" * 7_000_000
    sick = result("check_gpu_xid", Verdict.CRIT, "Xid79", "gpu3", "\U0001f600" * 1_000_000)
    rest = [result(f"check_{number}", message=huge if number < 1 else "m" * 1000) for number in range(20_000)]
    take(store, report(NOW, *rest, sick, labels={"a": huge}, notes=(huge,)))
    with store.read() as connection:
        kept = nodes.latest(connection, ["n1"])["n1"]
        size = len(connection.scalar(sa.select(schema.nodes.c.report)))
        assert len(nodes.history(connection, "n1")) == 1
    assert kept.results[0].outcome.reason == "Xid79"
    assert kept.verdict is Verdict.CRIT
    assert "the report was cut as it was kept" in kept.notes[0]
    assert size < nodes.KEPT
    assert len(nodes._text(kept)) < 2 * nodes.KEPT


@pytest.mark.thorough
def test_results_of_deep_checks_are_bounded_too(store):
    many = [result(f"check_{number}", Verdict.WARN, "Slow", "gpu0", "\U0001f600" * 9000) for number in range(9000)]
    one = Incoming(report(NOW, *many), "agent", NOW, suite="burn-in")
    with store.write() as connection:
        receive(connection, [one])
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.deep_results)) <= nodes.RESULTS


def test_a_described_node_without_a_report_is_counted(store):
    with store.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription("n1"), nodes.NodeDescription("n2")])
        nodes.describe(connection, [nodes.NodeDescription("n1")])
    take(store, report(NOW, host="n2"))
    with store.read() as connection:
        assert nodes.counts(connection) == {"": 1, "OK": 1}
        assert [one.node for one in nodes.list_nodes(connection, verdicts=["OK"])] == ["n2"]
        assert [one.node for one in nodes.list_nodes(connection, silent_since=NOW + 99)] == ["n2"]


@pytest.mark.thorough
def test_two_thousand_nodes_in_one_batch(store):
    many = [report(NOW, XID, host=f"n{at}") for at in range(2000)]
    assert take(store, *many) == ["changed"] * 2000
    assert take(store, *many) == ["duplicate"] * 2000
    assert len(standing(store)) == 2000
    names = [one.host for one in many]
    with store.read() as connection:
        assert len(nodes.latest(connection, names)) == len(nodes.list_nodes(connection, names)) == 2000


def test_hostile_words_are_kept_harmless(store):
    nasty = "\0\x1b[2J\ud800'); DROP TABLE nodes; --"
    sent = report(NOW, result(nasty, Verdict.CRIT, nasty, nasty, nasty), boot=nasty, labels={"rack": nasty})
    take(store, sent, source=nasty)
    with store.read() as connection:
        (problem,) = problems.list_problems(connection)
        assert nodes.get(connection, "n1").boot_id.isprintable()
    assert problem.check == "[2J '); DROP TABLE nodes; --"


@pytest.mark.thorough
def test_more_problems_than_anybody_reads_are_bounded_the_worst_kept(store):
    many = [result("check_x", Verdict.WARN, "R", f"t{at}") for at in range(2000)]
    take(store, report(NOW, *many, XID))
    found = standing(store)
    assert len(found) == 500
    assert ("check_gpu_xid", "Xid79", "gpu3", "CRIT", NOW, None) in found


CHECKS = ("check_a", "check_b")
RESULTS = st.lists(
    st.builds(
        result, st.sampled_from(CHECKS), st.sampled_from(list(Verdict)), st.sampled_from(["R1", "R2"]),
        st.sampled_from(["", "t1"]),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.mark.slow
@given(
    sent=st.lists(st.tuples(st.integers(0, 40), RESULTS), min_size=1, max_size=12, unique_by=lambda pair: pair[0]),
    order=st.randoms(use_true_random=False), again=st.integers(0, 11), batches=st.integers(1, 4),
)  # fmt: skip
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_the_newest_report_alone_decides_the_state(tmp_path_factory, sent, order, again, batches):
    """However reports are shuffled, doubled and cut into batches: verdict, time and coverage end as in their order."""
    reports = [report(NOW + 100 * at, *results) for at, results in sent]
    order.shuffle(reports)
    reports.append(reports[again % len(reports)])
    store = open_store(str(tmp_path_factory.mktemp("p") / "s.db"))
    try:
        size = -(-len(reports) // batches)
        for at in range(0, len(reports), size):
            take(store, *reports[at : at + size], at=NOW + 10_000)
        newest = max(reports, key=lambda one: one.started)
        with store.read() as connection:
            node = nodes.get(connection, "n1")
            spans = coverage.spans(connection, "n1", 0, NOW * 2)
            kept = nodes.latest(connection, ["n1"])["n1"]
            opened = problems.list_problems(connection)
        assert (node.verdict, node.reported_at) == (newest.verdict.name, newest.started)
        assert kept.verdict == newest.verdict
        for wanted in newest.results:  # whatever is wrong now stands
            if wanted.verdict in (Verdict.WARN, Verdict.UNKNOWN, Verdict.CRIT):
                assert any((one.check, one.reason) == (wanted.check, wanted.outcome.reason) for one in opened)
        times = sorted({one.started for one in reports})
        expected = []
        for at in times:
            if expected and at - expected[-1][1] <= PACE.gap:
                expected[-1][1] = at
            else:
                expected.append([at, at])
        assert [list(span) for span in spans] == expected
    finally:
        store.close()


def test_the_newest_report_says_which_machine_a_node_is(store):
    def report(at, **labels):
        named = {f"machine/{name.replace('_', '-')}": value for name, value in labels.items()}
        made = Report("n1", f"boot{at}", at, 0.1, (CheckResult("check_x", Outcome(Verdict.OK)),), labels=named)
        with store.write() as connection:
            receive(connection, [Incoming(made, "agent", at)])
        with store.read() as connection:
            row = nodes.get(connection, "n1")
        assert row.labels == {}
        return row.uuid, row.provider_id, row.address

    first = report(1000.0, uuid="u1", provider_id="aws:///a/i-1", address="10.0.0.1")
    assert first == ("u1", "aws:///a/i-1", "10.0.0.1")
    assert report(2000.0, address="10.0.0.2") == ("u1", "aws:///a/i-1", "10.0.0.2")  # a run without root says less
    assert report(3000.0, uuid="u2") == ("u2", "", "")  # another machine: what the one before was called is not its own


MINUTES = st.tuples(st.sampled_from(["OK", "WARN", "CRIT"]), st.integers(1, 9), st.sampled_from([60, 60, 400, 700]))


@given(minutes=st.lists(MINUTES, min_size=2, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@pytest.mark.thorough
def test_a_node_stands_the_same_whether_unchanged_reports_come_whole_or_not(tmp_path_factory, minutes):
    """Two stores see one node: one every report whole, the other what an agent sends."""
    known, seen = "", []
    for short in (False, True):
        directory = tmp_path_factory.mktemp("store")
        store = open_store(f"sqlite:///{directory}/s.db", anchor=f"{directory}/anchor")
        at, before = NOW, ""
        for number, (verdict, figure, pause) in enumerate(minutes):
            at += pause
            bad = result("check_gpu", Verdict[verdict], "Xid", "gpu1", f"{figure} of them")
            whole = report(at, result("check_mem"), bad)
            one = Incoming(whole, "agent", at + 1, seq=number + 1)
            if short and before == verdict:
                problems_alone = whole._replace(results=tuple(each for each in whole.results if each.is_problem))
                one = one._replace(report=problems_alone, unchanged=known)
            with store.write() as connection:
                known = receive(connection, [one], PACE)[0].digest
            assert known
            before = verdict
        with store.read() as connection:
            columns = [column for column in schema.nodes.c if column.name not in ("report", "noted", "stored")]
            row = connection.execute(sa.select(*columns)).one()
            texts = [one.message for one in problems.list_problems(connection)]
            began = [(one.started, one.verdict) for one in nodes.history(connection, "n1")]
            last = coverage.gaps(connection, "n1", NOW, at)
            seen.append((tuple(row), standing(store, is_open=None), texts, began, last))
        store.close()
    assert seen[0] == seen[1]


DAY = 86400.0


@pytest.mark.parametrize("numbers", [(0, 0), (1000, 2000)])
def test_what_a_server_kept_while_its_clock_was_a_day_ahead_keeps_nothing_back_and_is_no_health(store, numbers):
    first, second = numbers
    numbered(store, NOW + DAY, first, received=NOW + DAY + 1)
    with store.read() as connection:
        assert nodes.counts(connection, NOW - 900, NOW) == {nodes.SILENT: 1}
        assert [row.node for row in nodes.list_nodes(connection, silent_since=NOW - 900, now=NOW)] == ["n1"]
        assert nodes.counts(connection, NOW + DAY - 900, NOW + DAY) == {"OK": 1}
    assert numbered(store, NOW, second, XID, received=NOW + 1).receipt == "changed"
    with store.read() as connection:
        node = nodes.get(connection, "n1")
        assert nodes.counts(connection, NOW - 900, NOW) == {"CRIT": 1}
    assert (node.verdict, node.reported_at <= NOW + 1) == ("CRIT", True)
    assert [entry[:4] for entry in standing(store)] == [("check_gpu_xid", "Xid79", "gpu3", "CRIT")]
    assert numbered(store, NOW - 4000, first, received=NOW + 2).receipt == "late"
