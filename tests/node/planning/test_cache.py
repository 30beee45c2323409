"""A kept plan is the plan, for as long as nothing it was made of has changed; anything odd about it is a miss."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.core.declare import declare
from nhc.core.host import Host
from nhc.core.language import loader
from nhc.core.plan import BUILT_IN, COMMAND, Item, Plan
from nhc.core.state.store import State
from nhc.node.planning import cache
from nhc.node.planning.cache import cached
from nhc.node.run.engine import prepare
from tests.support.startup import settle

ROOT = Path(__file__).resolve().parents[3]
LINES = """\
* || export LIMIT=5%
* || check_hw_mem_free 1k
* |timeout 3s, strikes 2, tags a| check_fs_free / $LIMIT
* || check_cmd_output -t 60 -m /x/ echo x
* || /bin/true
"""


class Node:
    """A configuration, a state directory, and how often the language had to be read."""

    def __init__(self, base):
        self.path = base / "nhc.conf"
        self.path.write_text(LINES)
        settle(self.path)
        self.state = State(str(base / "state"))
        self.read = 0

    def plan(self, *question):
        def make():
            self.read += 1
            return loader.load([str(self.path)], "node1")

        return cached(State(self.state.directory), question, make)

    def kept(self):
        return sorted(Path(self.state.directory).glob("plan-*.cache"))


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def undeclared(plan):
    return [item._replace(declared=None) for item in plan.items]


def test_the_same_files_are_read_once(node):
    first = node.plan("q")
    second = node.plan("q")
    assert node.read == 1
    assert undeclared(second) == list(first.items)
    assert second.settings == first.settings
    assert second.inputs == first.inputs


def test_another_question_is_another_plan(node):
    node.plan("q")
    node.plan("other")
    assert node.read == 2
    assert len(node.kept()) == 2


def test_questions_that_nobody_asks_any_more_do_not_fill_the_state_directory(node, monkeypatch):
    monkeypatch.setattr(cache, "_KEPT", 5)
    other = Path(node.state.directory) / "report-agent.json"
    other.parent.mkdir(exist_ok=True)
    other.write_text("{}")
    for number in range(20):
        before = node.kept()
        node.plan(number)
        (new,) = set(node.kept()) - set(before)
        os.utime(new, ns=(0, number * 10**9))
    assert node.read == 20
    assert len(node.kept()) == 5
    node.plan(18)
    assert node.read == 20  # of those written last
    node.plan(1)
    assert node.read == 21
    assert other.exists()


def test_an_edited_file_is_read_again(node):
    node.plan("q")
    before = os.stat(node.path)
    node.path.write_text(LINES.replace("5%", "6%"))
    os.utime(node.path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size and time: ctime tells
    assert "6%" in node.plan("q").items[1].argv
    assert node.read == 2


def test_a_file_that_may_have_changed_while_it_was_read_is_not_kept(node):
    def make():
        node.path.write_text(LINES)
        return loader.load([str(node.path)], "node1")

    cached(node.state, ("q",), make)
    assert not node.kept()


def test_a_file_that_appears_in_a_directory_is_seen(tmp_path):
    directory = tmp_path / "conf.d"
    directory.mkdir()
    (directory / "a.conf").write_text("* || check_hw_mem_free 1k\n")
    settle(directory)
    state = str(tmp_path / "state")

    def plan():
        return cached(State(state), ("q",), lambda: loader.load([str(directory)], "node1"))

    assert len(plan().items) == len(plan().items) == 1
    assert list((tmp_path / "state").glob("plan-*.cache"))
    (directory / "b.conf").write_text("* || check_fs_free / 1%\n")
    assert len(plan().items) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: b"",
        lambda kept: b"garbage" * 99,
        lambda kept: kept[:-9],
        lambda kept: kept[:20] + bytes([kept[20] ^ 255]) + kept[21:],
    ],
    ids=["empty", "garbage", "cut", "one byte"],
)
def test_a_damaged_plan_is_made_anew(node, damage):
    whole = node.plan("q")
    (kept,) = node.kept()
    kept.write_bytes(damage(kept.read_bytes()))
    assert list(node.plan("q").items) == list(whole.items)
    assert node.read == 2


def test_a_plan_of_another_code_is_made_anew(node, monkeypatch):
    node.plan("q")
    monkeypatch.setattr("nhc.node.planning.cache.__version__", "0.0.0")
    node.plan("q")
    assert node.read == 2


def test_a_plan_with_a_warning_is_not_kept(node):
    def make():
        node.read += 1
        return Plan((), {}, (), ("look here",), (str(node.path),))

    for _ in range(2):
        assert cached(node.state, ("q",), make).notes == ("look here",)
    assert node.read == 2


def test_a_plan_that_would_fill_the_state_directory_is_not_kept(node, monkeypatch):
    monkeypatch.setattr(cache, "_LARGEST", 100)
    assert len(node.plan("q").items) == len(node.plan("q").items)
    assert (node.read, node.kept()) == (2, [])


def test_a_plan_of_more_than_files_is_not_kept(node):
    cached(node.state, ("q",), lambda: Plan(()))
    assert not node.kept()


def test_what_the_checks_declare_is_kept_with_the_lines(node):
    node.plan("q")
    items = node.plan("q").items
    assert [item.declared for item in items[:3]] == [declare(item.argv) for item in items[:3]]
    assert items[2].declared.timeout == 60, "-t 60 asks for a minute"
    assert items[3].kind == COMMAND
    assert items[3].declared is None


def test_a_wrong_line_is_told_again(node):
    def make():
        return Plan(
            (Item(BUILT_IN, "check_hw_mem_free", "", argv=("check_hw_mem_free", "x")),), inputs=(str(node.path),)
        )

    for _ in range(2):
        (item,) = cached(node.state, ("q",), make).items
        assert item.declared is None
        assert prepare(item, Host(), 30.0).decided.reason == "BadArguments"
    assert node.kept()


def test_a_kept_line_is_prepared_as_a_fresh_one(node):
    host = Host()
    fresh = [prepare(item, host, 30.0) for item in node.plan("q").items]
    kept = [prepare(item, host, 30.0) for item in node.plan("q").items]
    assert [job._replace(item=job.item._replace(declared=None)) for job in kept] == fresh


@pytest.mark.thorough
def test_with_a_kept_plan_the_supervisor_imports_no_check(tmp_path):
    """The workers import them, so that a library that hangs when it is imported hangs under a deadline.

    Which machine this is stands in every report, and is asked by the supervisor; so is whether it may need a profile.
    """
    path = tmp_path / "nhc.conf"
    path.write_text("* || check_fs_mount /\n* || check_fs_mount_rw -f /proc\n* || check_file_test -e /\n")
    settle(path)
    script = (
        "import sys\n"
        "from nhc.cli.main import main\n"
        f"status = main(['check', 'local', '-c', {str(path)!r}])\n"
        "late = ('nhc.node.checks.', 'nhc.node.facts.', 'nhc.core.language.loader')\n"
        "asked = ('nhc.node.facts.machine_identity', 'nhc.node.facts.pci_index')\n"
        "print([n for n in sys.modules if (n.startswith(late) or n == 're') and n not in asked])\n"
        "sys.exit(status)\n"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NHC_STATE_DIR": str(tmp_path / "state")}
    runs = [
        subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, env=env, timeout=60)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[1].stderr
    first, second = (run.stdout.splitlines() for run in runs)
    assert "nhc.node.checks.fs_mount" in first[-1]
    assert second[-1] == "[]"
    assert [line.split(" in ")[0] for line in first[:-1]] == [line.split(" in ")[0] for line in second[:-1]]


def test_kept_while_a_file_is_missing_and_until_it_is_there(node, tmp_path):
    missing = tmp_path / "missing"

    def asked(name):
        plan = Plan((Item(COMMAND, name, name),), inputs=(str(missing),))
        return cached(node.state, ("q",), lambda: plan).items[0].name

    assert [asked("first"), asked("second")] == ["first", "first"]
    missing.write_text("now")
    assert asked("third") == "third"


def test_the_directory_matters_only_to_relative_paths(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert cache.directory(["/etc/nhc/nhc.conf", ""]) == ""
    assert cache.directory(["nhc.conf"]) == str(gone)
    gone.rmdir()
    assert cache.directory(["nhc.conf"]) == ""
