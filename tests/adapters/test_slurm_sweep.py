# ruff: noqa: E501 (lines as tools print them)
"""A whole sweep on a real Slurm of five nodes: the culprit named, the sweep killed and gone on, real work first."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nhc.store import deep
from nhc.store.connect import open_store
from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODES = ["n1", "n2", "n3", "n4", "n5"]
EXTRA = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=hc Nodes=n[1-5] State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=0
PartitionName=real Nodes=n[1-5] State=UP PriorityTier=10
"""
WITHIN = 45.0
"""Seconds in which a real job has to start although the sweep is on its node; 1 s on an idle machine."""

# Prints as nccl-tests does under srun, one rank a node; slow wherever n3 takes part, or, where `rail` names one, where
# that rail of n3 does. While `hold` is there it runs on.
TOOL = r"""#!/bin/sh
while [ -e %(place)s/hold ]; do sleep 0.1; done
[ "$SLURM_PROCID" = 0 ] || exit 0
hca=${NCCL_IB_HCA#=}
rail=$(cat %(place)s/rail 2>/dev/null)
speed=380.00
[ -n "$hca" ] && speed=190.00
rank=0
echo "# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20"
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    echo "#  Rank  $rank Group  0 Pid  1484$rank on  $node    device  0 [0000:1b:00] NVIDIA H100 80GB HBM3"
    [ $node = n3 ] && [ -z "$hca" -o -z "$rail" -o "$hca" = "$rail" ] && speed=20.00
    rank=$((rank + 1))
done
time=$((8589934592 / 1000 / ${speed%%.*}))
echo "x:1:2 [0] NCCL INFO NET/IB : Using [0]${hca:-mlx5_0}:1/IB [RO]; OOB eth0:10.0.0.1<0>"
echo "x:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"
echo "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
echo "  8589934592    2147483648     float     sum      -1    $time  $speed  $speed      0    $time  $speed  $speed      0"
echo "# Out of bounds values : 0 OK"
echo "# Avg bus bandwidth    : $speed"
"""


@pytest.fixture(scope="module")
def slurm():
    need("slurm", not missing(), ", ".join(missing()))
    directory = Path(tempfile.mkdtemp(prefix="nhc-sweep-"))
    directory.chmod(0o755)
    hook = directory / "deep-due"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    cluster = Cluster(directory, NODES, f"{EXTRA}PrologSlurmctld={hook}\n")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


class Site:
    """A cluster, a store, the fake tool, and `nhc deep` as a process."""

    def __init__(self, cluster, place):
        self.cluster, self.place = cluster, place
        self.url = f"sqlite:///{place}/store.db"
        (place / "tool").write_text(TOOL % {"place": place})
        (place / "tool").chmod(0o755)
        self.children = []

    def argv(self, *words):
        return [sys.executable, "-m", "nhc", *words, "--store", self.url]

    @property
    def env(self):
        return {**self.cluster.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}

    def sweep(self, *words):
        """Start a sweep of all five nodes, or go on with one."""
        new = () if "--go-on" in words else (
            "-w", "n[1-5]", "--tasks", "1", "--floor", "300", "--set", f"directory={self.place}/shared",
            "--set", "partition=hc",
        )  # fmt: skip
        tool = () if "--go-on" in words else ("--", f"{self.place}/tool")
        child = subprocess.Popen(
            [*self.argv("deep", "sweep", "--every", "0.3s", *new, *words), *tool], env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.place,
        )  # fmt: skip
        self.children.append(child)
        return child

    def ended(self, child):
        out, err = child.communicate(timeout=240)
        assert "Traceback" not in err, err
        return child.returncode, out, err

    def tests(self):
        if not (self.place / "store.db").exists():
            return []
        store = open_store(self.url, create=False)
        with store.read() as connection:
            rows = [row for one in deep.newest_sweeps(connection) for row in deep.tests_of(connection, one.id)]
        store.close()
        return rows

    def running(self):
        """The nodes of each test that runs."""
        return self.cluster.run("squeue", "-h", "-p", "hc", "-t", "R", "-o", "%N").stdout.split()


@pytest.fixture
def site(slurm, tmp_path):
    slurm.reset()
    made = Site(slurm, tmp_path)
    os.chmod(tmp_path, 0o755)
    yield made
    (tmp_path / "hold").unlink(missing_ok=True)
    for child in made.children:
        if child.poll() is None:
            child.kill()
            child.wait(60)
        for stream in (child.stdout, child.stderr):
            stream.close()


def test_the_slow_node_is_named_and_its_partners_are_not(site):
    status, out, err = site.ended(site.sweep("-f", "json"))

    assert status == 1, err
    found = json.loads(out)
    assert [(blame["culprit"], blame["names"]) for blame in found["blames"]] == [("node", ["n3"])]
    assert found["nodes"] == {"n1": "passed", "n2": "passed", "n3": "failed", "n4": "passed", "n5": "passed"}
    bad = [test for test in found["tests"] if test["state"] == "bad"]
    assert len(bad) >= 2
    assert all("n3" in test["nodes"].split() and test["value"] == 20.0 for test in bad)
    for turn in {test["turn"] for test in found["tests"]}:
        members = [node for test in found["tests"] if test["turn"] == turn for node in test["nodes"].split()]
        assert len(members) == len(set(members))
    until(lambda: site.cluster.jobs() == [], what="the tests to be gone")

    done = subprocess.run(site.argv("deep", "history", "n3"), env=site.env, capture_output=True, text=True, check=True,
                          timeout=60)  # fmt: skip
    assert "CRIT" in done.stdout
    assert "proven partners" in done.stdout


def test_a_sweep_that_is_killed_goes_on_without_testing_twice(site):
    (site.place / "hold").touch()
    child = site.sweep()
    until(lambda: len(site.running()) == 2, 60, what="two tests to run")
    child.kill()
    child.wait(60)
    (site.place / "hold").unlink()
    until(lambda: site.cluster.jobs() == [], 60, what="the tests to end without us")

    status, out, err = site.ended(site.sweep("--go-on", "1"))

    assert status == 1, err
    assert "n3: bad with 2 proven partners" in out
    first = [row for row in site.tests() if row.turn == 1]
    assert sorted(row.nodes for row in first) == ["n1 n2", "n3 n4"]
    assert len(list((site.place / "shared").glob("*/*/marker"))) == len(site.tests())


def test_real_work_takes_the_node_within_seconds_and_the_test_says_nothing(site):
    (site.place / "hold").touch()
    child = site.sweep()
    until(lambda: len(site.running()) == 2, 60, what="two tests to run")
    begun = time.monotonic()
    job = site.cluster.submit("sleep 3", "-p", "real", "-w", "n1", "--exclusive")
    until(lambda: site.cluster.job(job)["JobState"] in ("RUNNING", "COMPLETED"), 60, 0.02, what="the real job to run")
    took = time.monotonic() - begun
    until(lambda: any(row.nodes == "n1 n2" and row.state == "unknown" for row in site.tests()), 60, what="the test to be unknown")  # fmt: skip
    (site.place / "hold").unlink()

    status, out, err = site.ended(child)

    assert took < WITHIN
    assert status == 1, err
    assert "n3: bad with " in out  # it was tested again once its nodes were idle
    lost = next(row for row in site.tests() if row.nodes == "n1 n2" and row.state == "unknown")
    # The script of the test may still write its marker between SIGTERM and SIGKILL.
    assert lost.why in ("preempted or cancelled: it left no completion marker", "the tool was ended (status 143)")


def test_the_rail_of_the_slow_node_is_named_by_runs_held_to_each(site):
    (site.place / "rail").write_text("mlx5_1")
    status, out, err = site.ended(site.sweep("--rails", "mlx5_[0-1]", "-f", "json"))
    assert status == 1, err
    found = json.loads(out)
    assert [blame["message"].partition("; ")[2] for blame in found["blames"]] == ["bad on rail mlx5_1 alone"], err
    rails = {test["rails"]: test["value"] for test in found["tests"] if test["layer"] == "rails"}
    assert rails == {"mlx5_0": 190.0, "mlx5_1": 20.0}


def test_a_sweep_is_stopped_by_a_command_whoever_runs_it(site):
    (site.place / "hold").touch()
    child = site.sweep()
    until(lambda: len(site.running()) == 2, 60, what="two tests to run")
    stop = [*site.argv("abort", "sweep", "1"), "--by", "ada"]
    done = subprocess.run(stop, env=site.env, capture_output=True, text=True, check=False, timeout=90)
    assert (done.returncode, done.stdout) == (0, "sweep 1 is stopped\n"), done.stderr
    status, _out, err = site.ended(child)
    assert status == 3
    assert "stopped: stopped by ada" in err
    until(lambda: site.cluster.jobs() == [], 60, what="the tests to be gone")
    again = subprocess.run(stop, env=site.env, capture_output=True, text=True, check=False, timeout=90)
    assert (again.returncode, again.stderr) == (2, "nhc abort sweep: sweep 1 is stopped\n")


def test_a_sweep_that_nobody_runs_any_more_is_stopped_too(site):
    (site.place / "hold").touch()
    child = site.sweep()
    until(lambda: len(site.running()) == 2, 60, what="two tests to run")
    child.kill()
    child.wait(60)
    done = subprocess.run(
        site.argv("abort", "sweep", "1"), env=site.env, capture_output=True, text=True, check=False, timeout=90
    )
    assert (done.returncode, done.stdout) == (0, "sweep 1 is stopped\n"), done.stderr
    until(lambda: site.cluster.jobs() == [], 60, what="the tests to be gone")


def test_one_shot_from_cron_tests_who_is_due_and_a_job_of_many_nodes_may_ask(site):
    status, out, err = site.ended(site.sweep("--window", "10m"))
    assert status == 1, err
    assert "n3: bad with 2 proven partners" in out
    due = subprocess.run([*site.argv("deep", "due"), "--more-than", "2"], capture_output=True, text=True, check=False, timeout=60,
                         env={**site.env, "SLURM_JOB_NODELIST": "n[1-3]"})  # fmt: skip
    assert due.returncode == 1
    assert due.stdout.startswith("n3 failed sweep ")
    status, out, err = site.ended(site.sweep("--window", "10m"))
    assert (status, out, err) == (0, "", "")  # nobody is due


def test_ctrl_c_leaves_the_sweep_open_and_says_how_to_go_on(site):
    (site.place / "hold").touch()
    child = site.sweep()
    until(lambda: len(site.running()) == 2, 60, what="two tests to run")
    child.send_signal(signal.SIGINT)
    status, _out, err = site.ended(child)
    assert status == 3
    assert "go on with: nhc deep sweep --go-on 1" in err


def a_failed_job(site, nodes):
    """A job that ran on these nodes and failed: its number."""
    job = site.cluster.submit("exit 1", "-p", "real", "-w", nodes, "-N", "4")
    until(lambda: site.cluster.job(job)["JobState"] == "FAILED", 60, what="the job to fail")
    return str(job)


def watched(site, job, *more):
    log = site.place / "train.log"
    log.write_text(
        "[rank0]: step 12 loss 2.5\n[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    words = ["job", "watch", str(log), "--nodes", "n[2-5]", "--per-node", "1", "--job", job, *more]
    return subprocess.run([sys.executable, "-m", "nhc", *words], env=site.env, capture_output=True, text=True,
                          check=False, timeout=60)  # fmt: skip


def test_the_nodes_of_a_failed_job_are_tested_its_suspect_with_a_proven_partner(site):
    job = a_failed_job(site, "n[2-5]")
    said = watched(site, job, "--store", site.url)
    assert f"nhc deep sweep --job {job} --store {site.url}\n" in said.stdout, said.stderr
    words = ["--tasks", "1", "--floor", "300", "--set", f"directory={site.place}/shared", "--set", "partition=hc"]
    seen = subprocess.run([*site.argv("deep", "sweep", "--dry-run", "--job", job)], env=site.env, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip
    assert "next, with proven partners, in this order: n3\n" in seen.stdout, seen.stderr

    child = subprocess.Popen(
        [*site.argv("deep", "sweep", "--every", "0.3s", "--job", job, *words, "-f", "json"), "--", f"{site.place}/tool"],
        env=site.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=site.place,
    )  # fmt: skip
    site.children.append(child)
    status, out, err = site.ended(child)

    assert status == 1, err
    assert f"job {job}: n[2-5] by slurm; first n3\n" in err
    found = json.loads(out)
    assert found["nodes"] == {"n2": "passed", "n3": "failed", "n4": "passed", "n5": "passed"}
    first = [test["nodes"].split() for test in found["tests"] if test["turn"] == 1]
    assert first == [["n2", "n4"]]
    assert next(test["turn"] for test in found["tests"] if "n3" in test["nodes"].split()) == 2


def test_a_job_that_slurm_has_forgotten_is_known_from_the_audit_log(site):
    assert watched(site, "999", "--store", site.url).returncode == 1
    seen = subprocess.run([*site.argv("deep", "sweep", "--dry-run", "--job", "999")], env=site.env, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip
    assert seen.stderr == "job 999: n[2-5] by nhc job watch; first n3\n"
    unknown = subprocess.run([*site.argv("deep", "sweep", "--dry-run", "--job", "998")], env=site.env, capture_output=True,
                             text=True, check=False, timeout=60)  # fmt: skip
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (2, 1)
    assert "--job 998: nobody knows its nodes" in unknown.stderr


# Before a large job.


def verdict(site, days, *nodes):
    store = open_store(site.url)
    with store.write() as connection:
        deep.add(connection, [deep.DeepResult(node, "sweep", "group", "", None, "", "OK", "", time.time() - days * 86400)
                              for node in nodes])  # fmt: skip
    store.close()


@pytest.fixture
def due_hook(site):
    """The wrapper of adapters/slurm as PrologSlurmctld, by the rule of this test's /etc/default/nhc."""
    installed = site.cluster.directory / "deep-due"
    before = installed.read_text()
    program = site.place / "nhc"
    program.write_text(
        f"#!/bin/sh\nexport SLURM_CONF={site.cluster.conf} NHC_STORE={site.url} PYTHONPATH={ROOT}:{ROOT}/adapters\n"
        f'exec {sys.executable} -m nhc "$@"\n'
    )
    program.chmod(0o755)
    (site.place / "default").write_text('NHC_DEEP_DUE="--more-than 2 --younger-than 7d"\n')
    text = (ROOT / "adapters/slurm/deep-due.sh").read_text()
    for line, own in (("program=/usr/bin/nhc", f"program={program}"),
                      ('settings="/etc/default/nhc /etc/sysconfig/nhc"', f"settings={site.place}/default")):  # fmt: skip
        assert f"\n{line}\n" in text
        text = text.replace(line, own)

    def put(script):
        fresh = installed.with_suffix(".new")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(installed)

    put(text)
    yield
    put(before)


def test_a_large_job_waits_until_the_verdicts_of_its_nodes_are_young_enough(site, due_hook):
    verdict(site, 1, "n1", "n3")
    verdict(site, 9, "n2")

    def of(job):
        return site.cluster.job(job)

    small = site.cluster.submit("true", "--nodelist=n[1-2]")
    until(lambda: of(small)["JobState"] == "COMPLETED", 60, what="the small job to end")
    large = site.cluster.submit("true", "--nodelist=n[1-3]")
    waits = until(lambda: of(large)["Restarts"] == "1" and of(large)["JobState"] == "PENDING" and of(large), 60,
                  what="the large job to be requeued")  # fmt: skip
    assert waits["AdminComment"] == "NHC: the job waits for deep checks: n2 passed sweep 9d ago"
    until(lambda: all(site.cluster.state(name) == "idle" for name in NODES), what="the nodes")  # none is touched

    gone = site.cluster.run("srun", "--nodelist=n[1-3]", "true", check=False)
    assert gone.returncode != 0  # Slurm cannot requeue it

    verdict(site, 0, "n2")
    # Slurm keeps a requeued job back for two minutes, the life of its credential.
    # An update sticks only once the requeue is through, and each one has the scheduler begin its wait anew.

    def let_go():
        if of(large)["JobState"] == "PENDING":
            site.cluster.scontrol("update", f"JobId={large}", "StartTime=now", check=False)
        return of(large)["JobState"] == "COMPLETED" and of(large)

    done = until(let_go, 120, 4.0, what="the large job to end")
    assert done["Restarts"] == "1"


@pytest.mark.parametrize(("known_as", "told"), [("n3", "n3 takes new work (idle)"), ("", "it does not know")])
def test_a_run_asks_for_the_node_by_the_name_that_slurm_has_for_it(site, known_as, told):
    """A host's own name is none of this cluster's: a node that nobody knows may have work under another name."""
    suite = site.place / "own.conf"
    suite.write_text("# context deep\n* || check_file_test -e /etc/passwd\n")
    env = {
        **site.env,
        "NHC_NODE_NAME": known_as,
        "NHC_DEEP_DIR": str(site.place / "deep"),
        "NHC_STATE_DIR": str(site.place),
    }
    words = [sys.executable, "-m", "nhc", "deep", "run", str(suite), "--adapter", "slurm", "-q"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert "DeepNodeBusy" in done.stdout
    assert told in done.stdout


def test_a_suite_of_idle_nodes_gives_way_at_once_and_each_node_is_proved_once_a_week(site):
    """Each node alone, the oldest proof first; a real job takes the node from it, and the node stays due."""
    suite = site.place / "weekly.conf"
    suite.write_text(f"* |context deep|| check_cmd_status -t 60 -r 0 {site.place}/load\n")
    load = site.place / "load"
    load.write_text(f"#!/bin/sh\nwhile [ -e {site.place}/hold ]; do sleep 0.1; done\n")
    load.chmod(0o755)
    (site.place / "hold").touch()
    words = ("deep", "sweep", "--every", "0.3s", "-w", "n[1-3]", "--suite", str(suite), "--window", "3m",
             "--set", f"directory={site.place}/shared", "--set", "partition=hc")  # fmt: skip
    tool = (sys.executable, "-m", "nhc", "deep", "run", str(suite), "-n", "{node}", "-f", "jsonl", "-q",
            "--adapter", "none")  # fmt: skip
    env = f"env PYTHONPATH={ROOT}:{ROOT / 'adapters'} NHC_DEEP_DIR={site.place}/deep-$$"
    command = ("sh", "-c", f"exec {env} {' '.join(tool)}")

    def begin():
        made = subprocess.Popen([*site.argv(*words), "--", *command], env=site.env, text=True, cwd=site.place,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        site.children.append(made)
        return made

    def proved():
        store = open_store(site.url, create=False)
        with store.read() as connection:
            found = {node: one.verdict for (node, _suite), one in deep.last_conclusive(connection).items()}
        store.close()
        return found

    child = begin()
    until(lambda: len(site.running()) == 3, 60, what="three suites to run")
    job = site.cluster.submit("sleep 1", "-p", "real", "-w", "n2", "--exclusive")
    until(lambda: site.cluster.job(job)["JobState"] in ("RUNNING", "COMPLETED"), WITHIN, 0.02, what="real work first")
    (site.place / "hold").unlink()
    status, out, err = site.ended(child)
    assert status == 0, (out, err)
    assert proved() == {"n1": "OK", "n3": "OK"}
    until(lambda: site.cluster.jobs() == [], what="the real job to be done")
    status, out, err = site.ended(begin())
    assert proved() == {"n1": "OK", "n2": "OK", "n3": "OK"}, err
    assert sorted(row.nodes for row in site.tests() if row.state == "good") == ["n1", "n2", "n3"], "nobody twice"
