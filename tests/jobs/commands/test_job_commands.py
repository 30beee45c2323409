"""The commands of `nhc job`: what they show, and how they fail."""

import json
import shlex
import time

import pytest
import yaml

from nhc.store import job_restarts
from nhc.store.job_restarts import WatchedJob
from tests.support.new_store import new_store
from tests.support.run import nhc

pytestmark = pytest.mark.thorough


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "jobs.toml"
    path.write_text(f'store = "sqlite:///{tmp_path}/store.db"\n[controllers.slurm]\ntimeout = "1s"\n')
    store = new_store(str(tmp_path), anchor="")
    now = time.time()
    with store.write() as connection:
        for namespace in ("team", "other"):
            row = WatchedJob(0, "kubernetes", "PyTorchJob", namespace, "llama", "u", "", "running", "0.0", "n1 n2", 2,
                             3, "/ckpt", "", now, now, None)  # fmt: skip
            job = job_restarts.watch(connection, row)
            job_restarts.begin(connection, job, key=namespace, run="0.0", why="n1: GpuLost", nodes=["n1"],
                               exclude=["n1"], manifest="", now=now, by="nhc job")  # fmt: skip
    store.close()
    return path


def test_status_lists_jobs_and_nodes_that_fail_many(settings):
    done = nhc("status", "job", "-s", settings)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "PyTorchJob/other/llama  running  1 of 3 restarts; restart 1 holding  n1 n2",
        "PyTorchJob/team/llama  running  1 of 3 restarts; restart 1 holding  n1 n2",
        "n1 failed 2 jobs within 7 days",
    ]


def test_status_shows_one_job_with_its_restarts_and_nodes(settings):
    done = nhc("status", "job", "team/llama", "-f", "json", "-s", settings)
    value = json.loads(done.stdout)
    assert (value["job"], value["checkpoint"], value["restarts"][0]["avoids"]) == (
        "PyTorchJob/team/llama", "/ckpt", ["n1"],
    )  # fmt: skip
    assert value["failed_on"][0]["node"] == "n1"
    text = nhc("status", "job", "team/llama", "-s", settings).stdout
    assert "  restart 1  " in text
    assert "  failed on n1  " in text


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("status", "job", "llama"), 2, "llama is one of PyTorchJob/other/llama, PyTorchJob/team/llama: say which"),
        (("job", "forget", "none"), 1, "no job is called none: `nhc status job` lists them"),
    ],
)
def test_a_name_that_names_no_job_or_several_is_one_line(settings, words, status, said):
    done = nhc(*words, "-s", settings)
    assert (done.returncode, done.stderr) == (status, f"nhc {words[0]} {words[1]}: {said}\n")


def test_forget_lets_a_job_use_its_nodes_again(settings):
    done = nhc("job", "forget", "team/llama", "n1", "-s", settings, "--by", "ann")
    assert (done.returncode, done.stdout) == (0, "PyTorchJob/team/llama: 1 nodes forgotten\n")
    assert "failed on" not in nhc("status", "job", "team/llama", "-s", settings).stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[controllers.slurm]\n[limits]\nmax-restarts = "x"\n', ":3: limits.max-restarts: 'x' is not a whole number"),
        ("store = 'x'\n", ": controllers: missing: who runs the jobs? [controllers.slurm], for example"),
        ("[controllers.slurm]\n[actions]\nrestart = 'yes'\n",
         ":3: actions.restart: 'yes' is not one of on, dry-run, off"),
        ("[controllers.slurm]\nevry = 1\n[actions]\nrestrt = 'on'\n",
         ":4: actions.restrt: there is no such key: did you mean 'restart'?"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_settings_names_its_place(tmp_path, content, said):
    path = tmp_path / "jobs.toml"
    path.write_text(content)
    done = nhc("serve", "job", "--once", "-s", path)
    assert (done.returncode, done.stderr) == (2, f"nhc serve job: {path}{said}\n")


def test_a_controller_that_is_none_or_its_setting_is_one_line(tmp_path):
    path = tmp_path / "jobs.toml"
    for line, said in (("[controllers.pbs]", "there is no job controller called 'pbs'"),
                       ("[controllers.slurm]\npartition = 'a'", "partition: there is no such key")):  # fmt: skip
        path.write_text(f'store = "{tmp_path}/s.db"\n{line}\n')
        done = nhc("serve", "job", "--once", "-s", path)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_submit_and_step_say_what_they_need(tmp_path):
    assert nhc("job", "submit").stderr == (
        "nhc job submit: say what to submit: words for sbatch, or --file FILE for Kubernetes\n"
    )
    assert nhc("job", "step", "--", "true").stderr.startswith("nhc job step: there is no SLURM_JOB_NODELIST")
    gone = nhc("job", "submit", "--file", tmp_path / "no.yaml")
    assert (gone.returncode, gone.stderr) == (2, f"nhc job submit: {tmp_path}/no.yaml: No such file or directory\n")


def test_a_dry_run_shows_what_slurm_would_get_and_runs_no_sbatch(tmp_path):
    words = ["--max-retry", "2", "--checkpoint", "/ckpt/a", "--spares", "1", "--", "--nodes=4", "my job.sh"]
    done = nhc("job", "submit", "--dry-run", *words, env={"PATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert shlex.split(done.stdout) == [
        "env", "NHC_CHECKPOINT=/ckpt/a", "NHC_SPARES=1", "sbatch", "--parsable", "--requeue",
        "--comment=nhc-restart=2 nhc-checkpoint=/ckpt/a", "--no-kill", "--nodes=5", "my job.sh",
    ]  # fmt: skip


def test_a_dry_run_shows_the_manifests_that_kubernetes_would_get_and_asks_no_server(tmp_path):
    config, manifest = tmp_path / "kubeconfig", tmp_path / "job.yaml"
    config.write_text(json.dumps({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}],
    }))  # fmt: skip
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}}}  # fmt: skip
    manifest.write_text(json.dumps(job))
    done = nhc("job", "submit", "--dry-run", "--file", manifest, "--max-retry", "2", "--checkpoint", "/ckpt",
               "--kubeconfig", config)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    shown = yaml.safe_load(done.stdout)
    assert shown["metadata"]["namespace"] == "team"
    assert "2" in shown["metadata"]["annotations"].values()
    assert shown["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert shown["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "NHC_CHECKPOINT", "value": "/ckpt"}]
    # Nothing of a file is sent where one document of it is no job: here the second.
    manifest.write_text(f"{json.dumps(job)}\n---\nkind: Jb\napiVersion: batch/v1\n")
    done = nhc("job", "submit", "--file", manifest, "--no-auto-resume", "--kubeconfig", config)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "Jb is no kind of job" in done.stderr
