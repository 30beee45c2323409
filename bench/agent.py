"""What the resident agent costs at rest, how fast a kernel line is an event, and what a flood of lines costs.

    python bench/agent.py [--seconds 120] [--lines 50] [--flood 5]

At rest: sixty checks at one-minute cadence, after the first round. Limits: 40 MB resident for the agent with its sink,
0.3 % of a core. The kernel log is the real one: the lines are marked as a drill, and ended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from common import adopt_orphans, tree_pss, verdict  # noqa: E402

from nhc.core.data import reader  # noqa: E402
from nhc.core.system import kernel_ring  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")


def sixty() -> str:
    """Sixty lines, each for a minute: the built-in default's, and more of the same kinds."""
    lines = [line for line in reader.read("default.conf").splitlines() if line.startswith("*")]
    more = [
        "check_hw_cpuinfo",
        "check_ps_loadavg 9999 9999 9999",
        "check_file_test -e /etc/passwd",
        "check_hw_swap 0 999999999",
        "check_fs_free / 1%",
        "check_fs_ifree / 1%",
        "check_file_test -d /tmp",
        "check_kernel_taint",
        "check_uptime",
        "check_hw_physmem 1k 9999g",
        "check_ps_unauth_users",
        "check_file_stat -m 0755 /etc",
        "check_hw_physmem_free 1k",
    ]
    while len(lines) < 60:
        lines.append(f"* || {more[len(lines) % len(more)]}")
    return "".join(f"* |every 1m| {line.partition('||')[2].strip()}\n" for line in lines[:60])


def cpu(pid: int) -> float:
    """CPU seconds of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICK


def children(pid: int) -> List[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(name))
    return found


def rss(pid: int) -> float:
    fields = Path(f"/proc/{pid}/status").read_text()
    return int(fields.partition("VmRSS:")[2].split()[0]) / 1024


class Agent:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events = directory / "events"
        (directory / "nhc.conf").write_text(sixty())
        (directory / "agent.toml").write_text(
            f'[agent]\nconfig = ["{directory}/nhc.conf"]\nstate = "{directory}/state"\nlisten = []\n'
            f'[events]\npath = "{self.events}"\n'
        )
        self.env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"}
        self.env["NHC_STATE_DIR"] = f"{directory}/state"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nhc", "serve", "agent", "-s", str(directory / "agent.toml")], env=self.env
        )
        while not self.status().get("checks") or any(check["age"] is None for check in self.status()["checks"]):
            time.sleep(0.1)

    def status(self) -> Dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-m", "nhc", "status", "agent", "-f", "json"],
            env=self.env,
            capture_output=True,
            check=False,
        )
        return json.loads(done.stdout) if done.stdout else {}

    def cpu(self) -> float:
        """CPU seconds of the agent, its sinks, its rounds and the workers that rounds left to be reaped by us."""
        while True:
            try:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    break
            except ChildProcessError:
                break
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        alive = sum(cpu(pid) for pid in (self.process.pid, *children(self.process.pid)))
        return alive + ours.ru_utime + ours.ru_stime


def at_rest(agent: Agent, seconds: float) -> None:
    before, began = agent.cpu(), time.monotonic()
    time.sleep(seconds)
    spent = (agent.cpu() - before) / (time.monotonic() - began) * 100
    processes = [agent.process.pid, *children(agent.process.pid)]
    print(f"processes at rest: {len(processes)}, resident {', '.join(f'{rss(pid):.1f} MB' for pid in processes)}")
    print(verdict("resident, the agent itself, MB", rss(agent.process.pid), 40.0))
    print(verdict("resident, agent and sink, proportional, MB", tree_pss(agent.process.pid) / 1e6, 40.0))
    print(verdict("CPU at rest, % of a core", spent, 0.3))


def latency(agent: Agent, lines: int) -> None:
    took = []
    for number in range(lines):
        device = f"{random.randrange(16, 256):02x}:{number % 32:02x}"
        seen = agent.events.stat().st_size
        began = time.perf_counter()
        kernel_ring.write(
            f"NVRM: Xid (PCI:0000:{device}): 79, pid={number}, GPU has fallen off the bus. (nhc-drill)", 3
        )
        while agent.events.stat().st_size == seen:
            time.sleep(0.0002)
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.05)
    kernel_ring.write("nhc-drill ended", 6)
    print(f"kernel line to event in the stream, {lines} times: p50 {statistics.median(took):.1f} ms, "
          f"p99 {sorted(took)[int(len(took) * 0.99)]:.1f} ms")  # fmt: skip


def flood(agent: Agent, seconds: float, rate: int = 100_000) -> None:
    limit = Path("/proc/sys/kernel/printk_devkmsg")  # the kernel drops all but ten lines in five seconds otherwise
    kept = limit.read_text()
    try:
        limit.write_text("on\n")
    except OSError as error:
        print(f"flood: not measured: {limit}: {error.strerror}")
        return
    try:
        _flood(agent, seconds, rate)
    finally:
        limit.write_text(kept)


def _flood(agent: Agent, seconds: float, rate: int) -> None:
    fd = os.open(kernel_ring.KMSG, os.O_WRONLY)
    kernel: Dict[str, int] = agent.status()["kernel_log"]  # type: ignore[assignment]
    before = agent.cpu()
    began, lines = time.monotonic(), 0
    line = b"<14>bench: a line of no interest that says nothing of this node at all\n"
    while (took := time.monotonic() - began) < seconds:
        for _ in range(min(int(took * rate) - lines, rate // 100)):  # a kernel that takes fewer does not hold us up
            os.write(fd, line)
            lines += 1
        time.sleep(0.001)
    os.close(fd)
    spent = agent.cpu() - before
    time.sleep(0.5)
    after: Dict[str, int] = agent.status()["kernel_log"]  # type: ignore[assignment]
    print(
        f"flood: {lines / took:.0f} lines a second for {took:.1f} s: read {after['records'] - kernel['records']} of "
        f"{lines}, lost and counted {after['lost'] - kernel['lost']}, {spent / took * 100:.0f} % of a core"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--lines", type=int, default=50)
    parser.add_argument("--flood", type=float, default=5.0)
    options = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory() as directory:
        agent = Agent(Path(directory))
        try:
            at_rest(agent, options.seconds)
            if os.access(kernel_ring.KMSG, os.W_OK):
                latency(agent, options.lines)
                flood(agent, options.flood)
            print(f"resident after it all: {rss(agent.process.pid):.1f} MB")
        finally:
            agent.process.send_signal(signal.SIGTERM)
            agent.process.wait(10)


if __name__ == "__main__":
    main()
