"""What nccl.conf sets for every job."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge_all

CONF = "/etc/nccl.conf"


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        ("NCCL_IB_GID_INDEX=3\n", "check_nccl_conf", []),
        ("# NCCL_ALGO=Ring\nNCCL_DEBUG=WARN # NCCL_PROTO=LL\n", "check_nccl_conf", []),
        ("NCCL_ALGO=Ring\n NCCL_PROTO = Simple\nNCCL_MIN_NCHANNELS=32\n", "check_nccl_conf",
         [("NcclOverride", "NCCL_ALGO"), ("NcclOverride", "NCCL_MIN_NCHANNELS"), ("NcclOverride", "NCCL_PROTO")]),
        ("NCCL_ALGO=Ring\nNCCL_NTHREADS=64\n", "check_nccl_conf NCCL_NTHREADS", [("NcclOverride", "NCCL_NTHREADS")]),
        ("NCCL_TOPO_FILE=/opt/there.xml\n", "check_nccl_conf", []),
        ("NCCL_TOPO_FILE=/opt/gone.xml\n", "check_nccl_conf", [("NcclTopologyMissing", "/opt/gone.xml")]),
    ],
)  # fmt: skip
def test_what_it_takes_from_nccl(content, line, expected):
    found = judge_all(FakeHost({CONF: content, "/opt/there.xml": "<system/>"}), line)
    assert [(o.reason, o.target) for o in found if o.verdict is Verdict.WARN] == expected
    assert len(found) == max(1, len(expected))


def test_without_the_file_nothing_is_set():
    assert [o.verdict for o in judge_all(FakeHost(), "check_nccl_conf")] == [Verdict.OK]
    assert [o.verdict for o in judge_all(FakeHost({f"{CONF}/x": ""}), "check_nccl_conf")] == [Verdict.UNKNOWN]
