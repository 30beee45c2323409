"""A kept plan is what the files say, or it is not used."""

import os

import pytest

from nhc import plan_cache
from nhc.plan import COMMAND, Item, Plan
from nhc.state import State


@pytest.fixture
def state(tmp_path):
    return State(str(tmp_path / "state"))


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_text("as it was")
    os.utime(path, (1, 1))
    return path


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """As if the files had been there for long."""
    monkeypatch.setattr(plan_cache, "_RACY", -10_000_000_000)


def plan(path, name="found"):
    return Plan((Item(COMMAND, name, name),), inputs=(str(path),))


def asked(state, path, name):
    return plan_cache.cached(state, ("question",), lambda: plan(path, name)).items[0].name


def test_kept_until_a_file_changes(state, config):
    assert asked(state, config, "first") == "first"
    assert asked(state, config, "second") == "first"
    config.write_text("changed")
    assert asked(state, config, "second") == "second"


def test_kept_while_a_file_is_missing_and_until_it_is_there(state, tmp_path):
    missing = tmp_path / "missing"
    assert asked(state, missing, "first") == "first"
    assert asked(state, missing, "second") == "first"
    missing.write_text("now")
    assert asked(state, missing, "second") == "second"


def test_what_changes_while_it_is_read_is_not_kept(state, config, monkeypatch):
    monkeypatch.setattr(plan_cache, "_RACY", 0)

    def make():
        config.write_text("changed behind the reader's back")
        return plan(config, "read before")

    plan_cache.cached(state, ("question",), make)
    assert asked(state, config, "read again") == "read again"


@pytest.mark.parametrize(
    "spoil", [lambda kept: kept[:-1], lambda kept: kept[:20] + b"\xff" + kept[21:], lambda _: b"x"]
)
def test_a_damaged_one_is_a_miss(state, config, spoil):
    asked(state, config, "first")
    (name,) = (name for name in os.listdir(state.directory) if name.endswith(".cache"))
    state.save_bytes(name, spoil(state.load_bytes(name)))
    assert asked(state, config, "second") == "second"


def test_the_directory_matters_only_to_relative_paths(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert plan_cache.directory(["/etc/nhc/nhc.conf", ""]) == ""
    assert plan_cache.directory(["nhc.conf"]) == str(gone)
    gone.rmdir()
    assert plan_cache.directory(["nhc.conf"]) == ""
