"""remedy.toml: the example shows the defaults, nothing is enabled by default, and a mistake is one line."""

import pytest

from nhc.core.limits import Limit, Mode, Rate
from nhc.core.settings.settings_file import SettingsError
from nhc.marks.policy.bounds import FLEET, REPAIRS, Bounds
from nhc.marks.ports.repair import Rung
from nhc.remedy.remedy_file import load, parse
from nhc.remedy.settings import RemedySettings


def test_an_empty_file_is_the_default_and_enables_nothing():
    found = parse("")
    assert found._replace(path="", modes={}, bounds=Bounds()) == RemedySettings()
    assert found.bounds._replace(approvals=Bounds().approvals) == Bounds()
    assert {found.mode(action) for action in ("mark", *(rung.value for rung in REPAIRS))} == {Mode.DRY_RUN}


def test_each_action_is_enabled_apart():
    found = parse('[actions]\nmark = "on"\nreboot = "on"\npower-cycle = "off"\n')
    assert (found.mode("mark"), found.mode("reboot")) == (Mode.ON, Mode.ON)
    assert (found.mode("power-cycle"), found.mode("replace")) == (Mode.OFF, Mode.DRY_RUN)
    assert Mode.ON not in found.dry().rung_modes().values()
    assert found.dry().mode("power-cycle") is Mode.OFF


def test_bounds_repairers_and_machines():
    found = parse(
        """
        [bounds.fleet]
        out = "10% at least 3"
        [bounds.fleet.rate]
        reboot = "5 per 1h"
        [bounds.pool]
        repairing = "1"
        [approval]
        power-cycle = 2
        [repairers.rack-bmc]
        type = "redfish"
        nodes = ["gpu*"]
        rungs = ["power-cycle"]
        user = "root"
        [[machines]]
        nodes = "gpu*"
        bmc = "{node}-bmc"
        """
    )
    fleet = found.bounds.radii[FLEET]
    assert (fleet.out, fleet.rates["reboot"]) == (Limit(share=0.1, least=3), Rate(5, 3600.0))
    assert fleet.rates["mark"] == Bounds().radii[FLEET].rates["mark"]  # what the file does not name stays bounded
    assert found.bounds.radii["pool"].repairing == Limit(1)
    assert found.bounds.approvals[Rung.POWER_CYCLE] == 2
    (repairer,) = found.repairers
    assert (repairer.type, repairer.rungs, repairer.settings) == ("redfish", {Rung.POWER_CYCLE}, {"user": "root"})
    assert found.machines[0] == (("gpu*",), {"bmc": "{node}-bmc"})


POLICY = """
apply = true
protected = ["login*"]
[bounds.fleet]
out = "7"
[bounds.named]
gpu = "1"
[limits]
attempts = 5
[quiet-hours]
hours = ["daily 08:00-18:00"]
"""


def test_the_bounds_can_be_read_from_the_policy_that_sync_and_the_controller_read(tmp_path):
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "remedy.toml").write_text('policy = "policy.toml"\n[limits]\nfirst-run = "2"\n[approval]\nreboot = 1\n')
    bounds = load(str(tmp_path / "remedy.toml")).bounds
    assert bounds.radii == {**Bounds().radii, FLEET: Bounds().radii[FLEET]._replace(out=Limit(7))}
    assert (bounds.named, bounds.attempts, bounds.protected) == ({"gpu": Limit(1)}, 5, ("login*",))
    assert [one.text for one in bounds.quiet.hours] == ["daily 08:00-18:00"]
    assert (bounds.first_run, bounds.approvals[Rung.REBOOT]) == (Limit(2), 1)


@pytest.mark.parametrize(
    ("remedy", "policy", "said"),
    [
        ('protected = ["a"]', "", "remedy.toml:2: protected: is read from {dir}/policy.toml, which `policy` names: write it there"),  # noqa: E501
        ("[limits]\nattempts = 2", "", "remedy.toml:3: limits.attempts: is read from {dir}/policy.toml"),
        ("[bounds.fleet]\nout = '1'", "", "remedy.toml:2: bounds: is read from {dir}/policy.toml"),
        ("", "[bounds.fleet]\nout = 'none'", "policy.toml: bounds.fleet.out: a fleet without a bound on nodes out is refused"),  # noqa: E501
        ("", "aply = true", "policy.toml:1: aply: there is no such key"),
    ],
)  # fmt: skip
def test_a_bound_stands_in_one_file(tmp_path, remedy, policy, said):
    (tmp_path / "policy.toml").write_text(policy)
    (tmp_path / "remedy.toml").write_text(f'policy = "policy.toml"\n{remedy}\n')
    with pytest.raises(SettingsError) as caught:
        load(str(tmp_path / "remedy.toml"))
    assert said.format(dir=tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[actions]\nreboot = "on"', "remedy.toml:2: actions.reboot: a repair needs a marked node"),
        ('[actions]\nmark = "yes"', "remedy.toml:2: actions.mark: 'yes' is not one of on, dry-run, off"),
        ('[actions]\nrebot = "on"', "remedy.toml:2: actions.rebot: there is no such key: did you mean 'reboot'?"),
        ("[bounds.rack]\nout = 3.5", "remedy.toml:2: bounds.rack.out: '3.5' is not a number of nodes"),
        ('[bounds.rack.rate]\nmark = "often"', "remedy.toml:2: bounds.rack.rate.mark: 'often' is not a rate"),
        ('[quiet-hours]\nhours = ["Mon"]', "remedy.toml:2: quiet-hours.hours: 'Mon' are no hours"),
        ('zone = "Mars"', "remedy.toml:1: zone: 'Mars' is no time zone"),
        ("[approval]\nreplace = 3", "remedy.toml:2: approval.replace: 3 is too large"),
        ('[[machines]]\nbmc = "x"', "remedy.toml:1: machines[1].nodes: missing"),
        ('[drain]\nthen = "wait"', "remedy.toml:2: drain.then: 'wait' is not one of escalate, force"),
        ("x = ", "remedy.toml: "),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(text, said):
    with pytest.raises(SettingsError) as error:
        parse(text)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nowhere\.toml: No such file"):
        load(str(tmp_path / "nowhere.toml"))
