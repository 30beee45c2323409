"""`nhc deep run` brings its results into the store: straight, and through a real server as the agent pushes."""

import os
import subprocess
import sys

import pytest

from nhc.model import Verdict
from nhc.render import push
from nhc.store import deep, nodes
from tests.support.intake import OK, XID, Server, report


@pytest.fixture(scope="module")
def intake(tmp_path_factory, request):
    directory = tmp_path_factory.mktemp("deep-intake")
    server = Server(directory, f"sqlite:///{directory}/store.db")
    yield server
    server.stop()


def run(place, *words):
    suite = place / "gate.conf"
    suite.write_text("* |context deep| check_file_test -e /etc/passwd\n* |context deep| check_file_test -e /no/such\n")
    ours = [sys.executable, "-m", "nhc", "deep", "run", str(suite), "--adapter", "none", "--force", "-n", "n7", "-q"]
    return subprocess.run(
        [*ours, *words],
        env={**os.environ, "NHC_DEEP_DIR": str(place / "deep"), "NHC_STATE_DIR": str(place / "state")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def settings(place, server, token):
    (place / "token").write_text(token)
    (place / "agent.toml").write_text(
        f'[sinks.server]\nurl = "{server.url}"\ntoken-file = "{place}/token"\nspool = "{place}/spool"\n'
    )
    return str(place / "agent.toml")


def test_results_are_pushed_to_the_server_and_kept_once(tmp_path, intake):
    done = run(tmp_path, "--server", settings(tmp_path, intake, intake.token("n7")))
    assert (done.returncode, done.stderr) == (1, "")
    with intake.store() as store, store.read() as connection:
        ((key, last),) = deep.last_conclusive(connection, ["n7"]).items()
        assert key == ("n7", "gate")
        assert last.verdict == "CRIT"
        assert nodes.get(connection, "n7") is None  # it says nothing of how the node is now


def test_the_same_push_twice_is_one_run_and_an_ordinary_report_beside_it_is_ordinary(intake):
    token = intake.token("n8")
    one = report("n8", 1000.0, (OK, XID))
    texts = [push.to_text(push.Pushed(one, True, 1000.0, "burn")), push.to_text(push.Pushed(one, True, 1000.0))]
    for _ in range(2):
        assert intake.push(push.pack("n8", texts), token)[0] == 200
    with intake.store() as store, store.read() as connection:
        assert len(deep.history(connection, "n8")) == 2
        assert nodes.get(connection, "n8").verdict == Verdict.CRIT.name


@pytest.mark.parametrize("suite", [3, "x" * 101, "a\nb", None])
def test_a_suite_that_is_no_name_is_refused(suite):
    text = push.to_text(push.Pushed(report("n9"), True, 1.0)).replace(
        '"complete"', f'"suite":{push.json.dumps(suite)},"complete"'
    )
    with pytest.raises(ValueError, match="suite is no name"):
        push.parse(push.unpack(push.pack("n9", [text]), 1 << 20))


def test_what_cannot_be_sent_is_said_and_changes_nothing_of_the_verdict(tmp_path, intake):
    wrong = run(tmp_path, "--server", settings(tmp_path, intake, "no-token"))
    assert wrong.returncode == 1
    assert "the results are not sent" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    (tmp_path / "agent.toml").write_text("[sinks.other]\n")
    assert "there is no [sinks.server]" in run(tmp_path, "--server", str(tmp_path / "agent.toml")).stderr
    assert "/no/such.toml" in run(tmp_path, "--server", "/no/such.toml").stderr


def test_results_are_kept_in_a_store_straight(tmp_path):
    url = f"sqlite:///{tmp_path}/own.db"
    missing = run(tmp_path, "--store", url)
    assert missing.returncode == 1
    assert "the results are not in the store" in missing.stderr
    subprocess.run([sys.executable, "-m", "nhc", "store", "migrate", "--url", url], check=True, capture_output=True)
    assert run(tmp_path, "--store", url).stderr == ""

    late = subprocess.run([sys.executable, "-m", "nhc", "deep", "due", "--url", url, "-n", "n[6-7]"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert late.returncode == 1
    assert late.stdout.splitlines()[0] == "n6 has no deep verdict"
    assert late.stdout.splitlines()[1].startswith("n7 failed gate ")
