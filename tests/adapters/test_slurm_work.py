"""What a real slurmctld's flags do not say: suspended jobs are work, and a node that died is a fault."""

import time

import pytest

from nhc.deep import idle
from nhc.marks.ports.adapter import OWNER_SETTING, REMEDY_OWNER, WORK_SETTING, Effect, Mark
from nhc.marks.ports.marks import may_mark
from nhc.marks.ports.repair import Machine, Rung
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.marker import parse_json_jobs, parse_squeue, with_work
from nhc_adapters.slurm.power import SlurmPower
from nhc_adapters.slurm.states import node_state
from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.slurm_remedy import Service, served
from tests.support.waiting import until

NODES = ["w1", "w2", "w3", "w4", "w5"]
MATES = ("w4", "w5")
EXTRA = """\
RebootProgram=/bin/true
ResumeTimeout=60
SlurmdTimeout=6
PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
SchedulerTimeSlice=5
PartitionName=low Nodes=w[1-3] PriorityTier=1 OverSubscribe=FORCE:1 State=UP
PartitionName=high Nodes=w[1-3] PriorityTier=10 OverSubscribe=FORCE:1 State=UP Hidden=YES
"""


@pytest.fixture(scope="module")
def five(slurm_directory):
    need("slurm", not missing(), ", ".join(missing()))
    (slurm_directory / "work").mkdir()
    cluster = Cluster(slurm_directory / "work", NODES, EXTRA, one_machine=MATES)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(five):
    five.reset()
    return five


def running(cluster, number, state="RUNNING"):
    until(lambda: cluster.job(number)["JobState"] == state, what=f"job {number} to be {state}")
    return number


def busy(cluster, node):
    return Slurm({}, cluster.env).nodes([node])[0].busy


def test_a_suspended_job_is_work_though_its_node_is_idle(cluster):
    assert not busy(cluster, "w1")
    number = running(cluster, cluster.submit("sleep 600", "-w", "w1"))
    cluster.scontrol("suspend", number)
    until(lambda: cluster.show("w1")["State"] == "IDLE", what="its processors to be free")

    assert busy(cluster, "w1")
    assert [state.busy for state in Slurm({}, cluster.env).nodes()] == [True, *[False] * 4]
    assert not Slurm({WORK_SETTING: "flags"}, cluster.env).nodes(["w1"])[0].busy, "what a hook need not ask"
    cluster.run("scancel", number)
    until(lambda: not busy(cluster, "w1"), what="the work to end")


def test_work_on_another_node_of_the_same_machine_is_in_the_way_of_a_deep_check(cluster):
    slurm = Slurm({}, cluster.env)
    assert [[mate.name for mate in state.mates] for state in slurm.nodes()] == [[], [], [], ["w5"], ["w4"]]
    slurm.mark({"w4": Mark("check_x: bad")})
    free = idle.scheduler(slurm, "w4", {})
    assert (free.busy, free.notes) == ((), ("w5, on the same machine, takes new work",))
    job = running(cluster, cluster.submit("sleep 300", "--nodelist=w5"))
    assert slurm.other_jobs("w4", "", "") == [job]
    (busy,) = idle.scheduler(slurm, "w4", {}).busy
    assert "w5" in busy.who


def test_the_loop_reboots_no_machine_under_the_work_of_its_other_nodes(cluster, tmp_path):
    job = running(cluster, cluster.submit("sleep 600", "-w", "w5"))
    with served(Service(tmp_path, cluster, "w4")) as service:

        def waits_for(why):
            until(lambda: why in service.waiting(), 90, what=f"the loop to wait for: {why}", said=service.log)
            assert "REBOOT" not in cluster.show("w4")["State"]

        service.report("boot1", sick=True)
        service.start()
        waits_for("work still runs on w5")
        cluster.run("scancel", job)
        waits_for("w5, on the same machine, takes new work")
        cluster.update("w5", State="DRAIN", Reason="ann: new cables")
        waits_for("w5, on the same machine, is idle+drain by root")
        cluster.update("w5", State="RESUME")
        Slurm({}, cluster.env).mark({"w5": Mark("check_x: bad")})
        until(lambda: service.state() == "watching", 60, what="the repair of an idle machine", said=service.log)


def test_preempted_jobs_and_those_of_a_hidden_partition_are_work(cluster):
    low = running(cluster, cluster.submit("sleep 600", "-p", "low", "-w", "w2", "--exclusive"))
    high = running(cluster, cluster.submit("sleep 600", "-p", "high", "-w", "w2", "--exclusive"))
    running(cluster, low, "SUSPENDED")
    assert busy(cluster, "w2")
    cluster.scontrol("suspend", high)
    cluster.scontrol("hold", low, check=False)
    assert busy(cluster, "w2")


def test_the_loop_reboots_no_node_under_a_suspended_job(cluster, tmp_path):
    number = running(cluster, cluster.submit("sleep 600", "-w", "w1"))
    cluster.scontrol("suspend", number)
    until(lambda: cluster.show("w1")["State"] == "IDLE", what="its processors to be free")
    with served(Service(tmp_path, cluster, "w1")) as service:
        service.report("boot1", sick=True)
        service.start()
        until(lambda: service.state() == "draining", 90, what="the loop to wait for the job")
        shown = time.time()
        until(lambda: time.time() > shown + 3, what="some rounds to pass")
        assert (service.state(), "REBOOT" in cluster.show("w1")["State"]) == ("draining", False)
        cluster.run("scancel", number)
        until(lambda: service.state() == "watching", 60, what="the repair, once the job is gone")


def test_a_node_that_died_is_marked_for_its_silence_and_stays_out_when_it_is_back(cluster, tmp_path):
    began = time.time()
    cluster.kill("slurmd.w3")
    until(lambda: cluster.show("w3")["State"].startswith("DOWN"), 60, what="slurmctld to give the node up")
    (state,) = Slurm({}, cluster.env).nodes(["w3"])
    assert began < state.silence.since <= time.time()
    assert state.silence.why.startswith("slurmctld does not hear its slurmd (down")
    assert may_mark(state, Mark("x"))[0] is Effect.REFUSED, "a hook leaves it alone"
    power = SlurmPower({"boot-time": "60"}, cluster.env)
    assert power.can(Machine("w3"), Rung.REBOOT) == "its slurmd does not answer: it cannot be asked to reboot"

    more = '[reasons.NodeSilent]\nsettle = "1s"\n'
    with served(Service(tmp_path, cluster, "w3", more=more)) as service:
        service.start()
        until(lambda: service.state() == "escalated", 90, what="the loop to give it to a person",
              said=service.log)  # fmt: skip
        assert cluster.reason("w3").startswith("NHC-REMEDY: [node] cluster: slurmctld does not hear its slurmd")
        assert "DRAIN" in cluster.show("w3")["State"]
        cluster.start_node("w3")
        until(lambda: cluster.show("w3")["State"] == "IDLE+DRAIN", 60, what="the node to be heard again")
        assert cluster.state("w3") == "drain"


def test_a_silence_under_our_own_reason_began_when_it_was_seen(cluster):
    adapter = Slurm({OWNER_SETTING: REMEDY_OWNER}, cluster.env)
    cluster.update("w3", State="DRAIN", Reason="NHC-REMEDY: check_x: new")
    (state,) = adapter.nodes(["w3"])
    assert state.silence is None
    marked = state.mark.since
    cluster.kill("slurmd.w3")
    until(lambda: cluster.show("w3")["State"].startswith("DOWN"), 60, what="slurmctld to give the node up")
    (first,), (again,) = adapter.nodes(["w3"]), adapter.nodes(["w3"])
    assert first.silence.since > marked
    assert again.silence == first.silence


def test_what_squeue_and_slurmrestd_say_of_work_is_the_same():
    text = "RUNNING n[1-2]\nSUSPENDED n2\nCONFIGURING \n"
    jobs = [{"job_state": "RUNNING", "nodes": "n[1-2]"}, {"job_state": ["SUSPENDED"], "nodes": "n2"},
            {"job_state": ["PENDING"], "nodes": ""}, {"job_state": "CONFIGURING", "nodes": None}]  # fmt: skip
    assert parse_squeue(text) == parse_json_jobs({"jobs": jobs}) == {
        "n1": frozenset({"RUNNING"}), "n2": frozenset({"RUNNING", "SUSPENDED"})
    }  # fmt: skip
    with pytest.raises(ValueError, match="no list of jobs"):
        parse_json_jobs({"errors": []})


def test_a_node_that_a_restarted_slurmctld_has_not_heard_yet_may_have_work():
    """slurmctld 22.05.8, killed and started again, had a running job as pending, and its node as UNKNOWN+DRAIN."""
    shown = [node_state(state, [state, "DRAIN"], "NHC-REMEDY: x") for state in ("UNKNOWN", "IDLE", "DOWN")]
    assert [state.busy for state in with_work(shown, {})] == [True, False, False]
