"""Whether users may read performance counters."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge_all

# The driver's own form (nv_params in the open module's nv-procfs.c): NAME: VALUE.
PARAMS = "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {}\nPreserveVideoMemoryAllocations: 0\n"


def node(paranoid="1", kptr="0", admin=None):
    files = {"/proc/sys/kernel/perf_event_paranoid": f"{paranoid}\n", "/proc/sys/kernel/kptr_restrict": f"{kptr}\n"}
    return FakeHost({**files, **({} if admin is None else {"/proc/driver/nvidia/params": PARAMS.format(admin)})})


@pytest.mark.parametrize(
    ("host", "line", "closed"),
    [
        (node(), "check_profiling", []),
        (node("-1"), "check_profiling", []),
        (node("4"), "check_profiling", ["kernel.perf_event_paranoid"]),
        (node("2"), "check_profiling -p 2", []),
        (node(kptr="1"), "check_profiling", ["kernel.kptr_restrict"]),
        (node(admin=0), "check_profiling", []),
        (node("3", admin=1), "check_profiling", ["kernel.perf_event_paranoid", "RmProfilingAdminOnly"]),
    ],
)
def test_what_is_closed_to_users_is_a_warning(host, line, closed):
    found = judge_all(host, line)
    assert [o.target for o in found if o.verdict is Verdict.WARN] == closed
    assert all(o.reason == "ProfilingRestricted" for o in found if o.verdict is Verdict.WARN)


def test_a_kernel_that_tells_nothing():
    assert [o.verdict for o in judge_all(FakeHost(), "check_profiling")] == [Verdict.SKIP]
