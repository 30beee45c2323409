"""Why a run failed is read once and kept; a program that failed by itself is left alone though a node was faulty."""

import json
import os
import pwd
from collections import Counter

import pytest

from nhc.core.timestamps import utc
from nhc.jobs import restart_rounds
from nhc.jobs.owner_mail import address, is_due
from nhc.jobs.run_ends import run_end
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobEndRecord, JobLogText, JobName, LossCause, Phase
from nhc.store import job_restarts, outbox
from tests.support.job_world import SETTINGS, World

TRACEBACK = """Traceback (most recent call last):
  File "/train.py", line 3, in <module>
    step()
KeyError: 'lr'
"""
CUDA = "[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"


class Recorded(World):
    """A scheduler that keeps how its jobs ended. `logs` are by node; `asked` counts who asks."""

    logs, asked, refuses, mail = {}, 0, False, ""

    def end(self, job):
        self.asked += 1
        if self.refuses:
            raise AdapterError("not allowed")
        view = self._job(self.bodies[job])
        logs = tuple(JobLogText(f"{node}.log", "", text, -1, node) for node, text in self.logs.items())
        return JobEndRecord(view.job, "FAILED", view.nodes, view.started, view.ended, view.losses, logs, "user",
                            gpus=16, mail=self.mail)  # fmt: skip


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

    recorded.begin()
    assert recorded.rounds(2) == []
    assert recorded.asked == 1, "another process has the answer of the store"
    [end] = ends(recorded)
    assert (end.cause, end.sure, end.restart, end.node) == ("program", "supported", "no", "n1")
    assert end.why.startswith("your program (supported): KeyError: 'lr'")


def ends(world):
    with world.plain.read() as connection:
        return [
            end
            for row in job_restarts.list_jobs(connection, is_open=None)
            for end in job_restarts.ends(connection, row.id)
        ]


def test_what_every_failed_run_died_of_is_kept_with_what_it_cost(recorded):
    recorded.logs = {"n1": TRACEBACK}
    body = recorded.submit()
    recorded.rounds(1)
    recorded.let_pass(7200 - 15)
    recorded.fail(body, LossCause.EXIT, "n1", "exit status 1")
    recorded.rounds(12)

    [end] = ends(recorded)
    assert (end.cause, end.gpus, end.ended - end.began) == ("program", 16, 7200)
    text = restart_rounds.render_metrics(recorded.plain, recorded.round(), Counter())
    assert 'nhc_job_lost_gpu_hours_day{cause="program"} 32\n' in text
    assert 'nhc_job_failed_runs_day{cause="program"} 1\n' in text
    assert 'nhc_job_lost_gpu_hours_day{cause="node"} 0\n' in text


def test_a_run_whose_node_was_lost_is_the_nodes(recorded):
    body = recorded.submit()
    recorded.rounds(1)
    recorded.fail(body, LossCause.NODE, "n1", "its node failed")
    recorded.rounds(1)

    [end] = ends(recorded)
    assert (end.cause, end.sure, end.node, end.restart) == ("node", "established", "n1", "elsewhere")


def mails(world):
    with world.plain.read() as connection:
        return [json.loads(one.content) for one in outbox.waiting(connection, outbox.OWNERS)]


@pytest.mark.thorough
def test_the_owner_gets_one_mail_for_a_run_that_its_node_failed_and_none_for_a_guess(store):
    world = Recorded(store, settings=f'{SETTINGS}\n[owners]\nmail-domains = ["example.org"]\n')
    world.mail = "ann"
    body = world.submit()
    world.rounds(1)
    world.fail(body, LossCause.NODE, "n1", "its node failed")
    world.rounds(3)
    world.begin()
    world.rounds(3)
    [mail] = mails(world)
    assert (mail["to"], mail["run"]) == ("ann@example.org", ends(world)[0].run)
    assert [line.partition(":")[0] for line in mail["lines"]] == [f"job batch/{body.name}", "by", "restart"]
    assert mail["lines"][0].startswith(f"job batch/{body.name}: the node (established): its node failed, n1 at ")

    guess = world.submit("guess", wants=1)
    world.rounds(1)
    world.fail(guess, LossCause.EXIT, "n2", "exit status 1")
    world.rounds(12)
    assert len(ends(world)) == 2
    assert len(mails(world)) == 1


def test_nobody_gets_mail_unless_the_site_says_so(recorded):
    recorded.mail = "ann@example.org"
    body = recorded.submit()
    recorded.rounds(1)
    recorded.fail(body, LossCause.NODE, "n1", "its node failed")
    recorded.rounds(2)
    assert len(ends(recorded)) == 1
    assert mails(recorded) == []


@pytest.mark.parametrize(
    ("asked", "user", "to"),
    [
        ("", "ann", "ann@a.org"), ("bob", "ann", "bob@a.org"), ("Bob@B.org", "ann", "Bob@b.org"), ("", "", ""),
        ("x@elsewhere.org", "ann", ""), ("x@a.org,y@a.org", "ann", ""), ("x@a.org\nBcc: y", "ann", ""),
        ("-f@a.org", "ann", ""), ("x@sub.a.org", "ann", ""), ("@a.org", "ann", ""),
    ],
)  # fmt: skip
def test_an_owners_address_is_one_of_the_sites_domains(asked, user, to):
    assert address(asked, user, ("a.org", "b.org")) == to
    assert address(asked, user, ()) == ""


def test_a_guess_is_not_mailed():
    due = [(cause, sure) for cause in ("node", "memory", "program", "unknown")
           for sure in ("established", "supported", "unknown") if is_due(cause, sure)]  # fmt: skip
    assert due == [("node", sure) for sure in ("established", "supported", "unknown")] + [
        ("memory", "established"), ("program", "established")
    ]  # fmt: skip


@pytest.mark.thorough
def test_logs_that_decide_nothing_are_read_for_a_few_jobs_a_round(recorded):
    bodies = [recorded.submit(f"j{number}", wants=1) for number in range(10)]
    recorded.rounds(1)
    for body in bodies:
        recorded.fail(body, LossCause.LIMIT, "n1", "it reached its time limit")
    asked = []
    for _ in range(4):
        recorded.rounds(1)
        asked.append(recorded.asked)

    assert asked == [4, 8, 10, 10]


def test_a_dry_run_of_the_command_keeps_nothing(recorded):
    body = recorded.submit()
    recorded.rounds(1)
    recorded.fail(body, LossCause.NODE, "n1", "its node failed")
    recorded.loop.round(apply=False)

    assert ends(recorded) == []


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


@pytest.mark.thorough
def test_a_record_that_could_not_be_read_is_asked_for_again_one_a_round(recorded):
    bodies = [recorded.submit(f"j{number}", wants=1) for number in range(3)]
    recorded.rounds(1)
    for body in bodies:
        recorded.fail(body, LossCause.LIMIT, "n1", "it reached its time limit")
    recorded.refuses = True
    recorded.rounds(20)
    assert (recorded.asked, ends(recorded)) == (3, []), "the scheduler's accounting is away"

    asked = []
    for _ in range(5):
        recorded.rounds(1)
        asked.append(recorded.asked)
    assert asked == [4, 5, 6, 6, 6]
    recorded.refuses = False
    recorded.rounds(40)
    assert len(ends(recorded)) == 3
    asked = recorded.asked
    recorded.rounds(40)
    assert recorded.asked == asked


def test_a_log_file_is_read_only_if_it_is_the_users_own(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(TRACEBACK)
    mine = pwd.getpwuid(os.geteuid()).pw_name
    name = JobName("", "", "1", "")

    for owner, where, cause in ((mine, path, "program"), ("nobody", path, "unknown"), ("", path, "unknown"),
                                (mine, tmp_path / "none", "unknown")):  # fmt: skip
        record = JobEndRecord(name, "FAILED", ("n1",), logs=(JobLogText("", str(where)),), user=owner)
        assert run_end(record, [])[0].cause == cause


UNFORESEEN = [
    "iteration 10 step time: 0.5.2 s loss: 1.0",
    f"iteration {'9' * 5000} loss: 1.0",
    f"[rank{'7' * 5000}]: loss: nan",
    f"iteration {'9' * 400} loss: 1.0",
    f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={'1' * 5000}, OpType=ALLREDUCE",
    f"  rank      : {'8' * 5000} (local_rank: {'8' * 5000})",
    f"n1:1:1 [0] NCCL INFO comm 0x1 rank {'6' * 5000} nranks 8 cudaDev {'6' * 5000}",
    f"Rank {'3' * 5000}, node a, device 1",
    "2026-02-30T25:61:61 loss: 1e999 grad_norm: 1.",
]


@pytest.mark.parametrize("line", UNFORESEEN, ids=range(len(UNFORESEEN)))
def test_a_line_of_a_users_log_ends_no_round_and_hides_no_cause(recorded, line):
    recorded.logs = {"n1": f"{line}\n{TRACEBACK}"}
    body = recorded.submit()
    recorded.rounds(1)
    recorded.fail(body, LossCause.EXIT, "n1", "exit status 1")
    recorded.rounds(12)
    [end] = ends(recorded)
    assert end.cause == "program"


def test_another_prefix_on_every_line_costs_no_more_than_one(recorded):
    many = "".join(f"p{number} Traceback (most recent call last):\n" for number in range(100_000))
    recorded.logs = {"n1": many + TRACEBACK}
    body = recorded.submit()
    recorded.rounds(1)
    recorded.fail(body, LossCause.EXIT, "n1", "exit status 1")
    recorded.rounds(12)
    [end] = ends(recorded)
    assert end.cause == "program"


class BrokenRecord(Recorded):
    """A scheduler of a site's own whose record of one job has a number where the user's name belongs."""

    def end(self, job):
        record = super().end(job)
        broken = self.bodies[job].name == "broken"
        return record._replace(user=5, logs=(JobLogText("x.log", "", "loss: 1"),)) if broken else record


def test_a_reading_that_fails_is_kept_counted_and_stops_no_other_job(store):
    world = BrokenRecord(store)
    world.logs = {"n1": TRACEBACK}
    bodies = [world.submit(name, wants=1) for name in ("broken", "sound")]
    world.rounds(1)
    for body in bodies:
        world.fail(body, LossCause.EXIT, "n1", "exit status 1")
    problems = []
    for _ in range(12):
        problems += world.round().problems
        world.let_pass(15)
    assert [problem.partition(":")[0] for problem in problems] == ["batch/broken"]
    assert sorted(end.cause for end in ends(world)) == ["program", "unknown"]
    world.begin()
    asked = world.asked
    assert world.round().problems == ()
    assert world.asked == asked, "it is not read again"


class BrokenController(World):
    """A controller of a site's own: one job's look raises what its contract forbids."""

    def look(self, job):
        if job.name == "broken":
            raise KeyError("metadata")
        return super().look(job)


def test_one_jobs_failure_of_whatever_type_does_not_stop_the_others(store):
    world = BrokenController(store)
    for name in ("broken", "sound"):
        world.submit(name)
    world.rounds(1)
    world.bodies.clear()  # both are gone from the list: each is looked for
    done = world.round()
    assert [problem.partition(":")[0] for problem in done.problems] == ["batch/broken"]
    with world.plain.read() as connection:
        assert [row.name for row in job_restarts.list_jobs(connection)] == ["broken"]
