"""What NVML says, read as plain values: those a recording keeps and a replay gives again."""

import json

import pytest

from nhc.core.host import System
from nhc.core.model import Verdict
from nhc.core.plan import Plan
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.gpu_memory import check_gpu_row_remap
from nhc.node.facts.nvidia import nvidia
from nhc.node.hosts.recording import AnswerRecorder, RecordingSystem, Replay, finish
from tests.support.nvml.fake import pci_tree

DEVICE = {"index": 0, "uuid": "GPU-1", "pci": {"busId": "00000000:0F:00.0"}, "row_remap": [0, 1, 1, 0], "links": []}
ANSWER = {"driver": "570.124.06", "devices": [DEVICE]}


def test_a_recording_keeps_what_the_library_said(tmp_path):
    directory = str(tmp_path)
    (tmp_path / "root").mkdir()
    system = RecordingSystem(AnswerRecorder(directory), System())
    assert system.ask("nvml", lambda: ANSWER) == ANSWER
    finish(directory, Plan(()), FakeHost(), "gpu001", (0.0, 0.0))

    replayed = Replay(directory).host()

    assert replayed.system.ask("nvml", lambda: pytest.fail("the machine that replays is not asked")) == ANSWER
    assert nvidia(replayed).devices[0].row_remap.pending


def test_a_fake_host_takes_answers_as_data():
    host = FakeHost(pci_tree(["0000:0f:00.0"]))
    host.system.answers["nvml"] = json.loads(json.dumps(ANSWER))

    [outcome] = check_gpu_row_remap(host)

    assert (outcome.verdict, outcome.reason) == (Verdict.WARN, "GpuRowRemapPending")
