"""check_gpu_proof --amd, from the line to the verdict: the engine over a libamdhip64 that has the faults."""

import json
from pathlib import Path

import pytest

from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.gpu_proof import check_gpu_proof
from tests.node.facts.test_amd import GPUS, KFD, tree
from tests.support.cuda.build import build
from tests.support.nvml.fake import pci_tree

pytestmark = pytest.mark.thorough

ONE_KIND = {"time": 0.02, "memory": 65 << 20, "kinds": ("fp64",), "alone": True, "amd": True}
TARGETS = {"gfx90a": 90010, "gfx942": 90402, "gfx950": 90500, "gfx908": 90008}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("hip"), "hip.c", "libamdhip64.so.6")


@pytest.fixture
def prove(library):
    """The outcomes on a node with two GPUs, with faults of theirs as FAKE_CUDA says."""

    def outcomes(faults="", architecture="gfx942", directory=library, **more):
        files = tree(GPUS[:2])
        for node in (1, 2):
            files[f"{KFD}/{node}/properties"] += f"gfx_target_version {TARGETS[architecture]}\n"
        settings = {
            "LD_LIBRARY_PATH": str(directory),
            "FAKE_CUDA": f"memory=420 arch={architecture} {faults}",
            "HIP_VISIBLE_DEVICES": "7",
        }
        host = FakeHost(files, settings=settings)
        host.system.ask = lambda _name, answer: json.loads(json.dumps(answer()))
        return check_gpu_proof(host, **{**ONE_KIND, "devices": "1", **more})

    return outcomes


def test_healthy_gpus_are_proved_and_the_copies_between_them(prove):
    found = prove(alone=False, devices="", kinds=())

    assert [(one.verdict, one.target) for one in found] == [
        (Verdict.OK, "gpu0"),
        (Verdict.OK, "gpu1"),
        (Verdict.OK, ""),
    ]
    assert ": bf16 fp16 fp64 int8 tf32 fp8 on 4 CUs, 0.1 GB of memory" in found[0].message
    assert "2 ways between GPUs keep every bit" in found[2].message
    assert found[0].device.serial == "69234100"
    assert {"proof_bf16", "proof_fp64", "proof_memory_read", "proof_host_to_device", "proof_l2"} <= {
        metric.name for metric in found[0].metrics
    }


@pytest.mark.parametrize(("architecture", "kind"), [("gfx90a", "int8"), ("gfx950", "fp8")])
def test_what_a_generation_computes_otherwise_is_proved(prove, architecture, kind):
    [found] = prove(architecture=architecture, kinds=(kind,))

    assert found.verdict is Verdict.OK
    assert f": {kind} on 4 CUs" in found.message


@pytest.mark.parametrize(
    ("faults", "reason", "action", "words"),
    [
        ("sm=1:2:tensor_fp64", "GpuProofWrong", Action.REPLACE, "fp64: wrong on CU 2 (7 results), and again in 2"),
        ("error=1:hipDeviceSynchronize:214", "GpuProofEcc", Action.RESET_DEVICE, "hipErrorECCNotCorrectable"),
    ],
)
def test_a_fault_is_named_as_with_nvidia(prove, faults, reason, action, words):
    [fault] = prove(faults)

    assert (fault.verdict, fault.reason, fault.target, fault.action) == (Verdict.CRIT, reason, "gpu1", action)
    assert words in fault.message


@pytest.mark.parametrize(
    ("faults", "reason", "words"),
    [
        ("nobody=1", "GpuProofFailed", "on CU 0, CU 1, CU 2, CU 3 "),
        ("compiles=0", "GpuProofNoDriver", "hiprtc cannot compile the kernels for gfx942: gpu_proof.hip:4:2: error"),
        ("partitions=2", "GpuProofNoDriver", "divided into 2 partitions"),
        ("integrated=1", "GpuProofUnsupported", "its memory is the host's, too"),
        ("gpus=0", "GpuProofNoDriver", "is none of HIP's"),
        ("used=400", "GpuProofNoMemory", "hipMalloc says 19 MiB of memory are free"),
    ],
)
def test_what_keeps_the_proof_away_is_never_a_fault(prove, faults, reason, words):
    found = prove(faults)

    assert [(one.verdict, one.reason) for one in found] == [(Verdict.UNKNOWN, reason)]
    assert words in found[0].message


def test_an_architecture_that_the_kernels_do_not_know_is_not_proved(prove):
    found = prove(architecture="gfx908")

    assert {(one.verdict, one.reason) for one in found} == {(Verdict.UNKNOWN, "GpuProofUnsupported")}
    assert "gfx908: the proof takes gfx90a gfx942 gfx950" in found[0].message


@pytest.mark.skipif(Path("/opt/rocm").exists(), reason="ROCm is installed")
def test_without_rocm_nothing_is_proved(prove, tmp_path):
    for major in (5, 6, 7):  # before those of the system
        (tmp_path / f"libamdhip64.so.{major}").write_text("no library")
    found = prove(directory=tmp_path)

    assert {(one.verdict, one.reason) for one in found} == {(Verdict.UNKNOWN, "GpuProofNoDriver")}
    assert "libamdhip64.so.7 cannot be loaded" in found[0].message


def test_without_the_option_amds_gpus_are_left_alone(prove):
    assert [one.reason for one in prove(amd=False, devices="")] == ["NoAccelerator"]


def test_a_node_without_gpus_of_amds_has_nothing_to_prove():
    assert [one.reason for one in check_gpu_proof(FakeHost(pci_tree(()), {}), amd=True)] == ["NoAccelerator"]
