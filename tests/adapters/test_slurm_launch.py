"""What the launcher on Slurm writes and reads; whole sweeps on a real Slurm: tests/adapters/test_slurm_sweep.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nhc.core.host import Completed
from nhc.marks.ports.group_launch import GroupOrder
from nhc_adapters.slurm import deep_launch
from nhc_adapters.slurm.deep_launch import SlurmLauncher

SRUN = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --output=*) out=${1#--output=};; --*) ;; *) break;; esac; shift; done
exec "$@" >>$out 2>&1
"""


@pytest.fixture
def launched(tmp_path: Path) -> Path:
    """The folder of a test whose job sbatch has taken; its tool says each time that it runs."""
    launcher = SlurmLauncher({"directory": str(tmp_path)}, {}, run=lambda argv, timeout, env: Completed(0, "7\n", ""))
    assert launcher.launch("s1", GroupOrder("k1", ("n1", "n2"), ("sh", "-c", "echo it\\'s; exit 3"), 1, 60.0)) == "7"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/srun").write_text(SRUN)
    (tmp_path / "bin/srun").chmod(0o755)
    return tmp_path


def run(place: Path) -> int:
    env = {"PATH": f"{place}/bin:/usr/bin:/bin"}
    return subprocess.run(["sh", str(place / "s1/k1/job.sh")], env=env, timeout=60, check=False).returncode


def test_a_job_that_was_submitted_twice_runs_its_test_once(launched: Path) -> None:
    launcher = SlurmLauncher({"directory": str(launched)}, {})
    assert launcher.finished("s1", "k1") is None
    assert run(launched) == 3
    assert launcher.finished("s1", "k1") == (3, "it's\n")
    assert run(launched) == 0
    assert launcher.finished("s1", "k1") == (3, "it's\n")


@pytest.mark.thorough
def test_an_output_without_an_end_is_read_to_a_limit(launched: Path) -> None:
    """More than that was an error, which the sweep took for a launcher that does not answer, for ever."""
    run(launched)
    with open(launched / "s1/k1/output", "ab") as file:
        file.truncate(deep_launch.OUTPUT_LIMIT + 4096)
    found = SlurmLauncher({"directory": str(launched)}, {}).finished("s1", "k1")
    assert found is not None
    assert found.output.startswith("it's\n")
    assert len(found.output) == deep_launch.OUTPUT_LIMIT
