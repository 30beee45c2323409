"""What squeue and slurmrestd say of the jobs on a node: users' texts forge no job, and both say the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nhc.marks.ports.job_control import WorkItem
from nhc_adapters.slurm.job_states import hidden_jobs, parse_json_node_jobs, parse_squeue_jobs, squeue_words
from nhc_adapters.slurm.states import parse_config

BEFORE = "0123456789abcdef"
NAMES = st.text("a|+%\n\r\t \x00\x1b\u2028\u202eß0123456789abcdef-", max_size=300)


def printed(rows, before=BEFORE):
    """As squeue prints them: the text between two fields of the format is printed as it stands there."""
    form = squeue_words("n1", before)[-1].replace("%i|%T|%S|%u|%j", "{}")
    return "".join(form.format("|".join(row)) + "\n" for row in rows)


@settings(max_examples=60)
@given(st.lists(NAMES.filter(lambda name: BEFORE not in name), max_size=4))
def test_a_jobs_name_forges_no_field_and_no_job(names):
    rows = [(str(number), "RUNNING", "1700000000", "ann", name) for number, name in enumerate(names)]
    found = parse_squeue_jobs(printed(rows), BEFORE)
    assert [one[2:] for one in found] == [("ann", "RUNNING", 1.7e9, (f"batch/{place}",)) for place in range(len(names))]
    assert all(one.name.isprintable() and len(one.name) <= 200 for one in found)


def test_squeue_and_slurmrestd_say_the_same_of_a_node():
    rows = [("17", "RUNNING", "1700000000", "ann", "train"), ("20_3", "SUSPENDED", "1700000001", "bob", "a|b"),
            ("30+1", "CONFIGURING", "N/A", "1007", "het")]  # fmt: skip
    no = {"set": False, "infinite": False, "number": 0}
    jobs = [
        {"job_id": 17, "array_job_id": 0, "array_task_id": None, "name": "train", "user_name": "ann",
         "job_state": "RUNNING", "start_time": 1700000000, "nodes": "n[1-2]"},
        {"job_id": 23, "array_job_id": {"set": True, "number": 20}, "array_task_id": {"set": True, "number": 3},
         "name": "a|b", "user_name": "bob", "job_state": ["SUSPENDED"], "nodes": "n1",
         "start_time": {"set": True, "number": 1700000001}},
        {"job_id": 31, "array_job_id": no, "het_job_id": {"set": True, "number": 30}, "name": "het", "user_name": "",
         "het_job_offset": {"set": True, "number": 1}, "user_id": 1007, "job_state": ["CONFIGURING"], "nodes": "n1",
         "start_time": no},
        {"job_id": 40, "name": "elsewhere", "user_name": "ann", "job_state": ["RUNNING"], "nodes": "n2"},
        {"job_id": 41, "name": "waits", "user_name": "ann", "job_state": ["PENDING"], "nodes": ""},
    ]  # fmt: skip
    found = parse_squeue_jobs(printed(rows), BEFORE)
    assert parse_json_node_jobs({"jobs": jobs}, "n1") == found
    assert found[2] == WorkItem("30+1", "het", "1007", "CONFIGURING", None, ("batch/30",)), "watched by its leader"


@pytest.mark.parametrize("text", ["slurm_load_jobs error\n", f"{BEFORE}|17|RUNNING\n"])
def test_another_answer_is_no_job(text):
    with pytest.raises(ValueError, match="did not print the fields"):
        parse_squeue_jobs(text, BEFORE)


@pytest.mark.parametrize(("private", "uid", "hidden"), [
    ("jobs,usage", 1007, True), ("jobs", 0, False), ("jobs", 64030, False), ("none", 1007, False),
])  # fmt: skip
def test_jobs_that_slurm_may_hide_are_known(private, uid, hidden):
    config = f"PrivateData             = {private}\nSlurmUser               = slurm(64030)\n"
    assert ("PrivateData=jobs" in hidden_jobs(parse_config(config), uid)) is hidden
