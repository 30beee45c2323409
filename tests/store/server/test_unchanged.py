"""A report that says what the server has already is sent as such: what is taken of it, and who asks for the whole."""

import json
import re
import time

import pytest
import sqlalchemy as sa

from nhc.core.model import CheckResult, Metric, Outcome, Verdict
from nhc.core.system.bounded_read import unpacked
from nhc.marks import push
from nhc.store import nodes, problems
from nhc.store.schema import nodes as node_table
from tests.support.intake import OK, XID, report

SIXTY = tuple(
    CheckResult(f"check_{number}", Outcome(Verdict.OK, "", "it is well", f"gpu{number}", (Metric("t", 40.0, "Cel"),)))
    for number in range(60)
)


class Agent:
    """Pushes of one node, each a minute after the one before; `boot` makes it a node of its own for each test."""

    def __init__(self, intake, token, boot):
        self.intake, self.token, self.boot = intake, token, boot
        self.seq = int(time.monotonic() * 1000)
        self.digest = ""
        self.sent = []

    def pushed(self, results, unchanged=False, seq=0, complete=True):
        self.seq = max(self.seq + 1, int(time.monotonic() * 1000))
        one = push.Pushed(report(boot=self.boot, results=results), complete, time.time(), seq=seq or self.seq)
        text = push.to_unchanged_text(one, self.digest) if unchanged else push.to_text(one)
        self.sent.append(push.pack("n1", [text], 0, self.boot, self.seq))
        status, answer, _ = self.intake.push(self.sent[-1], self.token)
        assert status == 200, answer
        if not unchanged:
            self.digest = answer["digest"]
        return answer

    def row(self):
        with self.intake.store() as store, store.read() as connection:
            return connection.execute(sa.select(node_table).where(node_table.c.node == "n1")).one()

    def kept(self):
        with self.intake.store() as store, store.read() as connection:
            return nodes.latest(connection, ["n1"])["n1"], problems.list_problems(connection, nodes=["n1"])


@pytest.fixture
def agent(intake, token, request):
    return Agent(intake, token, request.node.name)


def test_what_did_not_change_is_a_tenth_of_the_bytes_and_moves_every_time(agent):
    agent.pushed(SIXTY)
    before = agent.row()
    answer = agent.pushed(SIXTY, unchanged=True)
    assert answer == {"taken": 1, "refused": [], "digest": before.digest}
    after = agent.row()
    for column in ("reported_at", "judged_at", "received_at", "seq"):
        assert getattr(after, column) > getattr(before, column)
    for column in ("verdict", "since", "digest", "report", "covered_since", "stored", "noted"):
        assert getattr(after, column) == getattr(before, column)
    whole, short = (len(body) for body in agent.sent)
    assert short * 3 < whole  # these sixty differ in a number alone; bench/intake.py has the ratio of ordinary ones


def test_an_unchanged_push_has_identifiers_and_times_and_little_else():
    boot = "0f7d2c3e-1111-4222-8333-444455556666"
    one = push.Pushed(report(boot=boot, results=SIXTY), True, 1763913600.1234567, seq=123456789)
    text = push.to_unchanged_text(one, "a6d6ba52382b86d7dd6d8d377c17b8b0")
    body = push.pack("node-012345.example.org", [text], 0, boot, 123456799)
    assert len(body) < 215
    parsed = push.parse(unpacked(body, 10_000))
    assert (parsed.lost, parsed.reports[0].at, parsed.reports[0].report.results) == (0, 1763913600.123, ())


def test_a_problem_that_lasts_is_kept_with_the_text_that_it_has_now(agent):
    agent.pushed((OK, XID))
    later = XID._replace(outcome=XID.outcome._replace(message="it fell off the bus twice"))
    assert "whole" not in agent.pushed((OK, later), unchanged=True)
    kept, standing = agent.kept()
    assert [one.outcome.message for one in kept.results] == ["", "it fell off the bus twice"]
    assert kept.started == agent.row().judged_at
    assert [one.verdict for one in standing] == ["CRIT"]


@pytest.mark.parametrize(
    "lost",
    [
        lambda agent, connection: connection.execute(sa.delete(node_table).where(node_table.c.node == "n1")),
        lambda agent, connection: connection.execute(sa.update(node_table).values(digest="another")),
        lambda agent, connection: connection.execute(sa.update(node_table).values(boot_id="another")),
    ],
    ids=["row", "digest", "boot"],
)
def test_the_whole_is_asked_for_where_the_store_has_something_else(agent, lost):
    agent.pushed(SIXTY)
    with agent.intake.store() as store, store.write() as connection:
        lost(agent, connection)
    answer = agent.pushed(SIXTY, unchanged=True)
    assert answer == {"taken": 0, "refused": [], "whole": True}
    assert re.search(r'nhc_server_reports_total\{receipt="whole"\} [1-9]', agent.intake.get("/metrics")[1])
    assert agent.pushed(SIXTY)["taken"] == 1
    assert agent.row().verdict == "OK"
    assert agent.pushed(SIXTY, unchanged=True)["taken"] == 1


def test_problems_that_are_not_those_of_the_digest_are_not_taken(agent):
    agent.pushed((OK, XID))
    other = XID._replace(outcome=XID.outcome._replace(reason="Xid48"))
    before = agent.row()
    assert agent.pushed((OK, other), unchanged=True) == {"taken": 0, "refused": [], "whole": True}
    assert agent.row() == before
    assert [one.reason for one in agent.kept()[1]] == ["Xid79"]


def test_a_late_one_asks_for_the_whole_and_one_sent_twice_changes_nothing(agent):
    agent.pushed(SIXTY)
    first = agent.seq
    agent.pushed(SIXTY, unchanged=True)
    before = agent.row()
    assert agent.pushed(SIXTY, unchanged=True, seq=first - 1)["whole"] is True
    assert agent.pushed(SIXTY, unchanged=True, seq=before.seq) == {"taken": 1, "refused": []}
    assert agent.row() == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"unchanged": 7}, "unchanged is no digest"),
        ({"unchanged": ""}, "unchanged is no digest"),
        ({"seq": 0}, "a number of its own"),
        ({"suite": "deep"}, "no suite"),
        ({"started": "x"}, "started is no time"),
        ({"elapsed": -1}, "elapsed is no time"),
        ({"results": {}}, "results is dict, not a list"),
        ({"results": [7]}, "not a JSON object"),
    ],
)
def test_one_that_makes_no_sense_is_refused_in_one_line(intake, token, changed, said):
    text = push.to_unchanged_text(push.Pushed(report(), True, time.time(), seq=5), "d")
    status, answer, _ = intake.push(push.pack("n1", [json.dumps({**json.loads(text), **changed})], 0, "b1", 9), token)
    assert status == 400
    assert said in answer["error"]
