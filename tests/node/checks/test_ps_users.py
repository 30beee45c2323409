"""check_ps_unauth_users and check_ps_userproc_lineage."""

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed
from tests.support.judge import judge
from tests.support.processes import INIT, NODE, Process, node

ROGUE = Process(31337, "/home/mallory/badstuff --now", uid=31337)
ROGUE2 = Process(31338, "./more", uid=31337)
CAROL = Process(2222, "/home/carol/goodstuff", uid=1777)
JOBS = {"squeue": "alice\n"}
SLURM = {"NHC_RM": "slurm", "NHC_AUTH_USERS": "root nobody carol"}
PBS = {"NHC_RM": "pbs", "NHC_AUTH_USERS": "root nobody carol"}


def cluster(*more, settings=SLURM, commands=JOBS):
    return node(*NODE, *more, settings=settings, commands=commands)


def test_owners_of_jobs_and_authorised_users_may():
    assert judge(cluster(CAROL), "check_ps_unauth_users die").verdict is Verdict.OK


def test_a_stranger_fails_in_lbnl_words():
    outcome = judge(cluster(ROGUE), "check_ps_unauth_users")

    assert outcome.verdict is Verdict.CRIT
    assert outcome.message == '31337\'s "/home/mallory/badstuff" process is unauthorized. (PID 31337)'


def test_an_idle_node_asks_no_resource_manager():
    host = node(INIT, settings=SLURM)

    assert judge(host, "check_ps_unauth_users").verdict is Verdict.OK
    assert host.system.ran == []


def test_the_jobs_of_every_slurmd_of_the_host_count():
    """Two slurmd share the host: whose job runs as n2 is no stranger to n1."""
    first, second = Process(900, "/usr/sbin/slurmd -D -N n1"), Process(901, "/usr/sbin/slurmd -Nn2 -D")
    alone = {("squeue", "-w", "n1,n2"): "alice\nmallory\n", "squeue": "alice\n"}
    settings = {**SLURM, "NHC_NODE_NAME": "n1"}
    host = cluster(first, second, ROGUE, settings=settings, commands=alone)
    host.write("/etc/passwd", host.read("/etc/passwd") + "mallory:x:31337:31337::/home/mallory:/bin/sh\n")
    assert judge(host, "check_ps_unauth_users die").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("commands", "settings"),
    [
        ({}, SLURM),
        ({"squeue": Completed(1, "", "down")}, SLURM),
        ({"squeue": Completed(143, "", "", True)}, SLURM),
        ({}, {"NHC_RM": "lsf"}),
    ],
)
def test_nobody_is_unauthorised_or_killed_where_jobs_cannot_be_told(commands, settings):
    host = cluster(ROGUE, commands=commands, settings=settings)

    outcome = judge(host, "check_ps_unauth_users kill die")

    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "JobsUnknown")
    assert host.system.done == []


def test_without_a_resource_manager_only_authorised_users_may():
    host = cluster(settings={"NHC_RM": "none", "NHC_AUTH_USERS": "alice"})
    assert judge(host, "check_ps_unauth_users").verdict is Verdict.OK
    assert judge(cluster(settings={"NHC_RM": "none"}), "check_ps_unauth_users").verdict is Verdict.CRIT


@pytest.mark.parametrize(
    ("actions", "verdict", "done"),
    [
        ("", Verdict.CRIT, 0),
        ("die", Verdict.CRIT, 0),
        ("log", Verdict.WARN, 0),
        ("ignore die", Verdict.OK, 0),
        ("kill", Verdict.WARN, 2),
        ("kill die", Verdict.CRIT, 2),
        ("die kill", Verdict.CRIT, 0),
        ("log syslog kill", Verdict.WARN, 4),
    ],
)
def test_actions_are_taken_in_turn_on_every_process(actions, verdict, done):
    host = cluster(ROGUE, ROGUE2)

    outcome = judge(host, f"check_ps_unauth_users {actions}")

    assert (outcome.verdict, len(host.system.done)) == (verdict, done)
    if "kill" in actions and done:
        assert "; killed" in outcome.message
        assert "kill 9 31337" in host.system.done


def test_several_are_counted_and_kept_as_evidence():
    outcome = judge(cluster(ROGUE, ROGUE2), "check_ps_unauth_users log")

    assert outcome.message.endswith("(PID 31337) (and 1 more)")
    assert len(outcome.evidence) == 2


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ("-c /home/mallory/badstuff", Verdict.OK),
        ("-c 'x badstuff'", Verdict.OK),
        ("-c bad", Verdict.CRIT),
        ("-u 31337", Verdict.OK),
        ("-u 313370", Verdict.CRIT),
        ("-n 31337", Verdict.OK),
        ("-n mallory", Verdict.CRIT),
        ("-p 5 -p 31337", Verdict.OK),
    ],
)
def test_what_is_to_be_ignored_is_named_in_full(options, verdict):
    assert judge(cluster(ROGUE), f"check_ps_unauth_users {options}").verdict is verdict


def test_system_users_may():
    host = cluster(Process(7, "/usr/bin/dbus", uid=999))

    assert judge(host, "check_ps_unauth_users").verdict is Verdict.OK


def test_an_unknown_action_is_named():
    with pytest.raises(BadArguments, match="dye"):
        find("check_ps_unauth_users").parse(["dye"])


def test_processes_below_the_daemon_pass():
    assert judge(cluster(CAROL, settings=PBS), "check_ps_userproc_lineage die").verdict is Verdict.OK


def test_a_process_past_the_daemon_fails_in_lbnl_words():
    outcome = judge(cluster(ROGUE, settings=PBS), "check_ps_userproc_lineage die")

    assert outcome.verdict is Verdict.CRIT
    assert outcome.message == '31337\'s "/home/mallory/badstuff" process is rogue. (PID 31337)'


def test_slurms_own_daemon_is_the_default_under_slurm():
    step = Process(500, "slurmstepd: [11235.0]", name="slurmstepd")
    job = Process(501, "./app", uid=12345, parent=500)

    assert judge(node(INIT, step, job, settings=SLURM), "check_ps_userproc_lineage").verdict is Verdict.OK
    assert judge(node(INIT, job, settings=SLURM), "check_ps_userproc_lineage").verdict is Verdict.CRIT


@pytest.mark.parametrize("left_over", [{}, {"pbsnodes": ""}])
def test_a_job_of_slurm_lives_although_torque_has_left_its_directory(left_over):
    step = Process(500, "slurmstepd: [11235.0]", name="slurmstepd")
    job = Process(501, "./app", uid=12345, parent=500)
    daemon = Process(400, "/usr/sbin/slurmd", name="slurmd")
    files = {"/var/spool/torque/": ""}
    host = node(INIT, daemon, step, job, commands={"scontrol": "", **left_over}, files=files)

    outcome = judge(host, "check_ps_userproc_lineage log kill")

    assert outcome.verdict is Verdict.OK
    assert host.system.done == []


def test_of_two_managers_of_which_neither_runs_none_is_taken():
    host = node(INIT, Process(501, "./app", uid=12345), commands={"scontrol": "", "pbsnodes": ""})

    outcome = judge(host, "check_ps_userproc_lineage kill")

    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.message.endswith("slurm, pbs are installed: set NHC_RM")
    assert host.system.done == []


def test_another_daemon_can_be_named():
    settings = {"RM_DAEMON_MATCH": "*badstuff*", "NHC_RM": "none"}

    assert judge(node(INIT, ROGUE, settings=settings), "check_ps_userproc_lineage").verdict is Verdict.OK


def test_lineage_kills_only_when_asked():
    host = cluster(ROGUE, settings=PBS)

    judge(host, "check_ps_userproc_lineage die")
    assert host.system.done == []
    judge(host, "check_ps_userproc_lineage kill")
    assert host.system.done == ["kill 9 31337"]


def test_a_kill_that_fails_is_told():
    host = cluster(ROGUE, settings=PBS)
    host.system.refuses["kill 9 31337"] = PermissionError(1, "Operation not permitted")

    assert judge(host, "check_ps_userproc_lineage kill").message.endswith("; not killed (Operation not permitted)")


def test_lineage_without_a_resource_manager_is_unknown():
    outcome = judge(cluster(settings={"NHC_RM": "none"}), "check_ps_userproc_lineage")

    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.message.startswith("This check requires a supported resource manager")


def test_no_proc_is_unknown():
    host = node(settings=PBS)
    host.system.root = host.root = "/nowhere"
    assert judge(host, "check_ps_unauth_users").verdict is Verdict.UNKNOWN
