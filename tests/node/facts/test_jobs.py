import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import Completed, FakeHost
from nhc.node.facts.jobs_here import (
    JobsUnknown,
    MemoryEvents,
    job_users,
    of_job,
    parse_job_file,
    parse_openpbs_job,
    parse_squeue,
)

INIT = {"/proc/1/cmdline": "/sbin/init\0"}
"""One process, and no slurmd of another node."""


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ('<?xml version="1.0"?>\n<job><euser type="s">alice</euser>\n</job>', "alice"),
        ("binary\x00\x01\nPBS_O_HOME=/home/bob\nPBS_O_LOGNAME=bob\nPBS_O_PATH=/bin\n", "bob"),
        ("nothing of use", ""),
    ],
)
def test_torque_job_files_name_their_user(text, user):
    assert parse_job_file(text) == user


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    parse_job_file(text)
    assert "" not in parse_squeue(text)


def test_users_with_slurm_jobs_here():
    host = FakeHost(INIT, {"scontrol": "", "squeue -w node001 --noheader -o %u": "alice\nbob\nalice\n"})

    assert job_users(host) == {"alice", "bob"}


def test_a_host_whose_processes_cannot_be_listed_may_have_another_slurmd():
    with pytest.raises(JobsUnknown, match="/proc"):
        job_users(FakeHost({}, {"scontrol": "", "squeue -w node001 --noheader -o %u": "alice\n"}))


def test_another_squeue_and_node_can_be_named():
    settings = {"NHC_RM": "slurm", "SQUEUE_CMD": "/opt/slurm/squeue", "SQUEUE_NODE": "-w n7"}
    host = FakeHost({}, {"/opt/slurm/squeue -w n7 --noheader -o %u": "carol\n"}, settings)

    assert job_users(host) == {"carol"}


def test_users_with_torque_jobs_here():
    host = FakeHost(
        {
            "/var/spool/torque/mom_priv/jobs/1.JB": "PBS_O_LOGNAME=alice\n",
            "/var/spool/torque/mom_priv/jobs/2.SC": "PBS_O_LOGNAME=mallory\n",
        },
        {"pbsnodes": "", "momctl": ""},
    )

    assert job_users(host) == {"alice"}
    host.write("/var/spool/torque/mom_priv/jobs/3[7].JB", "of a form that nobody knows")
    host.forget()
    with pytest.raises(JobsUnknown, match="does not tell whose job it is"):
        job_users(host)


@pytest.mark.parametrize(
    ("commands", "settings", "why"),
    [
        ({}, {"NHC_RM": "slurm"}, "squeue: no such command"),
        ({"squeue": Completed(1, "", "slurm_load_jobs error: down\n")}, {"NHC_RM": "slurm"}, "returned 1: slurm_load"),
        ({"squeue": Completed(143, "", "", True)}, {"NHC_RM": "slurm"}, "did not answer"),
        ({}, {"NHC_RM": "sge"}, "sge"),
        ({}, {"NHC_RM": "pbs"}, "/var/spool/torque/mom_priv/jobs: No such file"),
    ],
)
def test_what_cannot_be_told_is_no_empty_list(commands, settings, why):
    with pytest.raises(JobsUnknown, match=why):
        job_users(FakeHost(INIT, commands, settings))


def test_where_two_managers_are_installed_and_neither_runs_nobody_is_a_stranger():
    with pytest.raises(JobsUnknown, match="slurm, pbs are installed: set NHC_RM"):
        job_users(FakeHost({"/proc/1/comm": "systemd\n"}, {"scontrol": "", "pbsnodes": ""}))


def test_a_directory_that_torque_has_left_does_not_hide_the_jobs_of_slurm():
    commands = {"scontrol": "", "squeue -w node001 --noheader -o %u": "alice\n"}
    assert job_users(FakeHost({**INIT, "/var/spool/torque/": ""}, commands)) == {"alice"}


def openpbs(*attributes):
    """A job file as OpenPBS' pbs_mom saves it: struct job, then each attribute's struct svrattrl and texts."""
    data = bytes(range(1, 200)) + b"17.server\0" + bytes(300)
    for name, resource, value in attributes:
        texts = b"".join(text.encode() + b"\0" for text in (name, resource, value) if text)
        data += bytes(88) + texts
    return data


ALICE = openpbs(("Job_Name", "", "train"), ("Job_Owner", "", "alice@login1.example"), ("Resource_List", "ncpus", "8"),
                ("Variable_List", "", "PBS_O_LOGNAME=mallory,euser=mallory"), ("euser", "", "alice"),
                ("egroup", "", "hpc"))  # fmt: skip


def test_openpbs_job_files_name_their_user():
    assert parse_openpbs_job(ALICE) == "alice"
    assert parse_openpbs_job(openpbs(("Job_Owner", "", "gateway@login1"), ("euser", "", "alice"))) == "alice"
    assert parse_openpbs_job(openpbs(("Job_Owner", "", "bob@login1"))) == "bob"
    assert parse_openpbs_job(openpbs(("Job_Name", "", "euser"), ("xeuser", "", "mallory"))) == ""


@given(st.binary())
def test_any_bytes_are_read_without_an_error(data):
    parse_openpbs_job(data)


@pytest.mark.parametrize(
    ("files", "home"),
    [
        ({}, "/var/spool/pbs"),
        ({"/etc/pbs.conf": "PBS_EXEC=/opt/pbs\nPBS_HOME=/local/pbs\nPBS_START_MOM=1\n"}, "/local/pbs"),
        ({"/etc/pbs.conf": "PBS_HOME=/shared/pbs\nPBS_MOM_HOME=/local/mom\n"}, "/local/mom"),
    ],
)
def test_users_with_openpbs_jobs_here(files, home):
    host = FakeHost({**files, f"{home}/mom_priv/jobs/17.server.JB": ALICE, f"{home}/mom_priv/jobs/17.server.SC": "#!"},
                    {"pbsnodes": ""})  # fmt: skip
    assert job_users(host) == {"alice"}
    host.write(f"{home}/mom_priv/jobs/18.server.JB", b"\1\2\3")
    host.forget()
    with pytest.raises(JobsUnknown, match=r"18\.server\.JB does not tell whose job it is"):
        job_users(host)


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
