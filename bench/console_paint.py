"""How soon the console's first screen is painted over 100,000 nodes, and how soon all of it stands there.

    python bench/console_paint.py                # Chromium, headless; five loads
    python bench/console_paint.py --nodes 1000

The first paint is the browser's own first-contentful-paint. Limit: 300 ms for its median. The map comes after it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import threading
import time
from typing import List, Optional

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench.common import verdict
from nhc.console.fleet_nodes import FleetNodes, NodeRow
from nhc.console.server import Server, serve
from nhc.console.settings import parse
from nhc.console.snapshot import ProblemRow, Snapshot, take
from nhc.core.model import Report
from tests.support import browser as browsers
from tests.support.ports import free_ports

PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class Large:
    """A fleet of which every thousandth node is sick."""

    name = "a large fleet"

    def __init__(self, count: int) -> None:
        self.fleet = FleetNodes(
            NodeRow(f"n{number:06}", "OK" if number % 997 else "CRIT", 1e9, 1e9, "h100",
                    {"rack": f"r{number // 36:04}"}, "agent")
            for number in range(count)
        )  # fmt: skip
        self.problems = [ProblemRow(f"n{number:06}", "check_gpu_lost", "GpuLost", "", "CRIT", "reboot", "lost", 1e9)
                         for number in range(0, count, 997)]  # fmt: skip

    def snapshot(self) -> Snapshot:
        """The same at each look."""
        return take(self.fleet, self.problems, 1e9, 1e9)

    def report(self, _node: str) -> Optional[Report]:
        """Nothing: no node's page is opened."""
        return None


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    port, up = free_ports(1)[0], threading.Event()
    server = Server(parse(f'listen = "127.0.0.1:{port}"\nrefresh = "10s"\n'), Large(options.nodes), None)
    run = serve(server, lambda _address: up.set())
    threading.Thread(target=lambda: asyncio.run(run), daemon=True).start()
    if not up.wait(120):
        raise SystemExit("the console does not listen")
    browser = browsers.start()
    paints: List[float] = []
    wholes: List[float] = []
    try:
        for _ in range(options.times):
            began = time.perf_counter()
            browser.get(f"http://127.0.0.1:{port}/")
            paints.append(browsers.until_script(browser, PAINT, "the first paint"))
            browsers.until_script(browser, "return document.querySelector('.map canvas')?.dataset.drawn", "the map")
            wholes.append((time.perf_counter() - began) * 1e3)
    finally:
        browser.quit()
    print(f"{options.nodes} nodes: first paint {', '.join(f'{one:.0f}' for one in paints)} ms; "
          f"with the map {statistics.median(wholes):.0f} ms")  # fmt: skip
    found = verdict(f"first paint of the first screen, {options.nodes} nodes (ms)", statistics.median(paints), 300.0)
    print(found)


if __name__ == "__main__":
    main()
