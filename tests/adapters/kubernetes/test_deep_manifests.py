"""What a test's container gets, run here: the rail that a run is held to, and what torchrun takes its options from."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Dict

import pytest

from nhc.deep.group_output import held
from nhc.marks.ports.part_settings import read
from nhc_adapters.kubernetes.deep_launch import JOB, JOBSET, MPIJOB, DeepSettings, WorkloadKind, manifests
from tests.support.group_runs import group_run

OWNER = {"metadata": {"name": "nhc-sweep-s", "uid": "u"}}

# Takes its options as torch.distributed.run does: each from PET_ and its name, where the command line has none.
TORCHRUN = """
import argparse, json, os
class env(argparse.Action):
    def __init__(self, dest, default=None, **more):
        super().__init__(dest=dest, default=os.environ.get(f"PET_{dest.upper()}", default), **more)
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)
parser = argparse.ArgumentParser()
for name, default in (("nnodes", "1:1"), ("nproc-per-node", "1"), ("node-rank", 0), ("master-addr", "127.0.0.1"),
                      ("master-port", 29500)):
    parser.add_argument(f"--{name}", action=env, default=default)
print(json.dumps(vars(parser.parse_args())))
"""


def container(kind: WorkloadKind, *argv: str, rail: str = "") -> Dict[str, Any]:
    """The container of a test's first pod."""
    test = group_run("s", ["n1", "n2"], held(argv, rail, "hca"), tasks=8)
    given = read(DeepSettings, {"image": "x", "port": "29777"})
    spec = manifests(kind, given, test, OWNER)[-1].body["spec"]
    if kind is MPIJOB:
        spec = spec["mpiReplicaSpecs"]["Launcher"]
    elif kind is JOBSET:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    found: Dict[str, Any] = spec["template"]["spec"]["containers"][0]
    return found


def run(made: Dict[str, Any], path: str = "/usr/bin:/bin") -> str:
    """Its command, as kubelet would start it on the second node."""
    env = {one["name"]: one.get("value", "1") for one in made["env"]}  # what comes of a field is the rank: 1
    done = subprocess.run(
        made["command"], env={"PATH": path, **env}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("kind", [JOB, JOBSET])
def test_torchrun_knows_its_nodes_without_an_argument(kind: WorkloadKind) -> None:
    said = json.loads(run(container(kind, sys.executable, "-c", TORCHRUN)).splitlines()[0])
    first = {JOB: "nhc-s-k1-0.nhc-s-k1", JOBSET: "nhc-s-k1-t-0-0.nhc-s-k1"}[kind]
    assert said == {
        "nnodes": "2",
        "nproc_per_node": "8",
        "node_rank": "1",
        "master_addr": first,
        "master_port": "29777",
    }


@pytest.mark.parametrize("kind", [JOB, JOBSET, MPIJOB])
def test_a_rail_reaches_the_tool(kind: WorkloadKind, tmp_path: Any) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\nwhile [ "$1" != env ]; do shift; done\nexec "$@"\n')
    mpirun.chmod(0o755)
    made = container(kind, "sh", "-c", 'echo "$NCCL_IB_HCA $UCX_NET_DEVICES $NCCL_CROSS_NIC"', rail="mlx5_3")
    assert run(made, f"{tmp_path}:/usr/bin:/bin").splitlines()[0] == "=mlx5_3 mlx5_3:1 0"
