"""Policies as TOML: read whole, and every mistake one line that says where and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from nhc.core.limits import Limit, Rate
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.policy.bounds import FLEET, PARTITION, Bounds, RadiusBounds, Timed, read_hours
from nhc.marks.policy.mark_decision import Policy
from nhc.marks.policy.policy_file import load, parse
from nhc.marks.ports.adapter import Operation

ROOT = Path(__file__).resolve().parents[3]


def test_nothing_set_is_the_default_and_carries_nothing_out():
    assert parse("") == (Policy(), False)


def test_every_key_arrives():
    found = parse("""
        apply = true
        protected = ["login*"]
        max-age = "10m"
        healthy-for = "5m"
        count-all = true
        zone = "Europe/Zurich"
        [bounds.fleet]
        out = "20 10%"
        [bounds.fleet.rate]
        mark = "20 per 1h"
        reboot = "2 per 30m"
        [bounds.partition]
        out = "none"
        [bounds.named]
        gpu = "1"
        [limits]
        attempts = 1
        window = "2d"
        [repair]
        allow = ["reboot", "replace"]
        cooldown = "2h"
        [quiet-hours]
        hours = ["daily 08:00-18:00"]
    """)
    assert found.apply
    assert found.policy == Policy(
        Bounds(
            {FLEET: RadiusBounds(Limit(20, 0.1), None, {"mark": Rate(20, 3600.0), "reboot": Rate(2, 1800.0)}),
             PARTITION: RadiusBounds()},
            {"gpu": Limit(1)}, attempts=1, window=2 * 86400.0, protected=("login*",),
            quiet=Timed((read_hours("daily 08:00-18:00"),)), zone=found.policy.bounds.zone,
            asked=frozenset({FLEET, PARTITION}),
        ),
        True, frozenset({Operation.REBOOT, Operation.REPLACE}), 7200.0, 600.0, 300.0,
    )  # fmt: skip
    assert found.policy.bounds.zone.name == "Europe/Zurich"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aply = true", "p.toml:1: aply: there is no such key: did you mean 'apply'?"),
        ("apply = 1", "p.toml:1: apply: 1 is neither true nor false"),
        ('[bounds.fleet]\nout = "ten"', "p.toml:2: bounds.fleet.out: 'ten' is not a number of nodes, a share such as 10%, both, '10% at least 4', or none"),  # noqa: E501
        ("bounds = 3", "p.toml:1: bounds: 3 is not a table"),
        ('[bounds.fleet.rate]\nmark = "20/h"', "p.toml:2: bounds.fleet.rate.mark: '20/h' is not a rate such as '20 per 1h'"),  # noqa: E501
        ('[bounds.fleet.rate]\nmrk = "2 per 1h"', "p.toml:2: bounds.fleet.rate.mrk: there is no such key: did you mean 'mark'?"),  # noqa: E501
        ('[repair]\nallow = ["explode"]', "p.toml:2: repair.allow: 'explode' is not one of reboot, replace"),
        ("[limits]\nattempts = 0", "p.toml:2: limits.attempts: 0 is too small: expected 1 or more"),
        ('[bounds.named]\n"*" = "1"', "p.toml:2: bounds.named.*: every partition is bounded as [bounds.partition] out"),
        ('max-age = "soon"', "p.toml:1: max-age: 'soon' is not a duration (a number with ms, s, m, h, d or w, as in 10s)"),  # noqa: E501
        ('protected = "login1"', "p.toml:1: protected: 'login1' is not a list of texts"),
        ("a = ", "p.toml: Invalid value (at end of document)"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(text, said):
    with pytest.raises(SettingsError) as caught:
        parse(text, "p.toml")
    assert str(caught.value) == said


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.toml: No such file or directory$"):
        load(str(tmp_path / "none.toml"))
