"""A target that backtracks for ever is one line's UNKNOWN; an ordinary one is matched as it always was."""

import json
import os
import signal
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Host
from nhc.core.language import loader, target_library, targets
from nhc.core.language.targets import Targets, Undecided, may_take_long
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Verdict
from nhc.core.plan import BUILT_IN, UNDECIDED, Item, Plan
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.run.engine import run
from tests.support.run import nhc

NAME = "a" * 40 + "b"
CATASTROPHIC = [
    "/(a+)+$/", "!/(a*)*$/", "/(a|aa)+$/", "/^(a|a?)+$/", "/a**c/", f"/{'a?' * 40}{'a' * 40}/", f"/{'(a|aa)' * 25}c/",
    f"{'*a' * 20}*c", "+(a|aa)c", "*(*(a))c", "@(" * 40,
]  # fmt: skip
ORDINARY = [
    "*", "n1", "gpu*", "gpu[0-9]*", "{gpu[01-16],login}", "{r[1-4]n[01-32]}", "/^(gpu|cpu|big|login|mgmt)[0-9]+$/",
    r"/example\.(com|net|org)$/", "/^n[0-9]+(-ib)?$/", "!/^login[0-9]{2}$/", "@(gpu|cpu)*", "*.?xample.[Cc]*", "/",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ORDINARY)
def test_an_ordinary_target_is_matched_where_it_is_read(pattern, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process for this?"))
    assert Targets().applies("gpu01", pattern) == mcheck("gpu01", pattern)


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", CATASTROPHIC, ids=lambda pattern: pattern[:20])
def test_no_target_takes_longer_than_its_time(pattern):
    begun = time.monotonic()
    judge = Targets()
    try:
        judge.problem(pattern)
        judge.applies(NAME, pattern)
    except Undecided:
        pass
    assert time.monotonic() - begun < 2 * targets.TIMEOUT + 30, "decided in years"


@pytest.mark.thorough
def test_some_of_them_do_need_to_be_cut():
    for pattern in ("/(a+)+$/", "*a" * 20 + "*c"):
        with pytest.raises(Undecided, match=r"not decided within 0\.5 s"):
            Targets().applies(NAME, pattern)


@pytest.mark.thorough
@given(st.text("ab", max_size=8), st.sampled_from(["/^(ab?)+$/", "/(a|b)*b{2}a*b*a*/", "*a*b*a*b*", "+(ab|a)"]))
def test_what_looks_as_if_it_could_take_long_is_answered_alike(name, pattern):
    assert may_take_long(pattern, name)
    assert Targets().applies(name, pattern) == mcheck(name, pattern)


@pytest.mark.slow
def test_all_targets_of_a_plan_share_a_time():
    judge, given = Targets(), []
    for number in range(20):
        with pytest.raises(Undecided, match="not decided within") as raised:
            judge.applies(NAME, f"/(a+)+{number}$/")
        given.append(str(raised.value).rsplit(" ", 2)[-2])
    assert (given[0], given[-1]) == (f"{targets.TIMEOUT:g}", f"{targets.AT_LEAST:g}")


def test_a_node_without_processes_to_spare_says_so(monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(Undecided, match="no process to decide it in: Resource temporarily unavailable"):
        Targets().applies("n1", "/(a+)+$/")


@pytest.mark.thorough
def test_an_undecided_line_is_unknown_and_the_run_goes_on(tmp_path):
    text = "* || check_hw_mem_free 1k\n/(a+)+$/ || check_fs_mount /\n/(a+)+$/ || X=1\n* || check_hw_mem_free 2k\n"
    plan = loader.load_text(text, "nhc.conf", NAME)
    assert [item.kind for item in plan.items] == [BUILT_IN, UNDECIDED, UNDECIDED, BUILT_IN]
    assert plan.inputs == (), "such a plan is not kept"
    host = FakeHost({"/proc/meminfo": "MemTotal: 9999999 kB\nMemFree: 999999 kB\nBuffers: 0 kB\nCached: 0 kB\n"})
    report = run(plan, host, state=State(str(tmp_path)))
    assert [r.verdict.name for r in report.results] == ["OK", "UNKNOWN", "UNKNOWN", "OK"]
    told = report.results[1]
    assert (told.check, told.outcome.reason, told.source) == ("check_fs_mount", "TargetUndecided", "nhc.conf:2")
    for part in ("nhc.conf:2", "'/(a+)+$/'", NAME):
        assert part in told.outcome.message


@pytest.mark.thorough
def test_the_command_names_it(tmp_path):
    conf = tmp_path / "nhc.conf"
    conf.write_text("/(a+)+$/ || check_hw_mem_free 1k\n")
    done = nhc("check", "local", "-c", conf, "-n", NAME, "--profile", "none", state=tmp_path / "state")
    assert done.returncode == 3
    assert f"{conf}:1" in done.stdout
    done = nhc("config", "match", NAME, "/(a+)+$/")
    assert (done.returncode, done.stderr) == (3, "/(a+)+$/: not decided within 0.5 s\n")
    done = nhc("config", "check", "-n", NAME, conf)
    assert done.returncode == 2
    assert f"{conf}:1:1: whether the target '/(a+)+$/' is meant for {NAME}" in done.stderr + done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("check_cmd_output", ("-m", "/(a+)+$/", "printf", "%s", NAME)),
        ("check_cmd_output", ("-m", "*a" * 20 + "*c", "printf", "%s", NAME)),
        ("check_ps_daemon", ("x", "root", "*y" * 20 + "c")),
        ("check_file_contents", ("/tmp/x", "/(a+)+$/")),
    ],
)
def test_a_pattern_inside_a_check_is_held_by_the_checks_deadline(name, argv, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text(NAME + "\n")
    argv = tuple(str(slow) if word == "/tmp/x" else word for word in argv)
    if name == "check_ps_daemon":
        host = FakeHost({"/proc/7/stat": "7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n",
                         "/proc/7/cmdline": "x\0" + "y" * 40 + "z\0",
                         "/proc/7/status": "Uid:\t0\t0\t0\t0\n"})  # fmt: skip
    else:
        host = Host()
    slow_line = Item(BUILT_IN, name, "slow", argv=(name, *argv), timeout=0.5)
    fine = Item(BUILT_IN, "check_file_test", "fine", argv=("check_file_test", "-d", "/"))
    begun = time.monotonic()
    report = run(Plan((slow_line, fine)), host, state=State(str(tmp_path / "state")))
    assert [r.verdict for r in report.results] == [Verdict.UNKNOWN, Verdict.OK]
    assert report.results[0].outcome.reason == "CheckTimeout"
    assert time.monotonic() - begun < 0.5 + 30


# Lists of nodes that ClusterShell reads: groups run commands, ranges take memory.


HUNG = f"sleep 4{os.getpid()}"
"""No other run of these tests on this machine has it."""


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """ClusterShell with group sources that answer, hang and fail."""
    directory = tmp_path / "clustershell"
    directory.mkdir()
    (directory / "groups.conf").write_text(
        f"[Main]\ndefault: good\n[good]\nmap: echo gpu[01-16]\n[hung]\nmap: {HUNG}\n"
        "[broken]\nmap: echo no such host >&2; exit 3\n"
        "[site]\nmap: sed -n 's/^$GROUP: //p' %s\nlist: sed 's/:.*//' %s\n" % ((directory / "site",) * 2)
    )
    (directory / "site").write_text("rack1: gpu[01-16]\nlent: \n")
    # ClusterShell reads its configuration once in a process.
    from ClusterShell import NodeSet, NodeUtils

    monkeypatch.setattr(NodeSet, "RESOLVER_STD_GROUP", NodeUtils.GroupResolverConfig(str(directory / "groups.conf")))
    return directory


def sleeping():
    return subprocess.run(["pgrep", "-fx", HUNG], check=False, capture_output=True).returncode == 0


def test_groups_and_set_operators_are_matched(groups):
    judge = Targets()
    try:
        assert judge.applies("gpu07", "{@rack1!gpu09}")
        assert not judge.applies("gpu09", "{@rack1!gpu09}")
        assert judge.applies("gpu09", "!{@rack1!gpu09}")
        assert judge.problem("{gpu[1-4]!gpu[}") is not None
        pid = judge._library._pid
        assert judge.applies("n4", "{n[0-9/2]}")
        assert judge._library._pid == pid, "one process for all lists"
    finally:
        judge.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "named"),
    [("{@site:nosuch}", "@site:nosuch"), ("{gpu01,@site:nosuch}", "@site:nosuch"), ("!{@site:nosuch}", "@site:nosuch"),
     ("{@site:rack1!@site:rack2}", "@site:rack2"), ("{@site:rack1}", ""), ("{@site:lent}", ""),
     ("{@site:rack1&@site:lent}", ""),
     ("{@site:rack[1-2]}", "")],
)  # fmt: skip
def test_a_group_that_there_is_not_is_named_by_config_check_and_in_a_runs_notes(groups, tmp_path, target, named):
    """ClusterShell takes it for an empty one: the line would be nobody's without a word. An empty one is no mistake."""
    config = tmp_path / "nhc.conf"
    config.write_text(f"{target} || check_fs_mount /\n* || check_fs_mount /\n")
    env = {"CLUSTERSHELL_CFGDIR": str(groups), "NHC_STATE_DIR": str(tmp_path / "state")}
    at = f"{config}:1:{target.rfind(named) + 1}: target {named}"
    said = f"{at} holds no node: there is no such group, or nobody is in it"
    checked = nhc("config", "check", config, env=env)
    assert (checked.returncode, said in checked.stderr) == ((2, True) if named else (0, False)), checked.stderr
    done = nhc("check", "local", "-a", "-c", config, "--profile", "none", "-n", "gpu99", "-f", "json", env=env)
    assert (said in json.loads(done.stdout)["notes"]) == bool(named), done.stdout
    assert done.returncode == 0


@pytest.mark.thorough
def test_a_group_whose_command_hangs_is_given_up_with_all_that_it_started(groups, monkeypatch):
    monkeypatch.setattr(target_library, "TIMEOUT", 1.0)
    judge = Targets()
    begun = time.monotonic()
    with pytest.raises(Undecided, match="did not answer within 1 s"):
        judge.applies("gpu07", "{@hung:rack1}")
    assert time.monotonic() - begun < 30
    deadline = time.monotonic() + 60
    while sleeping():
        assert time.monotonic() < deadline, "its command lives on"
        time.sleep(0.02)
    assert judge.applies("gpu07", "{@rack1}"), "the next list gets another process"
    judge.close()


def test_the_process_for_lists_ends_where_its_asker_is_killed_in_the_middle_of_a_question():
    library = target_library.Library()
    library._start()
    os.write(library._to, (100).to_bytes(4, "big") + b"half of it")
    os.close(library._to)
    deadline = time.monotonic() + 60
    while os.waitpid(library._pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(library._pid, signal.SIGKILL)
            pytest.fail("it reads for ever")
        time.sleep(0.005)
    os.close(library._from)


@pytest.mark.slow
def test_a_range_by_mistake_takes_no_gigabytes(groups):
    with pytest.raises(Undecided, match=r"needs more than 256 MB|did not answer"):
        Targets().applies("n5", "{n[0-9999999]!n[3]}")


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["{@nosuch:rack1}", "{@broken:rack1}"])
def test_a_source_that_fails_is_that_lines_unknown(groups, tmp_path, target):
    (tmp_path / "nhc.conf").write_text(f"{target} || check_fs_mount /no\n* || check_fs_mount /\n")
    done = nhc("check", "local", "-a", "-c", tmp_path / "nhc.conf", "--profile", "none", "-n", "gpu01", "-f", "json",
               env={"CLUSTERSHELL_CFGDIR": str(groups), "NHC_STATE_DIR": str(tmp_path / "state")})  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    found = [(result["verdict"], result["reason"]) for result in json.loads(done.stdout)["results"]]
    assert found == [("UNKNOWN", "TargetUndecided"), ("OK", "")]
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_a_site_s_matcher_that_hangs_or_is_not_there_is_its_lines_unknown(tmp_path, monkeypatch):
    from nhc.core.language import external_matcher

    monkeypatch.setattr(external_matcher, "TIMEOUT", 0.5)
    for command, why in (("sleep 60", "did not end within"), ("no-such-matcher %h %m", "could not be run")):
        matcher = external_matcher.matcher_from({"NHC_MCHECK_DELIM": "<>", "NHC_MCHECK_COMMAND": command})
        with pytest.raises(Undecided, match=why):
            Targets().applies("n1", "<@rack1>", matcher)
    matcher = external_matcher.matcher_from({"NHC_MCHECK_DELIM": "<>", "NHC_MCHECK_COMMAND": "test %h = n1"})
    assert Targets().applies("n1", "<@rack1>", matcher)
    assert not Targets().applies("n1", "!<@rack1>", matcher)
    assert Targets().applies("n2", "!<@rack1>", matcher)


@pytest.mark.thorough
def test_all_commands_of_matchers_share_a_time(monkeypatch):
    monkeypatch.setattr(targets, "OUTSIDE", 0.3)
    judge = Targets()
    asked = []

    def slow(name, pattern):
        if name:
            asked.append(name)
            time.sleep(0.2)
        return False

    for number in range(2):
        assert not judge.applies("n1", f"<{number}>", slow)
    with pytest.raises(Undecided, match="have had"):
        judge.applies("n1", "<3>", slow)
    assert len(asked) == 2
