"""What a scheduler tells a hook: its context, the node's name, the job's devices, what a user may skip."""

from __future__ import annotations

import pytest

from nhc.core.host import Host
from nhc.core.model import CheckResult, Report, Verdict, crit, ok
from nhc.core.resource_manager import detect
from nhc.core.system.node_name import scheduler_name, target_name
from nhc.hooks.job_environment import concerns, context_of, deadline, job_devices, skipped
from nhc.hooks.outcome import results_for_job
from nhc.lab.testing.fake_host import FakeHost


@pytest.mark.parametrize(
    ("environ", "settings", "name"),
    [
        ({"SLURMD_NODENAME": "gpu7", "NHC_NODE_NAME": "x"}, {"NHC_NODE_NAME": "y"}, "gpu7"),
        ({}, {"NHC_NODE_NAME": "y"}, "y"),
        ({"NHC_NODE_NAME": "x"}, {}, "x"),
        ({}, {"NHC_NODE_MAP": "a=b host7.example.org=n7"}, "n7"),
        ({}, {"NHC_NODE_MAP": "host7=n7"}, "n7"),
        ({}, {"NHC_NODE_MAP": "host8=n8"}, "host7"),
        ({}, {}, "host7"),
        ({}, {"HOSTNAME": "gpu7.cluster"}, "gpu7"),
        ({}, {"HOSTNAME": "gpu7", "NHC_NODE_MAP": "gpu7=n7"}, "n7"),
        ({}, {"HOSTNAME": "gpu7", "NHC_NODE_MAP": "host7=n7"}, "n7"),
        ({"SLURMD_NODENAME": "n1"}, {"HOSTNAME": "gpu7"}, "n1"),
    ],
)
def test_a_node_is_called_what_the_scheduler_calls_it(environ, settings, name):
    assert scheduler_name(environ, settings, "host7.example.org", Host().read_or) == name


def test_the_map_may_be_a_file(tmp_path):
    file = tmp_path / "map"
    file.write_text("# hosts\nhost6=n6\nhost7=n7 # the seventh\n")
    assert scheduler_name({}, {"NHC_NODE_MAP": str(file)}, "host7", Host().read_or) == "n7"
    assert scheduler_name({}, {"NHC_NODE_MAP": str(tmp_path / "none")}, "host7", Host().read_or) == "host7"


@pytest.mark.parametrize(
    ("node", "hostname_setting", "target"),
    [
        ("host7", "", "host7.example.org"),
        ("n1", "", "n1"),
        ("", "", "host7.example.org"),
        ("", "gpu7", "gpu7"),
        ("host7", "gpu7", "gpu7"),  # one slurmd under its host's name: the site names the targets
        ("gpu7", "gpu7.cluster", "gpu7.cluster"),
        ("n1", "host7", "n1"),  # two slurmd share the host: HOSTNAME is the host's
    ],
)
def test_targets_match_the_host_name_unless_the_node_is_called_otherwise(node, hostname_setting, target):
    environ = {"SLURMD_NODENAME": node} if node else {}
    settings = {"HOSTNAME": hostname_setting} if hostname_setting else {}
    assert target_name(environ, settings, "host7.example.org") == target


@pytest.mark.parametrize(
    ("told", "devices"),
    [
        ("0,2", "0,2"),
        ("1-3", "1,2,3"),
        ("0", "0"),
        ("", None),
        ("GPU-uuid", None),
        ("0,MIG-1", None),
        ("0-99999", None),
    ],
)
def test_the_jobs_gpus(told, devices):
    assert job_devices({"SLURM_JOB_GPUS": told}) == devices


@pytest.mark.parametrize(
    ("target", "answer"),
    [("gpu0", True), ("gpu2", True), ("gpu1", False), ("GPU 1", False), ("gpu21", False), ("/scratch", True),
     ("", True), ("mlx5_1:1", True), ("gpu1/nvlink3", False)],
)  # fmt: skip
def test_only_another_jobs_gpu_does_not_concern_this_one(target, answer):
    assert concerns(target, "0,2") is answer


@pytest.mark.parametrize(
    ("asked", "told", "context"),
    [
        ("prolog", "prolog_slurmd", "prolog"),
        ("prolog", "prolog_slurmctld", "prolog-slurmctld"),
        ("epilog", "epilog_slurmctld", "epilog-slurmctld"),
        ("prolog", "", "prolog"),
        ("prolog", "epilog_slurmd", "prolog"),
        ("healthcheck", "prolog_slurmctld", "healthcheck"),
    ],
)
def test_the_controllers_hooks_are_told_apart(asked, told, context):
    assert context_of(asked, {"SLURM_SCRIPT_CONTEXT": told}) == context


def test_a_user_skips_only_what_the_administrator_allows():
    comment = {"SLURM_JOB_COMMENT": "mine nhc-skip=check_a,check_b nhc-skip=check_c"}
    assert skipped(comment, {}) == frozenset()
    assert skipped(comment, {"NHC_USER_SKIP": "check_a,check_c check_d"}) == {"check_a", "check_c"}
    assert skipped({}, {"NHC_USER_SKIP": "check_a"}) == frozenset()


def test_another_jobs_gpu_does_not_keep_this_job_from_starting():
    results = tuple(CheckResult("check_gpu_ecc", crit("X", "bad", target=target)) for target in ("gpu1", "gpu3"))
    report = Report("n1", "b", 0.0, 0.0, (CheckResult("check_a", ok()), *results))
    assert results_for_job(report, "0,2").verdict is Verdict.OK
    assert results_for_job(report, "0,1").verdict is Verdict.CRIT
    assert results_for_job(report, None) is report


@pytest.mark.parametrize(
    ("context", "settings", "seconds"),
    [
        ("prolog", {}, 20.0),
        ("prolog", {"TIMEOUT": "5"}, 5.0),
        ("prolog", {"TIMEOUT": "300"}, 20.0),
        ("prolog", {"NHC_PROLOG_TIMEOUT": "60", "TIMEOUT": "5"}, 60.0),
        ("epilog", {"NHC_PROLOG_TIMEOUT": "60"}, 30.0),
        ("prolog-slurmctld", {"NHC_PROLOG_SLURMCTLD_TIMEOUT": "7"}, 7.0),
        ("prolog", {"NHC_PROLOG_TIMEOUT": "soon"}, 20.0),
    ],
)
def test_each_hook_has_its_own_deadline(context, settings, seconds):
    assert deadline(context, settings) == seconds


COMM = "/proc/77/comm"


@pytest.mark.parametrize(
    ("environ", "settings", "commands", "running", "manager"),
    [
        ({}, {"NHC_RM": "openpbs"}, ["scontrol"], "", "pbs"),
        ({"NHC_RM": "flux"}, {}, ["scontrol"], "", "flux"),
        ({}, {"NHC_RM": "none"}, ["scontrol"], "", None),
        ({"SLURMD_NODENAME": "n1"}, {}, ["pbsnodes", "scontrol"], "pbs_mom", "slurm"),
        ({"PBS_JOBID": "1"}, {}, ["pbsnodes"], "", "pbs"),
        ({"PBS_JOBID": "1"}, {}, ["pbsnodes", "momctl"], "", "torque"),
        ({"SGE_ROOT": "/opt/sge"}, {}, ["scontrol"], "", "slurm"),
        ({}, {}, ["pbsnodes", "scontrol"], "slurmd", "slurm"),
        ({}, {}, ["pbsnodes", "scontrol"], "pbs_mom", "pbs"),
        ({}, {}, ["pbsnodes", "scontrol"], "bash", None),
        ({}, {}, [], "slurmd", None),
    ],
)
def test_the_resource_manager_is_found_without_guessing(environ, settings, commands, running, manager):
    host = FakeHost({COMM: f"{running}\n"}, {(command,): "" for command in commands})
    assert detect(environ, settings, host).name == (manager or "")
