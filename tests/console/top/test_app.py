"""`nhc top` with its keys, over a store, and on a terminal of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time

import pytest
from click.testing import CliRunner
from textual.widgets import Input, Static

from nhc.cli.click_app import application
from nhc.console.sources import SourceError, StoreSource
from nhc.console.top.app import KeyList, LiveTable, MapView, TopApp, TopSettings
from nhc.lab.demo.play import make, step
from nhc.store import audit
from tests.support.run import ROOT, nhc
from tests.support.terminal import terminal

pytestmark = pytest.mark.slow  # terminals of their own


@contextlib.contextmanager
def at_work(directory):
    """A fleet that has been at work: faults, repairs, one that waits for a person."""
    made = make(str(directory), 72, 3, "127.0.0.1:1")
    deadline = time.monotonic() + 60
    step(made, 30)
    while time.monotonic() < deadline:
        step(made, 1)
        with made.store.read() as connection:
            from nhc.store import episodes

            if any(one.state == "awaiting-approval" for one in episodes.list_episodes(connection, is_open=True)):
                break
    else:
        raise AssertionError("no repair waits for a person")
    yield made
    made.actuators.close()
    made.store.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The fleet, for tests that only look at it."""
    with at_work(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@pytest.fixture
def changing(tmp_path):
    """A fleet of its own, for a test that changes it."""
    with at_work(tmp_path) as made:
        yield made


def drive(app, story):
    """Run the story with the application on a terminal of 140 by 40."""

    async def play():
        async with app.run_test(size=(140, 40)) as pilot:
            await until(pilot, lambda: app.seen is not None)
            await story(pilot)

    asyncio.run(play())


async def until(pilot, happened, seconds=60):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        await pilot.pause(0.02)


async def asked(pilot, key):
    """A key that asks a question; it is there when this returns."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.focused, Input))


def made_app(site, person=""):
    return TopApp(StoreSource(site.store, 30.0), site.store, TopSettings(0.3, person))


def text_of(app, name):
    return str(app.query_one(name, Static).render())


def test_from_a_problem_to_its_nodes_to_one_node(site):
    app = made_app(site)

    async def story(pilot):
        await until(pilot, lambda: text_of(app, "#summary").startswith("72 nodes: "))
        table = app.query_one("#problems-table", LiveTable)
        await until(pilot, lambda: table.chosen)
        check, _, reason = table.chosen.partition("\n")
        await pilot.press("enter")
        await until(pilot, lambda: app.wanted.cause == (check, reason))
        nodes = app.query_one("#nodes-table", LiveTable)
        await until(pilot, lambda: nodes.keys)
        await pilot.press("enter")
        await until(pilot, lambda: reason in text_of(app, "#pane-text"))
        assert nodes.chosen in text_of(app, "#pane-text")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: len(nodes.keys) == 72)

    drive(app, story)


def test_the_keys_are_listed(site):
    app = made_app(site)

    async def story(pilot):
        await until(pilot, lambda: text_of(app, "#summary").startswith("72 nodes: "))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, KeyList))
        said = str(app.screen.query_one("#keys", Static).render())
        assert re.search(r"^/ +Filter$", said, re.MULTILINE)
        assert re.search(r"^n +Next sick group$", said, re.MULTILINE)
        assert "Approve" not in said  # who only looks is offered nothing to decide
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, KeyList))

    drive(app, story)


def test_the_map_and_its_keys(site):
    app = made_app(site)

    async def story(pilot):
        await pilot.press("2")
        view = app.query_one(MapView)
        await until(pilot, lambda: view.size.height >= 34)  # of 40 lines: nothing lies empty below it
        await until(pilot, lambda: [line.group for line in view.lines_of] == ["r01", "r02", "r03", "r04"])
        await pilot.press("n")
        await until(pilot, lambda: view.lines_of[view.cursor].sick)
        group = view.lines_of[view.cursor].group
        await pilot.press("enter")
        await until(pilot, lambda: app.wanted.group == ("rack", group))
        await until(pilot, lambda: len(app.query_one("#nodes-table", LiveTable).keys) == 18)
        await pilot.press("2", "g")
        await until(pilot, lambda: [line.group for line in view.lines_of] == ["leaf1", "leaf2"])

    drive(app, story)


def test_what_is_typed_and_chosen_stays_while_the_fleet_changes(changing):
    app = made_app(changing)

    async def story(pilot):
        await pilot.press("3")
        nodes = app.query_one("#nodes-table", LiveTable)
        for _ in range(30):
            await pilot.press("down")
        chosen = nodes.chosen
        before, picture = list(nodes.keys), app.seen
        step(changing, 25)
        await until(pilot, lambda: nodes.keys != before and app.seen is not picture)
        assert nodes.chosen == chosen
        await pilot.press("slash", *"gpu72")
        field = app.query_one("#filter", Input)
        picture = app.seen
        step(changing, 5)
        await until(pilot, lambda: app.seen is not picture)
        assert (field.value, field.has_focus) == ("gpu72", True)
        await pilot.press("enter")
        await until(pilot, lambda: nodes.keys == ["gpu72"])

    drive(app, story)


def test_who_only_looks_is_offered_nothing_to_decide(site):
    app = made_app(site)

    async def story(pilot):
        await pilot.press("4")
        await pilot.press("a", "x", "h", "r")
        assert len(app.screen_stack) == 1
        with site.store.read() as connection:
            assert not [one for one in audit.entries(connection, limit=500) if one.actor == "you"]

    drive(app, story)


def test_a_repair_is_agreed_to_by_typing_the_nodes_name(changing):
    app = made_app(changing, "anna")

    async def story(pilot):
        await pilot.press("4")
        asking = app.seen.repairs[0]
        assert asking.asks
        await asked(pilot, "a")
        await pilot.press(*"wrong", "enter", *"because", "enter")
        await until(pilot, lambda: "is not" in str(app.screen.query_one("#wrong").render()))
        await pilot.press("escape")
        await until(pilot, lambda: "nothing was done" in text_of(app, "#said"))
        await asked(pilot, "a")
        await pilot.press(*asking.node, "enter", "enter")
        await until(pilot, lambda: f"anna agreed to {asking.rung} of {asking.node}" in text_of(app, "#said"))
        with changing.store.read() as connection:
            entries = [one for one in audit.entries(connection, limit=1000) if one.actor == "anna"]
        assert [one.node for one in entries] == [asking.node]
        step(changing, 0)
        with changing.store.read() as connection:
            from nhc.store import episodes

            assert episodes.get(connection, asking.number).state != "awaiting-approval"

    drive(app, story)


def test_what_is_read_while_the_screen_closes_is_not_painted(changing):
    app = made_app(changing, "anna")

    async def story(pilot):
        for part in ("#summary", "#trouble"):
            await app.query_one(part).remove()
        app.paused = True  # on a loaded machine the next look would begin before this one has ended, and cancel it
        await app.read().wait()

    drive(app, story)


def test_a_hold_needs_a_reason_and_a_release_ends_it(changing):
    app = made_app(changing, "anna")

    async def story(pilot):
        await pilot.press("3")
        name = app.query_one("#nodes-table", LiveTable).chosen
        await asked(pilot, "h")
        await pilot.press(*name, "enter", "enter")
        await until(pilot, lambda: "say why" in str(app.screen.query_one("#wrong").render()))
        await pilot.press(*"fan", "enter")
        await until(pilot, lambda: text_of(app, "#said") == f"{name} is held by anna")
        await asked(pilot, "r")
        await pilot.press(*name, "enter", "enter")
        await until(pilot, lambda: text_of(app, "#said") == f"{name} is released by anna")
        await asked(pilot, "r")
        await pilot.press(*name, "enter", "enter")
        await until(pilot, lambda: text_of(app, "#said") == f"nothing holds {name}")

    drive(app, story)


def test_a_store_that_goes_away_is_said_and_the_last_picture_stays(site):
    class Fickle(StoreSource):
        away = False

        def snapshot(self):
            if self.away:
                raise SourceError("the disk is gone")
            return super().snapshot()

    source = Fickle(site.store, 30.0)
    app = TopApp(source, None, TopSettings(0.2))

    async def story(pilot):
        source.away = True
        await until(pilot, lambda: "the disk is gone; shown is what was read" in text_of(app, "#trouble"))
        assert text_of(app, "#summary").startswith("72 nodes: ")
        source.away = False
        await until(pilot, lambda: text_of(app, "#trouble") == "")

    drive(app, story)


def argv(site, *words):
    return [sys.executable, "-m", "nhc", "top", "--store", site.store.name, "--every", "0.5", *words]


ENV = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


@pytest.mark.slow
@pytest.mark.parametrize(("colors", "never"), [("16", r"\x1b\[[0-9;]*[34]8;[25];"), ("none", r"\x1b\[[0-9;]*[34]8;5;")])
def test_on_a_real_terminal(site, colors, never):
    with terminal(argv(site, "--colors", colors), ENV) as screen:
        screen.until("72 nodes: ")
        screen.type("2")
        screen.until("Map by rack")
        screen.type("3")
        screen.until("gpu0")
        screen.type("q")
        assert screen.end() == 0
    assert "Traceback" not in screen.text
    assert not re.search(never, screen.seen), "a colour that this terminal does not have"


@pytest.mark.slow
def test_ctrl_c_ends_it(site):
    with terminal(argv(site), ENV) as screen:
        screen.until("72 nodes: ")
        screen.type("\x03")
        assert screen.end() == 0


@pytest.mark.parametrize(("words", "status", "said"), [
    (["--store", "sqlite:////no/such/store.db"], 3, "/no/such/store.db"),
    (["-r", "/no/such"], 3, "/no/such"),
    (["-r", "/tmp", "--store", "sqlite:///x"], 2, "exclude each other"),
    (["-r", "/tmp", "--apply"], 2, "needs a store"),
    (["-r", "/tmp", "--stale", "soon"], 2, "soon"),
    (["--adapter", "kubernets"], 2, "did you mean kubernetes?"),
])  # fmt: skip
def test_what_cannot_be_shown_is_one_line(words, status, said):
    done = nhc("top", "--once", *words)
    assert done.returncode == status, done
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_that_cannot_be_used_are_wrong_usage(tmp_path, monkeypatch):
    (tmp_path / "console.toml").write_text('stale = "never"\n')
    monkeypatch.setattr("nhc.console.settings.FILE.path", str(tmp_path / "console.toml"))
    done = CliRunner().invoke(application, ["top", "--once", "-r", str(tmp_path)])
    assert (done.exit_code, "console.toml:1: stale: 'never'" in done.output) == (2, True), done.output


def test_a_library_that_is_missing_is_named_with_how_to_install_it(tmp_path):
    (tmp_path / "textual.py").write_text("raise ModuleNotFoundError('No module named textual', name='textual')\n")
    done = nhc("top", "--once", "-r", tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}:{ROOT / 'adapters'}"})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "nhc top needs the Python package textual: pip install" in done.stderr


def test_without_a_terminal_it_says_what_there_is(site):
    done = nhc("top", "--store", site.store.name)
    assert (done.returncode, "--once" in done.stderr) == (2, True)
    once = nhc("top", "--store", site.store.name, "--once")
    assert once.returncode == 0
    assert once.stdout.startswith("72 nodes: ")
    assert re.search(r"^(CRIT|WARN) \d+ \w+ \(check_", once.stdout, re.MULTILINE)
