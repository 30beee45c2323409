"""bench/gpu_proof.py on fakes of the driver: what it measures and writes, and what it says where nothing is proved."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cuda.build import build
from tests.support.nvml.fake import pci_tree

ROOT = Path(__file__).parents[3]
BENCH = [sys.executable, str(ROOT / "bench/gpu_proof.py"), "--runs", "1"]


@pytest.mark.thorough
def test_without_a_gpu_it_says_so():
    done = subprocess.run(BENCH, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "no nvidia device on this node's PCI bus\n"


@pytest.mark.slow
def test_it_writes_what_a_proof_costs_and_how_fast_the_gpus_were(nvml, tmp_path):
    node = tmp_path / "node"
    for name, text in {"/proc/1/mounts": "", **pci_tree()}.items():
        path = node / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    library = build(tmp_path)
    smi = tmp_path / "bin/nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\n[ \"$1\" = -q ] || echo 'NVIDIA H100 80GB HBM3, 580.159.04'\n")
    smi.chmod(0o755)
    env = {**nvml.environment(nvml.scenario("h100")), "PATH": f"{smi.parent}:{os.environ['PATH']}"}
    lines = [f"LD_LIBRARY_PATH={library}", "FAKE_CUDA=memory=420", "check_gpu_proof -t 100ms -m 80M -d 0-1 --alone"]
    told = [word for line in lines for word in ("--line", line)]
    argv = [*BENCH, "--json", str(tmp_path / "out/figures.json"), *told, "--", "--root", str(node)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert done.returncode in (0, 1), done.stderr  # a processor that plays a GPU keeps no limit
    found = json.loads((tmp_path / "out/figures.json").read_text())
    assert (found["gpus"], found["runs"]) == (2, 1)
    assert found["wall_s"] > 0
    assert found["cpu_s_per_gpu"] > 0
    assert found["memory_mb"] > 5
    assert set(found["rates"]) == {"gpu0", "gpu1"}
    assert "proof_bf16 TFLOPS" in found["rates"]["gpu0"]
    assert "proof of all GPUs, wall seconds" in done.stdout
    assert found["machine"] == "1 x NVIDIA H100 80GB HBM3, 580.159.04"
    assert 0 < found["nvidia_smi_q_s"] < 60
    assert found["reading_s"] > 0
    assert "checks that read the GPUs, against the " in done.stdout
