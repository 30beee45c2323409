"""What a reader of many viewers reads anew, what it keeps, and that nobody waits for what the background reads."""

import pytest
import sqlalchemy as sa

from nhc.console import deep_reader
from nhc.console.deep_reader import DeepReader
from nhc.console.sources import StoreSource
from nhc.store import deep
from nhc.store.errors import StoreError
from tests.console.test_deep_coverage import DAY, keep, result
from tests.support.waiting import until


def test_a_view_is_kept_until_verdicts_are_read_anew(site):
    now = [site.now]
    snapshot = StoreSource(site.store, 600).snapshot()
    reader = DeepReader(site.store, lambda: now[0])
    first = reader.view(snapshot, "rack", "")
    keep(site, result("a1", "CRIT", site.now))
    assert reader.view(snapshot, "rack", "") is first
    assert reader.view(snapshot, "", "") is not first
    now[0] += 61
    assert [row["bad"] for row in reader.view(snapshot, "rack", "")["rows"]] == [1, 0]
    for number in range(3 * deep_reader.ANSWERS):  # the words of an address
        reader.view(snapshot, f"fact{number}", "")
    assert len(reader._verdicts.views) <= deep_reader.ANSWERS


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

    assert set(reader.latest()) == {("a1", "quick")}
    keep(site, result("a2", "CRIT", site.now))
    assert set(reader.latest()) == {("a1", "quick")}  # within the minute
    now[0] += 61
    assert reader.latest()["a2", "quick"].verdict == "CRIT"
    now[0] += 61
    reader.latest()
    now[0] += 61
    reader.latest()
    assert counted.asked == [None, ["a2"], ["a2"]]  # the second look goes back to the mark before; then nothing is new

    now[0] += 3600
    reader.latest()
    assert counted.asked[-1] is None


def test_a_reader_says_what_the_store_says(site, monkeypatch):
    """Whatever order results come in, the reader's verdicts are those of the whole."""
    now = [site.now]
    reader = DeepReader(site.store, lambda: now[0])
    for number, verdict in enumerate(["OK", "UNKNOWN", "CRIT", "OK", "UNKNOWN", "WARN"]):
        keep(site, result(f"a{number % 2 + 1}", verdict, site.now + number))
        now[0] += 61
        with site.store.read() as connection:
            assert reader.latest() == deep.last_conclusive(connection)


class Statements:
    """How often the store was asked anything."""

    def __init__(self, store):
        self.count = 0
        sa.event.listen(store.engine, "before_cursor_execute", self._another)

    def _another(self, *_given):
        self.count += 1


@pytest.mark.thorough
def test_who_looks_waits_for_nothing_that_the_background_has_read(site):
    now, snapshot = [site.now], StoreSource(site.store, 600).snapshot()
    keep(site, result("a1", "OK", site.now - DAY))
    reader = DeepReader(site.store, lambda: now[0])
    reader.refresh(None)
    assert [row["bad"] for row in reader.view(snapshot, "rack", "")["rows"]] == [0, 0]
    reader.letters(snapshot)
    asked = Statements(site.store)

    for turn in range(1, 66):  # more than an hour, so that all of it is read anew in between
        keep(site, result("a1", "CRIT" if turn % 2 else "OK", now[0]))
        now[0] += 59
        reader.refresh(snapshot)
        before = asked.count
        seen = reader.view(snapshot, "rack", "")
        assert seen is reader.view(snapshot, "rack", "")
        assert sum(row["bad"] for row in seen["rows"]) == turn % 2
        assert reader.letters(snapshot)["letters"][0] == ("c" if turn % 2 else "o")
        assert seen["at"] == now[0]  # made by the background, at this turn
        assert asked.count == before


def test_a_view_that_nobody_looks_at_is_made_no_more(site):
    now, snapshot = [site.now], StoreSource(site.store, 600).snapshot()
    reader = DeepReader(site.store, lambda: now[0])
    reader.view(snapshot, "rack", "")
    now[0] += 31
    reader.refresh(snapshot)
    assert len(reader._verdicts.views) == 1
    reader.refresh(snapshot._replace(layout="another"))
    now[0] += deep_reader.LOOKED
    reader.refresh(snapshot)
    assert reader._verdicts.views == {}


def test_where_the_background_is_late_a_store_that_cannot_be_read_is_told(site):
    now = [site.now]
    reader = DeepReader(site.store, lambda: now[0])
    reader.refresh(None)
    with site.store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE deep_results RENAME TO gone")
    now[0] += 31
    with pytest.raises(StoreError):
        reader.refresh(None)
    assert reader.latest() == {}  # what was read half a minute ago
    now[0] += 31
    with pytest.raises(StoreError):
        reader.latest()


@pytest.mark.thorough
def test_the_console_reads_before_anybody_asks(console, site):
    until(lambda: console.server.deep._verdicts.read > 0, what="the background's first look")
