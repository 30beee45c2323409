"""The tutorial's Slurm part, as somebody who follows it: hook and loop together on one real Slurm."""

from __future__ import annotations

import pytest

from tests.fresh.stranger import steps
from tests.support.reader import reader
from tests.support.require import need
from tests.support.run import ROOT
from tests.support.slurm import missing

PAGE = ROOT / "docs/tutorial-slurm.md"

pytestmark = pytest.mark.slow  # a Slurm of its own


def test_the_node_is_drained_rebooted_proved_and_returned_beside_its_own_health_check(tmp_path):
    need("slurm", not missing(), ", ".join(missing()))
    followed = [step for step in steps(PAGE) if step.heading == "A Slurm on this machine"]
    with reader(tmp_path) as somebody:
        typed = somebody.follow(followed)
        somebody.end()
    assert typed == [step.command for step in followed]
    assert typed[-1].startswith("sinfo")
