"""Names that an inventory makes up, from a cloud's tags for one: nothing of them runs, nor moves a terminal."""

from __future__ import annotations

import json
import sys

import pytest

NAMES = ["a b", "n1\nn2", "evil\x1b]0;owned\x07", "</script><script>alert(1)</script>", "*", "$(touch owned)",
         "-oProxyCommand=touch owned", "../../etc/passwd", "q'\"`id`", "right\u202eleft", "gpu01"]  # fmt: skip


@pytest.fixture
def made_up(tmp_path):
    """A dynamic inventory with these names; every node is this machine, or a port where nobody listens."""

    def write(**variables):
        script = tmp_path / "inventory.py"
        value = {"gpu": {"hosts": NAMES}, "_meta": {"hostvars": dict.fromkeys(NAMES, variables)}}
        script.write_text(f"#!{sys.executable}\nprint({json.dumps(value)!r})\n")
        script.chmod(0o755)
        return script

    return write


def quiet(text):
    """No control characters but the ends of lines."""
    return text.replace("\n", "").isprintable()


def test_hostile_names_are_shown_safely_everywhere(fleet, made_up, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    words = ["-i", made_up(ansible_connection="local"), "-c", tmp_path / "nhc.conf"]
    done = fleet.check(*words, "--set", f"html={tmp_path / 'report.html'}", "--set", f"json={tmp_path / 'report.json'}")
    assert quiet(done.stdout)
    assert quiet(done.stderr)
    assert "UNKNOWN 3 nodes n1 n2,evil ]0;owned,right left: BadInventory" in done.stdout
    assert f"{len(NAMES)} nodes: 3 UNKNOWN, {len(NAMES) - 3} OK" in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert quiet(page)
    reports = json.loads((tmp_path / "report.json").read_text())["reports"]
    assert len(reports) == len({report["host"] for report in reports}) == len(NAMES)
    assert quiet(fleet("report", "--by", "check").stdout + fleet("report", "-f", "jsonl").stdout)


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_no_name_is_an_option_or_a_command(fleet, made_up, tmp_path, transport):
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    done = fleet.check("-i", made_up(ansible_port=1), "-c", tmp_path / "nhc.conf", "--set", f"transport={transport}")
    assert done.returncode == 3
    assert quiet(done.stdout)
    assert f"{len(NAMES)} nodes: {len(NAMES)} UNKNOWN" in done.stdout
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize(("text", "said"), [
    ("[gpu]\ngpu1\ngpu2 ansible_host\n", "Expected key=value"),
    ("gpu1\n[gpu:nonsense]\ngpu2\n", "unknown type: nonsense"),
])  # fmt: skip
def test_an_inventory_that_breaks_off_in_the_middle_is_no_inventory(fleet, tmp_path, text, said):
    """Ansible warns and goes on with the hosts before the mistake: half a fleet would be judged as if it were all."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "good").write_text("login1\n")
    (tmp_path / "site" / "bad").write_text(text)
    for source, where in ((tmp_path / "site" / "bad", ""), (tmp_path / "site", f"({tmp_path}/site/bad)")):
        done = fleet.check("-i", source, "--set", "transport=local")
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert said in done.stderr
        assert where in done.stderr
        assert done.stderr.startswith(f"nhc fleet check: {source}: ")


def test_arguments_that_cannot_be_read_are_that_node_s_problem(fleet, tmp_path):
    (tmp_path / "hosts").write_text('gpu1 ansible_ssh_common_args="-o \'open"\n')
    done = fleet.check("-i", tmp_path / "hosts")
    assert "UNKNOWN 1 node gpu1: BadInventory: ansible_ssh_common_args: No closing quotation" in done.stdout


def test_a_wrong_node_set_does_not_move_the_terminal(fleet, tmp_path):
    (tmp_path / "nodes").write_text("gpu\x1b[2J\n")
    done = fleet.check("-w", f"^{tmp_path}/nodes")
    assert done.returncode == 2
    assert quiet(done.stderr)
