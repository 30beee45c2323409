"""`nhc config check` and `nhc config match` as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

ROOT = Path(__file__).parents[3]


def nhc(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command: List[str] = [sys.executable, "-m", "nhc", "config", *argv]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.thorough
def test_a_good_configuration_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "nhc.conf"
    path.write_text("# comment\n* || X=1\n* || check_cmd_status true\nlogin* || probe | cat\n")
    (tmp_path / "ours.nhc").write_text("check_ours() { :; }\n")

    done = nhc("check", str(path), "--scripts", str(tmp_path))

    assert (done.returncode, done.stdout, done.stderr) == (0, "3 lines, 2 checks: fine\n", "")


@pytest.mark.thorough
def test_every_problem_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "nhc.conf"
    path.write_text("login* || check_cmd_statsu true\n* || check_cmd_status -r x true\n")

    done = nhc("check", str(path))

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{path}:1:11: no such check: check_cmd_statsu (did you mean check_cmd_status?)",
        f"{path}:2:26: check_cmd_status: -r: 'x' is not a whole number",
    ]


@pytest.mark.thorough
def test_a_sites_own_check_is_known(tmp_path: Path) -> None:
    (tmp_path / "nhc.conf").write_text("* || check_site_thing\n")
    (tmp_path / "site.nhc").write_text("check_site_thing() { :; }\n")

    assert nhc("check", str(tmp_path / "nhc.conf")).returncode == 2
    assert nhc("check", str(tmp_path / "nhc.conf"), "--scripts", str(tmp_path)).returncode == 0


@pytest.mark.thorough
def test_for_one_node_only_its_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nhc.conf"
    path.write_text("login* || check_nonsense\n")

    assert nhc("check", str(path), "--node", "n01").returncode == 0
    assert nhc("check", str(path), "--node", "login1").returncode == 2


@pytest.mark.thorough
def test_nodes_that_no_line_is_for_are_named(tmp_path: Path) -> None:
    path = tmp_path / "nhc.conf"
    path.write_text("* || X=1\ngpu* || include more\nlogin1 || check_cmd_status true\n")
    (tmp_path / "more").write_text("{gpu[1-3]} || check_cmd_status true\n")

    done = nhc("check", str(path), "--nodes", "gpu[1-5],login[1-2]")

    assert (done.returncode, done.stdout) == (1, "4 lines, 2 checks: fine\n")
    assert done.stderr == "no line is for gpu[4-5],login2: hooks check nothing there\n"
    assert nhc("check", str(path), "--nodes", "gpu[1-3]").returncode == 0
    assert "--nodes" in nhc("check", str(path), "--nodes", "gpu[1-").stderr


def test_a_missing_file_is_an_error() -> None:
    done = nhc("check", "/no/such/nhc.conf")

    assert (done.returncode, done.stderr) == (2, "/no/such/nhc.conf: No such file or directory\n")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "pattern", "status"), [("n05", "{n[01-10],login}", 0), ("n11", "{n[01-10]}", 1), ("n1", "!n*", 1)]
)
def test_match_answers_with_its_status(name: str, pattern: str, status: int) -> None:
    assert nhc("match", name, pattern).returncode == status


def test_match_reads_lines() -> None:
    done = nhc("match", "-", stdin="n05\t{n[01-10]}\nlogin\tn*\nx\t/a(/\n")

    assert (done.returncode, done.stdout) == (0, "0\n1\n3\n")
    assert done.stderr == "line 3: /a(/: not an extended regular expression: unmatched (\n"


def test_match_needs_a_pattern() -> None:
    assert nhc("match", "n1").returncode == 2
