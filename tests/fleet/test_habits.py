"""What users of clush and pdsh type, inventories with a vault, and the help of a command with many options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.conftest import HOSTS, aliases, over
from tests.support.require import need


@pytest.fixture
def fine(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_text("* || check_fs_mount /\n")
    return path


def test_node_sets_of_a_file_as_clush_and_pdsh_have_them(fleet, few, fine, tmp_path):
    (tmp_path / "hosts").write_text("# the first rack\ngpu[01-02]\n")
    (tmp_path / "out").write_text("gpu02\n")
    words = [*over(few), "-c", fine, "-w", f"^{tmp_path}/hosts,gpu[03-04]", "-x", f"^{tmp_path}/out"]
    assert fleet.check(*words).stdout.startswith("OK 3 nodes gpu[01,03-04]")


def test_f_is_the_format_and_never_the_fan_out(fleet, few, fine):
    words = [*over(few), "-c", fine, "-w", "gpu[01-02]"]
    assert fleet.check(*words, "-f", "jsonl").stdout.count('"host":"gpu0') == 2
    for wrong in ("1", "xml"):
        done = fleet.check(*words, "-f", wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert "'text', 'json', 'jsonl'" in done.stderr


def test_all_nodes_are_those_of_the_default_group_source(fleet, server, fine, tmp_path):
    config = aliases(server, dict(list(HOSTS.items())[:3]), tmp_path / "ssh_config")
    (tmp_path / "groups.conf").write_text(
        "[Main]\ndefault: site\n[site]\nmap: echo\nall: echo gpu[01-03]\nlist: echo\n"
    )
    env = {"CLUSTERSHELL_CFGDIR": str(tmp_path)}
    assert fleet.check(*over(config), "-c", fine, "-a", env=env).stdout.startswith("OK 3 nodes gpu[01-03]")
    (tmp_path / "groups.conf").write_text("[Main]\ndefault: site\n[site]\nmap: echo\nall: echo broken >&2; exit 3\n")
    done = fleet.check(*over(config), "-c", fine, "-a", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "-a: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def vaulted(tmp_path, server):
    """An inventory whose group_vars are a vault, with a port that only it knows."""
    vault = Path(sys.executable).parent / "ansible-vault"
    need("ansible-vault", vault.exists())
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "hosts").write_text("gpu01 ansible_host=127.0.1.1\n")
    (tmp_path / "group_vars").mkdir()
    secrets = tmp_path / "group_vars" / "all.yml"
    secrets.write_text("ansible_host: 127.0.1.1\nrack: from-the-vault\n")
    subprocess.run([vault, "encrypt", "--vault-password-file", tmp_path / "password", secrets], check=True,
                   capture_output=True)  # fmt: skip
    return tmp_path


def test_an_inventory_with_a_vault(fleet, fine, vaulted):
    words = ["-i", vaulted / "hosts", "-c", fine, "-f", "jsonl"]
    done = fleet.check(*words, "--set", f"vault-password-file={vaulted / 'password'}")
    assert '"rack":"from-the-vault"' in done.stdout, done.stderr
    (vaulted / "wrong").write_text("no\n")
    for more in (["--set", f"vault-password-file={vaulted / 'wrong'}"], []):
        done = fleet.check(*words, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert "vault secrets" in done.stderr
        assert ("ask-vault-pass" in done.stderr) == (not more)
        assert "Traceback" not in done.stderr
    done = fleet.check(*words, "--set", f"vault-password-file={vaulted / 'nothing'}")
    assert f"vault-password-file {vaulted}/nothing: No such file" in done.stderr


def test_options_stand_under_headings_each_once(fleet):
    shown = fleet("check", "--help").stdout
    headings = re.findall(r"^(\w[\w ]+):$", shown, re.MULTILINE)
    assert headings == ["Which nodes", "What is checked there", "How nodes are reached",
                        "What is shown and kept", "What follows", "Other"]  # fmt: skip
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE)
    assert len(flags) == 26  # 24, --check-settings and --help
    assert len(flags) == len(set(flags))
    assert "Show this message and exit.\n" in shown
    for form in ("text", "json", "jsonl"):
        assert form in shown
