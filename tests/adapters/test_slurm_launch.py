"""What the launcher on Slurm writes and reads; whole sweeps on a real Slurm: tests/adapters/test_slurm_sweep.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nhc.core.host import Completed
from nhc.marks.ports.runner import RunPhase
from nhc_adapters.slurm.deep_launch import SlurmLauncher
from tests.support.group_runs import group_run, look

SRUN = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --output=*) out=${1#--output=};; --*) ;; *) break;; esac; shift; done
exec "$@" >>$out 2>&1
"""


RUN = group_run("s1", ["n1", "n2"], ["sh", "-c", "echo it\\'s; exit 3"])


def launcher(place: Path) -> SlurmLauncher:
    """One whose Slurm has no job and takes every one as its seventh."""
    said = {"sbatch": "7\n"}
    return SlurmLauncher(
        {"directory": str(place)}, {}, run=lambda argv, timeout, env: Completed(0, said.get(argv[0], ""), "")
    )


@pytest.fixture
def launched(tmp_path: Path) -> Path:
    """The folder of a test whose job sbatch has taken; its tool says each time that it runs."""
    assert launcher(tmp_path).start(RUN) == "7"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/srun").write_text(SRUN)
    (tmp_path / "bin/srun").chmod(0o755)
    return tmp_path


def run(place: Path) -> int:
    env = {"PATH": f"{place}/bin:/usr/bin:/bin"}
    return subprocess.run(["sh", str(place / "s1/k1/job.sh")], env=env, timeout=60, check=False).returncode


def test_a_job_that_was_submitted_twice_runs_its_test_once(launched: Path) -> None:
    assert look(launcher(launched), RUN).phase is RunPhase.ABSENT
    assert run(launched) == 3
    ended = look(launcher(launched), RUN)
    assert (ended.phase, ended.status, ended.output, ended.cut) == (RunPhase.ENDED, 3, "it's\n", False)
    assert run(launched) == 0
    assert look(launcher(launched), RUN) == ended
    assert launcher(launched).start(RUN) == "", "nor is it submitted again"


def test_one_that_began_and_left_no_marker_is_lost(launched: Path) -> None:
    (launched / "s1/k1/begun").mkdir()
    assert look(launcher(launched), RUN).phase is RunPhase.LOST
    (launched / "s1/k1/stopped").touch()
    assert look(launcher(launched), RUN).phase is RunPhase.STOPPED


@pytest.mark.thorough
def test_an_output_without_an_end_is_read_to_a_limit(launched: Path) -> None:
    """More than that was an error, which the sweep took for a launcher that does not answer, for ever."""
    run(launched)
    with open(launched / "s1/k1/output", "ab") as file:
        file.truncate(RUN.limits.output + 4096)
    found = look(launcher(launched), RUN)
    assert found.output.startswith("it's\n")
    assert (len(found.output), found.cut) == (RUN.limits.output, True)
