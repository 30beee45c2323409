"""The agent's memory: with its sinks, and whether it stays flat under requests for its pages and over rounds of checks.

    python bench/memory.py [--requests 40000] [--rounds 600]

A million requests and a week of rounds at one a minute are `--requests 1000000 --rounds 10080`: about half an hour. The
run without options is the same at a smaller scale, and says what it grew per request and round. Every request is a
connection of its own over loopback; half of them ask for /report, the others for the other pages in turn. Rounds are
real ones, forks and all, of checks that are due every 50 ms. The first tenth warms up and does not count.

First the whole tree of processes, shared pages divided: with the events' sink alone, and with the sinks for nhc's
server and OpenTelemetry, both of which have delivered. With OpenTelemetry's SDK in its own process: 53.6 MB.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, List, Tuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from common import tree_pss, verdict  # noqa: E402

from nhc.marks import push  # noqa: E402
from tests.support.http_server import Reply, Request, answering, serving  # noqa: E402

PAGES = ("/report", "/metrics", "/report", "/conditions", "/report", "/healthz", "/report", "/livez")
GROWTH = 2.0
"""MB by which the resident memory of agent and sink may differ between the warm process and the end."""
TREE = 30.0
"""MB of the whole tree, shared pages divided."""


def rss(pid: int) -> float:
    """Resident memory in MB."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


class Agent:
    """An agent of twenty cheap lines, its state below `directory`."""

    def __init__(self, directory: Path, every: str, more: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        lines = "".join(f"* |every {every}| check_file_test -e /etc/passwd /proc/{n}\n" for n in range(20))
        (directory / "nhc.conf").write_text(lines)
        (directory / "agent.toml").write_text(
            f'[agent]\nconfig = ["{directory}/nhc.conf"]\nstate = "{directory}/state"\nkernel-log = false\n'
            f'listen = ["127.0.0.1:{self.port}"]\n[events]\npath = "{directory}/events"\n{more}'
        )
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"}
        argv = [sys.executable, "-m", "nhc", "serve", "agent", "-s", str(directory / "agent.toml")]
        self.process = subprocess.Popen(argv, env=env)
        while not self.rounds():
            time.sleep(0.1)

    def get(self, path: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            parts = []
            while True:
                data = connection.recv(1 << 16)
                if not data:
                    return b"".join(parts)
                parts.append(data)

    def rounds(self) -> int:
        """Rounds so far."""
        try:
            text = self.get("/metrics").decode()
        except OSError:
            return 0
        return sum(
            int(float(line.split()[1])) for line in text.splitlines() if line.startswith("nhc_agent_rounds_total")
        )

    def memory(self) -> Tuple[float, ...]:
        """Resident memory of the agent and of its sink."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = [rss(self.process.pid)]
        for child in children:
            try:
                words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # a round that has just ended
                continue
            if time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK") > 5:  # no round
                found.append(rss(int(child)))
        return tuple(found)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def measured(agent: Agent, name: str, count: int, step: Callable[[int], int]) -> None:
    """Do `step` until it has come to `count`, and print how much memory that took for good."""
    began, done, samples = time.monotonic(), 0, []
    warm: List[Tuple[float, ...]] = []
    while done < count:
        done = step(done)
        if done >= count // 10 and not warm:
            warm.append(agent.memory())
        samples.append(sum(agent.memory()[:1]))
    took, end = time.monotonic() - began, agent.memory()
    grown = max(after - before for before, after in zip(warm[0], end))
    rate = grown * 1024 * 1024 / (count * 0.9)
    print(f"{name}: {count} in {took:.0f} s; agent {warm[0][0]:.1f} -> {end[0]:.1f} MB, highest {max(samples):.1f} MB; "
          f"{rate:.1f} bytes each")  # fmt: skip
    print(verdict(f"growth over {count} {name}, MB", grown, GROWTH))


def with_sinks(directory: Path, seconds: float) -> None:
    """Print what the tree takes after so many seconds, without and with the sinks that speak HTTP."""
    paths = []

    def take(asked: Request) -> Reply:
        paths.append(asked.path)
        return Reply(200, b'{"refused":[],"notes":[],"digest":"d"}' if asked.path == push.PATH else b"{}")

    (directory / "token").write_text("token\n")
    with serving(answering(take)) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        sinks = f'[sinks.server]\nurl = "{url}"\ntoken-file = "{directory}/token"\nspool = "{directory}/spool"\n'
        sinks += f'[sinks.otel]\nendpoint = "{url}"\nevery = "1s"\n'
        for name, more in (("events", ""), ("events, server and OpenTelemetry", sinks)):
            paths.clear()
            agent = Agent(directory, "10s", more)
            try:
                time.sleep(seconds)
                if more and not {push.PATH, "/v1/logs", "/v1/metrics"} <= set(paths):
                    raise SystemExit(f"not all was delivered: {sorted(set(paths))}")
                print(verdict(f"agent with {name}, MB", tree_pss(agent.process.pid) / 1e6, TREE))
            finally:
                agent.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=20.0, help="before the memory with sinks is read")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asked, judged = Path(directory, "asked"), Path(directory, "judged")
        sinks = Path(directory, "sinks")
        sinks.mkdir()
        with_sinks(sinks, options.seconds)
        asked.mkdir()
        judged.mkdir()
        agent = Agent(asked, "1h")

        def ask(done: int) -> int:
            for number in range(done, done + 500):
                agent.get(PAGES[number % len(PAGES)])
            return done + 500

        try:
            measured(agent, "requests", options.requests, ask)
        finally:
            agent.close()
        agent = Agent(judged, "50ms")
        first = agent.rounds()

        def judge(_done: int) -> int:
            time.sleep(0.5)
            return agent.rounds() - first

        try:
            measured(agent, "rounds", options.rounds, judge)
        finally:
            agent.close()


if __name__ == "__main__":
    main()
