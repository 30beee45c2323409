"""`nhc deep sweep` with wrong usage: one line, and no store where there was none."""

import pytest

from tests.support.run import nhc


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("-w", "n[1-"), 2, "n[1-"),
        (("-w", "n[1-4]", "--limit", "10m", "--topology", "/nowhere"), 2, "/nowhere"),
        (
            ("-w", "n[1-4]", "--launcher", "ssh", "--set", "colour=red"),
            2,
            "--set colour: there is no such key",
        ),
        (
            ("-w", "n[1-4]", "--set", "dirctory=/x"),
            2,
            "did you mean 'directory'?",
        ),
        (("-w", "n[1-4]", "--set", "directory=x"), 2, "--set directory: 'x' is not an absolute path"),
        (("-w", "n[1-4]", "--launcher", "kubernetes"), 2, "--set image: missing"),
        (("-w", "n[1-4]", "--continuous", "--launcher", "ssh", "--set", "grace=soon"), 2, "--set grace: "),
        (("-w", "n[1-4]", "--launcher", "pigeon"), 2, "pigeon"),
        (("--job", "17", "--launcher", "ssh"), 2, "nobody knows its nodes"),
        (("--continuous", "--go-on", "1"), 2, "--go-on is for one sweep"),
        (("-w", "n[1-4]", "--window", "whenever"), 2, "--window"),
        ((), 2, ""),
    ],
)
def test_wrong_usage_leaves_no_store_behind(tmp_path, words, status, said):
    done = nhc("deep", "sweep", "--store", f"sqlite:///{tmp_path}/store.db", *words)

    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_to_go_on_needs_a_store_that_is_there(tmp_path):
    done = nhc("deep", "sweep", "--store", f"sqlite:///{tmp_path}/store.db", "--go-on", "1")

    assert done.returncode == 3
    assert f"{tmp_path}/store.db" in done.stderr
    assert list(tmp_path.iterdir()) == []
