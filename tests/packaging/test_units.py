"""The units of one host: who runs each, and what it keeps where. tests/machines starts them under systemd."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Dict, Set

import pytest

from nhc.deep import ssh_launch
from nhc.marks.ports.part_settings import read
from nhc.remedy.settings import RemedySettings
from nhc.store import location, settings
from nhc_release.stage import SYSUSERS

ROOT = Path(__file__).resolve().parents[2]
SERVICES = sorted((ROOT / "adapters/systemd").glob("*.service"))
NEAR_THE_MACHINE = ("check", "gate", "serve agent")
"""How the commands begin that judge this machine, and so run as root; the others open the store."""
KEPT = ("StateDirectory", "CacheDirectory", "LogsDirectory", "RuntimeDirectory")


def service(path: Path) -> Dict[str, str]:
    """The section [Service]; of an option that is given twice, the last."""
    unit = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return dict(unit["Service"])


def user(path: Path) -> str:
    return service(path).get("User", "root")


def test_no_directory_belongs_to_two_users_or_has_two_modes() -> None:
    """systemd gives a directory, with all that is in it, to the user of the unit that it starts."""
    owners: Dict[str, Set[str]] = {}
    for path in SERVICES:
        for kind in KEPT:
            given = service(path)
            for name in given.get(kind, "").split():
                owners.setdefault(f"{kind} {name}", set()).add(f"{user(path)} {given.get(f'{kind}Mode', '0755')}")
    assert owners
    assert {name: who for name, who in owners.items() if len(who) > 1} == {}


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_what_opens_the_store_runs_as_its_one_user_in_its_one_directory(path: Path) -> None:
    given = service(path)
    if given["ExecStart"].partition(" ")[2].startswith(NEAR_THE_MACHINE):
        assert user(path) == "root"
        return
    assert user(path) == "nhc"
    assert f"/var/lib/{given['StateDirectory']}" == location.DIRECTORY


def test_the_units_directory_holds_what_the_services_keep_and_is_their_users_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (sweep,) = (path for path in SERVICES if path.stem == "nhc-deep-sweep")
    name, _, value = service(sweep)["Environment"].partition("=")
    monkeypatch.setenv(name, value)
    kept = (
        location.DEFAULT.replace("sqlite:///", ""), settings.StoreSettings().prune.segments,
        RemedySettings().evidence_directory,
        read(ssh_launch.SshSettings, {}).state,
    )  # fmt: skip
    assert [path for path in kept if not path.startswith(f"{location.DIRECTORY}/")] == []
    spec = (ROOT / "packaging/nodehealth.spec").read_text()
    assert SYSUSERS.split()[-1] == location.DIRECTORY
    assert re.findall(r"--home-dir (\S+)", spec) == [location.DIRECTORY]


def test_examples_of_settings_name_that_directory() -> None:
    for path in sorted((ROOT / "conf").glob("*.example")):
        for named in re.findall(r"sqlite:///(/[^\"\s]+)/", path.read_text()):
            assert named == location.DIRECTORY, path.name
