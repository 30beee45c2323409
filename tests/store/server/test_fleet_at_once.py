"""A whole fleet at once: a thousand agents while the database is held, and a year of rows pruned while they push."""

import json
import socket
import sqlite3
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from nhc.marks import push
from nhc.store import audit, nodes, schema
from nhc.store.audit import verify
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from nhc.store.retention import DAY, RetentionPeriods, prune
from tests.store.server.test_tls import keys  # noqa: F401 (a fixture)
from tests.support.intake import OK, XID, Server, packed, report
from tests.support.new_store import new_store

AGENTS = 1000


def connected(server, context=None):
    host, port = server.listen.split(":")
    plain = socket.create_connection((host, int(port)), 60)
    plain.settimeout(120)
    return context.wrap_socket(plain, server_hostname="localhost") if context else plain


def answered(connection):
    data = b""
    while b"\r\n\r\n" not in data or b"}" not in data:
        more = connection.recv(4096)
        if not more:
            break
        data += more
    return int(data.split(b" ", 2)[1]) if data else 0


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
def test_a_thousand_agents_at_once_while_the_database_is_held(tmp_path, keys, secure):  # noqa: F811
    """Each has a connection of its own, and says first that it is sick: each is heard when the lock is let go."""
    tls = f'[tls]\ncertificate = "{keys}/server.crt"\nkey = "{keys}/server.key"\n' if secure else ""
    limits = '[limits]\nconnections = 3000\nconnections-an-address = 3000\nslow = "60s"\n'
    names = [f"n{number}" for number in range(AGENTS)]
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", tls + limits, nodes=names)
    try:
        made = server.tokens
        context = ssl.create_default_context(cafile=f"{keys}/ca.crt") if secure else None
        holder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(16) as several:
            connections = dict(zip(made, several.map(lambda _name: connected(server, context), made)))
            list(several.map(lambda name: send(connections[name], name, made[name]), made))
            time.sleep(2)  # they wait for the lock: that is what is tried
            holder.execute("ROLLBACK")
            statuses = list(several.map(answered, connections.values()))
        for one in connections.values():
            one.close()
        refused = [name for name, status in zip(made, statuses) if status != 200]
        assert set(statuses) <= {200, 503}, set(statuses)
        assert len(refused) < AGENTS // 10, len(refused)
        with server.store() as store, store.read() as connection:
            counts = nodes.counts(connection)
        assert counts["CRIT"] >= AGENTS - len(refused)
        assert "Traceback" not in server.said()
        assert len(server.said()) < 5000
        holder.close()
    finally:
        assert server.stop() == 0


def send(connection, name, token):
    body = packed(report(name, results=(OK, XID)), node=name)
    connection.sendall(
        f"POST {push.PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


@pytest.mark.slow
def test_a_year_is_pruned_while_reports_come_in(tmp_path):
    """Rows of a year, of which nine months are too old: gone in parts, with no push that waits for long."""
    store, now = new_store(str(tmp_path)), time.time()
    try:
        with store.write() as connection:
            receive(connection, [Incoming(report("n0", at=now), "agent", now)])
        with store.read() as connection:
            kept = connection.scalar(sa.select(schema.report_history.c.report))
        rows = [
            {"node": f"n{node}", "started": now - 365 * DAY + hour * 3600.0, "boot_id": "b", "verdict": "OK",
             "source": "agent", "digest": "d", "report": kept}
            for node in range(10) for hour in range(365 * 24 - 1)
        ]  # fmt: skip
        with store.write() as connection:
            connection.execute(sa.insert(schema.report_history), rows)
        for day in range(500):
            with store.write() as connection:
                audit.append(connection, now - (500 - day) * DAY, "ada", "hold.set", detail={"day": day})
        took, end = [], threading.Event()

        def work():
            number = 0
            while not end.is_set():
                number += 1
                began = time.monotonic()
                with store.write() as connection:
                    receive(connection, [Incoming(report("n0", at=now + number / 1000), "agent", now)])
                took.append(time.monotonic() - began)

        worker = threading.Thread(target=work)
        worker.start()
        begun = time.monotonic()
        try:
            done = prune(store, RetentionPeriods(), now, segments=str(tmp_path / "old"), by="test", with_evidence=False)
        finally:
            whole = time.monotonic() - begun
            end.set()
            worker.join(60)
        assert done.rows["report_history"] > 60_000
        assert took
        assert max(took) < max(1.0, whole / 3), (max(took), whole)
        with store.read() as connection:
            oldest = connection.scalar(sa.select(sa.func.min(schema.report_history.c.started)))
            seen = verify(connection, store.anchor)
            assert json.loads(audit.entries(connection, limit=1)[0].detail)
        assert oldest >= now - 90 * DAY
        assert (seen.mistakes, seen.archived > 100) == ((), True)
    finally:
        store.close()
