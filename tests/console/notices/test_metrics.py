"""`nhc serve notices --listen`: what waits, was sent and was lost, by channel, from a process that really runs."""

import contextlib
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.store.intake import IntakeSettings
from nhc.store.reports import import_reports
from tests.support.new_store import new_store
from tests.support.ports import free_port
from tests.support.run import nhc
from tests.support.waiting import until

pytestmark = pytest.mark.thorough

LOST = CheckResult("check_gpu", Outcome(Verdict.CRIT, "GpuLost", "gpu3 is gone", action=Action.REBOOT))


@pytest.fixture
def settings(tmp_path, receiver):
    """A store with a fault in it, and a channel to `receiver`."""
    url = f"sqlite:///{tmp_path}/store.db"
    file = tmp_path / "notices.toml"
    file.write_text(
        f'store = "{url}"\nwait = "0s"\nevery = "0.1s"\n[channels.am]\nkind = "alertmanager"\nurl = "{receiver.url}"\n'
    )
    store = new_store(str(tmp_path), anchor="")
    import_reports(store, [Report("n1", "b", time.time(), 1.0, (LOST,))], "agent", IntakeSettings(), time.time())
    store.close()
    return file


class Running:
    """`nhc serve notices --listen`."""

    def __init__(self, file):
        self.port = free_port()
        argv = [sys.executable, "-m", "nhc", "serve", "notices", "-s", str(file), "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)

    def page(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def until(self, sample):
        def shown():
            assert self.process.poll() is None, self.process.stderr.read()
            text = self.page("/metrics")[1]
            return text if re.search(rf"^{re.escape(sample)}$", text, re.MULTILINE) else ""

        return until(shown, 60, what=sample, said=lambda: self.page("/metrics")[1])

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said


@pytest.fixture
def start():
    made = []

    def one(file):
        made.append(Running(file))
        return made[-1]

    yield one
    for running in made:
        running.process.kill()
        running.process.communicate(timeout=60)


def test_a_channel_that_is_away_is_seen_and_its_return_as_well(settings, receiver, start):
    receiver.default = (503, {"Retry-After": "1"}, b"")
    running = start(settings)
    text = running.until('nhc_notices_channel_up{channel="am"} 0')
    assert 'nhc_notices_waiting{channel="am"} 1\n' in text
    assert 'nhc_notices_sent_total{channel="am"} 0\n' in text
    assert running.page("/healthz") == (200, "ok\n")  # the process is well, and no restart would bring the channel back
    receiver.default = (200, {}, b"")
    text = running.until('nhc_notices_channel_up{channel="am"} 1')
    assert 'nhc_notices_sent_total{channel="am"} 1\n' in text
    assert "nhc_notices_leader 1\n" in text
    assert running.end()[0] == 0


def test_what_a_channel_refuses_is_lost(settings, receiver, start):
    receiver.default = (400, {}, b"no")
    text = start(settings).until('nhc_notices_lost_total{channel="am"} 1')
    assert 'nhc_notices_waiting{channel="am"} 0\n' in text


def test_of_two_over_one_store_the_second_stands_by(settings, start):
    first = start(settings)
    first.until("nhc_notices_leader 1")
    second = start(settings)
    second.until("nhc_notices_leader 0")
    assert second.page("/healthz") == (200, "ok\n")
    first.end()
    second.until("nhc_notices_leader 1")


def test_a_store_that_cannot_be_used_is_unhealthy(settings, tmp_path, start):
    running = start(settings)
    running.until("nhc_notices_leader 1")
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", timeout=60)) as store:
        store.execute("ALTER TABLE outbox RENAME TO damaged")
        store.commit()
    deadline = time.monotonic() + 60
    while running.page("/healthz")[0] != 503:
        assert time.monotonic() < deadline, running.page("/healthz")
        time.sleep(0.05)
    assert running.page("/metrics") == (200, "")
    code, said = running.end()
    assert code == 0
    assert "no such table: outbox" in said


def test_an_address_that_cannot_be_had_is_one_line(settings):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = nhc("serve", "notices", "-s", settings, "--listen", address)
    assert (done.returncode, done.stderr) == (3, f"nhc serve notices: --listen {address}: Address already in use\n")
    done = nhc("serve", "notices", "-s", settings, "--listen", "soon")
    assert done.returncode == 2
    assert "--listen: 'soon' is no address" in done.stderr
