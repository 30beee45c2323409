"""A service of rounds: who leads, what the log and the pages say, and how it ends."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from nhc.core.system.stop_signals import ENDING
from nhc.marks.ports.adapter import AdapterError
from nhc.store.connect import open_store
from nhc.store.errors import LeadershipLost, RoundRefused, StoreError
from nhc.store.rounds.leader import Leader
from nhc.store.rounds.service import RoundEnd, RoundService
from tests.support.new_store import new_store
from tests.support.ports import free_port
from tests.support.run import nhc
from tests.support.waiting import until


@pytest.fixture
def store(tmp_path):
    before = {number: signal.getsignal(number) for number in ENDING}
    made = new_store(str(tmp_path), anchor="")
    yield made
    made.close()
    for number, handler in before.items():
        signal.signal(number, handler)


def samples(page):
    """The samples of a page of metrics, without the moment of the round."""
    lines = (line for line in page.splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in (line.rpartition(" ") for line in lines) if "timestamp" not in name}


def counted(problems, rounds, failed):
    return {"nhc_x_leader": "1", "nhc_x_problems": str(problems), "nhc_x_rounds_total": str(rounds),
            "nhc_x_rounds_failed_total": str(failed), "nhc_x_own": "7"}  # fmt: skip


class Work:
    """Rounds that end as the test says; after the last of them comes SIGTERM. `pages` are seen before each round."""

    prefix = "nhc_x"

    def __init__(self, *ends):
        self.ends, self.numbers, self.seen = list(ends), [], []
        self.service = None

    def lead(self, fence):
        self.numbers.append(fence.number if fence else None)

    def round(self):
        self.seen.append((self.service.pages.page("/healthz"), samples(self.service.pages.page("/metrics")[1])))
        end = self.ends.pop(0)
        if not self.ends:
            os.kill(os.getpid(), signal.SIGTERM)
        if isinstance(end, Exception):
            raise end
        return end

    def page(self):
        return "nhc_x_own 7\n"


def service_of(store, *ends, leader=True, **more):
    work = Work(*ends)
    work.service = RoundService("serve job", work, Leader(store, name="jobs") if leader else None, every=0.0, **more)
    return work, work.service


def lines(capsys):
    return [line.removeprefix("nhc serve job: ") for line in capsys.readouterr().err.splitlines()]


def test_a_problem_is_said_once_while_it_lasts_and_again_when_it_is_back(store, capsys):
    away = RoundEnd(("slurm is away",), ("would restart 7",))
    _work, service = service_of(store, away, away, RoundEnd(), away)
    assert service.run(once=False) == 0
    assert lines(capsys)[1:] == ["slurm is away", "would restart 7"] * 2


@pytest.mark.thorough
def test_the_pages_say_how_the_last_round_ended(store, capsys):
    half = RoundEnd(("half a view",), unhealthy="half a view")
    ends = (RoundEnd(), half, StoreError("the store is away"), AdapterError("no lease"),
            LeadershipLost("n2 leads"), RoundEnd(), RoundEnd())  # fmt: skip
    work, service = service_of(store, *ends, listen="127.0.0.1:0")
    assert service.run(once=False) == 0
    assert work.seen == [
        ((503, "no round has ended yet\n"), {}),
        ((200, "ok\n"), counted(0, 1, 0)),
        ((503, "half a view\n"), counted(1, 2, 1)),
        ((503, "the store is away\n"), {}),
        ((503, "no lease\n"), {}),
        ((200, "ok\n"), {"nhc_x_leader": "0"}),
        ((200, "ok\n"), counted(0, 3, 1)),
    ]
    assert work.numbers == [1, 1]  # what was built for the lead that was lost is built anew
    assert lines(capsys)[3:6] == ["the store is away", "no lease", "n2 leads"]


def test_a_round_that_raises_what_nobody_foresaw_is_said_and_the_next_one_comes(store, capsys):
    ends = (ValueError("0.5.2"), KeyError("metadata"), RecursionError(), UnicodeEncodeError("utf-8", "x", 0, 1, "half"))
    work, service = service_of(store, *ends, RoundEnd(), RoundEnd(), listen="127.0.0.1:0")
    assert service.run(once=False) == 0
    assert [seen[0][0] for seen in work.seen] == [503] * 5 + [200]
    kinds = [line.split(": ")[1] for line in lines(capsys) if line.startswith("internal error")]
    assert kinds == ["ValueError", "KeyError", "RecursionError", "UnicodeEncodeError"]


@pytest.mark.postgresql
@pytest.mark.slow
def test_a_frozen_postgresql_ends_every_wait_of_a_service(postgresql, tmp_path):
    url = postgresql.database()
    store = open_store(url, anchor=str(tmp_path / "anchor"))
    try:
        with postgresql.frozen():
            for wait in (store.read, store.write):
                began = time.monotonic()
                with pytest.raises(StoreError, match=r"has not answered|timeout"), wait():
                    pass
                assert time.monotonic() - began < 30
        with store.read() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        # Frozen in the middle of a transaction.
        began = time.monotonic()
        with pytest.raises(StoreError, match="has not answered"), store.read() as connection, postgresql.frozen():
            connection.exec_driver_sql("SELECT 1")
        assert time.monotonic() - began < 60
    finally:
        store.close()


@pytest.mark.postgresql
@pytest.mark.slow
def test_notices_over_a_frozen_postgresql_are_unhealthy_until_it_answers(postgresql, tmp_path):
    port, file = free_port(), tmp_path / "notices.toml"
    file.write_text(
        f'store = "{postgresql.database()}"\nevery = "1s"\n[channels.x]\nkind = "alertmanager"\nurl = "http://127.0.0.1:9"\n'
    )

    def healthy():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    process = subprocess.Popen(
        [sys.executable, "-m", "nhc", "serve", "notices", "-s", str(file), "--listen", f"127.0.0.1:{port}"],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "NHC_STORE": ""},
    )  # fmt: skip
    try:
        until(lambda: healthy() == 200)
        with postgresql.frozen():
            until(lambda: healthy() == 503)
        until(lambda: healthy() == 200, 90)
    finally:
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert "Traceback" not in said


def test_a_file_of_metrics_that_cannot_be_written_is_said_and_the_rounds_go_on(store, tmp_path, capsys):
    work, service = service_of(store, RoundEnd(), RoundEnd(), metrics_file=str(tmp_path / "none/metrics.prom"))
    assert service.run(once=False) == 0
    assert len(work.seen) == 2
    assert lines(capsys)[1:] == [f"--metrics-file {tmp_path}/none/metrics.prom: No such file or directory"]


def test_one_round_is_refused_where_another_leads_and_needs_no_lead_in_a_dry_run(store):
    other = Leader(store, name="jobs", holder="n2:1")
    assert other.attempt()
    _work, service = service_of(store, RoundEnd())
    with pytest.raises(RoundRefused, match="another leads this store: n2:1"):
        service.run(once=True)
    work, service = service_of(store, RoundEnd(("x",)), leader=False)
    told = []
    assert service.run(once=False, summary=lambda: told.append(len(work.seen))) == 1
    assert (work.numbers, told) == ([None], [1])
    other.release()
    _work, service = service_of(store, RoundEnd())
    assert service.run(once=True) == 0
    assert other.attempt(), "the lead was not given up"


class Running:
    """`nhc serve job --listen` on a port that the kernel picks, over a scheduler that is not there."""

    def __init__(self, file, name):
        argv = [sys.executable, "-m", "nhc", "serve", "job", "-s", str(file), "--listen", "127.0.0.1:0"]
        self.log = file.with_name(f"{name}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(argv, stderr=log)
        self.address = until(lambda: re.findall(r"/healthz are on (\S+)", self.log.read_text()), 60)[-1]

    def page(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def until(self, line):
        return until(lambda: line in self.page("/metrics")[1].splitlines() and self.page("/metrics")[1], 60, what=line)


@pytest.mark.thorough
def test_of_two_job_loops_one_restarts_jobs_and_the_other_takes_over(tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text(f'store = "sqlite:///{tmp_path}/store.db"\nevery = "1s"\n[controllers.slurm]\n'
                    f'conf = "{tmp_path}/no.conf"\ntimeout = "1s"\n')  # fmt: skip
    running = []
    try:
        running.append(Running(file, len(running)))
        page = running[0].until("nhc_job_leader 1")
        assert "nhc_job_problems 1" in page.splitlines()  # there is no slurm.conf
        assert 'nhc_job_restarts_under_way{state="held"} 0' in page.splitlines()
        assert running[0].page("/healthz") == (200, "ok\n")  # no restart of this process brings Slurm back
        until(lambda: "slurm: jobs cannot be read: " in running[0].log.read_text(), what="the line in the log")
        running.append(Running(file, len(running)))
        assert samples(running[1].until("nhc_job_leader 0")) == {"nhc_job_leader": "0"}
        assert running[1].page("/healthz") == (200, "ok\n")
        running[0].process.send_signal(signal.SIGTERM)
        assert running[0].process.wait(60) == 0
        running[1].until("nhc_job_leader 1")
    finally:
        for one in running:
            one.process.kill()
            one.process.wait(60)


@pytest.mark.thorough
def test_an_address_that_is_none_is_wrong_usage(tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text(f'store = "{tmp_path}/s.db"\n[controllers.slurm]\n')
    done = nhc("serve", "job", "--once", "-s", file, "--listen", "soon")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("nhc serve job: --listen: 'soon' is no address")
