"""No control sequence of somebody else's reaches a terminal or a log, whichever command prints it."""

import ast
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.command_line.clean_output import CleanStream, clean
from nhc.core.model import Action
from nhc.marks.commands.sync import SLURM_NAMES
from nhc.marks.policy.reconcile import SyncResult, show_json, show_text
from nhc.marks.ports.adapter import Mark, Operation, PlannedOperation

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "n1\033[2J\033]0;title\a\x9b31m\u202e\udc80\r"


def harmless(text):
    return all(char.isprintable() or char in "\n\t\u00a0\u202f\u3000" for char in text)


@given(st.text())
def test_only_lines_of_printable_characters_pass(text):
    assert harmless(clean(text))
    assert clean(text).count("\n") == text.count("\n")
    assert not text.isprintable() or clean(text) == text


@given(st.text(st.sampled_from("\033[]mK0;3\r\na\x9b")))
def test_where_colours_pass_nothing_but_colours_does(text):
    assert harmless(re.sub(r"\033\[[0-9;]*m|^\r\033\[K", "", clean(text, colours=True), flags=re.MULTILINE))


@pytest.mark.parametrize("ours", ["\033[1;31mCRIT\033[0m x", "\r\033[K3/12 check_fs_mount"])
def test_our_own_colours_and_progress_pass_where_they_are_meant(ours):
    assert clean(ours, colours=True) == ours
    assert "\033" not in clean(ours)


def shown(*texts):
    raw = io.BytesIO()
    stream = CleanStream(raw, "utf-8", "backslashreplace")
    for text in texts:
        stream.write(text)
    stream.flush()
    return raw.getvalue().decode()


def test_slurm_sync_prints_no_node_s_name_as_it_is():
    done = SyncResult((PlannedOperation(HOSTILE, Operation.MARK, HOSTILE, Mark(HOSTILE, Action.REBOOT)),))
    said = shown(show_text(done, SLURM_NAMES), show_json(done))
    assert harmless(said)


def classify(tmp_path, *words):
    path = tmp_path / "messages"
    path.write_bytes(b"kernel: NVRM: Xid (PCI:0000:3b:00): 79, \033]0;x\a\xc2\x9b31m\xed\xb2\x80 fallen\n\033[2Jfoo\n")
    argv = [sys.executable, "-m", "nhc", "log", "classify", "--all", *words, str(path)]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NHC_STATE_DIR": str(tmp_path)}
    return subprocess.run(argv, env=env, capture_output=True, check=True, timeout=60).stdout.decode()


@pytest.mark.thorough
@pytest.mark.parametrize("words", [(), ("-f", "json")])
def test_log_classify_prints_no_line_as_it_is(tmp_path, words):
    said = classify(tmp_path, *words)
    assert harmless(said)
    if words:
        assert [json.loads(line)["code"] for line in said.splitlines()] == ["79", ""]


@pytest.mark.thorough
def test_everything_that_prints_does_so_through_the_streams():
    """No module writes to the descriptors themselves, or to what lies behind the streams."""
    around = []
    for part in ("nhc", "adapters"):
        for path in (ROOT / part).rglob("*.py"):
            if path.name == "node.py" and path.parent.name == "data":
                continue  # it runs on a node before nhc is there; what it says crosses the boundary here
            text = path.read_text()
            if not any(word in text for word in ("buffer", "__std", "os.write")):
                continue  # to parse all files takes a second
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                    "sys.stdout.buffer", "sys.stderr.buffer", "sys.__stdout__", "sys.__stderr__",
                ):  # fmt: skip
                    around.append(f"{path}:{node.lineno}")
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func) == "os.write"
                    and ast.unparse(node.args[0]) in ("1", "2")
                ):
                    around.append(f"{path}:{node.lineno}")
    assert around == []


def test_every_executable_begins_at_the_boundary():
    for launcher in (ROOT / "nhc/core/launch").iterdir():
        assert "\nentry(" in launcher.read_text(), launcher
