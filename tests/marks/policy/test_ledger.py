"""The ledger: what survives a kill, a damaged line, another run, a full disk."""

from __future__ import annotations

import json
import os

import pytest

from nhc.marks.policy.bounds import BegunAction
from nhc.marks.policy.ledger import TRIM_AT, Ledger, LedgerError
from nhc.marks.ports.adapter import Applied, Effect, Operation, PlannedOperation
from tests.support.size_limit import files_of_at_most


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path), by="test")


def marks(*nodes):
    return [PlannedOperation(node, Operation.MARK, "bad\nline") for node in nodes]


def test_a_deed_begun_counts_even_if_nobody_wrote_how_it_ended(ledger, tmp_path):
    with ledger:
        ledger.begin(marks("n1"), 10.0)
    assert Ledger(str(tmp_path)).history() == [BegunAction(10.0, "n1", "mark")]


def test_what_was_refused_spends_nothing_and_what_failed_does(ledger):
    with ledger:
        ledger.begin(marks("n1", "n2", "n3"), 10.0)
        ledger.end(Operation.MARK, [Applied("n1", Effect.REFUSED), Applied("n2", Effect.FAILED, "no"),
                               Applied("n3", Effect.CHANGED)], 11.0)  # fmt: skip
    assert [past.node for past in ledger.history()] == ["n2", "n3"]
    assert ledger.history(since=10.5) == []


def test_each_line_is_one_object_for_an_auditor(ledger):
    with ledger:
        ledger.begin(marks("n1"), 10.0)
    (line,) = open_lines(ledger)
    assert json.loads(line) == {
        "when": 10.0, "node": "n1", "deed": "mark", "effect": "begun", "because": "bad line", "by": "test",
    }  # fmt: skip


def open_lines(ledger):
    with open(ledger.path) as file:
        return file.read().splitlines()


@pytest.mark.parametrize("damage", ['{"when": 1', "\x00\x00", "[]", '{"when": "x", "node": 1}', "null"])
def test_a_damaged_line_is_skipped_and_counted_and_a_cut_off_one_swallows_nothing(ledger, damage):
    with ledger:
        ledger.begin(marks("n1"), 10.0)
        with open(ledger.path, "a") as file:
            file.write(damage)  # no newline: the machine died here
        ledger.begin(marks("n2"), 11.0)
    assert [past.node for past in ledger.history()] == ["n1", "n2"]
    assert ledger.damaged == 1


def test_two_runs_do_not_spend_one_budget(ledger, tmp_path):
    with ledger, pytest.raises(LedgerError, match="another nhc is at work"), Ledger(str(tmp_path)):
        pass
    with Ledger(str(tmp_path)):
        pass


def test_without_a_place_to_write_nothing_may_be_done(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LedgerError, match="nothing may be done without a ledger"), Ledger(str(file)):
        pass


@pytest.mark.thorough
def test_a_large_ledger_is_trimmed_to_its_recent_past(ledger):
    old = json.dumps({"when": 1.0, "node": "n" * 1000, "deed": "mark", "effect": "begun"}, separators=(",", ":")) + "\n"
    with ledger:
        with open(ledger.path, "w") as file:
            file.write(old * (TRIM_AT // len(old) + 1))
        ledger.begin(marks("n1"), 1e8)
        assert len(open_lines(ledger)) > 10_000  # until then its newest line was as old as the rest
        ledger.begin(marks("n2"), 1e8)
    assert [past.node for past in ledger.history()] == ["n1", "n2"]


def test_a_ledger_that_cannot_be_trimmed_stays_whole_and_leaves_nothing_beside_it(ledger, tmp_path):
    new = json.dumps({"when": 1e8, "node": "n" * 1000, "deed": "mark", "effect": "begun"}, separators=(",", ":")) + "\n"
    with ledger:
        with open(ledger.path, "w") as file:
            file.write(new * (TRIM_AT // len(new) + 1))
        size, names = os.stat(ledger.path).st_size, set(os.listdir(tmp_path))
        with files_of_at_most(1000), pytest.raises(LedgerError, match="nothing may be done without a ledger"):
            ledger.begin(marks("n1"), 1e8)
        assert (os.stat(ledger.path).st_size, set(os.listdir(tmp_path))) == (size, names)
