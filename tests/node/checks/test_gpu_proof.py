"""check_gpu_proof, from the line to the verdict: the launcher, its processes and a libcuda that has the faults."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from nhc.core.check import find as check_of
from nhc.core.declare import declare
from nhc.core.host import Host
from nhc.core.model import Action, Verdict
from nhc.core.plan import Declared
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.gpu_proof import check_gpu_proof
from nhc.node.facts import nvidia
from nhc.node.gpu_proof.request import LAUNCHING
from nhc.node.gpu_proof.running import proofs
from tests.support.cuda.build import build
from tests.support.nvml.fake import pci_tree
from tests.support.waiting import until

pytestmark = pytest.mark.thorough

QUICK = "check_gpu_proof -t 100ms -m 80M -w 20s"
HANGING = "check_gpu_proof -t 20ms -m 65M -w 8s -k fp64"
"""Little to compute: the GPU that does not hang ends in time on a busy machine, too."""


@pytest.fixture(scope="module")
def prove(nvml, tmp_path_factory):
    """The outcomes of a check line on two GPUs of the healthy machine, with faults of the GPUs as FAKE_CUDA says."""
    library = build(tmp_path_factory.mktemp("cuda"))

    def outcomes(faults="", line=f"{QUICK} --alone", nvml_faults=(), devices="0-1", seed="", **more):
        settings = {"LD_LIBRARY_PATH": str(library), "FAKE_CUDA": f"memory=420 {faults}", "NHC_PROOF_SEED": seed}
        return nvml.one("h100", f"{line} -d {devices}", *nvml_faults, settings=settings, **more)

    return outcomes


def only(outcomes, verdict):
    [found] = [outcome for outcome in outcomes if outcome.verdict is verdict]
    return found


def test_healthy_gpus_are_proved(prove):
    found = prove(line=QUICK)

    assert [(one.verdict, one.target) for one in found] == [
        (Verdict.OK, "gpu0"),
        (Verdict.OK, "gpu1"),
        (Verdict.OK, ""),
    ]
    assert "bf16 fp16 tf32 int8 fp64 fp8 on 4 SMs, 0.1 GB of memory" in found[0].message
    assert "2 ways between GPUs keep every bit" in found[2].message
    assert found[0].device.uuid.startswith("GPU-")
    assert found[0].device.serial
    assert found[0].device != found[1].device
    named = {metric.name for metric in found[0].metrics}
    assert {"proof_bf16", "proof_fp64", "proof_memory_read", "proof_host_to_device", "proof_l2"} <= named


@pytest.mark.parametrize("kernel", ["tensor_bf16", "tensor_fp64", "tensor_fp8", "units", "shared_memory", "cache"])
def test_an_sm_that_computes_wrongly_is_named(prove, kernel):
    found = prove(f"sm=1:2:{kernel}")

    fault = only(found, Verdict.CRIT)
    assert (fault.reason, fault.target, fault.action) == ("GpuProofWrong", "gpu1", Action.REPLACE)
    assert "wrong on SM 2 (" in fault.message
    assert "0000:2d:00.0), serial 1652021000001" in fault.message
    assert "again in 2 of two more tries" in fault.message
    assert only(found, Verdict.OK).target == "gpu0"


def test_a_wrong_result_that_does_not_come_again_is_a_warning_and_counted(prove):
    found = prove("sm=0:3:units:1", then=())

    fault = only(found, Verdict.WARN)
    assert (fault.reason, fault.target, fault.action) == ("GpuProofFlaky", "gpu0", Action.NONE)
    assert "right in two more tries (1 so far on this GPU)" in fault.message
    twice = prove("sm=0:3:units:1", line=f"{QUICK} --alone -s 7", then=("1.serial 1",))
    assert "(2 so far on this GPU); seed 7" in only(twice, Verdict.WARN).message


def test_a_bit_of_memory_that_sticks_is_named_by_its_place(prove):
    fault = only(prove("bit=0:0x75bc10:42"), Verdict.CRIT)

    assert (fault.reason, fault.action) == ("GpuProofMemory", Action.RESET_DEVICE)
    assert "the first at offset 0x75bc10, bits 42" in fault.message


@pytest.mark.parametrize("way", ["0:host", "host:0"])
def test_a_copy_to_or_from_the_host_that_loses_a_bit_is_found(prove, way):
    fault = only(prove(f"copy={way}"), Verdict.CRIT)

    assert (fault.reason, fault.target) == ("GpuProofCopy", "gpu0")


def test_the_gpu_that_all_wrong_copies_have_in_common_is_blamed(prove):
    found = prove("copy=0:1 copy=1:2", line=QUICK, devices="0-2")

    fault = only(found, Verdict.CRIT)
    assert (fault.reason, fault.target) == ("GpuProofPeer", "gpu1")
    assert "2 of 6 ways" in fault.message
    assert "gpu0 to gpu1" in fault.message


def test_gpus_that_do_not_reach_each_other_are_not_copied_between(prove):
    assert [one.target for one in prove("peers=0", line=QUICK)] == ["gpu0", "gpu1"]


def test_a_call_that_hangs_loses_one_gpu_and_the_others_stand(prove):
    found = prove("hang=1:cuModuleLoadData", line=f"{HANGING} --alone")

    lost = only(found, Verdict.UNKNOWN)
    assert (lost.reason, lost.target) == ("GpuProofTimeout", "gpu1")
    assert "loading gpu_proof_80.ptx" in lost.message
    assert only(found, Verdict.OK).target == "gpu0"


def test_the_processes_that_hold_gpus_have_a_name_of_their_own(prove):
    """By which an epilog knows that they are nothing that a job left."""
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(prove, "hang=1:cuModuleLoadData", line=f"{HANGING} --alone")
        until(lambda: proofs(Host()), what="a process of that name")
        ends.result()


def test_copies_between_gpus_that_hang_leave_what_each_gpu_gave(prove):
    found = prove("hang=0:cuCtxEnablePeerAccess", line=HANGING)

    assert [one.target for one in found if one.verdict is Verdict.OK] == ["gpu0", "gpu1"]
    lost = only(found, Verdict.UNKNOWN)
    assert (lost.reason, lost.target) == ("GpuProofPairs", "")
    assert "no answer at copying from" in lost.message


@pytest.mark.parametrize("line", ["check_gpu_proof", "check_gpu_proof --thorough", "check_gpu_proof -w 5m -t 10s"])
def test_two_hangs_are_over_before_the_line_is_ended(line):
    """One of a GPU by itself and one of the copies: each takes all its time, and what the other GPUs gave stands."""
    _check, *arguments = line.split()
    given = check_of("check_gpu_proof").parse(arguments)
    one_hang = given["wait"] + (60 if given["thorough"] else 4 * given["time"])

    declared = declare(line.split())
    assert isinstance(declared, Declared)
    assert declared.timeout >= 2 * one_hang + LAUNCHING


@pytest.mark.parametrize(
    ("faults", "reason", "words"),
    [
        ("error=1:cuDevicePrimaryCtxRetain:46", "GpuProofHeld", "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("error=1:cuDevicePrimaryCtxRetain:2", "GpuProofNoMemory", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("error=1:cuInit:802", "GpuProofFailed", "CUDA_ERROR_SYSTEM_NOT_READY"),
        ("error=1:cuLaunchKernel:719", "GpuProofFailed", "at bf16 products"),
        ("crash=1:cuMemAlloc_v2", "GpuProofFailed", "SIGSEGV"),
        ("idle=1:3", "GpuProofPartial", "ran on 3 of 4 SMs"),
    ],
)
def test_what_keeps_the_proof_away_is_never_a_fault(prove, faults, reason, words):
    found = prove(faults)

    lost = only(found, Verdict.UNKNOWN)
    assert (lost.reason, lost.target) == (reason, "gpu1")
    assert words in lost.message
    assert only(found, Verdict.OK).target == "gpu0"


def test_a_gpu_that_says_itself_that_its_memory_is_broken_is_a_fault(prove):
    fault = only(prove("error=0:cuCtxSynchronize:214"), Verdict.CRIT)

    assert (fault.reason, fault.action) == ("GpuProofEcc", Action.RESET_DEVICE)


def test_a_full_gpu_is_not_proved(prove):
    assert {one.reason for one in prove("used=400")} == {"GpuProofNoMemory"}


def test_memory_in_pieces_is_proved_as_far_as_it_goes(prove):
    found = prove("memory=700", line="check_gpu_proof -t 5s --alone -m 120M", devices="0")

    assert "0.1 GB of memory" in found[0].message


def test_without_a_driver_nothing_is_proved(nvml):
    found = nvml.one("h100", f"{QUICK} -d 0", settings={"LD_LIBRARY_PATH": "/nowhere"})

    assert [(one.verdict, one.reason) for one in found] == [(Verdict.UNKNOWN, "GpuProofNoDriver")]
    assert "libcuda.so.1 cannot be loaded" in found[0].message


@pytest.mark.parametrize(
    ("driver", "kinds", "left_out"),
    [
        ("version=12020 capability=90", "bf16 fp16 tf32 int8 fp64 on", "fp8 takes 12.4"),
        ("capability=80", "bf16 fp16 tf32 int8 fp64 on", ""),
        ("capability=75", "fp16 on", ""),
        ("capability=103", "bf16 fp16 tf32 int8 fp64 fp8 on", ""),
    ],
)
def test_each_generation_and_driver_gets_the_text_that_it_takes(prove, driver, kinds, left_out):
    [found] = prove(driver, devices="0")

    assert found.verdict is Verdict.OK
    assert f": {kinds} 4 SMs" in found.message
    assert left_out in found.message


@pytest.mark.parametrize(("driver", "words"), [("version=11060", "CUDA 11.6"), ("capability=61", "capability 6.1")])
def test_a_driver_or_gpu_that_is_too_old_is_not_proved(prove, driver, words):
    [found] = prove(driver, devices="0")

    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "GpuProofUnsupported")
    assert words in found.message


def test_chosen_kinds_alone_are_proved(prove):
    [found] = prove(line=f"{QUICK} --alone -k bf16 -k fp8", devices="0")

    assert ": bf16 fp8 on 4 SMs" in found.message


@pytest.mark.parametrize(("driver", "kind"), [("capability=80", "fp8"), ("capability=75", "bf16")])
def test_a_kind_that_is_asked_for_and_that_a_gpu_has_not_is_not_proved(prove, driver, kind):
    [found] = prove(driver, line=f"{QUICK} --alone -k fp16 -k {kind}", devices="0")

    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "GpuProofUnsupported")
    assert f"no products of {kind}" in found.message


def test_the_thorough_proof_walks_a_bit_through_memory(prove):
    fault = only(
        prove("bit=0:0x400:3", line="check_gpu_proof --thorough -m 70M -t 50ms --alone", devices="0"), Verdict.CRIT
    )

    assert fault.reason == "GpuProofMemory"


def test_beside_another_program_it_takes_little(prove):
    found = prove(nvml_faults=("1.processes 4711:1000000",), line="check_gpu_proof -t 3s -m 70M", devices="1")

    assert [one.verdict for one in found] == [Verdict.OK]
    assert "beside another program" in found[0].message


MIG_LIST = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-b1000000-0000-4000-8000-000000000000)
  MIG 3g.40gb     Device  0: (UUID: MIG-b1000000-aaaa-4000-8000-000000000001)
  MIG 3g.40gb     Device  1: (UUID: MIG-b1000000-aaaa-4000-8000-000000000002)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b1000001-0000-4000-8000-000000000001)
"""


def test_each_instance_of_a_divided_gpu_is_proved(prove):
    found = prove(nvml_faults=("0.mig_mode 1 1",), commands={"nvidia-smi -L": MIG_LIST})

    assert [one.target for one in found if one.verdict is Verdict.OK] == ["gpu0.0", "gpu0.1", "gpu1"]


def test_a_divided_gpu_whose_address_nvml_does_not_tell_is_proved(prove):
    found = prove(nvml_faults=("0.mig_mode 1 1", "devices 7", "0.pci error 3"), commands={"nvidia-smi -L": MIG_LIST})

    assert [one.target for one in found if one.verdict is Verdict.OK] == ["gpu0.0", "gpu0.1", "gpu1"]


@pytest.mark.parametrize(
    ("listed", "words"), [("", "no GPU is listed"), (MIG_LIST.replace("MIG", "MOG"), "has no instance")]
)
def test_a_divided_gpu_without_instances_is_not_proved(prove, listed, words):
    found = prove(nvml_faults=("0.mig_mode 1 1",), commands={"nvidia-smi -L": listed})

    lost = only(found, Verdict.UNKNOWN)
    assert (lost.reason, lost.target) == ("GpuProofMig", "gpu0")
    assert words in lost.message


def test_instances_are_read_as_nvidia_smi_lists_them():
    assert list(nvidia.parse_mig(MIG_LIST).values()) == [
        [
            ("3g.40gb", "MIG-b1000000-aaaa-4000-8000-000000000001"),
            ("3g.40gb", "MIG-b1000000-aaaa-4000-8000-000000000002"),
        ],
        [],
    ]
    with pytest.raises(ValueError, match="no GPU"):
        nvidia.parse_mig("No devices found.\n")


def test_a_setting_gives_the_seed(prove):
    fault = only(prove("sm=0:1:units", line=f"{QUICK} --alone", seed="4711"), Verdict.CRIT)

    assert "seed 4711" in fault.message


def test_a_node_without_accelerators_has_nothing_to_prove():
    assert [one.reason for one in check_gpu_proof(FakeHost(pci_tree(()), {}))] == ["NoAccelerator"]
