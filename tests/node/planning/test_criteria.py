"""Published criteria, judged by the real engine on made-up nodes."""

import json
from collections import Counter

import pytest

from nhc.core.data.reader import table
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.commands.profile import CRITERIA
from nhc.node.planning.criteria import MET, NOT_HERE, NOT_MET, UNKNOWN, criteria, judge
from tests.node.checks.test_minimum_versions import RUNC, RUNC_UBUNTU
from tests.support.rdma import eight
from tests.support.run import nhc

PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def states(host, *names):
    rows = [one for one in criteria("clustermax") if one.id in names]
    assert len(rows) == len(names)
    return {one.criterion.id: one.state for one in judge(rows, host, "node001")}


@pytest.mark.thorough
def test_each_criterion_is_answered_by_what_its_checks_say_of_it():
    bare = FakeHost({PARANOID: "4\n"}, {"runc --version": RUNC.format("1.2.8"), "scontrol ping": "", "docker": ""})
    assert states(bare, "security-runc", "perf-access", "enroot", "gpu-drivers", "external-idp", "security-docker") == {
        "security-runc": NOT_MET, "perf-access": NOT_MET, "enroot": NOT_MET, "gpu-drivers": NOT_HERE,
        "external-idp": NOT_HERE, "security-docker": NOT_HERE,
    }  # fmt: skip
    better = FakeHost({PARANOID: "1\n", **eight()}, {"runc --version": RUNC.format("1.4.3")})
    assert states(better, "security-runc", "perf-access", "enroot", "fabric-class", "security-connectx-firmware") == {
        "security-runc": MET, "perf-access": MET, "enroot": NOT_HERE, "fabric-class": MET,
        "security-connectx-firmware": NOT_MET,
    }  # fmt: skip
    ubuntu = FakeHost({}, {"runc --version": RUNC_UBUNTU})
    assert states(ubuntu, "security-runc") == {"security-runc": NOT_HERE}
    assert states(FakeHost(eight()), "ib-tenant-isolation") == {"ib-tenant-isolation": UNKNOWN}


def test_every_row_names_checks_or_who_can_judge_it():
    rows = criteria("clustermax")
    assert len(rows) == len({one.id for one in rows}) == 73  # as the audit's own list of August 2026
    assert all(bool(one.checks) != bool(one.elsewhere) for one in rows)
    assert {row[3] for row in table("clustermax.tsv")} == {"", "gpu", "rdma", "slurm"}


@pytest.mark.thorough
def test_the_command(tmp_path):
    assert CRITERIA == ("clustermax",)
    told = nhc("profile", "clustermax", "--format", "json", state=tmp_path)
    found = json.loads(told.stdout)
    assert Counter(row["state"] for row in found["criteria"]) == Counter(
        {state: count for state, count in found["counts"].items() if count}
    )
    assert told.returncode == (1 if found["counts"][NOT_MET] else 3 if found["counts"][UNKNOWN] else 0)
    assert nhc("profile", "clustermin", state=tmp_path).returncode == 2
