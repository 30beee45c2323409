"""The memory that the kernel counts for a job, in its control group."""

import pytest

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.job_memory import MemoryEvents, of_job

EVENTS = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 2\noom_group_kill 0\n"
SCOPE = "/sys/fs/cgroup/system.slice/slurmstepd.scope"
OTHER = "/sys/fs/cgroup/system.slice/n2_slurmstepd.scope"


@pytest.mark.parametrize("scope", [SCOPE, OTHER])
def test_a_jobs_group_is_found_below_the_scope_of_each_slurmd(scope):
    host = FakeHost({f"{scope}/job_17/memory.events": EVENTS})
    assert of_job(host, "17") == MemoryEvents(f"{scope}/job_17", 31, 2)
    assert [of_job(host, job) for job in ("1", "170", "17_3", "../job_17", "")] == [None] * 5


def test_a_process_of_the_job_is_in_its_group_wherever_that_lies():
    own = "/site.slice/job_17"
    host = FakeHost(
        {"/proc/self/cgroup": f"0::{own}/step_0/user/task_0\n", f"/sys/fs/cgroup{own}/memory.events": EVENTS}
    )
    assert of_job(host, "17") == MemoryEvents(f"/sys/fs/cgroup{own}", 31, 2)
    assert of_job(host, "18") is None


@pytest.mark.parametrize("files", [{"/proc/self/cgroup": "4:memory:/slurm/uid_7/job_17\n"}, {}])
def test_without_cgroup_v2_nothing_is_known(files):
    assert of_job(FakeHost(files), "17") is None


@pytest.mark.parametrize("text", ["", "max 1\n", "oom_kill many\n"])
def test_a_file_without_the_count_says_nothing(text):
    assert of_job(FakeHost({f"{SCOPE}/job_17/memory.events": text}), "17") is None
