"""`nhc sync --adapter NAME`, and the formats of installed packages (entry points nhc.adapters and nhc.renderers)."""

import json
import time

import pytest

from tests.support.run import ROOT, nhc

pytestmark = pytest.mark.thorough

MODULE = '''
import json, os
from nhc.marks.ports.adapter import Applied, Effect, NodeState
from nhc.marks.ports.marks import may_mark, may_clear, mark_text, read_mark_text

class Board:
    """Nodes on a board that is a file."""
    def __init__(self, settings=None, environ=None, timeout=30.0):
        self.path = (settings or {})["NHC_BOARD"]
    def nodes(self, names=None):
        marks = json.load(open(self.path))
        return [NodeState(n, "out" if t else "in", not t, mark=read_mark_text(t)) for n, t in sorted(marks.items())
                if names is None or n in names]
    def write(self, change):
        json.dump({**json.load(open(self.path)), **change}, open(self.path + ".new", "w"))
        os.replace(self.path + ".new", self.path)
    def mark(self, marks, seen=None):
        self.write({name: mark_text(mark) for name, mark in marks.items()})
        return [Applied(name, Effect.CHANGED) for name in marks]
    def clear(self, names, seen=None):
        self.write({name: "" for name in names})
        return [Applied(name, Effect.CHANGED) for name in names]

class Reader:
    def __init__(self, settings=None, environ=None, timeout=30.0): pass
    def nodes(self, names=None): return []

def brief(report):
    return f"{report.verdict.name} of {len(report.results)}\\n"
def wrong(report):
    return 7
def broken(report):
    raise KeyError("nothing")
'''
ENTRIES = """[nhc.adapters]
board = board_plugin:Board
reader = board_plugin:Reader
[nhc.renderers]
brief = board_plugin:brief
wrong = board_plugin:wrong
broken = board_plugin:broken
"""


class Site:
    def __init__(self, base):
        self.base, self.board = base, base / "board.json"
        self.board.write_text(json.dumps({"n1": "", "n2": "NHC: check_x: old", "n3": "new DIMM"}))
        (base / "board_plugin.py").write_text(MODULE)
        info = base / "board_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: board-plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(ENTRIES)

    def nhc(self, *words, **env):
        path = f"{ROOT}:{ROOT / 'adapters'}:{self.base}"
        return nhc(*words, state=self.base / "state", env={"PYTHONPATH": path, "NHC_MUTES": "/no/such", **env})

    def reports(self):
        def report(host, verdict):
            result = {"check": "check_fs_free", "verdict": verdict, "reason": "Full", "message": "/ is full"}
            return {**json.loads(KEPT.read_text()), "host": host, "started": time.time(), "results": [result]}

        path = self.base / "reports.json"
        path.write_text(json.dumps([report("n1", "CRIT"), report("n2", "OK"), report("n3", "OK")]))
        return path

    def sync(self, *words, adapter="board", **env):
        ledger = self.base / "ledger"
        ledger.mkdir(exist_ok=True)
        return self.nhc("sync", "--adapter", adapter, "-r", self.reports(), "--ledger", ledger, "--patience", "0s",
                        *words, **env)  # fmt: skip


KEPT = ROOT / "tests" / "nodes" / "h100-xid79" / "report.json"


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_packages_adapter_is_shown_what_it_would_do_and_then_does_it(site):
    before = site.board.read_text()
    shown = site.sync("--set", f"NHC_BOARD={site.board}")
    assert shown.returncode == 0, shown.stderr
    assert "would mark   n1  check_fs_free: / is full" in shown.stdout
    assert "would clear  n2" in shown.stdout
    assert site.board.read_text() == before
    done = site.sync("--apply", "-f", "json", NHC_BOARD=str(site.board))  # NHC_* of the environment are settings too
    assert done.returncode == 0, done.stderr
    assert {one["node"]: one["effect"] for one in json.loads(done.stdout)["remedies"]} == {
        "n1": "changed",
        "n2": "changed",
    }
    marks = json.loads(site.board.read_text())
    assert marks["n1"].startswith("NHC: [node] check_fs_free: / is full")
    assert marks["n2"] == ""
    assert marks["n3"] == "new DIMM"  # an operator's


@pytest.mark.parametrize(
    ("adapter", "words", "says"),
    [
        ("bord", (), "there is no adapter called 'bord': did you mean board?"),
        ("reader", (), "--adapter reader: this adapter knows nodes but cannot mark them"),
        ("board", ("--set", "NHC_BOARD"), "--set: 'NHC_BOARD' is not NAME=VALUE"),
        ("board", ("--set", "NHC_BOARD=x", "--max-drained", "lots"), "--max-drained"),
    ],
)
def test_what_cannot_be_used_is_one_line(site, adapter, words, says):
    said = site.sync(*words, adapter=adapter)
    assert said.returncode == 2
    assert said.stderr.startswith("nhc sync: ")
    assert says in said.stderr
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_bound_on_groups_that_no_node_is_in_is_a_line(site, form):
    policy = site.base / "policy.toml"
    policy.write_text("[bounds.rack]\nout = 1\n[bounds.row]\nout = 2\n")
    done = site.sync("--policy", policy, "--format", form, NHC_BOARD=str(site.board))
    assert done.stderr == "".join(
        f"nhc sync: bounds.{kind}: no node is in such a group: the nodes' groups are of these kinds: none\n"
        for kind in ("rack", "row")
    )
    assert (done.returncode, "bounds" in done.stdout) == (0, False)


def test_the_remedy_loop_takes_no_adapter_that_marks_in_one_name_only(site):
    """`sync` may use it; what the loop keeps out until it is proved would go back by a healthy report."""
    settings = site.base / "remedy.toml"
    settings.write_text(
        f'store = "sqlite:///{site.base}/store.db"\n[sources]\nadapter = "board"\nreports = "{site.reports()}"\n'
        f'[sources.settings]\nNHC_BOARD = "{site.board}"\n'
    )
    said = site.nhc("serve", "remedy", "--once", "--settings", settings)
    assert said.returncode in (2, 3), said.stderr
    assert "sources.adapter: board does not mark as nhc-remedy: it must take NHC_MARK_OWNER" in said.stderr
    assert "Traceback" not in said.stderr


def local(site, form, *words):
    config = site.base / "nhc.conf"
    config.write_text("* || check_hw_mem_free 1k\n")
    return site.nhc("check", "local", "-c", config, "--profile", "none", "-f", form, *words)


def test_a_packages_format_prints_the_report(site):
    assert (local(site, "brief").stdout, local(site, "brief").returncode) == ("OK of 1\n", 0)
    out = site.base / "out"
    local(site, "brief", "-o", out)
    assert out.read_text() == "OK of 1\n"
    replayed = site.nhc("replay", KEPT.parent, "-f", "brief")
    assert replayed.stdout.startswith("CRIT of ")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("breif", "'breif' is not one of text, json, jsonl, nagios, npd, prometheus, brief, broken, wrong"),
        ("wrong", "--format wrong: its renderer returned int, not text"),
        ("broken", "--format broken: its renderer failed: KeyError: 'nothing'"),
    ],
)
def test_a_format_that_fails_is_wrong_usage_with_one_line(site, form, says):
    said = local(site, form)
    assert said.returncode == 2
    assert says in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"\xff\xfe report", "line 1: byte 0xff is not UTF-8 text"),
        (b"* || true\n", "not a report in JSON: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_file_that_is_no_report_is_said_in_words(site, tmp_path, held, said):
    file = tmp_path / "held"
    file.write_bytes(held)

    done = site.nhc("sync", "--adapter", "board", "-r", file)
    assert (done.returncode, done.stderr) == (2, f"nhc sync: {file}: {said}\n")


def test_a_file_of_nodes_that_is_no_text_is_said_in_words(site, tmp_path):
    (tmp_path / "nodes").write_bytes(b"n1\n\xff\n")

    done = site.nhc("fleet", "check", "-w", f"^{tmp_path}/nodes")
    assert (done.returncode, done.stderr) == (
        2,
        f"nhc fleet check: {tmp_path}/nodes: line 2: byte 0xff is not UTF-8 text\n",
    )


def test_one_broken_file_of_a_directory_leaves_the_others_in_force(site, tmp_path):
    directory = tmp_path / "reports"
    directory.mkdir()
    for number, each in enumerate(json.loads(site.reports().read_text())):
        (directory / f"{number}.jsonl").write_text(json.dumps(each) + "\n")
    (directory / "broken.json").write_text('{"host": "n3"')
    (directory / "other.txt").write_text("")

    done = site.nhc("sync", "--adapter", "board", "-r", directory, "--ledger", tmp_path, NHC_BOARD=str(site.board))
    assert done.returncode == 1
    assert "would mark   n1" in done.stdout
    assert "would clear  n2" in done.stdout
    assert f"{directory}/broken.json: " in done.stderr
    assert "other.txt" in done.stderr


def test_a_directory_without_reports_is_said(site, tmp_path):
    (tmp_path / "empty").mkdir()
    words = ("-r", tmp_path / "empty", "--ledger", tmp_path)
    done = site.nhc("sync", "--adapter", "board", *words, NHC_BOARD=str(site.board))
    assert "No node has reported yet; reports come from" in done.stderr
    assert done.returncode == 0
