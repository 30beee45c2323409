"""Several services in one process: their settings, their pages, how they end together."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from nhc.cli import serve
from nhc.cli.host_settings import FILE, HostedService, HostSettings, ServerPart, SparesPart, parse
from nhc.core.settings.settings_file import SettingsError
from nhc.core.system.metrics_server import Pages
from nhc.core.system.stop_signals import ENDING
from nhc.store.errors import StoreError
from nhc.store.rounds.leader import Leader
from nhc.store.rounds.service import RoundEnd, RoundService
from tests.support.new_store import new_store
from tests.support.ports import free_port
from tests.support.run import nhc
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def test_a_section_that_is_there_is_hosted():
    assert parse(FILE.example()) == HostSettings(remedy=HostedService(), notices=HostedService(), server=ServerPart())
    assert parse('[jobs]\nsettings = "j"\n[spares]\nevery = "5m"\n') == HostSettings(
        jobs=HostedService("j"), spares=SparesPart("", 300.0, False)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "serve.toml: no service: name one as [remedy], [jobs], [notices], [spares], [server]"),
        ("[remedy]\n[job]\n", "serve.toml:2: job: there is no such key: did you mean 'jobs'?"),
        ('[remedy]\nevery = "1s"\n', "serve.toml:2: remedy.every: there is no such key"),
        ('[spares]\nevery = "0s"\n', "serve.toml:2: spares.every: "),
    ],
)
def test_a_mistake_is_one_line(text, said):
    with pytest.raises(SettingsError) as raised:
        parse(text)
    assert str(raised.value).startswith(said)


def test_the_page_is_of_all_services_and_healthz_names_the_one_that_is_not_healthy():
    pages = Pages(["serve remedy", "serve job"])
    assert pages.page("/healthz") == (503, "serve remedy: no round has ended yet\nserve job: no round has ended yet\n")
    pages.update("a 1\n", "", "serve remedy")
    pages.update("b 2\n", "half a view", "serve job")
    assert pages.page("/metrics") == (200, "a 1\nb 2\n")
    assert pages.page("/healthz") == (503, "serve job: half a view\n")


class Work:
    """Rounds that call `act`, which may raise."""

    prefix = "nhc_x"

    def __init__(self, act):
        self.act, self.rounds, self.fences = act, 0, []

    def lead(self, fence):
        self.fences.append(fence.name)

    def round(self):
        self.rounds += 1
        self.act(self)
        return RoundEnd()

    def page(self):
        return ""


@pytest.fixture
def hosted(tmp_path):
    """What makes a service of what its rounds do, each with a lead of its own."""
    before = {number: signal.getsignal(number) for number in ENDING}
    store = new_store(str(tmp_path), anchor="")

    def made(name, act):
        work = Work(act)
        return work, RoundService(name, work, Leader(store, name=name), every=0.01)

    yield made
    store.close()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.thorough
def test_one_that_cannot_use_its_store_holds_up_no_other_and_a_signal_ends_all(hosted):
    def away(_work):
        raise StoreError("the store is away")

    def ends(work):
        if work.rounds == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    (first, one), (second, two) = hosted("serve remedy", away), hosted("serve job", ends)
    assert serve.host([one, two], "") == 0
    assert (second.rounds, set(first.fences), set(second.fences)) == (5, {"serve remedy"}, {"serve job"})
    again, service = hosted("serve job", lambda _work: os.kill(os.getpid(), signal.SIGTERM))
    assert serve.host([service], "") == 0, "the leads were given up"
    assert again.rounds == 1


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_ends_ends_all(hosted, capsys):
    """What a round raises is tried again; a service that ends all the same takes the process with it, to start anew."""

    def fails(_work):
        until(lambda: second.rounds, what="a round of the other")
        raise SystemExit(3)

    _first, one = hosted("serve remedy", fails)
    second, two = hosted("serve job", lambda _work: None)
    fronts = []
    assert serve.host([one, two], "", lambda stop: fronts.append(stop.wait(60.0))) == 1
    assert fronts == [True]
    assert "nhc serve: serve remedy has failed: all have ended" in capsys.readouterr().err


def answer(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_a_small_site_has_one_process(tmp_path):
    url, port = f"sqlite:///{tmp_path}/store.db", free_port()
    (tmp_path / "jobs.toml").write_text(
        f'store = "{url}"\nevery = "1s"\n[controllers.slurm]\nconf = "{tmp_path}/no.conf"\ntimeout = "1s"\n'
    )
    (tmp_path / "notices.toml").write_text(
        f'store = "{url}"\nevery = "1s"\n[channels.hook]\nkind = "alertmanager"\nurl = "http://127.0.0.1:9/"\n'
    )
    (tmp_path / "server.toml").write_text(f'listen = "127.0.0.1:{port}"\n')
    (tmp_path / "store.toml").write_text(f'url = "{url}"\n')
    (tmp_path / "serve.toml").write_text(
        f'[jobs]\nsettings = "{tmp_path}/jobs.toml"\n[notices]\nsettings = "{tmp_path}/notices.toml"\n'
        f'[server]\nsettings = "{tmp_path}/server.toml"\nstore = "{tmp_path}/store.toml"\n'
    )
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "nhc", "serve", "-s", tmp_path / "serve.toml", "--listen", "127.0.0.1:0"],
            stderr=log, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"},
        )  # fmt: skip
    try:
        said = (tmp_path / "log").read_text
        address = until(lambda: re.findall(r"/healthz are on (\S+)", said()), 60, said=said)[-1]
        until(lambda: answer(address, "/healthz") == (200, "ok\n"), 60, said=said)
        page = answer(address, "/metrics")[1]
        assert "nhc_job_leader 1" in page.splitlines()
        assert "nhc_notices_leader 1" in page.splitlines()
        until(lambda: "listening on" in said(), 60, said=said)
        assert answer(f"127.0.0.1:{port}", "/healthz")[0] == 200
        other = nhc("serve", "notices", "--once", "-s", tmp_path / "notices.toml")
        assert other.returncode == 3
        assert "another leads" in other.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, said()
        assert nhc("serve", "notices", "--once", "-s", tmp_path / "notices.toml").returncode == 0
    finally:
        process.kill()
        process.wait(60)
