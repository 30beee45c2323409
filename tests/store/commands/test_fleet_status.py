"""`nhc status fleet`: what it says of a fleet that was upgraded, and how it refuses what it cannot answer."""

import json
import time

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from nhc.store.commands.fleet_status import command
from nhc.store.fleet_rates import DAY
from nhc.store.schema import coverage, machines, nodes, problems
from tests.support.new_store import store  # noqa: F401 (a fixture)


def ask(store, *words):  # noqa: F811
    done = CliRunner().invoke(
        command, [*words, "--store", store.engine.url.render_as_string(hide_password=False)], standalone_mode=False
    )
    return done.return_value if done.exception is None else done.exception, done.output


def test_an_upgrade_that_helped_is_one_number_with_its_certainty(store):  # noqa: F811
    now = time.time()
    upgrade = now - 14 * DAY
    with store.write() as connection:
        for number in range(20):
            name = f"n{number}"
            connection.execute(sa.insert(nodes), {"node": name, "groups": {"rack": "r1"}, "labels": {}})
            connection.execute(sa.insert(coverage), {"node": name, "began": now - 40 * DAY, "ended": now})
            for began, driver in ((now - 40 * DAY, "nvidia 570"), (upgrade, "nvidia 580")):
                row = {"node": name, "began": began, "made_of": {"driver": driver}}
                connection.execute(sa.insert(machines), row)
            for day in range(28):
                if (number + day) % (4 if day < 14 else 14) == 0:
                    at = now - (27.5 - day) * DAY
                    connection.execute(sa.insert(problems), {
                        "node": name, "check": "check_gpu_xid", "reason": "Xid79", "target": "", "verdict": "CRIT",
                        "began": at, "seen": at, "ended": at + 60,
                    })  # fmt: skip
    status, text = ask(store, "--since", "14d")
    assert status == 0
    assert text.splitlines()[2].split()[:3] == ["all", "20", "280"]
    assert " less" in text
    value = json.loads(ask(store, "--since", "14d", "-f", "json")[1])
    (row,) = value["rows"]
    ratio = row["ratios"]["faults"]
    assert (row["rate"]["faults"], row["other"]["faults"]) == (20, 70)
    assert ratio["low"] < 20 / 70 < ratio["high"] < 1
    assert row["ratios"]["days_out"] is None
    assert value["date"] - value["began"] == pytest.approx(value["ended"] - value["date"])
    by_driver = json.loads(ask(store, "--by", "driver", "-f", "json")[1])["rows"]
    assert {row["value"]: row["ratios"]["faults"]["shown"] for row in by_driver} == {
        "nvidia 570": "more", "nvidia 580": "less",
    }  # fmt: skip
    assert ask(store, "-w", "nobody")[0] == 3, "nothing is known of it: no rate of 0"


@pytest.mark.parametrize("words", [("--since", "tomorrow"), ("--since", "1h"), ("--since", "2099-01-01T00:00:00Z"),
                                   ("-w", "n[1"), ("--by", "colour"), ("--within", "0d")])  # fmt: skip
def test_what_cannot_be_asked_is_refused_in_one_line(store, words):  # noqa: F811
    error, _text = ask(store, *words)
    assert isinstance(error, Exception)
    assert 2 in (getattr(error, "exit_code", None), getattr(error, "status", None))
