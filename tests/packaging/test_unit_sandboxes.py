"""The units that run on a node are closed as far as what they do allows (docs/security.md), by systemd's own rating."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.require import need

UNITS = Path(__file__).resolve().parents[2] / "adapters/systemd"
MOST = {
    "nhc-check": 7.0, "nhc-agent": 7.0, "nhc-gate": 9.0, "nhc-gate-boot": 6.0, "nhc-console": 3.7,
    "nhc-deep-sweep": 6.6,
    "nhc-job": 4.0, "nhc-notices": 3.7, "nhc-remedy": 4.0, "nhc-serve": 4.0, "nhc-server": 3.8,
}  # fmt: skip
"""The exposure that is allowed; a unit without any sandbox has 9.6."""
ALL = ("LockPersonality=yes", "RestrictRealtime=yes", "SystemCallArchitectures=native")


@pytest.mark.parametrize("unit", MOST)
def test_a_unit_is_closed_as_far_as_its_work_allows(unit):
    need("systemd-analyze", shutil.which("systemd-analyze"))
    path = UNITS / f"{unit}.service"
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure, done.stdout + done.stderr
    assert float(exposure[1]) <= MOST[unit]


def test_every_unit_has_a_limit():
    assert set(MOST) == {path.stem for path in UNITS.glob("*.service")}


@pytest.mark.parametrize("path", sorted(UNITS.glob("*.service")), ids=lambda path: path.stem)
def test_every_unit_is_closed_to_what_no_work_needs(path):
    lines = path.read_text().splitlines()
    assert [wanted for wanted in ALL if wanted not in lines] == []
