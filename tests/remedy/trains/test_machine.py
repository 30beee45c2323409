"""The states of a train: each is explained, and the page shows them. Those of its nodes are an episode's."""

from pathlib import Path

from nhc.remedy.trains import machine

ROOT = Path(__file__).resolve().parents[3]


def test_every_state_is_explained():
    assert set(machine.TRAIN_MEANING) == set(machine.TrainState)


def test_the_page_shows_the_table():
    page = (ROOT / "docs" / "maintenance.md").read_text()
    shown = page.partition("<!-- tables: nhc.remedy.trains.machine -->\n")[2].partition("<!-- end of tables -->")[0]
    assert shown == machine.tables()
