"""How far deep checks reach: the screen, the recoloured map, and what a reader of many viewers reads anew."""

import pytest

from nhc.console import deep_coverage
from nhc.console.deep_coverage import DeepReader
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


def test_groups_by_age_and_who_is_due(console, tested):
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


def test_one_suite_alone_is_asked_for(console, tested):
    seen = console.ask("GET", "/api/deep?suite=quick")[1]
    assert "a3" in [one["node"] for one in seen["late"]]
    assert seen["rows"][0]["ages"] == [1, 1, 1]


def test_the_map_is_coloured_by_the_last_deep_verdict(console, tested):
    """a3's is of ten days by one suite and of three by another: the newest counts; what is too old is never good."""
    assert console.ask("GET", "/api/deep/letters")[1]["letters"] == "ocwnsnnn"


def test_the_lists_are_bounded_and_say_so(console, tested, monkeypatch):
    monkeypatch.setattr(deep_coverage, "ROWS", 1)  # before the first view is made
    seen = console.ask("GET", "/api/deep?fact=rack")[1]
    assert (len(seen["late"]), seen["late_left_out"], seen["due"]) == (1, 1, 6)
    assert seen["never"] == {"count": 4, "nodes": "a4"}


def test_a_view_is_kept_until_verdicts_are_read_anew(site):
    from nhc.console.sources import StoreSource

    now = [site.now]
    snapshot = StoreSource(site.store, 600).snapshot()
    reader = DeepReader(site.store, lambda: now[0])
    first = reader.view(snapshot, "rack", "")
    keep(site, result("a1", "CRIT", site.now))
    assert reader.view(snapshot, "rack", "") is first
    assert reader.view(snapshot, "", "") is not first
    now[0] += 61
    assert [row["bad"] for row in reader.view(snapshot, "rack", "")["rows"]] == [1, 0]
    for number in range(3 * deep_coverage.ANSWERS):  # the words of an address
        reader.view(snapshot, f"fact{number}", "")
    assert len(reader._answers) <= deep_coverage.ANSWERS


def test_without_a_store_there_is_no_such_screen(console):
    console.server.store = None
    assert console.ask("GET", "/api/deep")[0] == 404


class Counted:
    """The functions of the store that read verdicts, with what they were asked."""

    def __init__(self, monkeypatch):
        self.asked = []
        real = deep.last_conclusive

        def counted(connection, nodes=None, suites=(), since=0.0):
            self.asked.append(nodes)
            return real(connection, nodes, suites, since)

        monkeypatch.setattr(deep, "last_conclusive", counted)


def test_what_is_new_is_read_once_a_minute_and_all_of_it_once_an_hour(site, monkeypatch):
    keep(site, result("a1", "OK", site.now - DAY))
    counted, now = Counted(monkeypatch), [site.now]
    reader = DeepReader(site.store, lambda: now[0])

    assert set(reader.told()) == {("a1", "quick")}
    keep(site, result("a2", "CRIT", site.now))
    assert set(reader.told()) == {("a1", "quick")}  # within the minute
    now[0] += 61
    assert reader.told()["a2", "quick"].verdict == "CRIT"
    now[0] += 61
    reader.told()
    now[0] += 61
    reader.told()
    assert counted.asked == [None, ["a2"], ["a2"]]  # the second look goes back to the mark before; then nothing is new

    now[0] += 3600
    reader.told()
    assert counted.asked[-1] is None


def test_a_reader_says_what_the_store_says(site, monkeypatch):
    """Whatever order results come in, the reader's verdicts are those of the whole."""
    now = [site.now]
    reader = DeepReader(site.store, lambda: now[0])
    for number, verdict in enumerate(["OK", "UNKNOWN", "CRIT", "OK", "UNKNOWN", "WARN"]):
        keep(site, result(f"a{number % 2 + 1}", verdict, site.now + number))
        now[0] += 61
        with site.store.read() as connection:
            assert reader.told() == deep.last_conclusive(connection)
