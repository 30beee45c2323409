"""The options of `nhc fleet check`, `report` and `diff` have the types that the code is checked with."""

from typing import get_args, get_type_hints

import pytest

from nhc.fleet.commands import fleet
from nhc.fleet.sweep_options import DiffOptions, ReportOptions, SweepOptions

COMMANDS = [(fleet.check, SweepOptions), (fleet.report, ReportOptions), (fleet.diff, DiffOptions)]


def values(command):
    """What click gives the command where nothing is said."""
    return command.make_context("nhc", []).params


@pytest.mark.parametrize(("command", "kind"), COMMANDS, ids=["check", "report", "diff"])
def test_every_option_is_declared(command, kind):
    assert set(values(command)) == set(get_type_hints(kind))


@pytest.mark.parametrize(("command", "kind"), COMMANDS, ids=["check", "report", "diff"])
def test_an_option_that_nobody_gave_has_its_type(command, kind):
    given = values(command)
    for name, hint in get_type_hints(kind).items():
        allowed = [getattr(one, "__origin__", one) for one in get_args(hint)] or [hint]
        allowed = [tuple] if getattr(hint, "__origin__", None) is tuple else allowed
        assert type(given[name]) in allowed, name
