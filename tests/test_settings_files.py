"""Settings that are no text, or nested beyond any parser: one line that names the file, wherever they are read."""

from __future__ import annotations

import pytest

from nhc.agent import settings as agent_settings
from nhc.core.language.loader import load as load_configuration
from nhc.core.settings import toml_text
from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.bounded_read import cause
from nhc.marks.policy import policy_file
from nhc_adapters.kubernetes.controller import settings as kubernetes_settings
from tests.support.run import nhc

READERS = [policy_file.load, agent_settings.load, kubernetes_settings.read]


@pytest.mark.parametrize("load", READERS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = 1\nb = \"caf\xe9\"\n", "line 2: byte 0xe9 is not UTF-8 text"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "nested too deep"),
    ],
)  # fmt: skip
def test_it_is_one_line(tmp_path, load, content, said):
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        load(str(path))
    assert str(raised.value) == f"{path}: {said}"


@pytest.mark.thorough
def test_the_command_ends_as_with_any_mistake(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_bytes(b"\xff\xfe")
    done = nhc("serve", "agent", "--check-settings", "-s", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"nhc serve agent: {path}: line 1: byte 0xff is not UTF-8 text\n"


def test_a_line_of_a_configuration_that_is_no_text_is_named_and_spoils_no_other(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_bytes(b"# M\xfcller\n* || check_fs_mount /caf\xe9\n* || true\n")
    plan = load_configuration([str(path)], "n1")
    assert [note.replace(str(tmp_path), "") for note in plan.notes] == ["/nhc.conf:2:25: bytes that are no UTF-8 text"]
    assert len(plan.items) == 2


def test_deep_toml_is_bad_toml():
    with pytest.raises(toml_text.BadToml, match="nested too deep"):
        toml_text.parse("a = " + "[" * 5000)


def test_the_cause_of_any_other_error_is_the_systems():
    assert cause(FileNotFoundError(2, "No such file or directory")) == "No such file or directory"
