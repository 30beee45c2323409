"""Jobs of a real slurmctld, restarted after infrastructure faults by the whole loop over a real store."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.core.system.process import Completed
from nhc.jobs.restart_rounds import JobLoop
from nhc.jobs.settings import parse
from nhc.marks.ports.adapter import AdapterError, Mark
from nhc.marks.ports.job_control import JobName, LossCause, Phase
from nhc.store import audit, job_restarts
from nhc.store import reports as store_reports
from nhc.store.connect import open_store
from nhc.store.intake import Incoming
from nhc_adapters._command import run_command
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.job_controller import SlurmJobs
from nhc_adapters.slurm.job_states import new_note, parse_jobs
from tests.support.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = """
[actions]
restart = "on"
[limits]
cooldown = "0s"
[evidence]
settle = "0s"
[controllers.slurm]
"""
WISH = "--comment=nhc-restart=2 nhc-checkpoint=/ckpt/llama"


class JobSite:
    """The loop over the cluster; `lost` are commands whose next answer is lost after slurmctld has carried it out.

    The scripts `fails` and `fails_once` run until the file `go` is there: a state that lasts a second may go unseen.
    """

    def __init__(self, cluster, store, go, settings=SETTINGS):
        self.cluster, self.store, self.go = cluster, store, go
        self.fails = f"until test -e {go}; do sleep 0.1; done; exit 3"
        self.fails_once = f'test "$SLURM_RESTART_COUNT" && sleep 600; {self.fails}'
        self.lost, self.calls, self.skew = [], [], 0.0
        self.controller = SlurmJobs({}, cluster.env, 20.0, self.run)
        self.loop = JobLoop(store, parse(settings), {"slurm": self.controller}, clock=lambda: time.time() + self.skew,
                            monotonic=lambda: time.monotonic() + self.skew)  # fmt: skip
        self.said, self.number = [], ""

    def start(self, *options, script="sleep 600"):
        """A job that asks to be restarted, running; what is said and kept is looked at for this one alone."""
        self.number = self.cluster.submit(script, "--requeue", WISH, *options)
        until(lambda: self.cluster.job(self.number)["JobState"] == "RUNNING", what="the job to run")
        return self.number

    def run(self, argv, timeout, env):
        if argv[1] not in ("show", "-a", "--json", "--version") and argv[2] in (self.number, f"JobId={self.number}"):
            self.calls.append(" ".join(argv[1:3]))
        done = run_command(argv, timeout, env)
        if argv[1] in self.lost:
            self.lost.remove(argv[1])
            return Completed(-15, "", "", timed_out=True)
        return done

    def round(self):
        done = self.loop.round()
        assert done.problems == ()
        self.said += [f"{one.what}: {one.why}" for one in done.events if one.job == f"batch/{self.number}"]
        return done

    def waiting(self):
        """Why the job goes no further now."""
        return [one.why for one in self.round().waiting if one.job == f"batch/{self.number}"]

    def row(self):
        """The job's row."""
        with self.store.read() as connection:
            return next(row for row in job_restarts.list_jobs(connection, is_open=None) if row.name == self.number)

    def until(self, number, **fields):
        """Rounds until the job is like this; its fields."""

        def like():
            self.round()
            job = self.cluster.job(number)
            return job if all(job.get(name, "").startswith(value) for name, value in fields.items()) else None

        said = lambda: (self.said, self.waiting(), self.cluster.job(number))  # noqa: E731
        return until(like, 60, every=0.3, what=f"job {number} to be {fields}", said=said)

    def restarts(self):
        number = self.row().id
        with self.store.read() as connection:
            return job_restarts.restarts(connection, number)

    def report(self, node, sick=True):
        bad = Outcome(Verdict.CRIT, "GpuLost", "GPU 3 has fallen off the bus", "gpu3")
        result = CheckResult("check_gpu", bad if sick else Outcome(Verdict.OK))
        now = time.time()
        with self.store.write() as connection:
            store_reports.receive(connection, [Incoming(Report(node, "b", now, 1.0, (result,)), "agent", now)])


@pytest.fixture
def site(cluster, tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    yield JobSite(cluster, store, tmp_path / "go")
    store.close()


def test_a_node_that_goes_down_is_avoided_by_the_job_that_it_failed(cluster, site):
    number = site.start("-N2", "--job-name=a name with JobState=FAILED in it")
    before = cluster.job(number)
    site.round()
    cluster.kill("slurmd.n1")
    cluster.update("n1", State="DOWN", Reason="died")
    job = site.until(number, JobState="RUNNING", Restarts="1")

    assert before["NodeList"] == "n[1-2]"
    assert (job["NodeList"], job["ExcNodeList"]) == ("n[2-3]", "n1")
    assert job["AdminComment"].startswith("nhc: restart 1; avoids n1; n1: ")
    site.until(number, JobState="RUNNING")
    (row,) = site.restarts()
    assert (row.outcome, row.nodes) == ("restarted", "n1")
    assert (site.row().max_restarts, site.row().checkpoint) == (2, "/ckpt/llama")
    with site.store.read() as connection:
        whats = [one.what for one in audit.entries(connection) if f"batch/{number}" in one.detail]
    assert whats == ["job.hold", "job.held", "job.releasing", "job.restarted"]


def test_a_restart_waits_until_enough_healthy_nodes_exist(cluster, site):
    number = site.start("-N2")
    site.round()
    cluster.kill("slurmd.n1")
    cluster.update("n1", State="DOWN", Reason="died")
    cluster.update("n3", State="DRAIN", Reason="somebody works on it")
    site.until(number, Reason="JobHeldAdmin", AdminComment="nhc: restart 1")
    site.round()
    assert site.waiting() == ["it needs 2 healthy nodes, and there are 1"]
    assert cluster.job(number)["JobState"] == "PENDING"

    cluster.update("n3", State="RESUME")
    assert site.until(number, JobState="RUNNING")["NodeList"] == "n[2-3]"


def test_a_job_that_must_run_on_a_node_waits_for_its_repair_and_is_let_go_then(cluster, site):
    number = site.start("-w", "n1", script=site.fails_once)
    site.round()
    site.report("n1")
    site.go.touch()
    site.until(number, JobState="PENDING", AdminComment="nhc: restart 1")
    site.round()
    assert site.waiting() == ["it must run on n1, which is not repaired: GpuLost: GPU 3 has fallen off the bus"]
    assert cluster.job(number)["ExcNodeList"] == "(null)"

    site.report("n1", sick=False)
    job = site.until(number, JobState="RUNNING", Restarts="1")
    assert job["NodeList"] == "n1"
    site.round()  # one that sees it run: the job may have begun as soon as the last one released it
    assert [one.outcome for one in site.restarts()] == ["restarted"]


def test_an_exit_on_healthy_nodes_is_left_alone(cluster, site):
    number = site.start(script=site.fails)
    site.round()
    site.go.touch()
    until(lambda: cluster.job(number)["JobState"] == "FAILED", what="the job to fail")
    for _ in range(3):
        site.round()

    assert site.said == ["left: it ended with exit status 3, and its nodes are healthy"]
    assert (cluster.job(number)["JobState"], site.calls) == ("FAILED", [])


@pytest.mark.parametrize(("options", "state"), [(("--time=0:01",), "TIMEOUT"), ((), "CANCELLED")])
def test_a_time_limit_and_a_cancelled_job_are_left_alone_even_on_a_sick_node(cluster, site, options, state):
    number = site.start("-w", "n1", *options)
    site.round()
    site.report("n1")
    if state == "CANCELLED":
        cluster.run("scancel", number)
    else:
        cluster.end_its_time(number)
    until(lambda: cluster.job(number)["JobState"] == state, 120, what=f"the job to be {state}")
    for _ in range(3):
        site.round()

    assert (site.calls, site.restarts()) == ([], [])


def test_an_exit_beside_a_lost_gpu_is_requeued_off_the_node(cluster, site):
    number = site.start(script=site.fails_once)
    site.round()
    node = cluster.job(number)["NodeList"]
    site.report(node)
    site.go.touch()
    job = site.until(number, JobState="RUNNING", Restarts="1")

    assert job["ExcNodeList"] == node
    assert job["NodeList"] != node
    assert site.said[0] == f"restart: 1 of 2: {node}: GpuLost: GPU 3 has fallen off the bus"
    assert site.calls == [f"requeuehold {number}", f"update JobId={number}", f"update JobId={number}",
                          f"release {number}"]  # fmt: skip


def test_the_limit_holds_and_is_said_once(cluster, site):
    number = site.start("-w", "n1", script=site.fails)
    site.report("n1")
    cluster.scontrol("update", f"JobId={number}", "Comment=nhc-restart=0")
    site.go.touch()
    site.until(number, JobState="FAILED")
    until(lambda: site.round() and site.said, 60, what="it to be said")
    for _ in range(3):
        site.round()

    assert site.said == ["left: 0 of 0 restarts are used up (n1: GpuLost: GPU 3 has fallen off the bus)"]
    assert (cluster.job(number)["JobState"], site.calls) == ("FAILED", [])


@pytest.mark.parametrize("lost", ["requeuehold", "update", "release"])
def test_an_answer_that_is_lost_is_looked_up_and_nothing_is_done_twice(cluster, site, lost):
    number = site.start(script=site.fails_once)
    site.round()
    site.report(cluster.job(number)["NodeList"])
    site.lost.append(lost)
    site.go.touch()
    until(lambda: site.round() and not site.lost, 60, what="the answer to be lost")
    site.skew = 61.0  # by now the call would have shown its effect
    job = site.until(number, JobState="RUNNING", Restarts="1")
    site.round()

    assert job["Restarts"] == "1"
    assert [one.outcome for one in site.restarts()] == ["restarted"]
    assert site.calls.count(f"requeuehold {number}") == 1


def test_the_exclusions_and_comments_of_others_stay(cluster, site):
    number = site.start("--exclude=n3", script=site.fails_once)
    cluster.scontrol("update", f"JobId={number}", "AdminComment=ticket 17")
    site.round()
    node = cluster.job(number)["NodeList"]
    site.report(node)
    site.go.touch()
    job = site.until(number, JobState="RUNNING", Restarts="1")

    assert job["ExcNodeList"] in (f"{node},n3", f"n[{node[1:]},3]", "n[2-3]")
    assert job["AdminComment"].startswith("ticket 17 | nhc: restart 1; avoids")


def test_what_its_user_forbids_is_not_done(cluster, site):
    number = cluster.submit(site.fails, "--no-requeue", WISH)
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", what="the job to run")
    site.round()
    site.report(cluster.job(number)["NodeList"])
    site.go.touch()
    until(lambda: cluster.job(number)["JobState"] == "FAILED", what="the job to fail")

    site.number = number
    assert site.waiting() == ["it was submitted with --no-requeue"]
    assert site.calls == []


def test_jobs_that_did_not_ask_are_not_watched_but_for_the_partitions_named(cluster):
    number = cluster.submit("sleep 600", "--requeue")
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", what="the job to run")
    assert [one for one in SlurmJobs({}, cluster.env).jobs() if one.job.name == number] == []
    found = SlurmJobs({"partitions": "other,work"}, cluster.env).jobs()
    (job,) = (one for one in found if one.job.name == number)
    assert (job.job, job.phase, job.wish.max_restarts) == (JobName("batch", "", number), Phase.RUNNING, None)


def test_a_node_that_nhc_drained_is_a_fault_and_one_that_an_operator_drained_is_none(cluster):
    controller = SlurmJobs({}, cluster.env)
    Slurm({}, cluster.env).mark({"n1": Mark("check_gpu: gone", Action.REBOOT)})
    cluster.update("n2", State="DRAIN", Reason="firmware")
    assert controller.node_faults(["n1", "n2", "n3"]) == {"n1": "taken out of service: check_gpu: gone"}


@pytest.mark.thorough
def test_a_slurm_that_is_away_is_one_line(tmp_path):
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=9\n")
    controller = SlurmJobs({"conf": str(tmp_path / "slurm.conf")}, {}, 60.0)
    with pytest.raises(AdapterError, match=r"^scontrol show job: "):
        controller.jobs()
    with pytest.raises(AdapterError, match=r"slurm\.partition: there is no such key: did you mean 'partitions'"):
        SlurmJobs({"partition": "a"})


def test_one_task_of_an_array_is_restarted_and_the_others_run_on(cluster, site):
    """The last task of an array has the array's own number, and a command for that number is for all its tasks."""
    array = cluster.submit(f"test $SLURM_ARRAY_TASK_ID != 2 && sleep 600; {site.fails_once}", "--requeue", WISH,
                           "--array=0-2", "-n1")  # fmt: skip
    until(lambda: len(cluster.run("squeue", "-h", "-t", "R", "-j", array).stdout.splitlines()) == 3, what="its tasks")
    site.number = f"{array}_2"
    site.round()
    node = cluster.job(site.number)["NodeList"]
    began = {task: cluster.job(f"{array}_{task}")["StartTime"] for task in (0, 1)}
    site.report(node)
    site.go.touch()
    job = site.until(site.number, JobState="RUNNING", Restarts="1")

    assert job["ExcNodeList"] == node
    for task in (0, 1):
        other = cluster.job(f"{array}_{task}")
        assert (other["Restarts"], other["StartTime"], other["ExcNodeList"]) == ("0", began[task], "(null)")
        assert "AdminComment" not in other
    assert site.calls == [f"requeuehold {array}_2", f"update JobId={array}_2", f"update JobId={array}_2",
                          f"release {array}_2"]  # fmt: skip
    cluster.run("scancel", array)


def test_the_owner_of_one_task_is_told_and_the_other_tasks_are_not(cluster):
    array = cluster.submit("sleep 600", "--array=0-1", "-n1")
    until(lambda: len(cluster.run("squeue", "-h", "-t", "R", "-j", array).stdout.splitlines()) == 2, what="its tasks")
    Slurm({}, cluster.env).tell_job(array, "NHC: node n1 is unhealthy")
    assert cluster.job(f"{array}_1")["AdminComment"] == "NHC: node n1 is unhealthy"
    assert "AdminComment" not in cluster.job(f"{array}_0")


def components(cluster, number):
    (job,) = parse_jobs(cluster.scontrol("show", "job", number).stdout)
    return job.parts


HET = f"""#SBATCH --requeue -N1 -n1 -w n1 "{WISH}"
#SBATCH hetjob
#SBATCH -N1 -n1 --exclude=n1
"""


def test_a_heterogeneous_job_is_one_job_and_each_component_keeps_its_own_exclusions(cluster, site):
    number = cluster.submit(f'{HET}test "$SLURM_RESTART_COUNT" && sleep 600; {site.fails}')
    site.number = number
    until(lambda: len(cluster.run("squeue", "-h", "-t", "R", "-j", number).stdout.splitlines()) == 2, 90,
          what="both components to run")  # fmt: skip
    site.round()
    other = components(cluster, number)[1]["NodeList"]
    (seen,) = (one for one in site.controller.jobs() if one.job.name == number)
    assert (seen.nodes, seen.wants) == (("n1", other), 2)

    site.report(other)
    site.go.touch()
    site.until(number, Restarts="1")
    until(lambda: site.round() and len(cluster.run("squeue", "-h", "-t", "R", "-j", number).stdout.splitlines()) == 2,
          60, every=0.3, what="both components to run again")  # fmt: skip

    assert components(cluster, number)[1]["NodeList"] not in ("n1", other)
    assert [set(part.nodes("ExcNodeList")) for part in components(cluster, number)] == [{other}, {"n1", other}]
    assert [one.outcome for one in site.restarts()] == ["restarted"]
    cluster.run("scancel", number)


SHOWN = """\
JobId=7 JobName=x
JobId=8 JobName=evil
   JobState=FAILED Reason=None
   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A
   Priority=0 Nice=0 Account=(null) QOS=(null)
   JobState=PENDING Reason=JobHeldUser Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0
   StartTime=Unknown EndTime=Unknown Deadline=N/A
   ReqNodeList=(null) ExcNodeList=n[1-3]
   NodeList=
   NumNodes=4-4 NumCPUs=4
   Comment=x,nhc-restart,nhc-checkpoint=/a
"""


def test_a_number_that_a_users_text_names_is_asked_for_by_itself():
    asked = []

    def run(argv, timeout, env):
        asked.append(argv[-1])
        return Completed(0, SHOWN + SHOWN, "") if argv[-1] == "-a" else Completed(0, SHOWN.replace("JobId=8", "x"), "")

    assert SlurmJobs({}, {}, 1.0, run).jobs() == []
    assert asked == ["-a", "8", "8"]


def test_the_parts_of_a_note_are_found_again():
    text = new_note("ticket 17 | nhc: restart 1; avoids n[1-2]; old", 2, ["n1", "n4"], "n4: down; | lost")
    assert text == "ticket 17 | nhc: restart 2; avoids n[1,4]; n4: down, / lost"
    job = parse_jobs(f"JobId=1 JobName=a\n   AdminComment={text}\n")[0]
    assert job.noted() == (2, ("n1", "n4"))


@pytest.mark.parametrize(
    ("comment", "wish"),
    [
        ("nhc-restart=3 nhc-checkpoint=/a/b", (3, "/a/b")), ("nhc-restart", (None, "")), ("see nhc-restart=0", (0, "")),
        ("xnhc-restart=3", None), ("nhc-restarts=3", None), ("nhc-restart=-1", None), ("", None),
    ],
)  # fmt: skip
def test_what_a_comment_asks_for(comment, wish):
    job = parse_jobs(f"JobId=1 JobName=a\n   Comment={comment}\n")[0]
    assert (None if job.wish() is None else tuple(job.wish())) == wish


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("NODE_FAIL", LossCause.NODE),
        ("BOOT_FAIL", LossCause.NODE),
        ("OUT_OF_MEMORY", LossCause.LIMIT),
        ("FAILED", LossCause.EXIT),
    ],
)
def test_why_a_job_ended(state, cause):
    controller = SlurmJobs({}, {}, 1.0, lambda argv, timeout, env: Completed(
        0, f"JobId=1 JobName=a\n   JobState={state} Reason=None\n   Comment=nhc-restart\n", ""))  # fmt: skip
    (job,) = controller.jobs()
    assert (job.phase, [loss.cause for loss in job.losses]) == (Phase.FAILED, [cause])


def nhc_in(cluster, *words):
    """nhc as a user of the cluster calls it."""
    env = {**cluster.env, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/adapters"}
    return subprocess.run([sys.executable, "-m", "nhc", *words], env=env, cwd=cluster.directory, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip


def test_a_submitted_job_asks_to_be_restarted_and_knows_its_checkpoint(cluster):
    done = nhc_in(cluster, "job", "submit", "--max-restarts", "2", "--checkpoint", "/ckpt/a", "--", "--comment=mine",
                  "--output=submitted", "--wrap", "echo $NHC_CHECKPOINT; sleep 600")  # fmt: skip
    assert done.returncode == 0, done.stderr
    number = done.stdout.strip().rpartition("/")[2]
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", what="the job to run")
    job = SlurmJobs({}, cluster.env).look(JobName("batch", "", number))
    assert tuple(job.wish) == (2, "/ckpt/a")
    assert cluster.job(number)["Comment"] == "mine nhc-restart=2 nhc-checkpoint=/ckpt/a"
    assert cluster.job(number)["Requeue"] == "1"
    output = cluster.directory / "submitted"
    until(lambda: output.exists() and output.read_text() == "/ckpt/a\n", what="its output")


def test_a_submission_that_slurm_refuses_is_one_line(cluster):
    done = nhc_in(cluster, "job", "submit", "--", "--partition=none", "--wrap", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("nhc job submit: sbatch: ")
    assert len(done.stderr.splitlines()) == 1
    assert nhc_in(cluster, "job", "submit", "--spares", "1", "--", "--wrap", "true").stderr == (
        "nhc job submit: --spares: say among the words how many nodes the job needs: --nodes=4\n"
    )


def test_a_step_is_run_again_on_a_spare_node_within_its_allocation(cluster):
    place = cluster.directory / "steps"
    place.mkdir(exist_ok=True)
    said = f'echo "$NHC_RESTART $SLURM_STEP_NODELIST" >> {place}/ran'
    step = f'{said}; test "$NHC_RESTART" = 1 || sleep 600'
    wrap = (
        f"export PYTHONPATH={REPOSITORY}:{REPOSITORY}/adapters; "
        f"{sys.executable} -m nhc job step --max-restarts 1 -- --ntasks=1 sh -c '{step}'; echo $? > {place}/status"
    )
    done = nhc_in(cluster, "job", "submit", "--spares", "1", "--", "-N", "1", "--output=step", "--wrap", wrap)
    assert done.returncode == 0, done.stderr
    number = done.stdout.strip().rpartition("/")[2]
    until((place / "ran").exists, 60, what="the step to run")
    first = (place / "ran").read_text().split()[1]
    batch = cluster.job(number)["BatchHost"]
    assert cluster.job(number)["NumNodes"] == "2"
    if first == batch:  # the batch script is on the first node: it would die with it
        Slurm({}, cluster.env).mark({first: Mark("check_gpu: gone", Action.REBOOT)})
        cluster.run("scancel", f"{number}.0")
    else:
        cluster.kill(f"slurmd.{first}")
        cluster.update(first, State="DOWN", Reason="died")
    until((place / "status").exists, 90, what="the step to end")

    ran = [line.split() for line in (place / "ran").read_text().splitlines()]
    assert [restart for restart, _node in ran] == ["0", "1"]
    assert ran[1][1] != first
    assert (place / "status").read_text() == "0\n"
    assert "restart 1 of 1 on" in (cluster.directory / "step").read_text()
