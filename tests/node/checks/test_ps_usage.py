"""check_ps_cpu, check_ps_mem, check_ps_physmem and check_ps_time."""

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.check import BadArguments, find
from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.node.checks.ps_usage import minutes_seconds
from tests.support.processes import INIT, NODE, SSHD, Process, node


def judge(line, host=None):
    name, *words = line.split()
    check = find(name)
    return check.run(host or node(*NODE), **check.parse(words))


@pytest.mark.parametrize(
    "line",
    [
        "check_ps_cpu 100",
        "check_ps_cpu 100%",
        "check_ps_cpu -m /bash/ 99",
        "check_ps_cpu -m !/wrf/ 1",
        "check_ps_cpu -m /-np/ 0",
        "check_ps_cpu -u nobody 90",
        "check_ps_cpu -u !alice 90",
        "check_ps_mem 99999999",
        "check_ps_mem 99g",
        "check_ps_physmem 18G",
        "check_ps_physmem 101%",
        "check_ps_time 7200",
        "check_ps_time 60m3600s",
        "check_ps_time 120m",
        "check_ps_time -u root 99999m",
        "check_ps_time -u !alice 30m",
        "check_ps_time -u daemon 30m",
    ],
)
def test_less_than_the_limit_passes(line):
    assert judge(line).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check_ps_cpu 98", 'Process "./wrf.exe" (19235) of alice using 98.8% CPU (limit 98%)'),
        ("check_ps_cpu -m *.exe 94%", 'Process "./wrf.exe" (19234) of alice using 94.0% CPU (limit 94%)'),
        (
            "check_ps_cpu -f -m /-np/ 0",
            'Process "mpirun -np 96 ./wrf.exe" (19233) of alice using 0.0% CPU (limit 0%)',
        ),
        ("check_ps_cpu -u 12345 98", 'Process "./wrf.exe" (19235) of alice using 98.8% CPU (limit 98%)'),
        ("check_ps_cpu -A -u root 3", 'Process "[kswapd0]" (138) of root using 6.6% CPU (limit 3%)'),
        ("check_ps_mem 20G", 'Process "-bash" (19197) of alice using 20GB memory (RAM+swap) (limit 20GB)'),
        ("check_ps_physmem 15G", 'Process "-bash" (19197) of alice using 16GB RAM (limit 15GB)'),
        ("check_ps_physmem 55%", 'Process "-bash" (19197) of alice using 99.9% RAM (limit 55%)'),
        (
            "check_ps_time 15m08s",
            'Process "./wrf.exe" (19234) of alice has consumed 15:40 of CPU time (limit 15m8s)',
        ),
        (
            "check_ps_time -A -u root 30m",
            'Process "pbs_mom" (1408) of root has consumed 34:32 of CPU time (limit 30m0s)',
        ),
    ],
)
def test_the_limit_reached_fails_in_lbnl_words(line, message):
    outcome = judge(line)

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


@pytest.mark.parametrize("user", ["root", "0", "r*", "/^root$/", "{root,daemon}"])
@pytest.mark.parametrize(("check", "limit"), [("check_ps_time", "30m"), ("check_ps_cpu", "3"), ("check_ps_mem", "0"),
                                              ("check_ps_physmem", "0")])  # fmt: skip
def test_a_user_who_is_named_is_judged_system_user_or_not(check, limit, user):
    """LBNL NHC 1.4.3 judges everybody; what came after it leaves system users out, `-u root` or not."""
    found = judge(f"{check} -u {user} {limit}")
    assert (found.verdict, " of root " in found.message) == (Verdict.CRIT, True)


def test_system_users_are_left_out_unless_asked_for():
    host = node(INIT, SSHD._replace(cpu=999, uid=999), settings={"MAX_SYS_UID": "999"})

    assert judge("check_ps_cpu 90", host).verdict is Verdict.OK
    assert judge("check_ps_cpu -A 90", host).verdict is Verdict.CRIT
    assert judge("check_ps_cpu 90", node(SSHD._replace(cpu=999, uid=1000))).verdict is Verdict.CRIT


def test_all_are_found_and_counted():
    outcome = judge("check_ps_cpu -a -m /wrf/ 90")

    assert outcome.message == 'Process "./wrf.exe" (19235) of alice using 98.8% CPU (limit 90%) (last of 2)'
    assert len(outcome.evidence) == 2
    assert [metric.value for metric in outcome.metrics] == [2, 98.8]


def test_non_fatal_only_warns():
    outcome = judge("check_ps_cpu -0 98")

    assert outcome.verdict is Verdict.WARN
    assert outcome.message == 'Process "./wrf.exe" (19235) of alice using 98.8% CPU (limit 98%) (non-fatal)'


def test_log_and_syslog_do_so():
    host = node(*NODE)

    outcome = judge("check_ps_cpu -0 -l -s 98", host)

    line = 'Process "./wrf.exe" (19235) of alice using 98.8% CPU (limit 98%)'
    assert outcome.evidence == (line,)
    assert host.system.done == [f"syslog check_ps_cpu:  {line}"]


@pytest.mark.parametrize(
    ("options", "tail", "done"),
    [
        ("", "", []),
        ("-k", "; killed", ["kill 9 19235"]),
        ("-K", "; killed parent 19233", ["kill 9 19233"]),
        ("-k -K", "; killed; killed parent 19233", ["kill 9 19235", "kill 9 19233"]),
        ("-r 15", "; reniced +15", ["renice 15 19235"]),
        ("-r -5", "; reniced -5", ["renice -5 19235"]),
        ("-k -r 5", "; killed", ["kill 9 19235"]),
    ],
)
def test_options_act_as_asked_and_the_message_says_so(options, tail, done):
    host = node(*NODE)

    outcome = judge(f"check_ps_cpu {options} -m /wrf/ 98", host)

    assert outcome.message.endswith(f"(limit 98%){tail}")
    assert host.system.done == done


def test_parents_of_another_user_and_init_are_spared():
    host = node(*NODE)
    assert judge("check_ps_physmem -K -m *bash 1G", host).message.endswith("; parent 1408 not killed (owner mismatch)")
    orphan = node(INIT, Process(7, "./x", uid=12345, parent=1, cpu=900))
    assert judge("check_ps_cpu -K 50", orphan).message.endswith("; parent 1 not killed (PPID is 1)")
    assert host.system.done == orphan.system.done == []


def test_a_kill_that_fails_is_told():
    host = node(*NODE)
    host.system.refuses["kill 9 19235"] = PermissionError(1, "Operation not permitted")

    assert judge("check_ps_cpu -k 98", host).message.endswith("; not killed (Operation not permitted)")


def test_an_action_is_started_by_bash():
    host = node(*NODE)

    judge("check_ps_cpu -e /sbin/reboot 98", host)

    assert host.system.ran[-1][-3:] == ("bash", "-c", "/sbin/reboot")
    assert judge("check_ps_cpu -e /sbin/reboot 101", host).verdict is Verdict.OK
    assert len(host.system.ran) == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("check_ps_cpu", "needs limit"),
        ("check_ps_cpu x", "not a percentage"),
        ("check_ps_mem 5%", "Percentage not supported by this check."),
        ("check_ps_mem lots", "is not a size"),
        ("check_ps_physmem x%", "not a percentage"),
        ("check_ps_time 5h", "is no CPU time"),
        ("check_ps_cpu -z 5", "Invalid option:  -z"),
        ("check_ps_cpu -m", "Option -m requires an argument."),
    ],
)
def test_wrong_arguments_are_named(line, why):
    with pytest.raises(BadArguments, match=why):
        judge(line)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(["m{}s", "M{}S", "m{}"]))
def test_cpu_times_are_decimal(minutes, seconds, form):
    assert minutes_seconds(f"{minutes:02}{form.format(f'{seconds:02}')}") == minutes * 60 + seconds


@given(st.text(max_size=8))
def test_other_cpu_times_are_value_errors(text):
    try:
        assert minutes_seconds(text) >= 0
    except ValueError:
        pass


def test_processes_that_cannot_be_listed_are_unknown():
    assert judge("check_ps_cpu 1", node()).verdict is Verdict.UNKNOWN
    host = node(*NODE)
    host.remove("/proc/uptime")
    assert judge("check_ps_cpu 1", host).verdict is Verdict.UNKNOWN


@pytest.mark.thorough
def test_a_hanging_process_over_the_limit_that_may_be_meant_is_unknown():
    host = node(INIT, Process(50, "/opt/wrf", uid=12345, cpu=900, state="D", name="thing"))
    os.unlink(host.path("/proc/50/cmdline"))
    os.mkfifo(host.path("/proc/50/cmdline"))

    assert judge("check_ps_cpu -m /wrf/ 50", host).verdict is Verdict.UNKNOWN
    assert judge("check_ps_cpu 50", host).verdict is Verdict.CRIT
    os.close(os.open(host.path("/proc/50/cmdline"), os.O_RDWR | os.O_NONBLOCK))


def test_a_real_process_is_killed_only_with_k():
    mark = f"/dev/null.{os.getpid()}"
    child = subprocess.Popen(["tail", "-F", mark], stderr=subprocess.DEVNULL)
    try:
        line = f"check_ps_mem -A -f -m tail*{mark}"
        assert judge(f"{line} 1", Host()).verdict is Verdict.CRIT
        assert child.poll() is None
        outcome = judge(f"check_ps_mem -A -k -f -m tail*{mark} 1", Host())
        assert f"({child.pid})" in outcome.message
        assert outcome.message.endswith("; killed")
        assert child.wait(60) == -9
    finally:
        child.kill()
        child.wait()
