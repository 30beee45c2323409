"""The loop leaves a run alone whose own log says that the program failed by itself, though a node was faulty, too."""

import os
import pwd

import pytest

from nhc.ports.adapter import AdapterError
from nhc.ports.job_ends import JobEndRecord, JobLogText
from nhc.ports.jobs import LossCause, Phase
from nhc.timestamps import utc
from tests.support.job_world import World

TRACEBACK = """Traceback (most recent call last):
  File "/train.py", line 3, in <module>
    step()
KeyError: 'lr'
"""
CUDA = "[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"


class Recorded(World):
    """A scheduler that keeps how its jobs ended. `logs` are by node; `asked` counts who asks."""

    logs, asked, refuses = {}, 0, False

    def end(self, job):
        self.asked += 1
        if self.refuses:
            raise AdapterError("not allowed")
        view = self._job(self.bodies[job])
        logs = tuple(JobLogText(f"{node}.log", "", text, -1, node) for node, text in self.logs.items())
        return JobEndRecord(view.job, "FAILED", view.nodes, view.started, view.ended, view.losses, logs, "user")


@pytest.fixture
def recorded(store):
    return Recorded(store)


def fail(world, faulty="n0"):
    """A job on n0 and n1 fails while a node is faulty; what the loop says of it."""
    body = world.submit()
    world.rounds(1)
    world.report(faulty)
    world.let_pass(10)
    world.fail(body, LossCause.EXIT, "n1", "exit status 1")
    return body, world.rounds(4)


def test_a_program_that_raised_on_a_healthy_node_is_not_restarted_and_blames_no_node(recorded):
    recorded.logs = {"n1": f"{utc(recorded.now)} step 3\n{TRACEBACK}"}
    body = recorded.submit()
    recorded.rounds(1)
    recorded.let_pass(10)
    recorded.fail(body, LossCause.EXIT, "n1", "exit status 1")
    recorded.let_pass(30)
    recorded.report("n0")
    said = recorded.rounds(4)

    assert body.phase is Phase.FAILED
    assert recorded.acts == []
    [line] = said
    assert line.startswith("left: its own fault on n1: KeyError: 'lr', though n0: GpuLost")
    assert recorded.asked == 1, "its logs are read once"


@pytest.mark.parametrize(
    ("logs", "faulty"),
    [
        ({"n0": TRACEBACK}, "n0"),  # on the faulty node itself
        ({"": TRACEBACK}, "n0"),  # nobody says where
        ({"n1": CUDA}, "n0"),  # what a broken GPU brings about as well
        ({"n1": "step 3\n"}, "n0"),  # no cause at all
        ({}, "n0"),
    ],
)
def test_what_a_faulty_node_may_have_brought_about_is_restarted(recorded, logs, faulty):
    recorded.logs = logs
    body, said = fail(recorded, faulty)

    assert said[0].startswith("restart: 1 of 3: n0: GpuLost"), said
    assert body.phase is Phase.RUNNING


def test_a_record_that_cannot_be_read_changes_nothing(recorded):
    recorded.refuses = True
    body, said = fail(recorded)

    assert said[0].startswith("restart: 1 of 3"), said
    assert body.phase is Phase.RUNNING


def test_a_log_file_is_read_only_if_it_is_the_users_own(tmp_path):
    from nhc.jobs.own_fault import _lines

    path = tmp_path / "train.log"
    path.write_text("one\n")
    mine = pwd.getpwuid(os.geteuid()).pw_name

    assert _lines(JobLogText("", str(path)), mine) == ["one"]
    assert _lines(JobLogText("", str(path)), "nobody") == []
    assert _lines(JobLogText("", str(path)), "") == []
    assert _lines(JobLogText("", str(tmp_path / "none")), mine) == []
