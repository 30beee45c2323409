"""The tutorial, followed to the letter on a real control plane: its commands in its order, and what they print."""

from __future__ import annotations

import pytest

from tests.fresh.stranger import steps
from tests.support.kube import REPOSITORY, load
from tests.support.reader import reader

pytestmark = pytest.mark.slow
PAGE = REPOSITORY / "docs/tutorial-kubernetes.md"


def test_the_cluster_is_drained_repaired_and_returned(plane, tmp_path):
    """`plane` says whether a control plane can be had here; the reader starts one of their own."""
    followed = [step for step in steps(PAGE) if step.heading == "A small cluster"]
    drained = next(number for number, step in enumerate(followed) if "kubectl get pods" in step.command) + 1
    with reader(tmp_path, NHC_KUBE_BIN=str(load("build").build(print))) as somebody:
        somebody.follow(followed[:drained])
        _status, pods = somebody.terminal().type(followed[drained - 1].command)
        assert "train-" not in pods
        somebody.follow(followed[drained:])
        _status, node = somebody.terminal().type("kubectl get node gpu-007")
        assert "Ready" in node
        assert "SchedulingDisabled" not in node
        somebody.end()
