"""nhc as a package installs it, on the tests' machines: the archive, its launcher, configuration, units."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.machines import Machine

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "adapters/systemd"
ARCHIVE = "/opt/nhc/nhc.pyz"


def archive(path: Path) -> Path:
    """nhc.pyz of this checkout."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/adapters"}
    subprocess.run(
        [sys.executable, "-m", "nhc.core.archive.build", str(path)], env=environ, check=True, capture_output=True
    )
    return path


def install(machine: Machine, made: Path) -> None:
    """Before the machine starts: /usr/bin/nhc, and every unit of ours, none of them enabled."""
    target = machine.upper / ARCHIVE.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(made.read_bytes())
    machine.write("/usr/bin/nhc", f'#!/bin/sh\nexec /usr/bin/python3 -I -S {ARCHIVE} "$@"\n', 0o755)
    for unit in sorted(UNITS.iterdir()):
        machine.write(f"/etc/systemd/system/{unit.name}", unit.read_text())
