"""Facts of processes: from text, from a fake /proc, and from real ones."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Host
from nhc.core.plan import Plan
from nhc.core.system.process_identity import parse_stat
from nhc.node.facts import processes
from nhc.node.facts.processes import Clock, first_word, is_ssh_session, parse_cmdline, show_permille
from nhc.node.hosts.recording import RecordingHost, Replay, finish
from tests.support.processes import KSWAPD0, SSHD, Process, node
from tests.support.require import need

STAT = (
    "1234 (a) b (c) R 1 1234 1234 34816 1234 4194304 100 0 0 0 150 25 0 0 20 0 1 0 98765 1105920 512 "
    "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
NOW = Clock(uptime=2000.0, ticks=100, page=4096, memory_kb=1 << 20)


def test_name_with_blanks_and_parentheses_ends_at_the_last_one():
    found = parse_stat(STAT)

    assert (found.pid, found.name, found.state, found.parent) == (1234, "a) b (c", "R", 1)
    assert (found.cpu, found.started, found.vsize, found.rss) == (175, 98765, 1105920, 512)
    assert not found.kernel_thread


@pytest.mark.thorough
@given(st.text(max_size=300))
def test_stat_parser_raises_nothing_but_value_error(text):
    try:
        parse_stat(text)
    except ValueError:
        pass


@given(
    st.integers(1, 1 << 22),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=16),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)
def test_stat_of_any_name_reads_back(pid, name, cpu, started):
    text = f"{pid} ({name}) S 7 1 1 0 -1 0 1 2 3 4 {cpu} 5 0 0 20 0 1 0 {started} 4096 9 0"

    found = parse_stat(text)

    assert (found.pid, found.name, found.parent, found.cpu, found.started) == (pid, name, 7, cpu + 5, started)


@given(st.text(max_size=200))
def test_command_line_is_one_line_without_double_blanks(text):
    shown = parse_cmdline(text)

    assert "\0" not in shown
    assert "  " not in shown
    assert shown == shown.strip()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ("/usr/sbin/sshd -D", "/usr/sbin/sshd"),
        ("sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", "/usr/sbin/sshd"),
        ("nginx: master process /usr/sbin/nginx -g daemon on;", "/usr/sbin/nginx"),
        ("nginx: worker process", "nginx"),
        ("php-fpm: master process (/etc/php-fpm.conf)", "php-fpm"),
        ("-bash", "-bash"),
        ("", ""),
        (":", ":"),
    ],
)
def test_first_word_sees_through_rewritten_titles(args, word):
    assert first_word(args) == word


@pytest.mark.parametrize(
    ("args", "session"),
    [
        ("sshd: alice@pts/0", True),
        ("sshd: alice [priv]", True),
        ("sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", False),
        ("/usr/sbin/sshd -D", False),
    ],
)
def test_ssh_sessions_are_told_from_the_listener(args, session):
    assert is_ssh_session(args) is session


def test_percentages_are_those_of_ps():
    process = parse_stat(STAT)._replace(cpu=98800, started=100_000)  # 988 s of CPU in 1000 s of life

    assert processes.cpu_permille(process, NOW) == 988
    assert show_permille(988) == "98.8"
    assert show_permille(12345) == "1234"
    assert processes.cpu_permille(process._replace(started=200_000), NOW) == 0
    assert processes.memory_permille(process._replace(rss=65536), NOW) == 250


def test_kernel_threads_are_bracketed_and_zombies_left_out():
    host = node(SSHD, KSWAPD0, Process(77, name="sshd", state="Z"))

    assert dict(processes.all_args(host)) == {1351: "/usr/sbin/sshd -D", 138: "[kswapd0]"}


def test_no_proc_is_an_error_not_an_empty_node():
    with pytest.raises(OSError, match="no process"):
        processes.command_lines(node())


@pytest.mark.thorough
def test_no_more_is_read_than_is_asked_for():
    host = node(*(Process(100 + number, f"/bin/tool {number}") for number in range(700)))
    asked = []
    original = host.system.read_each
    host.system.read_each = lambda directory, names, leaf: asked.append(len(names)) or original(directory, names, leaf)

    assert next(processes.all_args(host)) == (100, "/bin/tool 0")
    assert asked == [256]
    assert len(dict(processes.all_args(host))) == 700
    assert len(processes.command_lines(host)) == 700
    assert asked == [256, 444, 0]


def test_a_real_process_is_seen_as_ps_sees_it():
    need("ps", shutil.which("ps"), "package procps")
    child = subprocess.Popen(["tail", "-f", "/dev/null", "with  two blanks"], stderr=subprocess.DEVNULL)
    try:
        host = Host()
        line = subprocess.run(
            ["ps", "-o", "ppid=,uid=,vsz=,rss=,pcpu=", "-p", str(child.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        found = processes.stats(host)[child.pid]
        now = processes.clock(host)

        assert processes.args_of(host, child.pid) == "tail -f /dev/null with two blanks"
        assert [found.parent, processes.owner(host, child.pid), found.vsize // 1024] == [int(x) for x in line[:3]]
        assert abs(processes.rss_kb(found, now) - int(line[3])) < 1024
        assert show_permille(processes.cpu_permille(found, now)) == line[4]
        assert processes.stat_of(host, child.pid) is not None
    finally:
        child.kill()
        child.wait()
    assert processes.stat_of(Host(), child.pid) is None
    assert processes.owner(Host(), child.pid) is None


def test_kill_spares_a_process_that_took_the_number_over():
    child = subprocess.Popen(["sleep", "600"])
    try:
        host = Host()
        started = processes.stat_of(host, child.pid).started
        with pytest.raises(ProcessLookupError):
            host.system.kill(child.pid, started + 1, signal.SIGKILL)
        assert child.poll() is None
        host.system.kill(child.pid, started, signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_renice_sets_the_nice_value():
    child = subprocess.Popen(["sleep", "600"])
    try:
        for _ in range(2):
            Host().system.renice(child.pid, 7)
            assert os.getpriority(os.PRIO_PROCESS, child.pid) == 7
    finally:
        child.kill()
        child.wait()


def test_own_process_is_left_out_for_it_may_name_what_is_looked_for():
    assert os.getpid() not in processes.command_lines(Host())


def test_an_action_is_started_and_not_waited_for(tmp_path):
    begun = time.monotonic()
    Host().start(["sh", "-c", f"echo done > {tmp_path}/mark; sleep 20"])

    assert time.monotonic() - begun < 15
    deadline = time.monotonic() + 60
    while not (tmp_path / "mark").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert (tmp_path / "mark").exists()


def test_a_recorded_machine_has_its_processes_and_none_of_their_secrets(tmp_path):
    child = subprocess.Popen(["tail", "-f", "/dev/null", "--", "--password", "hunter2"], stderr=subprocess.DEVNULL)
    try:
        live = RecordingHost(str(tmp_path))
        seen = processes.args_of(live, child.pid), processes.stats(live)[child.pid], processes.owner(live, child.pid)
        processes.clock(live)
        finish(str(tmp_path), Plan(()), live, "n1", (live.time(), live.monotonic()))
        replayed = Replay(str(tmp_path)).host()

        assert seen[0].endswith("--password hunter2")
        assert processes.args_of(replayed, child.pid) == seen[0].replace("hunter2", "[redacted]")
        assert (processes.stats(replayed)[child.pid], processes.owner(replayed, child.pid)) == seen[1:]
        assert processes.clock(replayed).page == os.sysconf("SC_PAGE_SIZE")
        assert "hunter2" not in (tmp_path / "answers.json").read_text()
        replayed.system.kill(child.pid, seen[1].started, signal.SIGKILL)
        replayed.system.renice(child.pid, 19)
        assert processes.stat_of(live, child.pid) is not None
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    finally:
        child.kill()
        child.wait()


def test_another_worker_of_this_run_is_left_out_too():
    """`check_ps_blacklist python3` must not find the nhc that asks it: every worker has the run's command line."""
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        assert child in processes.raw_command_lines(Host())
        assert child not in processes.command_lines(Host())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
