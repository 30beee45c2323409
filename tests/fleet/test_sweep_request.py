"""What `nhc fleet check`, `report` and `diff` are asked for, and fleet.toml."""

import pytest

from nhc.core.command_line.options import read
from nhc.core.settings.settings_file import SettingsError
from nhc.fleet.settings import FILE, FleetSettings
from nhc.fleet.sweep_request import SweepRequest, facts, vault


def test_a_sweep_has_what_the_command_line_says_and_the_files_keys_under_it(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text(
        'user = "ops"\ntimeout = "90s"\nvault-password-file = "prod@/v"\ngroup-by = "row"\nlabel = "rack"\n'
    )
    args = read(SweepRequest, ["-w", "n[1-4]", "-u", "root", "--tag", "gpu", "-q"])
    site = FILE.load(str(file), args.given, args.overrides(FleetSettings))
    assert (site.user, site.timeout, site.sudo) == ("root", 90.0, False)
    assert (args.sets, facts(site), vault(site)) == (("n[1-4]",), ("rack", "row"), ("--vault-id", "prod@/v"))
    assert (args.tags, args.quiet, args.form, args.mark) == (("gpu",), True, "text", "")


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
