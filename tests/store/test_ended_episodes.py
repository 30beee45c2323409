"""What the database counts of ended episodes is what a count by hand says, on both databases."""

import random
import re
from collections import Counter

import sqlalchemy as sa

from nhc.remedy.counting import EndedBeginnings
from nhc.store import attempts, deep, ended_episodes, episodes
from nhc.store.deep import DeepResult
from nhc.store.schema import episodes as table

SINCE = 1000.0


def keep(store, rows):
    """Rows of (node, state, opened, ended)."""
    values = [
        {"node": node, "cause": f"c{number}", "state": state, "opened": opened, "updated": opened, "ended": ended}
        for number, (node, state, opened, ended) in enumerate(rows)
    ]
    with store.write() as connection:
        connection.execute(sa.insert(table), values)


def test_the_database_counts_as_one_would_by_hand(store):
    chance = random.Random(5)
    rows = [
        (f"n{chance.randint(1, 12)}", chance.choice(["returned", "returned", "escalated", "withdrawn"]),
         900.0 + number, chance.choice([None, 940.0, 1000.0 + chance.random() * 900]))
        for number in range(80)
    ]  # fmt: skip
    keep(store, rows)

    over = [row for row in rows if row[3] is not None and row[3] >= SINCE]
    nodes = Counter(node for node, *_ in over)
    took = sorted(ended - opened for _node, state, opened, ended in over if state == "returned")
    with store.read() as connection:
        assert ended_episodes.outcomes(connection, SINCE) == Counter(state for _node, state, *_ in over)
        repeated = ended_episodes.repeated(connection, SINCE, 50)
        assert repeated == sorted(
            ((node, count) for node, count in nodes.items() if count > 1), key=lambda one: (-one[1], one[0])
        )
        assert ended_episodes.repeated(connection, SINCE, 2) == repeated[:2]
        shares = (0.0, 0.5, 0.9, 1.0)
        expected = [took[min(int(len(took) * share), len(took) - 1)] for share in shares]
        assert ended_episodes.durations(connection, SINCE, "returned", shares) == expected
        assert ended_episodes.durations(connection, SINCE, "returned", (0.5, 0.5)) == [expected[1]] * 2
        since = [one.id for one in episodes.list_episodes(connection, is_open=False, ended_since=SINCE)]
    assert since == [number for number, row in enumerate(rows, 1) if row in over]


def test_where_nothing_ended_there_is_nothing_to_say(store):
    keep(store, [("n1", "draining", 900.0, None), ("n1", "returned", 900.0, 990.0), ("n2", "escalated", 900.0, 1000.0)])
    with store.read() as connection:
        assert ended_episodes.durations(connection, SINCE, "returned", (0.5, 0.9)) == [None, None]
        assert ended_episodes.outcomes(connection, SINCE) == {"escalated": 1}
        assert ended_episodes.outcomes(connection, 2000.0) == {}
        assert ended_episodes.repeated(connection, SINCE, 50) == []


def plans(store, ask):
    """How the database would carry out each statement of `ask`."""
    said = []

    def listen(_connection, cursor, statement, parameters, _context, _many):
        said.append((statement, parameters))

    sa.event.listen(store.engine, "before_cursor_execute", listen)
    try:
        with store.read() as connection:
            ask(connection)
    finally:
        sa.event.remove(store.engine, "before_cursor_execute", listen)
    asked = [one for one in said if one[0].lstrip().upper().startswith("SELECT")]
    explain = "EXPLAIN QUERY PLAN " if store.sqlite else "EXPLAIN "
    with store.read() as connection:
        if not store.sqlite:  # a table of a few rows is always read whole, unless that is ruled out
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        return [
            "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + statement, parameters))
            for statement, parameters in asked
        ]


def test_no_question_of_a_time_reads_all_that_ever_was(store):
    """At 365,000 episodes, a scan is what made the screen wait."""
    asked = {
        "outcomes, repeated": lambda c: (ended_episodes.outcomes(c, SINCE), ended_episodes.repeated(c, SINCE, 50)),
        "durations": lambda c: ended_episodes.durations(c, SINCE, "returned", (0.5,)),
        "ended_since": lambda c: episodes.list_episodes(c, is_open=False, ended_since=SINCE),
        "attempts_since": lambda c: attempts.attempts_since(c, SINCE),
        "nodes_since": lambda c: deep.nodes_since(c, 5),
    }
    for name, ask in asked.items():
        found = plans(store, ask)
        assert found, name
        for plan in found:
            for index in ("episodes_ended", "attempts_written", "deep_results_pkey", "INTEGER PRIMARY KEY"):
                if index in plan:
                    break
            else:
                raise AssertionError(f"{name}: {plan}")
            assert "SCAN " not in plan, f"{name}: {plan}"


def test_a_node_with_several_new_results_is_named_once(store):
    rows = [DeepResult(node, "quick", test, "", None, "", "OK", "", 1.0) for node in "ba" for test in ("gemm", "hbm")]
    with store.write() as connection:
        deep.add(connection, rows)
    with store.read() as connection:
        assert deep.nodes_since(connection, 0) == ["a", "b"]
        assert deep.nodes_since(connection, 2) == ["a"]
        assert deep.nodes_since(connection, deep.newest_id(connection)) == []


def test_a_round_reads_the_details_of_the_episodes_that_ended_since_the_one_before(store):
    beginnings, asked = EndedBeginnings(), []

    def of_a_round():
        with store.read() as connection:
            event = lambda *args: asked.append(args[2:4])  # noqa: E731
            sa.event.listen(connection, "before_cursor_execute", event)
            rows = ended_episodes.since(connection, SINCE)
            by_number = beginnings.of(connection, rows)
            found = {row.node: by_number[row.id].marked for row in rows}
            sa.event.remove(connection, "before_cursor_execute", event)
        read = [len(values) for statement, values in asked if "detail" in statement]
        asked.clear()
        return found, read

    keep(store, [(f"n{number}", "returned", 900.0, 1100.0) for number in range(1200)])
    with store.write() as connection:
        connection.execute(sa.update(table).where(table.c.node == "n7").values(detail='{"marked":950.0,"why":"a"}'))
    found, read = of_a_round()
    assert (len(found), read) == (1200, [500, 500, 200])
    assert found["n7"] == 950.0
    assert of_a_round() == (found, [])

    keep(store, [("new", "returned", 900.0, 1100.0)])
    with store.write() as connection:  # a person's note on one that had ended
        connection.execute(
            sa.update(table).where(table.c.node == "n8")
            .values(detail='{"marked":960.0,"why":"a"}', version=table.c.version + 1)
        )  # fmt: skip
    found, read = of_a_round()
    assert read == [2]
    assert (found["n8"], found["new"]) == (960.0, 0.0)


def test_what_was_left_to_persons_is_read_without_the_history(store):
    """However many repairs succeeded: the index has those alone that were left to a person."""
    with store.write() as connection:
        for number in range(4):
            made, _new = episodes.open_episode(connection, f"n{number % 2}", f"c|R|{number}", action="reboot",
                                               state="draining", now=1.0, by="nhc")  # fmt: skip
            state = "escalated" if number in (0, 3) else "returned"
            step = episodes.EpisodeStep("nhc", state, {})
            episodes.save_step(connection, made, step, now=2.0, state=state, ended=2.0)
    statements = []
    with store.read() as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *seen: statements.append((seen[2], seen[3])))
        assert [(one.node, one.id) for one in ended_episodes.left_to_operators(connection)] == [("n1", 4)]
        ((asked, values),) = statements
        if connection.dialect.name == "sqlite":
            plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", values))
            assert "INDEX episodes_left" in plan, plan
            assert not re.search(r"SCAN episodes(?! USING (COVERING )?INDEX episodes_left)", plan), plan
