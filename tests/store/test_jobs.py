"""Jobs, their restarts and the nodes that failed them, on SQLite and PostgreSQL."""

import pytest

from nhc.store import audit, jobs
from nhc.store.errors import Conflict
from nhc.store.jobs import JobEnd, WatchedJob
from nhc.store.retention import Keep, due, prune


def row(name="17", number=0, namespace="", kind="batch", **changes):
    made = WatchedJob(number, "slurm", kind, namespace, name, "", "ann", "running", "0", "n1 n2", 2, 3, "/ck", "",
                      1.0, 1.0, None)  # fmt: skip
    return made._replace(**changes)


def begun(connection, job, run="0", nodes=("n1",), key="k1", now=10.0):
    return jobs.begin(connection, job, key=key, run=run, why="n1: gone", nodes=nodes, exclude=("n1", "n3"),
                      manifest="", now=now, by="nhc job")  # fmt: skip


def test_a_job_is_one_row_however_often_it_is_seen(store):
    with store.write() as connection:
        first = jobs.watch(connection, row())
        again = jobs.watch(connection, row(phase="failed\nx", began=9.0, seen=9.0))
        jobs.watch(connection, again._replace(logged="left"))
        (kept,) = jobs.list_jobs(connection)
    assert first.id == again.id
    assert (kept.phase, kept.began, kept.logged, kept.node_names) == ("failed x", 1.0, "left", ("n1", "n2"))


def test_a_run_is_restarted_once_and_restarts_are_counted(store):
    with store.write() as connection:
        job = jobs.watch(connection, row())
        assert begun(connection, job).number == 1
        with pytest.raises(Conflict, match="run 0 has a restart already"):
            begun(connection, job, key="k2")
        assert begun(connection, job, run="1", key="k2", now=20.0).number == 2
    with store.read() as connection:
        assert [one.run for one in jobs.restarts(connection, job.id)] == ["0", "1"]
        assert jobs.begun_since(connection, 15.0) == 1
        assert [(one.node, one.run) for one in jobs.pairs(connection, job.id)] == [("n1", "1"), ("n1", "0")]
        assert [one.what for one in audit.entries(connection)] == ["job.hold", "job.hold"]


def test_a_restart_that_another_has_changed_is_not_changed(store):
    with store.write() as connection:
        job = jobs.watch(connection, row())
        first = begun(connection, job)
        held = jobs.save(connection, first, job, state=jobs.HELD, now=11.0, by="nhc job")
        with pytest.raises(Conflict, match="restart 1 has changed"):
            jobs.save(connection, first, job, state=jobs.ENDED, outcome=jobs.FAILED, now=12.0, by="nhc job")
        assert jobs.open_restarts(connection) == {job.id: held}
        over = jobs.save(connection, held, job, state=jobs.ENDED, outcome=jobs.RESTARTED, now=13.0, by="nhc job")
        assert (over.outcome, over.ended, jobs.open_restarts(connection)) == ("restarted", 13.0, {})
        assert [one.what for one in audit.entries(connection)] == ["job.hold", "job.held", "job.restarted"]


def test_a_job_is_found_by_as_much_of_its_name_as_is_needed(store):
    with store.write() as connection:
        for namespace in ("team", "other"):
            jobs.watch(connection, row("llama", kind="PyTorchJob", namespace=namespace))
        assert len(jobs.find(connection, "llama")) == 2
        assert [one.namespace for one in jobs.find(connection, "team/llama")] == ["team"]
        assert [one.namespace for one in jobs.find(connection, "PyTorchJob/other/llama")] == ["other"]
        assert jobs.find(connection, "MPIJob/other/llama") == []


def test_pairs_are_forgotten_and_nodes_that_fail_many_jobs_come_first(store):
    with store.write() as connection:
        one, two = jobs.watch(connection, row("1")), jobs.watch(connection, row("2"))
        begun(connection, one, nodes=("n1", "n2"))
        begun(connection, two, nodes=("n2",), key="k2")
        assert jobs.offenders(connection, 0.0) == [("n2", 2), ("n1", 1)]
        assert jobs.offenders(connection, 11.0) == []
        assert jobs.forget_pairs(connection, one, ["n2", "n9"], 20.0, "ann") == 1
        assert [pair.node for pair in jobs.pairs(connection, one.id)] == ["n1"]
        assert jobs.forget_pairs(connection, one, [], 20.0, "ann") == 1
        assert jobs.pairs(connection, one.id) == []


def test_an_ended_job_is_not_listed_among_those_watched(store):
    with store.write() as connection:
        job = jobs.watch(connection, row())
        jobs.end_job(connection, job, 30.0, "nhc job", "it has succeeded")
        assert jobs.list_jobs(connection) == []
        assert [one.ended for one in jobs.list_jobs(connection, is_open=False)] == [30.0]


@pytest.mark.thorough
def test_a_job_that_ended_long_ago_goes_with_its_restarts_and_nodes(store, tmp_path):
    day = 86400.0
    with store.write() as connection:
        old, new = jobs.watch(connection, row("1")), jobs.watch(connection, row("2"))
        for number, one in enumerate((old, new)):
            begun(connection, one, key=f"k{number}")
        jobs.end_job(connection, old, 1.0, "nhc job", "it is gone")
    keep = Keep(jobs=5 * day)
    assert due(store, keep, 6 * day + 2)["jobs"] == 1
    assert prune(store, keep, 6 * day + 2, segments=str(tmp_path / "segments"), by="test").rows["jobs"] == 1
    with store.read() as connection:
        assert [one.name for one in jobs.list_jobs(connection, is_open=None)] == ["2"]
        assert (jobs.restarts(connection, old.id), jobs.pairs(connection, old.id)) == ([], [])
        assert len(jobs.restarts(connection, new.id)) == 1


def end(job, run="0", cause="node", **changes):
    made = JobEnd(job.id, run, cause, "established", "the node (established): its node failed\n, n1", "n1", "may", "",
                  8, 0.0, 3600.0)  # fmt: skip
    return made._replace(**changes)


def test_why_a_run_failed_is_kept_once_with_an_audit_row(store):
    with store.write() as connection:
        job = jobs.watch(connection, row())
        jobs.keep_end(connection, end(job), 5.0, "nhc job", job.text())
        jobs.keep_end(connection, end(job, cause="program"), 6.0, "nhc job", job.text())
        [kept] = jobs.ends(connection, job.id)
        newest = jobs.ends_of_newest_runs(connection)
    assert (kept.cause, kept.why) == ("node", "the node (established): its node failed , n1")
    assert newest == {job.id: kept}
    with store.read() as connection:
        assert jobs.end_of_run(connection, job.id, "1") is None
        assert [entry.what for entry in audit.entries(connection)].count("job.why") == 1


def test_lost_gpu_hours_are_counted_by_cause(store):
    with store.write() as connection:
        job = jobs.watch(connection, row())
        for run, changes in {"0": {}, "1": {"gpus": 4, "began": 1800.0}, "2": {"cause": "program", "began": None},
                             "3": {"ended": 9.0}}.items():  # fmt: skip
            jobs.keep_end(connection, end(job, run, **changes), 5.0, "nhc job", job.text())
        found = {one.cause: one for one in jobs.lost_since(connection, 100.0)}
    assert (found["node"].runs, found["node"].gpu_hours) == (2, 10.0)
    assert (found["program"].runs, found["program"].gpu_hours) == (1, 0.0)
