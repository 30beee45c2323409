"""Agents that push a report a minute over HTTP(S) into one, two and four servers on one PostgreSQL, or one on SQLite.

    python bench/intake.py                             # under a minute: 2,000 agents at the rate of 100,000
    python bench/intake.py --agents 100000 --rounds 2  # the fleet itself
    python bench/intake.py --connection each --tls     # a connection for each push, as a crowded server asks for
    python bench/intake.py --sqlite --servers 1

What an agent sends is what bench/store.py makes: 60 results; one report in a hundred is CRIT, one is another than
before. The pushes begin at `--rate` a second whoever is behind, up to `--waiting` at once; times are from the first
byte of a push to its answer, which comes after the commit. Each run is done twice: with every report whole, and as
agents push, "unchanged" where nothing is new and one in sixty whole all the same. Few agents stand for many: a round
is a minute of the reports' own time. Each agent's first report is not counted. The CPU time of the servers, of
PostgreSQL and of the agents is counted apart: on a machine that others use it says more than the clock. What one core
carries is a second divided by a server's CPU time for one report. The peer is a handler of aiohttp's that does nothing,
which gets the same pushes in the same run. Limits: twice its CPU for what agents push, three times for whole reports.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import ssl
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import urlsplit

import sqlalchemy as sa
from aiohttp import web

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from common import verdict  # noqa: E402

from bench.store import MINUTE, report, wal  # noqa: E402
from nhc.marks import push  # noqa: E402
from nhc.store.intake import digest, findings  # noqa: E402
from nhc.store.schema import tokens as token_table  # noqa: E402
from nhc.store.server import access  # noqa: E402
from nhc.store.server.app import SOURCE  # noqa: E402
from tests.support.intake import Server  # noqa: E402
from tests.support.postgresql import Cluster, programs  # noqa: E402

FLEET = 100_000 / MINUTE
BOOT = report(0, 0.0, 0).boot_id
TICK = os.sysconf("SC_CLK_TCK")
LIMITS = '[limits]\npushes-a-node-and-minute = 1000000\nconnections = 30000\nslow = "60s"\n'


class Load(NamedTuple):
    """What the agents of one run do. `began` is the time of the first report, `first` the number of its round."""

    urls: Sequence[str]
    agents: int
    rounds: int
    rate: float
    waiting: int
    keep: bool
    ca: str
    began: float
    first: int = 0
    whole: bool = True


class Pushed(NamedTuple):
    """What they saw: the seconds of each push, of all, their CPU time; answers other than 200 or that ask for the
    whole; bytes of the bodies sent."""

    times: List[float]
    seconds: float
    cpu: float
    refused: int
    sent: int


def token(number: int) -> str:
    """The token of an agent, the same in every run."""
    return f"{access.PREFIX}{number:043d}"


class Bodies:
    """What agents send. A report of each kind and round is made once; the name and the times are filled in."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._made: Dict[Tuple[int, int, bool], str] = {}

    def of(self, number: int, round_number: int, at: float) -> bytes:
        kind = number % 100
        new = kind in (round_number % 100, (round_number - 1) % 100)
        whole = self._whole or not round_number or new or (number + round_number) % 60 == 0
        text = self._made.get((kind, round_number, whole))
        if text is None:
            one = push.Pushed(report(kind, 1_111_111_111.0, round_number), True, 1_111_111_111.0, "", 2_222_222_222)
            known = digest(one.report, SOURCE, findings(one.report))
            text = push.to_text(one) if whole else push.to_unchanged_text(one, known)
            self._made[kind, round_number, whole] = text
        name = f"node-{number:06d}.example.org"
        text = text.replace(f"node-{kind:06d}.example.org", name).replace("1111111111.0", repr(round(at, 3)))
        text = text.replace("2222222222", str(int(at * 1000)))
        return push.pack(name, [text], 0, BOOT, int(time.time() * 1000))


class Agents:
    """All agents, in one process: connections are kept and shared, or each push has its own."""

    def __init__(self, load: Load) -> None:
        self.load, self.bodies = load, Bodies(load.whole)
        self.times: List[float] = []
        self.refused = self.sent = 0
        self._slots = asyncio.Semaphore(load.waiting)
        self._idle: Dict[str, List[Tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {url: [] for url in load.urls}
        self._tls: Optional[ssl.SSLContext] = ssl.create_default_context(cafile=load.ca) if load.ca else None

    async def run(self) -> Pushed:
        began, cpu, tasks = time.perf_counter(), time.process_time(), set()
        for place in range(self.load.agents * self.load.rounds):
            await self._slots.acquire()
            late = began + place / self.load.rate - time.perf_counter()
            if late > 0:
                await asyncio.sleep(late)
            task = asyncio.create_task(self._push(place))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        return Pushed(self.times, time.perf_counter() - began, time.process_time() - cpu, self.refused, self.sent)

    async def _push(self, place: int) -> None:
        try:
            round_number, number = divmod(place + self.load.first * self.load.agents, self.load.agents)
            at = self.load.began + (round_number + number / self.load.agents) * MINUTE
            body = self.bodies.of(number, round_number, at)
            url = self.load.urls[number % len(self.load.urls)]
            head = (
                f"POST {push.PATH} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAccept-Encoding: identity\r\n"
                f"Content-Type: application/json\r\nContent-Encoding: gzip\r\nUser-Agent: nhc-bench\r\n"
                f"Authorization: Bearer {token(number)}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            began = time.perf_counter()
            self.sent += len(body)
            good = await self._asked(url, head.encode() + body)
            self.times.append(time.perf_counter() - began)
            self.refused += not good
        finally:
            self._slots.release()

    async def _asked(self, url: str, message: bytes) -> bool:
        idle = self._idle[url]
        if idle:
            reader, writer = idle.pop()
        else:
            parts = urlsplit(url)
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=self._tls)
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
        answer = await reader.readexactly(length)
        if self.load.keep and "connection: close" not in lines:
            idle.append((reader, writer))
        else:
            writer.close()
        return head.startswith(b"HTTP/1.1 200 ") and b'"whole"' not in answer


def agents(load: Load, answer: Connection) -> None:
    """In a process of its own, so that its CPU time is nobody else's."""

    async def run() -> Pushed:
        return await Agents(load).run()

    answer.send(asyncio.run(run()))


def pushed_by(load: Load) -> Pushed:
    """Run them and wait."""
    receiver, sender = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=agents, args=(load, sender))
    process.start()
    sender.close()
    seen: Pushed = receiver.recv()
    process.join()
    return seen


def cpu_of(pid: int) -> float:
    """CPU seconds of a process, and of its children that were waited for."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return sum(int(field) for field in file.read().rpartition(")")[2].split()[11:15]) / TICK


def cpu_of_family(leader: int) -> float:
    """CPU seconds of a process and its children: PostgreSQL's backends and writers."""
    total = 0.0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            if int(name) == leader or int(fields[1]) == leader:
                total += sum(map(int, fields[11:15])) / TICK
        except OSError:
            continue
    return total


def of_database(cluster: Optional[Cluster]) -> float:
    """CPU seconds of PostgreSQL so far; SQLite's are the servers'."""
    return cpu_of_family(cluster.process.pid) if cluster is not None else 0.0


def certificate(place: str) -> Tuple[str, str]:
    """A certificate for 127.0.0.1 that is its own authority (ECDSA P-256) with its key, and itself alone, in files."""
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bench"
    words += f" -addext subjectAltName=IP:127.0.0.1 -keyout {place}/key.pem -out {place}/ca.crt"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True, timeout=60)
    return f"{place}/ca.crt", f"{place}/key.pem"


def empty(answer: Connection) -> None:
    """A server whose handler does nothing; its port goes to `answer`."""

    async def taken(_request: web.Request) -> web.Response:
        return web.Response(body=b"{}", content_type="application/json")

    async def run() -> None:
        application = web.Application()
        application.router.add_post(push.PATH, taken)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        answer.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def of_empty(load: Load) -> float:
    """CPU seconds a push of a handler that does nothing."""
    receiver, sender = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=empty, args=(sender,))
    process.start()
    try:
        bare = load._replace(urls=[f"http://127.0.0.1:{receiver.recv()}"], ca="")
        pushed_by(bare._replace(rounds=1))
        before = cpu_of(process.pid or 0)
        seen = pushed_by(bare)
        return (cpu_of(process.pid or 0) - before) / len(seen.times)
    finally:
        process.terminate()
        process.join()


def measure(cluster: Optional[Cluster], count: int, place: str, options: argparse.Namespace) -> None:
    """One run into so many servers, over a database of its own; `cluster` None is SQLite."""
    url = cluster.database() if cluster is not None else f"sqlite:///{place}/store.db"
    limits, ca = LIMITS, ""
    if options.tls:
        ca, key = certificate(place)
        limits = f'{limits}[tls]\ncertificate = "{ca}"\nkey = "{key}"\n'
    servers: List[Server] = []
    try:
        servers.append(Server(Path(place), url, limits, name=f"s{count}-0"))
        rows = [
            {"node": f"node-{number:06d}.example.org", "hash": access.digest(token(number)), "by": "bench", "made": 1.0}
            for number in range(options.agents)
        ]
        with servers[0].store() as store, store.write() as connection:
            connection.execute(sa.insert(token_table), rows)
        servers += [Server(Path(place), url, limits, name=f"s{count}-{number}") for number in range(1, count)]
        time.sleep(3)  # the first looks for new tokens every two seconds
        load = Load(
            [server.url for server in servers], options.agents, options.rounds, options.rate, options.waiting,
            options.connection == "kept", ca, time.time() - (2 * options.rounds + 3) * MINUTE,
        )  # fmt: skip
        pushed_by(load._replace(rounds=1))  # new nodes cost more, and come once
        ours = [server.process.pid for server in servers]
        each = []
        for whole in (True, False):
            cpu, database, log = sum(map(cpu_of, ours)), of_database(cluster), wal(url) if cluster else 0
            seen = pushed_by(load._replace(first=1 if whole else 1 + options.rounds, whole=whole))
            cpu, database = sum(map(cpu_of, ours)) - cpu, of_database(cluster) - database
            show(count, seen, cpu, database, (wal(url) if cluster else 0) - log, whole)
            each.append((cpu, seen.sent))
            bare = of_empty(load)
            what = f"{'a whole report' if whole else 'what agents push'}, of an empty handler ({bare * 1e6:.0f} us)"
            print(f"           {verdict(what, cpu / len(seen.times) / bare, 3 if whole else 2)}", flush=True)
        print(f"           unchanged beside whole: {each[1][0] / each[0][0]:.2f} of the servers' CPU, "
              f"{each[1][1] / each[0][1]:.2f} of the bytes of bodies (limit 0.2)", flush=True)  # fmt: skip
    finally:
        for server in servers:
            server.stop()


def show(count: int, seen: Pushed, servers: float, database: float, log: int, whole: bool) -> None:
    """Two lines of figures."""
    times, pushed = sorted(seen.times), len(seen.times)
    day = 86400 / MINUTE
    print(
        f"{count} server{'s' if count > 1 else ' '}  {pushed} reports, {'whole' if whole else 'as agents push'}, "
        f"{seen.sent / pushed:.0f} bytes each, {seen.refused} refused: "
        f"{pushed / seen.seconds:.0f}/s, p50 {times[pushed // 2] * 1e3:.0f} ms, "
        f"p99 {times[int(pushed * 0.99)] * 1e3:.0f} ms, most {times[-1] * 1e3:.0f} ms; "
        f"{log / pushed * day / 1e6:.2f} MB of log a node and day"
    )
    print(
        f"           CPU a report: servers {servers / pushed * 1e6:.0f} us "
        f"(one core carries {pushed / servers:.0f}/s), "
        f"PostgreSQL {database / pushed * 1e6:.0f} us ({database / (servers + database):.0%} of both), "
        f"the agents {seen.cpu / pushed * 1e6:.0f} us"
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5, help="reports of each")
    parser.add_argument("--rate", type=float, default=FLEET, help="pushes that begin in a second, of all (1667)")
    parser.add_argument("--waiting", type=int, default=250, help="pushes at once")
    parser.add_argument("--servers", default="1,2,4")
    parser.add_argument("--connection", choices=["kept", "each"], default="kept")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--sqlite", action="store_true", help="one server on SQLite, in place of PostgreSQL")
    options = parser.parse_args()
    load = os.getloadavg()
    how = "connections kept" if options.connection == "kept" else "a connection for each push"
    how += ", https" if options.tls else ", http"
    print(f"{options.agents} agents, {options.rounds} reports each, {options.rate:.0f} pushes/s, {how}; "
          f"{os.cpu_count()} cores, load {load[0]:.1f}", flush=True)  # fmt: skip
    cluster = None if options.sqlite else Cluster(programs(), fsync=True)
    try:
        with tempfile.TemporaryDirectory(prefix="nhc-bench-") as place:
            for count in [1] if options.sqlite else map(int, options.servers.split(",")):
                measure(cluster, count, place, options)
    finally:
        if cluster is not None:
            cluster.remove()


if __name__ == "__main__":
    main()
