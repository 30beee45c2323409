"""Lustre's connections as a client shows them."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed, FakeHost, Symlink
from tests.support.judge import judge, judge_all

MOUNTS = {"/proc/mounts": "10.0.0.1@o2ib:/fs /scratch lustre rw 0 0\n"}


def imports(state="FULL", name="fs-OST0000-osc-ffff8", root="/proc/fs/lustre", kind="osc", **more):
    text = (f"import:\n    name: {name}\n    target: fs-OST0000_UUID\n    state: {state}\n    connection:\n"
            f"       failover_nids: [10.0.0.5@o2ib]\n       current_connection: \"10.0.0.5@o2ib\"\n")  # fmt: skip
    return {f"{root}/{kind}/{name}/import": text, **MOUNTS, **more}


@pytest.mark.parametrize("root", ["/proc/fs/lustre", "/sys/kernel/debug/lustre"])
@pytest.mark.parametrize(
    ("state", "verdict", "reason"),
    [
        ("FULL", Verdict.OK, ""),
        ("IDLE", Verdict.OK, ""),
        ("DISCONN", Verdict.CRIT, "LustreDisconnected"),
        ("EVICTED", Verdict.CRIT, "LustreEvicted"),
        ("CONNECTING", Verdict.WARN, "LustreConnecting"),
        ("REPLAY_WAIT", Verdict.WARN, "LustreConnecting"),
        ("A_STATE_OF_TOMORROW", Verdict.WARN, "LustreConnecting"),
    ],
)
def test_the_state_of_a_connection(root, state, verdict, reason):
    found = judge(FakeHost(imports(state, root=root)), "check_lustre_imports")
    assert (found.verdict, found.reason) == (verdict, reason)
    if reason:
        assert (found.target, "10.0.0.5@o2ib" in found.message) == ("fs-OST0000_UUID", True)


def test_what_cannot_be_read_and_what_was_set_inactive():
    path = "/proc/fs/lustre/osc/fs-OST0000-osc-ffff8/import"
    assert (
        judge(FakeHost({**MOUNTS, path: Symlink("/proc/self/mem")}), "check_lustre_imports").reason
        == "LustreUnreadable"
    )
    assert judge(FakeHost(imports("junk\n  ", **{path: "nothing"})), "check_lustre_imports").verdict is Verdict.UNKNOWN
    inactive = {"/sys/fs/lustre/osc/fs-OST0000-osc-ffff8/active": "0\n"}
    other = imports(name="fs-MDT0000-mdc-ffff8", kind="mdc")
    assert judge(FakeHost({**imports("DISCONN", **inactive), **other}), "check_lustre_imports").verdict is Verdict.OK


SERVERS = "fs-MDT0000-mdc-ffff8 active.\nfs-OST0000-osc-ffff8: active\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (SERVERS, []),
        (Completed(11, SERVERS, "fs-OST0001-osc-ffff8: check error: Resource temporarily unavailable\n"),
         [(Verdict.CRIT, "LustreDisconnected", "fs-OST0001-osc-ffff8")]),
        (Completed(1, "", "lfs check: must be root\n"), [(Verdict.UNKNOWN, "LustreUnreadable", "")]),
        (Completed(0, "", "", True), [(Verdict.UNKNOWN, "LustreUnreadable", "")]),
    ],
)  # fmt: skip
def test_a_mounted_lustre_without_imports_is_asked_by_its_own_tool(answer, expected):
    host = FakeHost(MOUNTS, {"lfs check servers": answer})
    found = [(o.verdict, o.reason, o.target) for o in judge_all(host, "check_lustre_imports") if o.reason]
    assert found == expected
    asked = FakeHost(imports(), {"lfs check servers": answer})
    found = [(o.verdict, o.reason, o.target) for o in judge_all(asked, "check_lustre_imports -s") if o.reason]
    assert found == expected
    assert judge(asked, "check_lustre_imports").verdict is Verdict.OK


def test_a_node_without_lustre():
    assert (
        judge(FakeHost({"/proc/mounts": "/dev/sda1 / ext4 rw 0 0\n"}), "check_lustre_imports").verdict is Verdict.SKIP
    )
