"""From a fatal Xid in the kernel log to the taint that another watcher of the API sees, agent and controller real.

    python bench/kmsg_to_taint.py [--samples 1000] [--every 1s] [--busy] [--npd BINARY]

One machine runs it all: a control plane, `nhc serve agent` with its Kubernetes sink for one node, `nhc serve
kubernetes`, and this script, which writes the line and watches the node. The agent judges the node, the kernel log
among it, in a round of checks every second all the while. The line is marked as a drill, and ended, with every sample.
Limits on an idle machine: p50 30 ms, p99 100 ms, most 250 ms; with `--busy`, which keeps every core busy, p99 400 ms.
Printed beside bare patches through the same server between the same samples, and, with `--npd`, beside
node-problem-detector's time to its condition (`tests/npd/build.py --optimised` builds one) and its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, Iterator, List

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "kube")]

# ruff: noqa: E402 (the path comes first)
import build
import plane as planes

from bench import npd
from bench.agent import rss
from bench.common import tree_pss, verdict
from bench.kubernetes import TAINT, Watcher, controller, metrics
from nhc.core.system import kernel_ring
from nhc_adapters.kubernetes.api.access import from_kubeconfig
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, node_path

NODE = "bench-kmsg"
P50, P99, MOST = 30.0, 100.0, 250.0
"""Milliseconds, on an idle machine."""
BUSY_P99 = 400.0
"""Milliseconds, with every core busy."""
LIMIT = Path("/proc/sys/kernel/printk_devkmsg")


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """The kernel drops all but ten of a user's lines in five seconds otherwise (printk_devkmsg=ratelimit)."""
    kept = LIMIT.read_text()
    LIMIT.write_text("on\n")
    try:
        yield
    finally:
        LIMIT.write_text(kept)


class Agent:
    """`nhc serve agent` as a process of its own, with a round of two checks every so often, and the Kubernetes sink."""

    def __init__(self, directory: Path, kubeconfig: Path, every: str) -> None:
        directory.mkdir()
        self.log = directory / "agent.log"
        lines = (f"* |every {every}| {check}\n" for check in ("check_kmsg", "check_file_test -d /"))
        (directory / "nhc.conf").write_text("".join(lines))
        (directory / "agent.toml").write_text(
            f'[agent]\nnode = "{NODE}"\nconfig = ["{directory}/nhc.conf"]\nstate = "{directory}/state"\nlisten = []\n'
            f'[events]\npath = "{directory}/events"\n'
            f'[sinks.kubernetes]\nkubeconfig = "{kubeconfig}"\n'
        )
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}",
            "NHC_STATE_DIR": f"{directory}/state",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nhc", "serve", "agent", "-s", str(directory / "agent.toml")],
                env=self.env,
                stdout=log,
                stderr=log,
            )

    def nhc(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "nhc", *words], env=self.env, capture_output=True, text=True, check=False
        )
        return done.stdout

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def conditions(client: Client) -> Dict[str, str]:
    """What the agent has said of the node, and "taint" where the controller has marked it."""
    node = client.get(node_path(NODE))
    found = {one["type"]: one["status"] for one in node["status"].get("conditions") or ()}
    if any(taint["key"] == TAINT for taint in node["spec"].get("taints") or ()):
        found["taint"] = "True"
    return found


def well(found: Dict[str, str]) -> bool:
    return found.get("NhcHealthy") == "True" and "taint" not in found


def await_start(client: Client, agent: Agent, manager: subprocess.Popen[bytes], log: Path, within: float) -> None:
    """Until the controller leads and the agent has said that the node is well.

    The kernel log may hold drills and faults from before: they are acknowledged, so that each round begins well.
    """
    deadline = time.monotonic() + within
    while not (metrics().get("nhc_kubernetes_leading") and well(conditions(client))):
        for process, said in ((agent.process, agent.log), (manager, log)):
            if process.poll() is not None:
                raise SystemExit(f"a process ended with status {process.returncode}:\n{said.read_text()}")
        if time.monotonic() > deadline:
            said = f"{conditions(client)}\n{agent.nhc('status', 'agent')}\n{agent.log.read_text()}\n{log.read_text()}"
            raise SystemExit(f"not well within {within:.0f} s: {said}")
        agent.nhc("ack", "agent", "--all")
        time.sleep(0.2)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that only compute."""
    spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in spin:
            one.kill()
            one.wait()


def measure(client: Client, watcher: Watcher, samples: int) -> Dict[str, List[float]]:
    """Milliseconds, sorted, from before the line is written to the taint seen, and of bare patches."""
    taken: List[float] = []
    bare: List[float] = []
    for number in range(samples):
        device = f"0000:{random.randrange(16, 256):02x}:{number % 32:02x}"
        line = f"NVRM: Xid (PCI:{device}): 79, pid={number}, GPU has fallen off the bus. (nhc-drill)"
        begin = time.perf_counter()
        kernel_ring.write(line, 3)
        taken.append((watcher.wait([NODE], within=30.0) - begin) * 1e3)
        kernel_ring.write("nhc-drill ended", 6)
        watcher.wait([NODE], tainted=False, within=30.0)
        begin = time.perf_counter()
        client.patch(node_path(NODE), {"metadata": {"labels": {"round": str(number)}}}, MERGE_PATCH)
        bare.append((time.perf_counter() - begin) * 1e3)
    return {"taken": sorted(taken), "bare": sorted(bare)}


def quantile(values: List[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


def report(found: Dict[str, List[float]], marks: int, loaded: bool) -> bool:
    """Print it; whether it is within the limits."""
    for name, values in (("Xid 79 written to /dev/kmsg to the taint seen", found["taken"]),
                         ("a bare patch", found["bare"])):  # fmt: skip
        shares = ", ".join(f"p{100 * share:g} {quantile(values, share):.1f}" for share in (0.5, 0.9, 0.99, 0.999))
        print(f"{name}, {len(values)} times, ms: least {values[0]:.1f}, {shares}, most {values[-1]:.1f}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; marks seen {marks}")
    taken = found["taken"]
    limits = [("p99, every core busy", quantile(taken, 0.99), BUSY_P99)] if loaded else [
        ("p50", statistics.median(taken), P50), ("p99", quantile(taken, 0.99), P99), ("most", taken[-1], MOST)
    ]  # fmt: skip
    for name, value, limit in limits:
        print(verdict(f"kernel line to taint, {name}, ms", value, limit))
    return all(value <= limit for _name, value, limit in limits) and marks == len(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--every", default="1s", metavar="TIME", help="how often the agent judges the node")
    parser.add_argument("--busy", action="store_true", help="with a process on each core that only computes")
    parser.add_argument("--npd", default="", metavar="BINARY", help="node-problem-detector to measure beside it")
    given = parser.parse_args()
    if given.samples < 1:
        parser.error("--samples takes a number from 1 on")
    if not (os.access(kernel_ring.KMSG, os.W_OK) and os.access(LIMIT, os.W_OK)):
        raise SystemExit(f"{kernel_ring.KMSG} and {LIMIT} must be writable: run it as root")
    binaries = build.build(lambda line: sys.stderr.write(line + "\n"))
    with tempfile.TemporaryDirectory(prefix="nhc-bench-") as name, unlimited():
        directory = Path(name)
        with contextlib.ExitStack() as stack:
            running = planes.Plane(binaries, directory / "plane", kwok=False, lifecycle=False).start()
            stack.callback(running.stop)
            kubeconfig = running.kubeconfig
            client = Client(from_kubeconfig(str(kubeconfig)))
            client.post("/api/v1/namespaces", {"metadata": {"name": "nhc-system"}})
            client.post("/api/v1/nodes", {"metadata": {"name": NODE}})
            manager = controller(kubeconfig, directory)
            stack.callback(manager.wait, 20)
            stack.callback(manager.send_signal, signal.SIGTERM)
            agent = Agent(directory / "agent", kubeconfig, given.every)
            stack.callback(agent.stop)
            await_start(client, agent, manager, directory / "controller.log", within=30.0)
            watcher = Watcher(Client(from_kubeconfig(str(kubeconfig))))
            with busy((os.cpu_count() or 1) if given.busy else 0):
                found = measure(client, watcher, given.samples)
            kept = report(found, watcher.times[NODE], given.busy)
            print(f"the agent and its sinks: {tree_pss(agent.process.pid) / 1e6:.1f} MB, proportional; "
                  f"{rss(agent.process.pid):.1f} MB resident, the agent itself")  # fmt: skip
            if given.npd:
                npd.measure(given.npd, client, running.url, kubeconfig, NODE, directory, min(given.samples, 60))
            return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
