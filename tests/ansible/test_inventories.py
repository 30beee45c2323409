"""The example inventories are what Ansible reads, and the one from Slurm says what sinfo said."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(sys.executable).parent / "ansible-inventory"


def read(inventory, **env):
    done = subprocess.run(
        [TOOL, "-i", ROOT / "inventories" / inventory, "--list"],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **env},
    )  # fmt: skip
    assert "WARNING" not in done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("inventory", "group", "count"), [("example", "login", 1), ("mixed", "h100", 64), ("mixed", "cpu", 512)]
)
def test_an_example_inventory_holds_its_groups(inventory, group, count):
    assert len(read(inventory)[group]["hosts"]) == count


def test_the_mixed_fleets_profiles_exist():
    variables = read("mixed")["_meta"]["hostvars"]
    names = {values["nhc_profile"] for values in variables.values() if "nhc_profile" in values} - {"none"}
    assert names == {"dgx-h100", "dgx-a100"}
    assert not [name for name in names if not (ROOT / "conf/profiles" / f"{name}.conf").exists()]


def test_the_inventory_from_slurm(tmp_path):
    sinfo = tmp_path / "sinfo"
    rows = ["gpu001 gpu idle", "gpu001 all idle", "gpu002 gpu drain*", "gpu003 gpu-big idle~", "$(evil) gpu idle"]
    sinfo.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))
    sinfo.chmod(0o755)
    groups = read("slurm.sh", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert groups["part_gpu"]["hosts"] == ["gpu001", "gpu002"]
    assert groups["part_gpu_big"]["hosts"] == ["gpu003"]
    assert sorted(groups["state_idle"]["hosts"]) == ["gpu001", "gpu003"]
    assert groups["state_drain"]["hosts"] == ["gpu002"]
