"""`nhc job nodes`: the best nodes for a job, and what is missing where there are too few."""

import json
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.jobs.commands.job_nodes import JobCandidate, choose
from nhc.store import audit, deep
from nhc.store import reports as store_reports
from nhc.store.connect import open_store
from nhc.store.deep import DeepResult
from nhc.store.intake import Incoming
from tests.support.run import nhc


def node(name, domain="a", **more):
    return JobCandidate(name, domain=domain, **more)


def test_the_smallest_domain_that_has_enough_is_taken():
    fleet = [*(node(f"a{at}", "a") for at in range(8)), *(node(f"b{at}", "b") for at in range(4)), node("c1", "c")]
    assert choose(fleet, 3).nodes == ("b0", "b1", "b2")
    assert choose(fleet, 5).domains == ("a",)
    assert choose(fleet, 10).domains == ("a", "b")


def test_idle_nodes_without_a_warning_and_with_a_new_proof_come_first():
    fleet = [node("n1", busy=True), node("n2", warns=True), node("n3", proved=5.0), node("n4", proved=9.0)]
    assert [choose(fleet, count).nodes for count in (1, 2, 3)] == [("n4",), ("n3", "n4"), ("n2", "n3", "n4")]


def test_a_domain_with_enough_idle_nodes_comes_before_a_smaller_busy_one():
    fleet = [node("a1", "a", busy=True), node("a2", "a"), node("b1", "b"), node("b2", "b"), node("b3", "b")]
    assert choose(fleet, 2).nodes == ("b1", "b2")


CANDIDATES = st.lists(
    st.builds(JobCandidate, st.integers(0, 50).map(str), st.sampled_from(["", "critical"]),
              st.none() | st.floats(0, 9), st.sampled_from(["", "a", "b"])), unique_by=lambda one: one.node,
)  # fmt: skip


@given(CANDIDATES, st.integers(1, 20), st.none() | st.floats(0, 9))
def test_only_fit_nodes_are_chosen_and_as_many_as_there_are(fleet, count, since):
    found = choose(fleet, count, since)
    fit = {one.node for one in fleet if not one.against and (since is None or (one.proved or -1.0) >= since)}
    assert set(found.nodes) <= fit
    assert len(found.nodes) == min(count, len(fit))
    assert set(found.unfit) == {one.node for one in fleet} - fit


@pytest.fixture
def fleet(tmp_path):
    """n1 to n6: n2 is critical, n3 is silent, n4 is a suspect, n5 and n6 were proved an hour and a day ago."""
    url = f"sqlite:///{tmp_path}/store.db"
    now = time.time()
    store = open_store(url)
    with store.write() as connection:
        for at in range(1, 7):
            verdict = Verdict.CRIT if at == 2 else Verdict.OK
            result = CheckResult("check_gpu", Outcome(verdict, "GpuLost" if at == 2 else "", "gone"))
            when = now - (4000 if at == 3 else 10)
            report = Report(f"n{at}", "b", when, 1.0, (result,), labels={"leaf": "l1"})
            store_reports.receive(connection, [Incoming(report, "agent", now)])
        deep.add(connection, [DeepResult(f"n{at}", "quick", "gemm", "", 1.0, "", "OK", "", now - age, "b", "{}")
                              for at, age in ((5, 1800), (6, 90000))])  # fmt: skip
        audit.append(connection, now, "anna", "job.suspects", detail={"suspects": [{"node": "n4"}]})
    store.close()
    return url


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--count", "2"], 0, "n[5-6]\n"),
        (["--count", "3"], 0, "n[1,5-6]\n"),
        (["--count", "1", "--proved", "1h"], 0, "n5\n"),
        (["--count", "3", "--format", "exclude"], 0, "n[2-4]\n"),
        (["--count", "1", "--nodes", "n[1-3]"], 0, "n1\n"),
    ],
)
@pytest.mark.thorough
def test_the_fleets_best_nodes(fleet, words, status, said):
    done = nhc("job", "nodes", *words, "--store", fleet)
    assert (done.returncode, done.stdout, done.stderr) == (status, said, "")


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["text", "exclude"])
def test_what_is_for_sbatch_has_brackets_at_the_end_of_names_alone(tmp_path, form):
    url, now = f"sqlite:///{tmp_path}/store.db", time.time()
    verdict = Verdict.OK if form == "text" else Verdict.CRIT
    with closing(open_store(url)) as store, store.write() as connection:
        for name in ("gpu1.example.org", "gpu2.example.org", "r1n01", "r1n02", "r2n01", "r2n02"):
            report = Report(name, "b", now, 1.0, (CheckResult("check_gpu", Outcome(verdict)),))
            store_reports.receive(connection, [Incoming(report, "agent", now)])
    done = nhc("job", "nodes", "--count", "6", "--format", form, "--store", url)
    assert done.stdout == "gpu1.example.org,gpu2.example.org,r1n[01-02],r2n[01-02]\n"


@pytest.mark.thorough
def test_what_is_missing_is_said(fleet):
    done = nhc("job", "nodes", "--count", "4", "--proved", "1h", "--store", fleet)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[0] == "nhc job nodes: 1 of 4 nodes"
    for line in ("1 node: critical (n2)", "1 node: silent (n3)", "2 nodes: no good proof young enough (n[1,6])"):
        assert f"  {line}" in done.stderr.splitlines()


@pytest.mark.thorough
def test_kubernetes_takes_an_affinity(fleet):
    found = json.loads(nhc("job", "nodes", "--count", "2", "--format", "affinity", "--store", fleet).stdout)
    terms = found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == ["n5", "n6"]


@pytest.mark.thorough
def test_a_store_that_is_not_there_is_one_line(tmp_path):
    done = nhc("job", "nodes", "--count", "2", "--store", f"sqlite:///{tmp_path}/none.db")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
