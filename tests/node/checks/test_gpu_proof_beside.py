"""check_gpu_proof_beside: a GPU at each look, what is wrong stays so, and the job is named and not disturbed."""

import pytest

from nhc.core.model import Action, Verdict
from tests.support.cuda.build import build
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.nvml.fake import pci_tree
from tests.support.remedy_world import Sickness, World

pytestmark = pytest.mark.thorough

BOOT = "/proc/sys/kernel/random/boot_id"
LINE = "check_gpu_proof_beside -t 10ms -m 64M -w 20s -d 0-1"
JOB = {
    "/proc/4321/cgroup": "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n",
    "/proc/4321/comm": "train\n",
}


@pytest.fixture(scope="module")
def look(nvml, tmp_path_factory):
    """The outcomes of each line, in turn on one node with two GPUs."""
    library = build(tmp_path_factory.mktemp("cuda"))

    def outcomes(*lines, cuda="", faults=(), **more):
        settings = {"LD_LIBRARY_PATH": str(library), "FAKE_CUDA": f"memory=420 {cuda}"}
        files = {**pci_tree(), **JOB, BOOT: "boot-1\n"}
        return nvml.judge("h100", lines or [LINE], *faults, settings=settings, files=files, **more)

    return outcomes


def seen(outcomes):
    return [(one.verdict, one.reason, one.target) for one in outcomes]


def test_one_gpu_is_proved_at_each_look_and_all_in_turn(look):
    found = look(LINE, LINE, LINE)

    assert [seen(outcomes) for outcomes in found] == [[(Verdict.OK, "", gpu)] for gpu in ("gpu0", "gpu1", "gpu0")]
    assert not any(one.metrics for outcomes in found for one in outcomes)  # its speed says nothing


def test_a_wrong_result_names_the_job_and_stays_while_the_others_are_proved(look):
    found = look(LINE, LINE, LINE, cuda="sm=0:2:units", faults=("0.processes 4321:1073741824",))

    assert seen(found[0]) == [(Verdict.CRIT, "GpuProofWrong", "gpu0")]
    wrong = found[0][0]
    assert "SM 2" in wrong.message
    assert "found beside job 77, which goes on" in wrong.message
    assert wrong.action is Action.REPLACE
    for later in found[1:]:
        assert seen(later) == [(Verdict.OK, "", "gpu1"), (Verdict.CRIT, "GpuProofWrong", "gpu0")]
        assert later[1].message == wrong.message


def test_a_wrong_result_marks_the_node_and_ends_no_job(look, store):  # noqa: F811
    """From the GPU to the scheduler: the check's own outcome, the store, the policy, the loop, the mark."""
    wrong = look(LINE, cuda="sm=0:2:units", faults=("0.processes 4321:1073741824",))[0][0]
    world = World(store)
    node = world.nodes["n1"]
    node.busy = True
    world.fall_sick("n1", Sickness(check="check_gpu_proof_beside", outcome=wrong))
    controller = world.controller()

    world.run(controller, 4)
    assert (node.available, node.busy, world.sent) == (False, True, [])
    assert "GpuProofWrong" in str(node.mark)

    node.busy = False
    world.run(controller, 4)
    assert not node.available, "it is not put back while the fault stands"


WHOLE = "check_gpu_proof -t 100ms -w 20s --alone -d 0"
REPAIRED = "FAKE_CUDA=memory=420"


def test_it_ends_when_the_whole_proof_finds_the_gpu_right(look):
    partly = f"{REPAIRED} {WHOLE} -k bf16"
    found = look(LINE, LINE, partly, LINE, f"{REPAIRED} {WHOLE}", f"{REPAIRED} {LINE}", cuda="sm=0:2:units")

    wrong = (Verdict.CRIT, "GpuProofWrong", "gpu0")
    assert [wrong in seen(outcomes) for outcomes in found] == [True, True, False, True, False, False]


def test_after_a_restart_it_is_proved_first_and_ends_only_if_it_is_right(look):
    restart = f"{BOOT}=boot-2"
    found = look(
        LINE, f"{restart} {LINE}", f"{BOOT}=boot-3 {REPAIRED} {LINE}", f"{REPAIRED} {LINE}", cuda="sm=0:2:units"
    )

    wrong, right = [(Verdict.CRIT, "GpuProofWrong", "gpu0")], [(Verdict.OK, "", "gpu0")]
    assert [seen(outcomes) for outcomes in found] == [wrong, wrong, right, [(Verdict.OK, "", "gpu1")]]


def test_a_line_of_other_gpus_does_not_end_the_fault_of_one(look):
    one, other = (f"check_gpu_proof_beside -t 10ms -m 64M -w 20s -d {number}" for number in (0, 1))
    found = look(one, other, one, cuda="sm=0:2:units")

    wrong, right = [(Verdict.CRIT, "GpuProofWrong", "gpu0")], [(Verdict.OK, "", "gpu1")]
    assert [seen(outcomes) for outcomes in found] == [wrong, right, wrong]
    assert found[2][0].message == found[0][0].message  # the seed in it is drawn for each proof


@pytest.mark.parametrize(
    ("cuda", "faults"),
    [
        ("", ("*.memory 85520809984 84520809984",)),  # less than the job is left
        ("error=0:cuDevicePrimaryCtxRetain:46", ()),  # exclusive mode
        ("used=200", ()),  # taken between NVML's answer and the proof
    ],
)
def test_a_job_that_leaves_no_room_is_let_alone(look, cuda, faults):
    [[outcome]] = look(cuda=cuda, faults=faults)

    assert (outcome.verdict, outcome.target) == (Verdict.SKIP, "gpu0")


def test_a_divided_gpu_is_left_out(look):
    [[outcome]] = look(faults=("*.mig_mode 1 1",))

    assert (outcome.verdict, outcome.reason) == (Verdict.SKIP, "GpuProofMig")
