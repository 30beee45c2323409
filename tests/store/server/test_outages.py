"""The database dies, the disk fills, the server is restarted: what was answered with 200 is in the store, always."""

import os
import signal
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import urllib3

from nhc.store import coverage, holds, nodes
from nhc.store.audit import verify
from nhc.store.connect import open_store
from nhc.store.errors import StoreError
from nhc.store.server.run import LOOK
from tests.support.intake import Server, packed, report
from tests.support.require import need
from tests.support.waiting import until

SETTINGS = "[limits]\npushes-a-node-and-minute = 60000\n"


def kept(server, node="n1"):
    """The times of all reports that the history has."""
    with server.store() as store, store.read() as connection:
        return {row.started for row in nodes.history(connection, node, limit=100_000)}


class Client(threading.Thread):
    """Pushes one report after another, each another boot's, so that each has a row of history; notes what was taken."""

    def __init__(self, server, token):
        super().__init__(daemon=True)
        self.server, self.token = server, token
        self.taken, self.answers, self.ending = [], [], False

    def run(self):
        at = time.time() - 100_000
        number = 0
        while not self.ending:
            number += 1
            one = report(at=at + number, boot=f"b{number}")
            try:
                status = self.server.push(packed(one), self.token)[0]
            except (urllib3.exceptions.HTTPError, OSError):
                status = 0
                time.sleep(0.02)
            self.answers.append(status)
            if status == 200:
                self.taken.append(one.started)

    def stop(self):
        self.ending = True
        self.join(60)
        assert not self.is_alive()


def test_a_frozen_postgresql_is_said_and_no_push_waits_for_ever(postgresql, tmp_path):
    server = Server(tmp_path, postgresql.database(), SETTINGS)
    try:
        token = server.token()
        assert server.push(packed(report()), token)[0] == 200
        with postgresql.frozen():
            began = time.monotonic()
            status, _answer, again = server.push(packed(report(boot="b2")), token)
            assert (status, again is not None) == (503, True)
            assert time.monotonic() - began < 45
            until(lambda: server.get("/healthz")[0] == 503)
        until(lambda: server.get("/healthz")[0] == 200, 90)
        until(lambda: server.push(packed(report(boot="b3")), token)[0] == 200, 90)
        assert "Traceback" not in server.said()
    finally:
        server.stop()


def other_store(tmp_path):
    (tmp_path / "other").mkdir()
    store = open_store(f"sqlite:///{tmp_path}/other/store.db", anchor=str(tmp_path / "other/anchor"))
    with store.read() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    return (tmp_path / "other/store.db").read_bytes()


OVERWRITES = {
    "replaced": lambda path, other: (path.with_name("new").write_bytes(other), path.with_name("new").rename(path)),
    "deleted": lambda path, other: path.unlink(),
    "overwritten by another store": lambda path, other: path.write_bytes(other),
    "overwritten with nothing": lambda path, other: path.write_bytes(b""),
    "overwritten with rubbish": lambda path, other: path.write_bytes(bytes(1 << 20)),
}


@pytest.mark.parametrize("how", OVERWRITES)
def test_a_file_that_is_overwritten_below_a_running_server_is_noticed(tmp_path, how):
    other = other_store(tmp_path)
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", SETTINGS)
    try:
        token = server.token()
        assert server.push(packed(report()), token)[0] == 200
        OVERWRITES[how](tmp_path / "store.db", other)
        until(lambda: server.get("/healthz")[0] == 503, said=server.said)
        assert server.push(packed(report(boot="b2")), token)[0] == 503
        assert "the file" in server.said()
        assert "Traceback" not in server.said()
    finally:
        server.stop()


def test_one_locked_row_holds_up_no_other_nodes_push(postgresql, tmp_path):
    import psycopg

    url = postgresql.database()
    server = Server(tmp_path, url, SETTINGS, nodes=["n1", "n2"])
    try:
        for node in ("n1", "n2"):
            assert server.push(packed(report(node), node=node), server.token(node))[0] == 200
        with psycopg.connect(url) as somebody, ThreadPoolExecutor(2) as both:
            somebody.execute("SELECT * FROM nodes WHERE node = 'n1' FOR UPDATE")
            pushes = [both.submit(server.push, packed(report(node, boot="b2"), node=node), server.token(node))
                      for node in ("n1", "n2")]  # fmt: skip
            began = time.monotonic()
            assert pushes[1].result()[0] == 200
            assert time.monotonic() - began < 8
            assert pushes[0].result()[0] == 503
            assert server.get("/healthz")[0] == 200
            somebody.rollback()
        assert server.push(packed(report("n1", boot="b3")), server.token("n1"))[0] == 200
    finally:
        server.stop()


def test_postgresql_is_killed_in_the_middle(postgresql, tmp_path):
    server = Server(tmp_path, postgresql.database(), SETTINGS)
    try:
        client = Client(server, server.token())
        client.start()
        until(lambda: len(client.taken) > 20)
        postgresql.kill()
        until(lambda: 503 in client.answers)
        until(lambda: "503" in str(server.get("/healthz")[0]))
        postgresql.start()
        before = len(client.taken)
        until(lambda: len(client.taken) > before + 20)
        until(lambda: server.get("/healthz")[0] == 200)
        client.stop()
        assert set(client.taken) <= kept(server)
        assert "the store does not answer: postgresql://" in server.said()
        assert "the store answers again" in server.said()
        assert "Traceback" not in server.said()
    finally:
        if postgresql.process.poll() is not None:
            postgresql.start()
        assert server.stop() == 0


FAILING = """
CREATE FUNCTION fail() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'the disk says no'; END $$ LANGUAGE plpgsql;
CREATE CONSTRAINT TRIGGER failing AFTER INSERT ON report_history DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION fail();
"""


def test_a_commit_that_fails_is_told_to_all_whose_reports_it_held(postgresql, tmp_path):
    """Pushes that come together share a transaction. Where its commit fails none is answered with 200, and once
    the database commits again each is taken once."""
    url = postgresql.database()
    names = [f"n{number}" for number in range(12)]
    server = Server(tmp_path, url, SETTINGS, nodes=names)
    try:
        tokens = {name: server.token(name) for name in names}
        bodies = {name: packed(report(name), node=name) for name in names}

        def pushed_together():
            answers = {}
            ready = threading.Barrier(len(names))

            def one(name):
                ready.wait()
                answers[name] = server.push(bodies[name], tokens[name])[0]

            threads = [threading.Thread(target=one, args=(name,)) for name in names]
            [thread.start() for thread in threads]
            [thread.join(60) for thread in threads]
            return answers

        database = url.rpartition("/")[2]
        postgresql.sql(database, FAILING)
        assert pushed_together() == dict.fromkeys(names, 503)
        assert [kept(server, name) for name in names] == [set()] * len(names)
        assert "the disk says no" not in str(server.push(bodies["n1"], tokens["n1"])[1])
        postgresql.sql(database, "DROP TRIGGER failing ON report_history")
        assert pushed_together() == dict.fromkeys(names, 200)
        assert pushed_together() == dict.fromkeys(names, 200)
        with server.store() as store, store.read() as connection:
            assert [len(nodes.history(connection, name)) for name in names] == [1] * len(names)
        assert "Traceback" not in server.said()
    finally:
        assert server.stop() == 0


def test_a_server_that_is_told_to_end_writes_what_it_took(tmp_path):
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", SETTINGS)
    clients = [Client(server, server.token())]
    [client.start() for client in clients]
    until(lambda: len(clients[0].taken) > 20)
    assert server.stop() == 0
    until(lambda: clients[0].answers[-1] == 0)
    [client.stop() for client in clients]
    assert set(clients[0].taken) <= kept(server)
    assert "ending" in server.said()


def test_a_killed_server_has_lost_nothing_that_it_answered(tmp_path):
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", SETTINGS)
    client = Client(server, server.token())
    client.start()
    until(lambda: len(client.taken) > 20)
    server.stop(signal.SIGKILL)
    server.start()
    before = len(client.taken)
    until(lambda: len(client.taken) > before + 5)
    client.stop()
    assert set(client.taken) <= kept(server)
    assert server.stop() == 0


def test_a_file_that_somebody_else_holds_makes_a_push_wait_and_then_fail(tmp_path):
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", SETTINGS)
    token = server.token()
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        status, answer, after = server.push(packed(report()), token)
        assert (status, answer, after) == (503, {"error": "the store does not answer"}, "10")
        assert time.monotonic() - began > 5
        other.execute("ROLLBACK")
        assert server.push(packed(report()), token)[0] == 200
    finally:
        other.close()
        assert server.stop() == 0


def test_a_second_push_of_a_node_waits_for_its_turn_and_not_for_ever(tmp_path):
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", SETTINGS)
    token = server.token()
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as beside:
            first = beside.submit(server.push, packed(report()), token)
            until(
                lambda: "\nnhc_server_reports_waiting 1\n" in server.get("/metrics")[1], what="the first push to wait"
            )
            status, answer, _after = server.push(packed(report()), token)
            assert (status, answer) == (429, {"error": "n1 pushes already: one at a time"})
            other.execute("ROLLBACK")
            assert first.result(60)[0] in (200, 503)  # 503 where this machine took more than SQLite's ten seconds
        assert server.push(packed(report()), token)[0] == 200
    finally:
        other.close()
        assert server.stop() == 0


@pytest.fixture
def small(tmp_path):
    """A file system of one megabyte."""
    need("root", os.geteuid() == 0, "to mount file systems")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_refuses_and_is_taken_up_again(small, tmp_path):
    server = Server(tmp_path, f"sqlite:///{small}/store.db", SETTINGS)
    try:
        token = server.token()
        taken, status, number = [], 200, 0
        while status == 200:
            number += 1
            noise = os.urandom(3000).hex()
            one = report(at=time.time() - 1000 + number, boot=f"b{number}")._replace(notes=(noise,))
            status, answer, _ = server.push(packed(one), token)
            taken += [one.started] if status == 200 else []
        assert (status, answer) == (503, {"error": "the store does not answer"})
        assert set(taken) <= kept(server)
        health, end = [], time.monotonic() + 3 * LOOK
        while time.monotonic() < end:  # reading works all the time
            health.append(server.get("/healthz"))
            time.sleep(0.2)
        assert {status for status, _ in health} == {503}
        assert "full" in health[-1][1]
        assert "nhc_server_store_up 0" in server.get("/metrics")[1]
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
        until(lambda: server.get("/healthz") == (200, "ok\n"))  # without a push: who balances load sends none
        assert server.push(packed(report(at=time.time() + 10)), token)[0] == 200
        assert set(taken) <= kept(server)
    finally:
        assert server.stop() == 0


def test_a_full_disk_stops_a_step_before_it_is_taken(small, tmp_path):
    """What the remedy loop relies on: no step without its audit row, no audit row without its anchor."""
    store = open_store(str(small / "store.db"), anchor=str(small / "anchor"))
    try:
        filler = small / "filler"
        with open(filler, "wb", 0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        steps = []

        def fill():
            while len(steps) < 10_000:
                with store.write() as connection:
                    holds.hold(connection, "node", f"n{len(steps)}", by="t", why="x" * 3000, now=1.0)
                steps.append(1)

        with pytest.raises(StoreError, match=r"full|No space") as raised:
            fill()
        assert "\n" not in str(raised.value)
        filler.unlink()
        with store.read() as connection:
            assert len(holds.in_force(connection, 2.0)) in (len(steps), len(steps) + 1)
        with store.write() as connection:
            holds.hold(connection, "node", "after", by="t", why="x", now=1.0)
        with store.read() as connection:
            assert verify(connection, store.anchor).mistakes == ()
    finally:
        store.close()


@pytest.mark.service
def test_two_servers_on_one_postgresql_lose_nothing(postgresql, tmp_path):
    url = postgresql.database()
    first = Server(tmp_path, url, SETTINGS, name="a")
    second = Server(tmp_path, url, SETTINGS, name="b")
    try:
        clients = [Client(first, first.token("n1")), Client(second, second.token("n1"))]
        [client.start() for client in clients]
        until(lambda: all(len(client.taken) > 30 for client in clients))
        [client.stop() for client in clients]
        with first.store() as store, store.read() as connection:
            assert nodes.get(connection, "n1").reported_at == max(max(client.taken) for client in clients)
            spans = coverage.spans(connection, "n1", 0, 1e12)
        newest = max(max(client.taken) for client in clients)
        oldest = min(min(client.taken) for client in clients)
        assert spans == [(oldest, newest)]
        assert "Traceback" not in first.said() + second.said()
    finally:
        assert (first.stop(), second.stop()) == (0, 0)
