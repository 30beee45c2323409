"""Tables of the kernel that fill up."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

NETFILTER = "/proc/sys/net/netfilter"
HEAD = "entries  allocs destroys hash_grows lookups hits res_failed\n"


def tracking(count, most):
    return FakeHost({f"{NETFILTER}/nf_conntrack_count": f"{count}\n", f"{NETFILTER}/nf_conntrack_max": f"{most}\n"})


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [(10, 1000, Verdict.OK), (800, 1000, Verdict.WARN), (1000, 1000, Verdict.CRIT), (5, 0, Verdict.OK),
     ("junk", 1000, Verdict.UNKNOWN)],
)  # fmt: skip
def test_tracked_connections(count, most, expected):
    assert judge(tracking(count, most), "check_limits_conntrack").verdict is expected


def test_connections_that_are_not_tracked():
    assert judge(FakeHost(), "check_limits_conntrack").verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("entries", "expected"), [("0000000a", Verdict.OK), ("00000340", Verdict.WARN), ("00000400", Verdict.CRIT)]
)
def test_neighbours_are_counted_in_hexadecimal(entries, expected):
    host = FakeHost({
        "/proc/net/stat/arp_cache": f"{HEAD}{entries}  00000010 0 0 0 0 0\n{entries}  00000000 0 0 0 0 0\n",
        "/proc/sys/net/ipv4/neigh/default/gc_thresh3": "1024\n",
        "/proc/net/stat/ndisc_cache": f"{HEAD}00000001 0 0 0 0 0 0\n",
        "/proc/sys/net/ipv6/neigh/default/gc_thresh3": "1024\n",
    })  # fmt: skip

    found = judge(host, "check_limits_neighbours")
    assert found.verdict is expected
    assert found.target == ("ipv4")


def test_neighbours_that_are_not_told():
    junk = {"/proc/net/stat/arp_cache": "junk\n", "/proc/sys/net/ipv4/neigh/default/gc_thresh3": "1024\n"}
    assert judge(FakeHost(), "check_limits_neighbours").verdict is Verdict.SKIP
    assert judge(FakeHost(junk), "check_limits_neighbours").reason == "BadData"


def group(name, used, limit):
    return {f"/sys/fs/cgroup/{name}/pids.current": f"{used}\n", f"/sys/fs/cgroup/{name}/pids.max": f"{limit}\n"}


def test_services_at_their_limit():
    host = FakeHost({**group("system.slice", 300, "max"), **group("system.slice/slurmd.service", 96, 100),
                     **group("system.slice/sshd.service", 5, 100), **group("user.slice", 85, 100)})  # fmt: skip

    found = judge_all(host, "check_limits_tasks")
    assert [(o.verdict, o.target) for o in found] == [
        (Verdict.WARN, "user.slice"), (Verdict.CRIT, "system.slice/slurmd.service")
    ]  # fmt: skip
    assert {metric.name for metric in found[0].metrics} == {"tasks_used", "tasks_limit", "tasks_share"}
    host.write("/sys/fs/cgroup/user.slice/pids.current", "3\n")
    assert judge(host, "check_limits_tasks -i 'system.slice/slurm*'").verdict is Verdict.OK


def test_no_group_has_a_limit():
    assert judge(FakeHost(group("system.slice", 300, "max")), "check_limits_tasks").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_limits_tasks").verdict is Verdict.SKIP


HEADER = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
TREE = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({"/proc/cgroups": f"{HEADER}cpu\t0\t60000\t1\nmemory\t0\t900\t1\n"}, Verdict.OK),
        ({"/proc/cgroups": f"{HEADER}memory\t0\t55000\t1\n"}, Verdict.WARN),
        ({"/proc/cgroups": f"{HEADER}memory\t0\t65535\t1\n"}, Verdict.CRIT),
        ({f"{TREE}/cgroup.stat": "nr_descendants 400\nnr_dying_descendants 64000\n"}, Verdict.CRIT),
        ({f"{TREE}/cgroup.stat": "nr_descendants 400\nnr_dying_descendants 3\n"}, Verdict.OK),
        ({}, Verdict.SKIP),
    ],
)
def test_control_groups_of_the_whole_node(files, verdict):
    found = judge(FakeHost(files), "check_limits_cgroups")
    assert (found.verdict, found.reason) == (
        verdict,
        {2: "CgroupsLow", 4: "CgroupsLow", 0: "NoCgroups"}.get(verdict, ""),
    )


def test_a_tree_with_a_limit_of_its_own():
    base = f"{TREE}/kubepods.slice/pods"
    host = FakeHost({f"{TREE}/cgroup.stat": "nr_descendants 99\nnr_dying_descendants 0\n",
                     f"{base}/cgroup.max.descendants": "100\n", f"{base}/cgroup.stat": "nr_descendants 97\n",
                     f"{TREE}/system.slice/cgroup.max.descendants": "max\n"})  # fmt: skip
    found = judge(host, "check_limits_cgroups")
    assert (found.verdict, found.target) == (Verdict.CRIT, "kubepods.slice/pods")
