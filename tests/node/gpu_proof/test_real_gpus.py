"""The proof on this machine's own GPUs (`make gpu`): what fakes of libcuda and NVML cannot show."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.node.gpu_proof.launcher import carry_out

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[3]


def judged(directory, line, *options):
    """The results of a line of configuration on this machine."""
    conf = directory / "nhc.conf"
    conf.write_text(f"* || {line}\n")
    argv = [sys.executable, "-m", "nhc", "check", "local", "-c", str(conf), "--profile", "none", "--format", "json"]
    done = subprocess.run([*argv, *options], capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    return json.loads(done.stdout)["results"]


def proved(seed, **more):
    """The first GPU, by the launcher alone."""
    asked = {"gpus": [{"visible": "0", "seconds": 0.5, "memory": 1 << 30}], "kinds": [], "thorough": False}
    return carry_out({**asked, "seed": seed, "pairs": False, "timeout": 60.0, **more})["gpus"][0]


def test_every_gpu_of_this_machine_is_proved(tmp_path):
    found = judged(tmp_path, "check_gpu_proof")
    assert [one["message"] for one in found if one["verdict"] != "OK"] == []
    assert any(one["target"] for one in found)


def test_a_seed_that_is_given_is_the_one_that_is_used(tmp_path):
    [line] = {one["line"] for one in judged(tmp_path, "check_gpu_proof -s 4711 --alone")}
    assert line == "check_gpu_proof -s 4711 --alone"
    first, second = proved(4711), proved(4711)
    assert first["faults"] == second["faults"] == []
    assert first["sms"] == second["sms"]


def test_an_sm_that_is_spoilt_on_purpose_is_named():
    found = proved(7, spoil=3)
    assert found["faults"]
    assert {sm for fault in found["faults"] for sm in fault.get("sms", {})} == {"3"}


def test_two_proofs_at_once_are_both_right(tmp_path):
    conf = tmp_path / "nhc.conf"
    conf.write_text("* || check_gpu_proof -m 1G --alone\n")
    argv = [sys.executable, "-m", "nhc", "check", "local", "-c", str(conf), "--profile", "none", "--format", "json"]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _number in range(2)]
    for process in both:
        said = json.loads(process.communicate(timeout=300)[0])
        assert [one["message"] for one in said["results"] if one["verdict"] == "CRIT"] == []
