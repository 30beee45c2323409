"""Stuck processes and zombies."""

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge
from tests.support.processes import SSHD, Process, node

BOOT = {"/proc/sys/kernel/random/boot_id": "aaaa\n"}
STUCK = Process(4000, "/opt/app/solver -x", state="D")
BUSY = Process(4001, "/usr/bin/dd if=/dev/sda", state="D")


def status(host, process, switches):
    text = f"Name:\tx\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t3\n"
    host.write(f"/proc/{process.pid}/status", text)


def sleeping(*processes):
    host = node(SSHD, *processes, files=BOOT)
    for process in processes:
        status(host, process, 10)
    return host


def after(host, seconds, line="check_ps_dstate"):
    host.system.uptime += seconds
    host.forget()
    return judge(host, line)


def test_one_look_tells_nothing():
    found = judge(sleeping(STUCK), "check_ps_dstate")

    assert found.verdict is Verdict.OK
    assert found.metrics[0][:3] == ("uninterruptible", 1, "")


def test_a_process_that_has_not_run_for_five_minutes():
    host = sleeping(STUCK)
    judge(host, "check_ps_dstate")

    assert after(host, 299).verdict is Verdict.OK
    found = after(host, 2)
    assert (found.verdict, found.reason) == (Verdict.WARN, "ProcessStuck")
    assert "solver[4000]" in found.message
    assert after(host, 0, "check_ps_dstate -a 1h").verdict is Verdict.OK


def test_a_process_that_waits_often_but_runs_is_not_stuck():
    host = sleeping(BUSY)
    for minute in range(10):
        status(host, BUSY, 100 + minute)
        last = after(host, 60)

    assert last.verdict is Verdict.OK


def test_another_process_with_the_same_number_starts_anew():
    host = sleeping(STUCK)
    judge(host, "check_ps_dstate")
    host.write("/proc/4000/stat", STUCK._replace(age=5).stat)

    assert after(host, 400).verdict is Verdict.OK


def test_many_or_a_drivers_are_critical():
    many = sleeping(*(STUCK._replace(pid=5000 + n) for n in range(5)))
    smi = sleeping(Process(4002, "/usr/bin/nvidia-smi -q", state="D"))
    for host in (many, smi):
        judge(host, "check_ps_dstate")
        assert after(host, 301).verdict is Verdict.CRIT
    assert after(many, 1, "check_ps_dstate -i solver").verdict is Verdict.OK


def test_a_parent_that_waits_for_its_vfork_can_be_killed():
    """Anyone can have as many as he likes, of any name, for as long as he likes."""
    waiting = Process(4003, "/tmp/nvidia-x", state="D")
    host = sleeping(waiting)
    host.write("/proc/4003/wchan", "kernel_clone")
    judge(host, "check_ps_dstate")

    assert after(host, 400).verdict is Verdict.OK
    host.write("/proc/4003/wchan", "rpc_wait_bit_killable")
    assert after(host, 0).verdict is Verdict.CRIT


def test_kernel_threads_count_only_where_named():
    thread = Process(90, name="jbd2/sda1-8", parent=2, state="D")
    driver = Process(91, name="nvidia-modeset/", parent=2, state="D")
    for process, verdict in ((thread, Verdict.OK), (driver, Verdict.CRIT)):
        host = sleeping(process)
        judge(host, "check_ps_dstate")
        assert after(host, 301).verdict is verdict


def test_zombies():
    dead = [Process(6000 + n, name="a.out", state="Z", parent=1351) for n in range(12)]
    host = node(SSHD, *dead)

    assert judge(host, "check_ps_zombies").verdict is Verdict.OK
    assert judge(host, "check_ps_zombies -w 10").verdict is Verdict.WARN
    found = judge(host, "check_ps_zombies -w 5 -c 12")
    assert found.verdict is Verdict.CRIT
    assert "12 zombies, 12 of them left by sshd[1351]" in found.message
    assert judge(node(SSHD), "check_ps_zombies -w 1").verdict is Verdict.OK


def test_no_proc_is_unknown():
    for line in ("check_ps_dstate", "check_ps_zombies"):
        assert judge(FakeHost(), line).verdict is Verdict.UNKNOWN
