"""What a job left: whose it is, and that cleaning up touches nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Completed, Host, Stat
from nhc.core.model import Verdict
from nhc.hooks import leftovers
from nhc.hooks.epilog import after_job, append_why_job_ended
from nhc.hooks.leftovers import clean, end_processes, remove
from nhc.lab.testing.fake_host import FakeHost
from tests.support.require import need

ENVIRON = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "1001", "SLURM_JOB_USER": "ann"}


def host_with(*processes):
    """Each process: pid, uid, name, state, the job in its environment."""
    host = FakeHost({"/proc/": "", "/dev/shm/": "", "/tmp/": ""})
    for pid, uid, name, state, job in processes:
        rest = " ".join(["1"] * 18)
        host.write(f"/proc/{pid}/stat", f"{pid} ({name}) {state} {rest} 4242 0 0\n")
        host.write(f"/proc/{pid}/environ", f"A=1\0SLURM_JOB_ID={job}\0" if job else "A=1\0")
        host.system.stats[f"/proc/{pid}"] = owned(uid)
    return host


def owned(uid, mode=0o100600, ino=1):
    return Stat(mode, uid, uid, 0, 0, 0, 0, 1, ino, 1, 0)


def found(host):
    return [(left.name, left.sure) for left in leftovers.processes(host, 1001, "7")]


def test_a_process_of_this_job_is_sure_one_of_another_job_is_not_ours_and_one_of_none_is_the_users():
    host = host_with(
        (10, 1001, "a.out", "S", "7"), (11, 1001, "a.out", "S", "8"), (12, 1001, "tmux: server", "S", ""),
        (13, 1002, "a.out", "S", "7"), (14, 1001, "a.out", "Z", "7"), (15, 1001, "sshd", "S", ""),
        (16, 1001, "sshd", "S", "7"), (17, 0, "slurmd", "S", ""),
    )  # fmt: skip
    assert found(host) == [("10", True), ("12", False), ("16", True)]


@pytest.mark.parametrize(("group", "login"), [
    ("0::/system.slice/jupyter@ann.service", True),
    ("1:name=systemd:/system.slice/crond.service", True),
    ("0::/user.slice/user-1001.slice/session-3.scope", True),
    ("0::/system.slice/slurmd.service", False),
    ("0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0", False),
    ("0::/system.slice/pbs.service", False),
    ("0::/", False),
])  # fmt: skip
def test_what_a_service_or_cron_runs_for_the_user_is_no_jobs(group, login):
    host = host_with((10, 1001, "python", "S", ""), (11, 1001, "a.out", "S", "7"))
    for pid in ("10", "11"):
        host.write(f"/proc/{pid}/cgroup", f"{group}\n")
    assert [(left.login, left.sure) for left in leftovers.processes(host, 1001, "7")] == [(login, False), (False, True)]


def test_a_process_in_uninterruptible_sleep_is_named_as_such():
    (left,) = leftovers.processes(host_with((10, 1001, "ior", "D", "7")), 1001, "7")
    assert left.what == "process 10 (ior) (uninterruptible)"


@given(st.text(st.characters(blacklist_characters="\n\0", blacklist_categories=["Cs"]), max_size=15))
def test_no_process_name_hides_its_state(name):
    found = leftovers.parse_stat(f"10 ({name}) D " + " ".join(["1"] * 18) + " 99 0 0")
    assert (found.name, found.state, found.started) == (name, "D", 99)


SYSV = """\
       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime
         0         65   600               4194304  1234  1234      0  1001  1001  1001  1001 1700000000
         0         66   600               4194304  1234  1234      2  1001  1001  1001  1001 1700000000
         0         67   600               4194304  1234  1234      0  1002  1002  1002  1002 1700000000
"""


def test_segments_of_the_user_that_nobody_is_attached_to():
    assert [left.name for left in leftovers.parse_sysvipc(SYSV, 1001)] == ["sysv:65"]


def test_gpu_memory_above_the_bound_and_what_is_no_number():
    found = leftovers.parse_gpu_memory("0, 3\n1, 40000\n2, [N/A]\n\n", 1024.0)
    assert [(left.name, left.what) for left in found] == [("1", "40000 MiB of GPU 1 in use")]


def test_only_the_jobs_own_gpus_are_asked_about():
    host = FakeHost({}, {("nvidia-smi", "-i", "1,2"): "1, 40000\n2, 0\n"})
    assert [left.name for left in leftovers.gpu_memory(host, "1,2", 1024.0)] == ["1"]
    assert leftovers.gpu_memory(host, None, 1024.0) == []


def proof_of(uid, used):
    """A node with GPU 1 and a process of this user's with the name of nhc's proof."""
    host = FakeHost({"/proc/79/comm": "nhc-gpu-proof\n"}, {("nvidia-smi", "-i", "1"): used})
    host.system.stats["/proc/79"] = owned(uid)
    return host


@pytest.mark.thorough
def test_memory_of_nhcs_own_proof_is_not_the_jobs():
    def used(_argv, _stdin):
        """The proof ends a moment after it was seen."""
        if not host.exists("/proc/79/comm"):
            return Completed(0, "1, 3\n")
        threading.Timer(0.2, os.unlink, [host.path("/proc/79/comm")]).start()
        return Completed(0, "1, 1560\n")

    host = proof_of(0, used)
    assert leftovers.gpu_memory(host, "1", 1024.0) == []


def test_memory_beside_a_proof_that_does_not_end_is_not_judged_and_not_for_long(monkeypatch):
    monkeypatch.setattr(leftovers, "PROOF_WAIT", 0.0)
    assert leftovers.gpu_memory(proof_of(0, "1, 1560\n"), "1", 1024.0) == []


def test_a_users_process_with_a_proofs_name_hides_nothing():
    [left] = leftovers.gpu_memory(proof_of(1001, "1, 1560\n"), "1", 1024.0)
    assert left.what == "1560 MiB of GPU 1 in use"


def test_a_system_users_job_is_never_looked_at():
    host = host_with((10, 0, "a.out", "S", "7"))
    assert after_job("n1", {**ENVIRON, "SLURM_JOB_UID": "0"}, {}, host) == []
    assert after_job("n1", {**ENVIRON, "SLURM_JOB_UID": "1001"}, {"MAX_SYS_UID": "2000"}, host) == []


@pytest.fixture
def jobs(monkeypatch):
    """What the resource manager says of the user's other jobs; a list of how often it was asked."""

    class Scheduler:
        def __init__(self):
            self.others, self.asked = [], 0

        def other_jobs(self, node, user, job):
            assert (node, user, job) == ("n1", "ann", "7")
            self.asked += 1
            return self.others

    scheduler = Scheduler()
    monkeypatch.setattr("nhc.hooks.marking.scheduler", lambda environ, settings: scheduler)
    return scheduler


def test_what_may_be_another_jobs_counts_only_if_the_user_has_no_other(jobs):
    host = host_with((10, 1001, "a.out", "S", "7"), (12, 1001, "tmux", "S", ""))
    (outcome,) = after_job("n1", ENVIRON, {}, host)
    assert (outcome.verdict, outcome.message) == (
        Verdict.WARN,
        "left by the job: process 10 (a.out), process 12 (tmux)",
    )
    jobs.others = ["8"]
    (outcome,) = after_job("n1", ENVIRON, {}, host)
    assert outcome.message == "left by the job: process 10 (a.out)"


def test_a_clean_node_asks_nobody(jobs):
    assert after_job("n1", ENVIRON, {}, host_with()) == []
    assert jobs.asked == 0


def test_leftovers_drain_only_where_the_configuration_says_so(jobs):
    host = host_with((10, 1001, "a.out", "S", "7"))
    assert after_job("n1", ENVIRON, {"NHC_EPILOG_DRAIN": "processes"}, host)[0].verdict is Verdict.CRIT
    assert after_job("n1", ENVIRON, {"NHC_EPILOG_FIND": "tmp"}, host) == []


def test_a_misspelt_kind_is_said_and_left_out(jobs, capsys):
    assert after_job("n1", ENVIRON, {"NHC_EPILOG_FIND": "proceses"}, host_with((10, 1001, "a", "S", "7"))) == []
    assert "'proceses' is not one of processes, gpu, shm, tmp" in capsys.readouterr().err


def test_a_user_whom_the_node_knows_no_more_costs_only_the_answer(capsys):
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "3999999999"}
    append_why_job_ended("n1", job, {"NHC_EPILOG_WHY": "1"})
    assert "job 7: why it ended could not be told: this node knows no user 3999999999" in capsys.readouterr().err


# Cleaning, on this machine: processes that this test started, files below its own directory.


def sleeper(ignoring_term=False):
    code = "import signal, sys, time\n"
    if ignoring_term:
        code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    process = subprocess.Popen([sys.executable, "-S", "-c", code + "print(1, flush=True)\ntime.sleep(300)"],
                               stdout=subprocess.PIPE, env={"SLURM_JOB_ID": "7"})  # fmt: skip
    process.stdout.readline()
    return process


@pytest.mark.thorough
@pytest.mark.parametrize("ignoring_term", [False, True])
def test_a_process_is_ended_even_if_it_ignores_sigterm(ignoring_term):
    with sleeper(ignoring_term) as process:
        left = leftovers.process(Host(), str(process.pid), os.getuid(), "7")
        assert left.sure
        assert clean(Host(), [left], grace=0.3) == []
        assert process.wait(60) == -(signal.SIGKILL if ignoring_term else signal.SIGTERM)


def test_a_later_process_of_the_same_pid_is_not_signalled():
    with sleeper() as process:
        left = leftovers.process(Host(), str(process.pid), os.getuid(), "7")._replace(mark="1")
        sent = []
        assert end_processes(Host(), [left], 0.1, lambda pid, number: sent.append(number)) == []
        assert sent == []
        process.kill()


@pytest.mark.thorough
def test_what_survives_is_reported():
    with sleeper() as process:
        left = leftovers.process(Host(), str(process.pid), os.getuid(), "7")
        assert end_processes(Host(), [left], 0.05, lambda pid, number: None) == [left]
        process.kill()


def mark(path):
    seen = os.lstat(path)
    return f"{seen.st_dev}:{seen.st_ino}"


def test_a_tree_is_removed_and_what_its_links_point_at_is_not(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    tree = tmp_path / "tree"
    (tree / "deep" / "deeper").mkdir(parents=True)
    (tree / "deep" / "file").touch()
    (tree / "link").symlink_to(outside)
    assert remove(str(tree), mark(tree))
    assert not tree.exists()
    assert (outside / "precious").exists()


def test_a_file_that_was_replaced_meanwhile_stays(tmp_path):
    file, other = tmp_path / "file", tmp_path / "other"
    file.touch()
    other.touch()
    found = mark(file)
    other.replace(file)
    assert not remove(str(file), found)
    assert file.exists()
    assert remove(str(tmp_path / "gone"), found)


@pytest.mark.slow
def test_a_tree_is_removed_however_deep_it_is(tmp_path):
    """A user could have had any epilog end in an error, and nothing cleaned after it, by nesting directories."""
    tree = tmp_path / "job"
    tree.mkdir()
    found = mark(tree)
    at = os.open(tree, os.O_RDONLY)
    for number in range(3000):
        os.close(os.open(f"file{number}", os.O_CREAT, dir_fd=at))
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    assert remove(str(tree), found)
    assert not tree.exists()


def test_what_cannot_be_removed_stays_and_the_rest_goes(tmp_path):
    tree = tmp_path / "job"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").touch()
    need("root, for a mount", os.geteuid() == 0)
    subprocess.run(["mount", "-t", "tmpfs", "theirs", str(tree / "a" / "b")], check=True)
    try:
        (tree / "a" / "b" / "kept").touch()
        assert not remove(str(tree), mark(tree))
        assert (tree / "a" / "b" / "kept").exists()
    finally:
        subprocess.run(["umount", str(tree / "a" / "b")], check=True)
