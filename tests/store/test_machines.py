"""Another machine takes a node's name: what was of the one before is forgotten, and the audit log says so."""

import json

import pytest
import sqlalchemy as sa

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.store import audit, deep, ended_episodes, machines, nodes, problems
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from nhc.store.schema import episodes, job_nodes, jobs

NOW = 1_700_000_000.0
HOUR = 3600.0
XID = CheckResult("check_gpu_xid", Outcome(Verdict.CRIT, "Xid79", "gone", "gpu3", action=Action.REBOOT))
ZONE = "aws:///us-east-1a/"


def report(at, *results, uuid="u-a", boot="b1", provider="", **labels):
    marks = {"machine/uuid": uuid, "machine/provider-id": provider, **{f"machine/{k}": v for k, v in labels.items()}}
    return Report("n1", boot, at, 1.0, results or (CheckResult("check_mem", Outcome(Verdict.OK)),),
                  labels={name: value for name, value in marks.items() if value})  # fmt: skip


def take(store, *reports, source="agent", suite=""):
    with store.write() as connection:
        receive(connection, [Incoming(one, source, one.started + 1, suite=suite) for one in reports])


def since(store):
    with store.read() as connection:
        return nodes.machines_since(connection).get("n1", 0.0)


def said(store):
    with store.read() as connection:
        return [(row.at, row.what, json.loads(row.detail)) for row in audit.entries(connection, node="n1")]


def test_faults_repairs_and_proofs_of_the_machine_before_count_no_more(store):
    take(store, report(NOW, XID))
    take(store, report(NOW + 60, CheckResult("check_ib", Outcome(Verdict.CRIT, "IbDown", "down"))), source="sweep")
    take(store, report(NOW + 120, XID), suite="quick")
    row = {"cause": "x", "action": "reboot", "state": "returned", "updated": NOW, "detail": "{}"}
    with store.write() as connection:
        connection.execute(sa.insert(episodes), [
            {"node": "n1", "opened": NOW + at, "ended": NOW + at + 60, **row} for at in (0, 100, 200)
        ])  # fmt: skip
        job = {"controller": "c", "kind": "slurm", "namespace": "", "name": "7", "uid": "7", "began": NOW, "seen": NOW}
        number = connection.execute(sa.insert(jobs).values(job).returning(jobs.c.id)).scalar()
        connection.execute(sa.insert(job_nodes).values(job=number, node="n1", run="r1", at=NOW))
        assert ended_episodes.repeated(connection, NOW, 5) == [("n1", 3)]
        assert deep.last_conclusive(connection)["n1", "quick"].verdict == "CRIT"

    take(store, report(NOW + HOUR, uuid="u-b", boot="b2"))
    assert since(store) == NOW + HOUR
    with store.read() as connection:
        assert problems.list_problems(connection) == [], "those of every source"
        assert {row.ended for row in problems.list_problems(connection, is_open=None)} == {NOW + HOUR}
        assert deep.last_conclusive(connection) == {}
        assert deep.last_verdicts(connection) == []
        assert ended_episodes.repeated(connection, NOW, 5) == []
        assert connection.execute(sa.select(job_nodes)).all() == []
    ((at, what, detail),) = said(store)
    assert (at, what) == (NOW + HOUR, "node.replaced")
    assert (detail["before"]["uuid"], detail["after"]["uuid"]) == ("u-a", "u-b")
    assert (detail["problems"], detail["jobs"]) == (2, 1)

    take(store, report(NOW + HOUR + 60, XID, uuid="u-b", boot="b2"))
    take(store, report(NOW + HOUR + 120, uuid="u-b", boot="b2"), suite="quick")
    with store.read() as connection:
        assert [row.reason for row in problems.list_problems(connection)] == ["Xid79"], "its own faults are its own"
        assert deep.last_conclusive(connection)["n1", "quick"].verdict == "OK"
    assert since(store) == NOW + HOUR


@pytest.mark.parametrize(("before", "after"), [
    ({"uuid": "u-a"}, {"uuid": "U-A"}),
    ({"uuid": "u-a"}, {"uuid": "", "provider": "i-1"}),
    ({"uuid": "", "provider": "i-1"}, {"uuid": "", "provider": f"{ZONE}i-1"}),
    ({"uuid": "u-a"}, {"uuid": "00000000-0000-0000-0000-000000000000"}),
    ({"uuid": "u-a", "kernel": "6.1"}, {"uuid": "u-a", "kernel": "6.8"}),
])  # fmt: skip
def test_the_same_machine_keeps_what_is_known_of_it(store, before, after):
    take(store, report(NOW, XID, **before), report(NOW + 60, XID, boot="b2", **after))
    assert (since(store), said(store)) == (0.0, [])


def test_another_instance_of_a_cloud_is_another_machine(store):
    take(store, report(NOW, XID, uuid="", provider=f"{ZONE}i-1"))
    take(store, report(NOW + 60, uuid="", provider=f"{ZONE}i-2", boot="b2"))
    assert since(store) == NOW + 60


def test_a_uuid_that_is_made_anew_at_each_boot_forgets_nothing(store):
    for boot in range(8):
        take(store, report(NOW + boot * HOUR, XID, uuid=f"u-{boot}", boot=f"b{boot}"))
    assert [what for _at, what, _detail in said(store)] == ["node.replaced"] * 3 + ["node.changes-often"] * 4
    assert since(store) == NOW + 3 * HOUR
    take(store, report(NOW + 30 * 86400, XID, uuid="u-x", boot="bx"))
    assert since(store) == NOW + 30 * 86400, "a name that changed its machine long ago may do so again"


def test_two_machines_at_once_are_for_a_person(store):
    """A cloned image: until one of them is silent, nothing is forgotten for their turns."""

    def push(at, uuid, boot, seq):
        one = Incoming(report(NOW + at, XID, uuid=uuid, boot=boot), "agent", NOW + at, made=NOW + at, seq=seq)
        with store.write() as connection:
            receive(connection, [one])

    for turn in range(6):
        push(turn * 20.0, "u-a", "b1", 1000 + turn * 20_000)
        push(turn * 20.0 + 10, "u-b", "b2", 5000 + turn * 20_000)
    with store.read() as connection:
        assert nodes.contested(connection) == ["n1"]
    assert len([what for _at, what, _detail in said(store) if what == "node.replaced"]) <= 2


def test_what_a_node_was_made_of_is_known_for_each_time(store):
    take(store, report(NOW, driver="nvidia 570", model="dgx"))
    take(store, report(NOW + 60, driver="nvidia 570", model="dgx"))
    take(store, report(NOW + HOUR, driver="nvidia 580", model="dgx", boot="b2"))
    with store.read() as connection:
        spans = machines.spans(connection, "driver", NOW - HOUR, NOW + 2 * HOUR)["n1"]
        assert machines.spans(connection, "model", NOW + 60, NOW + 90, ["n1"]) == {
            "n1": [("dgx", (NOW + 60, NOW + 90))]
        }
    assert spans == [
        ("", (NOW - HOUR, NOW)), ("nvidia 570", (NOW, NOW + HOUR)), ("nvidia 580", (NOW + HOUR, NOW + 2 * HOUR)),
    ]  # fmt: skip
