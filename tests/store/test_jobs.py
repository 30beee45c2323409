"""Jobs, their restarts and the nodes that failed them, on SQLite and PostgreSQL."""

import pytest

from nhc.store import audit, job_restarts
from nhc.store.errors import Conflict
from nhc.store.job_restarts import JobEnd, WatchedJob
from nhc.store.retention import RetentionPeriods, due, prune


def row(name="17", number=0, namespace="", kind="batch", **changes):
    made = WatchedJob(number, "slurm", kind, namespace, name, "", "ann", "running", "0", "n1 n2", 2, 3, "/ck", "",
                      1.0, 1.0, None)  # fmt: skip
    return made._replace(**changes)


def begun(connection, job, run="0", nodes=("n1",), key="k1", now=10.0):
    return job_restarts.begin(connection, job, key=key, run=run, why="n1: gone", nodes=nodes, exclude=("n1", "n3"),
                      manifest="", now=now, by="nhc job")  # fmt: skip


def test_a_job_is_one_row_however_often_it_is_seen(store):
    with store.write() as connection:
        first = job_restarts.watch(connection, row())
        again = job_restarts.watch(connection, row(phase="failed\nx", began=9.0, seen=9.0))
        job_restarts.watch(connection, again._replace(logged="left"))
        (kept,) = job_restarts.list_jobs(connection)
    assert first.id == again.id
    assert (kept.phase, kept.began, kept.logged, kept.node_names) == ("failed x", 1.0, "left", ("n1", "n2"))


def test_a_run_is_restarted_once_and_restarts_are_counted(store):
    with store.write() as connection:
        job = job_restarts.watch(connection, row())
        assert begun(connection, job).number == 1
        with pytest.raises(Conflict, match="run 0 has a restart already"):
            begun(connection, job, key="k2")
        assert begun(connection, job, run="1", key="k2", now=20.0).number == 2
    with store.read() as connection:
        assert [one.run for one in job_restarts.restarts(connection, job.id)] == ["0", "1"]
        assert job_restarts.begun_since(connection, 15.0) == 1
        assert [(one.node, one.run) for one in job_restarts.pairs(connection, job.id)] == [("n1", "1"), ("n1", "0")]
        assert [one.what for one in audit.entries(connection)] == ["job.hold", "job.hold"]


def test_a_restart_that_another_has_changed_is_not_changed(store):
    with store.write() as connection:
        job = job_restarts.watch(connection, row())
        first = begun(connection, job)
        held = job_restarts.save(connection, first, job, state=job_restarts.HELD, now=11.0, by="nhc job")
        with pytest.raises(Conflict, match="restart 1 has changed"):
            job_restarts.save(
                connection, first, job, state=job_restarts.ENDED, outcome=job_restarts.FAILED, now=12.0, by="nhc job"
            )
        assert job_restarts.open_restarts(connection) == {job.id: held}
        over = job_restarts.save(
            connection, held, job, state=job_restarts.ENDED, outcome=job_restarts.RESTARTED, now=13.0, by="nhc job"
        )
        assert (over.outcome, over.ended, job_restarts.open_restarts(connection)) == ("restarted", 13.0, {})
        assert [one.what for one in audit.entries(connection)] == ["job.hold", "job.held", "job.restarted"]


def test_a_job_is_found_by_as_much_of_its_name_as_is_needed(store):
    with store.write() as connection:
        for namespace in ("team", "other"):
            job_restarts.watch(connection, row("llama", kind="PyTorchJob", namespace=namespace))
        assert len(job_restarts.find(connection, "llama")) == 2
        assert [one.namespace for one in job_restarts.find(connection, "team/llama")] == ["team"]
        assert [one.namespace for one in job_restarts.find(connection, "PyTorchJob/other/llama")] == ["other"]
        assert job_restarts.find(connection, "MPIJob/other/llama") == []


def test_pairs_are_forgotten_and_nodes_that_fail_many_jobs_come_first(store):
    with store.write() as connection:
        one, two = job_restarts.watch(connection, row("1")), job_restarts.watch(connection, row("2"))
        begun(connection, one, nodes=("n1", "n2"))
        begun(connection, two, nodes=("n2",), key="k2")
        assert job_restarts.offenders(connection, 0.0) == [("n2", 2), ("n1", 1)]
        assert job_restarts.offenders(connection, 11.0) == []
        assert job_restarts.forget_pairs(connection, one, ["n2", "n9"], 20.0, "ann") == 1
        assert [pair.node for pair in job_restarts.pairs(connection, one.id)] == ["n1"]
        assert job_restarts.forget_pairs(connection, one, [], 20.0, "ann") == 1
        assert job_restarts.pairs(connection, one.id) == []


def test_an_ended_job_is_not_listed_among_those_watched(store):
    with store.write() as connection:
        job = job_restarts.watch(connection, row())
        job_restarts.end_job(connection, job, 30.0, "nhc job", "it has succeeded")
        assert job_restarts.list_jobs(connection) == []
        assert [one.ended for one in job_restarts.list_jobs(connection, is_open=False)] == [30.0]


@pytest.mark.thorough
def test_a_job_that_ended_long_ago_goes_with_its_restarts_and_nodes(store, tmp_path):
    day = 86400.0
    with store.write() as connection:
        old, new = job_restarts.watch(connection, row("1")), job_restarts.watch(connection, row("2"))
        for number, one in enumerate((old, new)):
            begun(connection, one, key=f"k{number}")
        job_restarts.end_job(connection, old, 1.0, "nhc job", "it is gone")
    keep = RetentionPeriods(jobs=5 * day)
    assert due(store, keep, 6 * day + 2)["jobs"] == 1
    assert prune(store, keep, 6 * day + 2, segments=str(tmp_path / "segments"), by="test").rows["jobs"] == 1
    with store.read() as connection:
        assert [one.name for one in job_restarts.list_jobs(connection, is_open=None)] == ["2"]
        assert (job_restarts.restarts(connection, old.id), job_restarts.pairs(connection, old.id)) == ([], [])
        assert len(job_restarts.restarts(connection, new.id)) == 1


def end(job, run="0", cause="node", **changes):
    made = JobEnd(job.id, run, cause, "established", "the node (established): its node failed\n, n1", "n1", "may", "",
                  8, 0.0, 3600.0)  # fmt: skip
    return made._replace(**changes)


def test_why_a_run_failed_is_kept_once_with_an_audit_row(store):
    with store.write() as connection:
        job = job_restarts.watch(connection, row())
        job_restarts.keep_end(connection, end(job), 5.0, "nhc job", job.text())
        job_restarts.keep_end(connection, end(job, cause="program"), 6.0, "nhc job", job.text())
        [kept] = job_restarts.ends(connection, job.id)
        newest = job_restarts.ends_of_newest_runs(connection)
    assert (kept.cause, kept.why) == ("node", "the node (established): its node failed , n1")
    assert newest == {job.id: kept}
    with store.read() as connection:
        assert job_restarts.end_of_run(connection, job.id, "1") is None
        assert [entry.what for entry in audit.entries(connection)].count("job.why") == 1


def test_lost_gpu_hours_are_counted_by_cause(store):
    with store.write() as connection:
        job = job_restarts.watch(connection, row())
        for run, changes in {"0": {}, "1": {"gpus": 4, "began": 1800.0}, "2": {"cause": "program", "began": None},
                             "3": {"ended": 9.0}}.items():  # fmt: skip
            job_restarts.keep_end(connection, end(job, run, **changes), 5.0, "nhc job", job.text())
        found = {one.cause: one for one in job_restarts.lost_since(connection, 100.0)}
    assert (found["node"].runs, found["node"].gpu_hours) == (2, 10.0)
    assert (found["program"].runs, found["program"].gpu_hours) == (1, 0.0)
