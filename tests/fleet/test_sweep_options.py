"""The options of `nhc fleet check`, `report` and `diff` have the types that the code is checked with."""

from typing import get_args, get_type_hints

import pytest

from nhc.core.settings.settings_file import SettingsError
from nhc.fleet.commands import fleet
from nhc.fleet.settings import FILE, FleetSettings
from nhc.fleet.sweep_options import DiffOptions, ReportOptions, SweepOptions

COMMANDS = [(fleet.check, SweepOptions), (fleet.report, ReportOptions), (fleet.diff, DiffOptions)]


def values(command):
    """What the command goes by where nothing is said: click's values, and for a sweep those of fleet.toml."""
    given = command.make_context("nhc", []).params
    if command is not fleet.check:
        return given
    said = {name: value for name, value in given.items() if name not in ("path", "given", *FleetSettings._fields)}
    return {**FleetSettings()._asdict(), **said}


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


def test_the_command_line_stands_for_the_file_and_the_last_of_a_key_counts(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text('user = "ops"\nfanout = 7\nlabel = ["rack"]\n')
    found = FILE.load(str(file), ["fanout=8", "fanout=9", "label=a", "label=b", "accept-new=true", "python=3"])
    assert (found.user, found.fanout, found.facts, found.accept_new, found.python) == ("ops", 9, ("a", "b"), True, "3")
    assert FILE.load(str(file)).facts == ("rack",)


@pytest.mark.parametrize(
    ("text", "said"),
    [("fanout=many", "--set.fanout: 'many' is not a whole number"), ("fanout", "--set fanout: expected KEY=VALUE"),
     ("fanuot=1", "--set.fanuot: there is no such key: did you mean 'fanout'?"), ("retries=11", "--set.retries: 11")],
)  # fmt: skip
def test_a_wrong_key_or_value_is_one_line(text, said):
    with pytest.raises(SettingsError) as raised:
        FILE.load("", [text])
    assert str(raised.value).startswith(said)
