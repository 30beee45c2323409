"""How far deep checks reach: the screen, and the recoloured map."""

import pytest

from nhc.console import deep_reader
from nhc.store import deep
from nhc.store.deep import DeepResult

DAY = 86400.0


def result(node, verdict, at, suite="quick"):
    return DeepResult(node, suite, "gemm", "gpu0", None, "", verdict, "", at)


def keep(site, *rows):
    with site.store.write() as connection:
        deep.add(connection, rows)


@pytest.fixture
def tested(site):
    """a1 passed an hour ago, a2 failed yesterday, a3 passed ten days ago, a4 was told nothing, b1 passed long ago."""
    now = site.now
    keep(site, result("a1", "OK", now - 3600), result("a2", "CRIT", now - DAY - 60), result("a3", "OK", now - 10 * DAY),
         result("a4", "UNKNOWN", now - 60), result("b1", "OK", now - 60 * DAY), result("b2", "OK", now - 200 * DAY),
         result("a3", "WARN", now - 3 * DAY, "sweep"))  # fmt: skip
    return site


@pytest.mark.thorough
def test_groups_by_age_and_who_is_due(tested, console):
    seen = console.ask("GET", "/api/deep?fact=rack")[1]

    rows = {row["group"]: row for row in seen["rows"]}
    assert seen["ages"] == ["1 day", "7 days", "30 days"]
    assert (rows["r-a"]["ages"], rows["r-a"]["older"], rows["r-a"]["never"], rows["r-a"]["bad"]) == ([1, 2, 0], 0, 1, 1)
    assert (rows["r-b"]["ages"], rows["r-b"]["older"], rows["r-b"]["never"], rows["r-b"]["due"]) == ([0, 0, 0], 1, 3, 4)
    assert [row["group"] for row in seen["rows"]] == ["r-b", "r-a"]  # the most that is due first
    assert seen["never"] == {"count": 4, "nodes": "a4,b[2-4]"}
    assert [(one["node"], one["verdict"]) for one in seen["late"]] == [("b1", "OK"), ("a2", "CRIT")]
    assert "failed quick" in seen["late"][1]["why"]
    assert seen["suites"] == ["quick", "sweep"]


def test_one_suite_alone_is_asked_for(tested, console):
    seen = console.ask("GET", "/api/deep?suite=quick")[1]
    assert "a3" in [one["node"] for one in seen["late"]]
    assert seen["rows"][0]["ages"] == [1, 1, 1]


def test_the_map_is_coloured_by_the_last_deep_verdict(tested, console):
    """a3's is of ten days by one suite and of three by another: the newest counts; what is too old is never good."""
    assert console.ask("GET", "/api/deep/letters")[1]["letters"] == "ocwnsnnn"


@pytest.mark.thorough
def test_the_lists_are_bounded_and_say_so(tested, console, monkeypatch):
    monkeypatch.setattr(deep_reader, "ROWS", 1)  # before the first view is made
    seen = console.ask("GET", "/api/deep?fact=rack")[1]
    assert (len(seen["late"]), seen["late_left_out"], seen["due"]) == (1, 1, 6)
    assert seen["never"] == {"count": 4, "nodes": "a4"}


def test_without_a_store_there_is_no_such_screen(console):
    console.server.store = None
    assert console.ask("GET", "/api/deep")[0] == 404
