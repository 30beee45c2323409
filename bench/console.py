"""How much CPU the console takes while many people look: one event stream each, a fleet with ten changes a second.

    python bench/console.py                  # 500 viewers, 10,000 nodes, 10 s
    python bench/console.py --viewers 50 --nodes 1000 --seconds 3

The console runs as a process of its own, whose CPU time the kernel counts; the viewers are sockets of this one, and
share its cores. The console looks twice a second; what changed since is one event to every viewer. Limit: 10 % of a
core, no viewer lost or refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from typing import List, Optional

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench.common import verdict
from nhc.console.fleet_nodes import FleetNodes, NodeRow
from nhc.console.server import Server, serve
from nhc.console.settings import parse
from nhc.console.snapshot import Snapshot, take
from nhc.core.model import Report
from tests.support.ports import free_ports

REFRESH = 0.5
"""Seconds between two looks of the console."""


class Changing:
    """A fleet of which some nodes are otherwise at each look."""

    name = "a fleet that changes"

    def __init__(self, count: int, changing: int) -> None:
        self.changing = changing
        self.nodes = FleetNodes(NodeRow(f"n{number:06}", "OK", 4e9, 4e9, "h100", {"rack": f"r{number // 36}"}, "agent")
                                for number in range(count))  # fmt: skip
        self.turn = 0

    def snapshot(self) -> Snapshot:
        """The fleet, with the next nodes sick or well again."""
        for place in range(self.changing):
            names = self.nodes.names
            row = self.nodes.rows[names[(self.turn * self.changing + place) % len(names)]]
            self.nodes.put([row._replace(verdict="OK" if row.verdict == "CRIT" else "CRIT")])
        self.turn += 1
        return take(self.nodes, [], time.time(), 1e10)

    def report(self, _node: str) -> Optional[Report]:
        """Nothing: only the stream is measured."""
        return None


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has taken."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def view(port: int, lags: List[float], counts: List[int], number: int) -> None:
    """One viewer: reads its stream and notes how late each beat is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    status = await reader.readline()
    if not status.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"a viewer was refused: {status.decode().strip() or 'no answer'}")
    try:
        while line := await reader.readline():
            if line.startswith(b"event: letters"):
                counts[number] += 1
            elif line.startswith(b'data: {"at"'):
                lags.append(time.time() - json.loads(line[6:])["at"])
    finally:
        writer.close()


async def measure(port: int, pid: int, options: argparse.Namespace) -> None:
    """Join all viewers, then count for so many seconds."""
    lags: List[float] = []
    counts = [0] * options.viewers
    tasks = [asyncio.create_task(view(port, lags, counts, number)) for number in range(options.viewers)]
    while min(counts) < 1:  # everybody has had an event
        await asyncio.sleep(0.1)
        for task in tasks:
            if task.done():
                task.result()
                raise SystemExit("a viewer's stream ended")
    lags.clear()
    before, began, seen = cpu(pid), time.perf_counter(), sum(counts)
    await asyncio.sleep(options.seconds)
    spent, took = cpu(pid) - before, time.perf_counter() - began
    seen = sum(counts) - seen
    alive = sum(not task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    lags.sort()
    print(f"{options.viewers} viewers, {options.nodes} nodes, {options.changes} changes/s: {seen / took:.0f} events/s; "
          f"a beat is seen after p50 {statistics.median(lags) * 1e3:.0f} ms, "
          f"p99 {lags[int(len(lags) * 0.99)] * 1e3:.0f} ms; {alive} viewers still there")  # fmt: skip
    print(verdict(f"cores that the console takes, {options.viewers} viewers", spent / took, 0.1))
    if alive < options.viewers:
        raise SystemExit("viewers were lost")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--viewers", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--changes", type=int, default=10, help="nodes in a second whose verdict changes")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        limits = "[limits]\nconnections = 4000\nconnections-an-address = 4000\n"
        found = parse(f'listen = "127.0.0.1:{options.serve}"\nrefresh = "{REFRESH}s"\n{limits}')
        fleet = Changing(options.nodes, max(1, round(options.changes * REFRESH)))
        asyncio.run(serve(Server(found, fleet, None), lambda _address: print("ready", flush=True)))
        return
    port = free_ports(1)[0]
    argv = [sys.executable, os.path.abspath(__file__), "--serve", str(port), "--nodes", str(options.nodes)]
    argv += ["--changes", str(options.changes)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            if server.stdout.readline().strip() != "ready":
                raise SystemExit("the console did not start")
            asyncio.run(measure(port, server.pid, options))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
