"""How many reports a second the store takes in, beside what its database itself does with the same bytes.

    python bench/store.py                                  # under a minute: PostgreSQL and SQLite, 2,000 nodes
    python bench/store.py --nodes 100000 --rounds 3        # a fleet that reports once a minute
    python bench/store.py --url postgresql://USER@HOST/DB  # a server of your own; the database must be empty

Each round is one report of each node: most say what they said before, one in a hundred is CRIT, one in a hundred is
another than before. `bare` writes the same rows with the driver alone: one upsert a node with the same columns, the
report's bytes where nhc wrote them. PostgreSQL is one of this machine's, started for the run, with fsync on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import urllib3

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict
from nhc.marks import push
from nhc.store.connect import open_store
from nhc.store.intake import Incoming, IntakeSettings
from nhc.store.nodes import pack
from nhc.store.reports import receive
from nhc.store.server import access
from tests.support.intake import packed
from tests.support.postgresql import Cluster, programs

CHECKS = 60
MINUTE = 60.0


def report(node: int, at: float, round_number: int) -> Report:
    """One of 60 results with a metric each, some 15 kB of JSON."""
    sick = node % 100 == 7
    other = node % 100 == round_number % 100
    results = [
        CheckResult(
            f"check_number_{number}",
            Outcome(Verdict.OK, "", f"all {number} of them are as expected on this node", f"gpu{number % 8}",
                    (Metric("temperature", 40.0 + (node + number + round_number) % 37, "Cel"),)),
            0.01, f"nhc.conf:{number}", f"* || check_number_{number} --at-least 5",
        )
        for number in range(CHECKS)
    ]  # fmt: skip
    if sick or other:
        results.append(
            CheckResult("check_gpu_xid", Outcome(Verdict.CRIT if sick else Verdict.WARN, f"Xid{79 if sick else 13}",
                                                 "it fell off the bus", "gpu3", action=Action.REBOOT))
        )  # fmt: skip
    return Report(f"node-{node:06d}.example.org", "0f7d2c3e-1111-4222-8333-444455556666", at, 1.5, tuple(results))


def rounds(nodes: int, number: int, batch: int, now: float) -> list[list[Incoming]]:
    """The batches of one round."""
    at = now + number * MINUTE
    incoming = [
        Incoming(report(node, at + node * MINUTE / nodes, number), "agent", at + MINUTE) for node in range(nodes)
    ]
    return [incoming[place : place + batch] for place in range(0, nodes, batch)]


def nhc(url: str, anchor: str, options: argparse.Namespace) -> tuple[float, list[list[tuple[object, ...]]]]:
    """Seconds that the store takes for all rounds but the first, and the rows it wrote, batch by batch."""
    store = open_store(url, anchor=anchor)
    now, spent, written = 1_700_000_000.0, 0.0, []
    try:
        for number in range(options.rounds + 1):
            for batch in rounds(options.nodes, number, options.batch, now):
                began = time.perf_counter()
                with store.write() as connection:
                    done = receive(connection, batch, IntakeSettings())
                if number:
                    spent += time.perf_counter() - began
                    written.append([row_of(one, got.receipt.value == "changed") for one, got in zip(batch, done)])
        return spent, written
    finally:
        store.close()


def row_of(one: Incoming, changed: bool) -> tuple[object, ...]:
    """The row that the bare run writes for it: its report only where nhc kept that."""
    kept = changed or one.report.verdict is Verdict.CRIT
    return (one.report.host, one.report.boot_id, one.report.verdict.name, one.when, one.when, one.when, one.received,
            one.when, "agent", "d" * 32, one.when, one.when, pack(one.report) if kept else None)  # fmt: skip


COLUMNS = ("node", "boot_id", "verdict", "since", "reported_at", "judged_at", "received_at", "covered_since", "source",
           "digest", "noted", "stored", "report")  # fmt: skip


def bare(kind: str, where: str, written: list[list[tuple[object, ...]]]) -> float:
    """Seconds for the same rows, in transactions of the same size, with the driver alone."""
    mark = "%s" if kind == "postgresql" else "?"
    keep = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:-1])
    make = "CREATE TABLE bare (node text PRIMARY KEY, " + ", ".join(
        f"{name} {'text' if name in ('boot_id', 'verdict', 'source', 'digest') else 'double precision'}"
        for name in COLUMNS[1:-1]
    )
    make += f", report {'bytea' if kind == 'postgresql' else 'blob'})"
    upsert = (
        f"INSERT INTO bare ({', '.join(COLUMNS)}) VALUES ({', '.join([mark] * len(COLUMNS))}) "
        f"ON CONFLICT (node) DO UPDATE SET {keep}, report = coalesce(excluded.report, bare.report)"
    )
    if kind == "postgresql":
        import psycopg

        connection = psycopg.connect(where)
    else:
        import sqlite3

        connection = sqlite3.connect(where)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    try:
        cursor = connection.cursor()
        cursor.execute(make)
        cursor.executemany(
            upsert, [row for batch in written for row in batch][: len({r[0] for b in written for r in b})]
        )
        connection.commit()
        began = time.perf_counter()
        for batch in written:
            cursor.executemany(upsert, batch)
            connection.commit()
        return time.perf_counter() - began
    finally:
        connection.close()


def wal(url: str) -> int:
    """Where PostgreSQL's log of changes stands, in bytes."""
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").fetchone()
    return int(found[0]) if found else 0


def pushes(url: str, scratch: str, options: argparse.Namespace) -> None:
    """Reports pushed over HTTP to servers on one store, by clients on this same machine: a lower bound."""
    from tests.support.intake import Server

    limits = "[limits]\npushes-a-node-and-minute = 1000000\n"
    servers = [Server(Path(scratch), url, limits, name=f"s{number}") for number in range(options.servers)]
    try:
        with servers[0].store() as store, store.write() as connection:
            names = [report(number, 0, 0).host for number in range(options.clients)]
            tokens = [access.make_token(connection, name, by="bench", now=time.time()) for name in names]
        for server, token in zip(servers, tokens):  # each has read the tokens
            while server.push(b"", token)[0] == 401:
                time.sleep(0.05)
        times: list[float] = []

        def client(number: int) -> None:
            server = servers[number % len(servers)]
            headers = {"Content-Encoding": "gzip", "Authorization": f"Bearer {tokens[number]}"}
            now = time.time() - 4000
            bodies = [
                packed(report(number, now + at, 1), node=report(number, 0, 0).host) for at in range(options.pushes)
            ]
            ready.wait()
            with urllib3.PoolManager(1, retries=False, timeout=60) as pool:
                for body in bodies:
                    began = time.perf_counter()
                    answer = pool.request("POST", server.url + push.PATH, body=body, headers=headers)
                    assert answer.status == 200, answer.data
                    times.append(time.perf_counter() - began)

        ready = threading.Barrier(options.clients + 1)
        threads = [threading.Thread(target=client, args=(number,)) for number in range(options.clients)]
        [thread.start() for thread in threads]
        ready.wait()
        began = time.perf_counter()
        [thread.join() for thread in threads]
        spent = time.perf_counter() - began
        times.sort()
        print(
            f"pushed      {len(times)} reports by {options.clients} clients to {options.servers} servers: "
            f"{len(times) / spent:.0f}/s, p50 {times[len(times) // 2] * 1e3:.0f} ms, "
            f"p99 {times[int(len(times) * 0.99)] * 1e3:.0f} ms, each answered after its commit"
        )
    finally:
        for server in servers:
            server.stop()


def show(kind: str, options: argparse.Namespace, spent: float, alone: float, grown: int) -> None:
    """One line of figures."""
    count = options.nodes * options.rounds
    day = grown / count * (86400 / MINUTE)
    print(
        f"{kind:<11} {count} reports: nhc {count / spent:8.0f}/s, bare {count / alone:8.0f}/s, "
        f"ratio {spent / alone:.2f}, {spent / count * 1e6:.0f} us a report; "
        f"{day / 1e6:.2f} MB written a node and day at one report a minute"
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--url", default="", help="an empty PostgreSQL database instead of one that is started here")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--pushes", type=int, default=100, help="of each client, over HTTP")
    parser.add_argument("--servers", type=int, default=1, help="that take the pushes in, on one PostgreSQL")
    parser.add_argument("--only", choices=["postgresql", "sqlite"])
    options = parser.parse_args()
    one = pack(report(1, 1_700_000_000.0, 50))
    print(f"{options.nodes} nodes, batches of {options.batch}; a report is {len(one)} bytes packed")
    with tempfile.TemporaryDirectory(prefix="nhc-bench-") as scratch:
        if options.only != "sqlite":
            cluster = None if options.url else Cluster(programs(), fsync=True)
            try:
                url = options.url or (cluster.database() if cluster else "")
                before = wal(url)
                spent, written = nhc(url, f"{scratch}/anchor", options)
                grown = (wal(url) - before) * options.rounds // (options.rounds + 1)
                show("postgresql", options, spent, bare("postgresql", url, written), grown)
                if cluster and options.pushes:
                    pushes(cluster.database(), scratch, options)
            finally:
                if cluster:
                    cluster.remove()
        if options.only != "postgresql":
            path = f"{scratch}/store.db"
            spent, written = nhc(path, f"{scratch}/anchor2", options)
            grown = os.path.getsize(path) * options.rounds // (options.rounds + 1)
            show("sqlite", options, spent, bare("sqlite", f"{scratch}/bare.db", written), grown)


if __name__ == "__main__":
    main()
