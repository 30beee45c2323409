"""`nhc serve console` where it cannot run: one line, and the status that says whose turn it is."""

import socket

import pytest

from tests.support.new_store import new_store
from tests.support.run import ROOT, nhc

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(("text", "words", "status", "said"), [
    ("", ("--store", "sqlite:////no/such/store.db"), 3, "/no/such/store.db"),
    ('store = "sqlite:////no/such/store.db"', (), 3, "/no/such/store.db"),
    ('stale = "never"', (), 2, "c.toml:1: stale: 'never' is not a duration"),
    ('stale = "never"', ("--check-settings",), 2, "c.toml:1: stale: 'never' is not a duration"),
    ("", ("--listen", "0.0.0.0:9810"), 2, "is not a loopback address"),
    ("", ("--adapter", "kubernets"), 2, "did you mean kubernetes?"),
    ("", ("--adapter", "kubernetes"), 3, "/no/such/kubeconfig"),
    ("", ("-r", "/tmp", "--store", "sqlite:///x"), 2, "exclude each other"),
])  # fmt: skip
def test_what_cannot_be_shown_is_one_line(tmp_path, text, words, status, said):
    (tmp_path / "c.toml").write_text(text + "\n")
    done = nhc("serve", "console", "--settings", tmp_path / "c.toml", *words, env={"KUBECONFIG": "/no/such/kubeconfig"})
    assert done.returncode == status, done
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_is_taken_cannot_be_had(tmp_path):
    new_store(str(tmp_path), anchor="").close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        done = nhc("serve", "console", "--store", f"sqlite:///{tmp_path}/store.db", "--listen", at)
    assert (done.returncode, at in done.stderr, "Traceback" in done.stderr) == (3, True, False), done.stderr


def test_settings_that_are_not_there_are_wrong_usage():
    done = nhc("serve", "console", "--settings", "/no/such/console.toml")
    assert (done.returncode, "/no/such/console.toml" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("words", "library", "extra"),
    [
        (("serve", "console"), "aiohttp", "console"),
        (("serve", "console"), "sqlalchemy", "console"),
        (("demo",), "aiohttp", "console"),
        (("status", "notices"), "sqlalchemy", "remedy"),
    ],
)
def test_a_library_that_is_missing_is_named_with_how_to_install_it(tmp_path, words, library, extra):
    (tmp_path / f"{library}.py").write_text(f"raise ModuleNotFoundError('No module', name='{library}')\n")
    done = nhc(*words, env={"PYTHONPATH": f"{tmp_path}:{ROOT}:{ROOT / 'adapters'}"})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert f"{library}: pip install '.[{extra}]'" in done.stderr
