"""What the node's screen says of the work on it, and the screen of a job."""

import pytest

from nhc.store import deep, episodes, job_restarts, spares, trains
from nhc.store.deep import DeepResult
from nhc.store.job_restarts import WatchedJob

pytestmark = pytest.mark.thorough


@pytest.fixture
def busy(site):
    """llama failed on b1 and was restarted once; it runs on b3 and b22 now. A train and a spare concern b1."""
    with site.store.write() as connection:
        seen = WatchedJob(0, "kube", "PyTorchJob", "team", "llama", "u1", "ann", "Running", "r2", "b3 b22", 2, 3, "",
                          "", site.now - 900, site.now, None)  # fmt: skip
        job = job_restarts.watch(connection, seen)
        restart = job_restarts.begin(connection, job, key="k1", run="r1", why="GpuFallenOffBus", nodes=["b1"],
                             exclude=["b1"], manifest="", now=site.now - 600, by="nhc serve job")  # fmt: skip
        job_restarts.save(
            connection,
            restart,
            job,
            state=job_restarts.ENDED,
            outcome=job_restarts.RESTARTED,
            now=site.now - 500,
            by="nhc",
        )
        why = "the node (established): b1: GpuLost"
        end = job_restarts.JobEnd(
            job.id, "r1", "node", "established", why, "b1", "may", "", 16, site.now - 9000, site.now - 1000
        )
        job_restarts.keep_end(connection, end, site.now - 1000, "nhc", job.text())
        trains.create(connection, "driver-570", [["b1"], ["b2"]], plan="", digest="", state="running",
                      node_state="planned", by="ann", why="a new driver", now=site.now)  # fmt: skip
        stands_in = spares.opening("b4", "h100", "b1", episode=0, why="b1 is in repair")
        episodes.open_episodes(connection, [stands_in], now=site.now - 60, by="test")
        deep.add(connection, [DeepResult("b1", "quick", "gemm", "gpu0", None, "", "CRIT", "", site.now - 7200)])
        deep.add(connection, [
            DeepResult("b1", "quick", "check_gpu_proof:proof_bf16", "gpu0", rate, "TFLOPS", "OK", "", at, serial="1650")
            for rate, at in ((710.0, site.now - 9000), (690.0, site.now - 8000))
        ])  # fmt: skip
    site.job = job
    return site


def work(console, node):
    return console.ask("GET", f"/api/node/{node}")[1]["work"]


def test_a_node_is_shown_with_the_jobs_that_failed_on_it_and_their_restarts(console, busy):
    (failed,) = work(console, "b1")["failed"]
    assert (failed["job"], failed["run"], failed["why"]) == ("PyTorchJob/team/llama", "r1", "GpuFallenOffBus")
    assert (failed["restart"], failed["outcome"], failed["id"]) == (1, "restarted", busy.job.id)
    assert work(console, "b2")["failed"] == []


def test_a_job_runs_on_the_nodes_it_names_and_on_no_other(console, busy):
    assert [one["job"] for one in work(console, "b3")["running"]] == ["PyTorchJob/team/llama"]
    assert work(console, "b1")["running"] == []
    assert work(console, "b2")["running"] == []


def test_trains_spares_and_deep_verdicts_say_who_and_why(console, busy):
    seen = work(console, "b1")
    assert [(one["train"], one["by"], one["why"], one["wave"]) for one in seen["trains"]] == [
        ("driver-570", "ann", "a new driver", 1)
    ]
    assert [(one["node"], one["state"], one["stands_for"], one["why"]) for one in seen["spares"]] == [
        ("b4", "entering", "b1", "b1 is in repair")
    ]
    assert work(console, "b4")["spares"] == seen["spares"]
    assert seen["deep"][0]["verdict"] == "CRIT"
    assert seen["deep"][0]["age"] >= 7200
    [rate] = seen["rates"]
    assert (rate["serial"], rate["test"], rate["runs"], rate["lowest"], rate["last"]) == (
        "1650", "check_gpu_proof:proof_bf16", 2, 690.0, 690.0,
    )  # fmt: skip
    assert [value for _at, value in rate["values"]] == [710.0, 690.0]


def test_a_job_has_a_screen_of_its_own(console, busy):
    seen = console.ask("GET", f"/api/job/{busy.job.id}")[1]
    assert (seen["job"], seen["nodes"]) == ("PyTorchJob/team/llama", ["b3", "b22"])
    assert [(one["number"], one["outcome"], one["nodes"]) for one in seen["restarts"]] == [(1, "restarted", ["b1"])]
    assert [(one["node"], one["run"]) for one in seen["pairs"]] == [("b1", "r1")]
    assert [(one["cause"], one["why"]) for one in seen["ends"]] == [("node", "the node (established): b1: GpuLost")]
    assert console.ask("GET", "/api/job/99")[0] == 404
