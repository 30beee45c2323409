"""Hung tasks: one moment is one event, a file server's return ends it, and only the node's own disks take it out."""

import pytest

from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.findings import current, end
from nhc.node.kernlog.hung import KEY, OUTLIVES, STAYS

NOW = 1_700_000_000.0
NFS = (" __schedule+0x2d0/0x880", " schedule+0x5c/0xd0", " rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]",
       " ? xfs_buf_lock+0x3a/0x100 [xfs]", " nfs_file_read+0x6d/0xc0 [nfs]")  # fmt: skip
XFS = (" __schedule+0x2d0/0x880", " xfs_buf_lock+0x3a/0x100 [xfs]", " xfs_file_write_iter+0x48/0x7f0 [xfs]")
LUSTRE = (
    " __schedule+0x2d0/0x880",
    " cl_sync_io_wait+0x2a3/0x3d0 [obdclass]",
    " vvp_io_read_start+0x4f/0x6a0 [lustre]",
)
CEPH = (" __schedule+0x2d0/0x880", " ceph_mdsc_wait_request+0x61/0x120 [ceph]")
OK = "nfs: server nfs01 OK"


def report(at, task="cp", pid=100, seconds=122, stack=()):
    head = [
        f"INFO: task {task}:{pid} blocked for more than {seconds} seconds.",
        "      Not tainted 5.14.0-503.el9.x86_64 #1",
        '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
        f"task:{task:<15} state:D stack:0     pid:{pid} tgid:{pid} ppid:1      flags:0x00000002",
        "Call Trace:", " <TASK>",
    ]  # fmt: skip
    return [(line, NOW + at + index / 1000) for index, line in enumerate([*head, *stack, " </TASK>"])]


def log(*said, state=None):
    state = {} if state is None else state
    take_in(state, [line for part in said for line in part], NOW)
    return state


def moment(at, stack, tasks=10, seconds=122):
    return [line for pid in range(tasks) for line in report(at + pid / 10, "python", 100 + pid, seconds, stack)]


def only(state):
    ((key, finding),) = current(state)
    assert key == KEY
    return finding["severity"], finding["message"]


@pytest.mark.parametrize(("stack", "name"), [(NFS, "nfs"), (LUSTRE, "lustre"), (XFS, "xfs")])
def test_ten_tasks_at_one_moment_are_one_warning_that_names_the_file_system(stack, name):
    severity, message = only(log(moment(0, stack)))
    assert severity == "degraded"
    assert f", in {name}: python:100, python:101, python:102 and 7 more" in message


@pytest.mark.parametrize(
    ("stack", "back"),
    [
        (NFS, OK),
        (CEPH, "ceph: mds0 recovery completed"),
        (LUSTRE, "Lustre: lfs-OST0001-osc-ff: Connection restored to lfs-OST0001 (at 10.0.0.2@o2ib)"),
    ],
)
def test_the_servers_return_ends_it(stack, back):
    state = log(moment(0, stack), [(back, NOW + 3600)])
    assert current(state) == []


def test_the_return_of_one_server_leaves_tasks_that_wait_for_something_else():
    state = log(report(0, pid=1, stack=NFS), report(1, pid=2, stack=XFS), report(2, pid=3), [(OK, NOW + 60)])
    severity, message = only(state)
    assert severity == "degraded"
    assert ", in xfs: cp:2, cp:3" in message, "cp:1 is no longer there"


@pytest.mark.thorough
def test_hours_of_a_shared_file_system_that_is_away_are_no_fault_of_the_node():
    state = log(*[moment(index * 120, NFS, 3, 122 + index * 120) for index in range(60)])
    assert only(state)[0] == "degraded"


def test_a_task_that_outlives_the_recovery_takes_the_node_out():
    state = log(report(0, stack=NFS), [(OK, NOW + 60)])
    late = OUTLIVES + 120
    log(report(late, seconds=int(late) + 122, stack=NFS), state=state)
    severity, message = only(state)
    assert severity == "fatal"
    assert "still blocked 11 minutes after nfs came back" in message


def test_a_new_outage_after_a_recovery_is_a_new_event():
    state = log(report(0, stack=NFS), [(OK, NOW + 60)], report(OUTLIVES * 3, pid=7, seconds=122, stack=NFS))
    assert only(state)[0] == "degraded"


def test_kernels_that_always_print_their_limit_show_the_same():
    """Before 5.0 the line has the limit (120), not the time that the task has been blocked."""
    state = log(report(0, seconds=120, stack=NFS), [(OK, NOW + 60)])
    log(report(OUTLIVES + 120, seconds=120, stack=NFS), state=state)
    assert only(state)[0] == "fatal"


@pytest.mark.parametrize(("stack", "task"), [(XFS, "cp"), ((), "jbd2/sda1-8")])
def test_tasks_that_stay_blocked_on_a_local_disk_take_the_node_out(stack, task):
    state = log(report(0, task, stack=stack))
    assert only(state)[0] == "degraded"
    log(report(STAYS, task, seconds=int(STAYS) + 122, stack=stack), state=state)
    assert only(state)[0] == "fatal"


def test_a_users_program_with_the_name_of_a_disks_thread_is_judged_by_its_stack():
    state = log(*[report(index * 120, "jbd2/sda1-8", seconds=122 + index * 120, stack=NFS) for index in range(12)])
    severity, message = only(state)
    assert (severity, ", in nfs" in message) == ("degraded", True)


def test_an_acknowledged_hang_does_not_come_back_with_the_next_one():
    state = log(report(0, stack=XFS), report(STAYS, seconds=722, stack=XFS))
    assert only(state)[0] == "fatal"
    end(state, *current(state)[0])
    log(report(7200, pid=9, stack=NFS), state=state)
    severity, message = only(state)
    assert (severity, "cp:100" in message) == ("degraded", False)


def test_stack_lines_alone_mean_nothing():
    assert log([(line, NOW) for line in NFS]).get("findings", {}) == {}


@pytest.mark.parametrize("cut", range(1, 24, 3))
def test_a_stack_may_be_read_in_two_parts(cut):
    lines = [*report(0, pid=1, stack=NFS), *report(1, pid=2, stack=XFS)]
    state = log(lines[:cut])
    log(lines[cut:], state=state)
    assert only(state) == only(log(lines))


@pytest.mark.parametrize(
    ("module", "name"), [("zfs", "zfs"), ("spl", "zfs"), ("bcachefs", "bcachefs"), ("f2fs", "f2fs")]
)
def test_every_file_system_of_the_nodes_own_disks_counts(module, name):
    stack = (" __schedule+0x2d0/0x880", f" wait_for_it+0x3a/0x100 [{module}]")
    severity, message = only(log(report(0, stack=stack), report(STAYS + 100, seconds=722, stack=stack)))
    assert severity == "fatal"
    assert f"the node's own {name}" in message


def test_a_file_system_that_nobody_knows_may_be_another_machines():
    stack = (" __schedule+0x2d0/0x880", " wait_for_it+0x3a/0x100 [hyperfs]")
    assert only(log(report(0, stack=stack), report(STAYS + 100, seconds=722, stack=stack)))[0] == "degraded"
