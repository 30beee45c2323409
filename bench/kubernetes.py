"""How fast and how large the Kubernetes controller is, on a real control plane, beside bare patches in the same run.

    python bench/kubernetes.py [--nodes 5000] [--storm 1000] [--rounds 200]

Everything runs on this machine: API server, etcd, controllers, the nhc controller as a process of its own, and
this script. Ratios are what carries over. Limits: a storm's marks take at most three times what as many bare
taint patches take with 32 in flight, and no node is marked twice. The first use builds the control plane (minutes).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "kube")]

# ruff: noqa: E402 (the path comes first)
import build
import plane as planes

from bench.common import verdict
from nhc.core.timestamps import utc
from nhc_adapters.kubernetes.api.access import from_kubeconfig
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, Client, node_path

TAINT = "nhc/unhealthy"
IN_FLIGHT = 32
PORT = 19181


class Watcher:
    """Follows the nodes from a thread and remembers when each one's taint came, and how often."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.came: Dict[str, float] = {}
        self.times: Dict[str, int] = {}
        self._tainted: Dict[str, bool] = {}
        self.event = threading.Condition()
        version = next(client.pages("/api/v1/nodes", limit="1"))["metadata"]["resourceVersion"]
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()

    def _follow(self, version: str) -> None:
        try:
            for event in self.client.watch("/api/v1/nodes", version):
                self._take(event.kind, event.object)
        except Exception as error:
            if not self.client.stopping.is_set():
                raise SystemExit(f"the watch broke: {error}") from None

    def _take(self, kind: str, node: Dict[str, Any]) -> None:
        now = time.perf_counter()
        if kind not in ("ADDED", "MODIFIED"):
            return
        name = node["metadata"]["name"]
        tainted = any(taint["key"] == TAINT for taint in node["spec"].get("taints") or ())
        if tainted and not self._tainted.get(name):
            with self.event:
                self.came[name] = now
                self.times[name] = self.times.get(name, 0) + 1
                self.event.notify_all()
        self._tainted[name] = tainted
        if not tainted:
            with self.event:
                self.event.notify_all()

    def wait(self, names: Sequence[str], tainted: bool = True, within: float = 120.0) -> float:
        """When the last of these nodes was tainted (or free of it)."""
        deadline = time.monotonic() + within
        with self.event:
            while any(self._tainted.get(name, False) != tainted for name in names):
                if time.monotonic() > deadline:
                    raise SystemExit(f"not all of {len(names)} nodes within {within:.0f} s")
                self.event.wait(1.0)
        return max(self.came[name] for name in names) if tainted else time.perf_counter()


def each(names: Sequence[str], work: Callable[[str], Any]) -> float:
    """Seconds for all of these with 32 in flight."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(work, names))
    return time.perf_counter() - begin


def condition(status: str) -> Dict[str, Any]:
    now = utc(time.time())
    said = {"type": "NhcHealthy", "status": status, "reason": "Xid79", "message": "check_gpu_lost: gpu3 is off the bus"}
    return {"status": {"conditions": [{**said, "lastHeartbeatTime": now, "lastTransitionTime": now}]}}


def controller(kubeconfig: Path, directory: Path, more: str = "") -> subprocess.Popen[bytes]:
    """The controller as a process, allowed to mark every node, with more settings."""
    policy, settings = directory / "policy.toml", directory / "kubernetes.toml"
    policy.write_text('apply = true\n[bounds.fleet]\nout = "100%"\n')
    settings.write_text(f'policy = "policy.toml"\nnamespace = "nhc-system"\n{more}')
    argv = [sys.executable, "-m", "nhc", "serve", "kubernetes", "--settings", str(settings)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"}
    with (directory / "controller.log").open("wb") as log:
        return subprocess.Popen(
            [*argv, "--kubeconfig", str(kubeconfig), "--listen", f"127.0.0.1:{PORT}"],
            env=environment,
            cwd=directory,
            stdout=log,
            stderr=log,
        )


def wait_for(process: subprocess.Popen[bytes], directory: Path, wanted: Callable[[Dict[str, float]], object]) -> None:
    """Until the controller leads and its metrics are as wanted."""
    while not (wanted(found := metrics()) and found.get("nhc_kubernetes_leading")):
        if process.poll() is not None:
            raise SystemExit((directory / "controller.log").read_text())
        time.sleep(0.01)


@contextlib.contextmanager
def plane() -> Iterator[Tuple[Any, Client, Path]]:
    """A control plane of our own with the controller's namespace, a client with 32 connections, and a directory."""
    binaries = build.build(lambda line: sys.stderr.write(line + "\n"))
    with tempfile.TemporaryDirectory(prefix="nhc-bench-") as name:
        running = planes.Plane(binaries, Path(name) / "plane", kwok=False, lifecycle=False).start()
        try:
            client = Client(from_kubeconfig(str(running.kubeconfig)), connections=IN_FLIGHT)
            client.post("/api/v1/namespaces", {"metadata": {"name": "nhc-system"}})
            yield running, client, Path(name)
        finally:
            running.stop()


def metrics() -> Dict[str, float]:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except (OSError, urllib.error.URLError):
        return {}
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*?\})?) (\S+)$", text, re.MULTILINE)}


def resident(pid: int) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu(pid: int) -> float:
    """CPU seconds used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def latency(client: Client, watcher: Watcher, rounds: int) -> Dict[str, float]:
    """Milliseconds from the condition's PATCH being sent to the taint being seen, and of bare patches."""
    name = "bench-latency"
    client.post("/api/v1/nodes", {"metadata": {"name": name}})
    taken: List[float] = []
    bare: List[float] = []
    for number in range(rounds):
        begin = time.perf_counter()
        client.patch(f"{node_path(name)}/status", condition("False"), STRATEGIC)
        taken.append((watcher.wait([name]) - begin) * 1e3)
        client.patch(f"{node_path(name)}/status", condition("True"), STRATEGIC)
        watcher.wait([name], tainted=False)
        begin = time.perf_counter()
        client.patch(node_path(name), {"metadata": {"labels": {"round": str(number)}}}, MERGE_PATCH)
        bare.append((time.perf_counter() - begin) * 1e3)
    taken.sort()
    return {
        "p50": statistics.median(taken),
        "p99": taken[min(len(taken) - 1, int(len(taken) * 0.99))],
        "bare": statistics.median(bare),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--storm", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rest", type=float, default=20.0, help="seconds at rest over which requests are counted")
    given = parser.parse_args()
    failed = False
    with plane() as (running, client, directory):
        process = None
        try:
            names = [f"n{number:05}" for number in range(given.nodes)]
            labels = {"topology.kubernetes.io/zone": "a", "kubernetes.io/os": "linux"}
            made = each(names, lambda n: client.post("/api/v1/nodes", {"metadata": {"name": n, "labels": labels}}))
            print(f"{given.nodes} nodes made at {given.nodes / made:.0f}/s")
            each(names, lambda n: client.patch(f"{node_path(n)}/status", condition("True"), STRATEGIC))

            begin = time.perf_counter()
            process = controller(running.kubeconfig, directory)
            wait_for(process, directory, lambda found: found.get("nhc_kubernetes_nodes") == given.nodes)
            print(f"controller: start to in sync and leading {time.perf_counter() - begin:.2f} s")
            print(f"controller: {resident(process.pid):.1f} MB resident with {given.nodes} nodes")

            time.sleep(3.0)  # what it does at its start is not rest
            before, burnt, began = metrics(), cpu(process.pid), time.perf_counter()
            time.sleep(given.rest)
            after, seconds = metrics(), time.perf_counter() - began
            asked = sum(after[key] - before.get(key, 0) for key in after if "requests_total" in key)
            print(
                f"controller at rest: {asked / seconds * 3600:.0f} requests an hour, "
                f"{asked / seconds * 3600 / given.nodes:.2f} a node, "
                f"{(cpu(process.pid) - burnt) / seconds * 100:.2f} % of a core"
            )

            watcher = Watcher(Client(from_kubeconfig(str(running.kubeconfig))))
            taken = latency(client, watcher, given.rounds)
            print(
                f"condition written to taint seen, {given.rounds} times: "
                f"p50 {taken['p50']:.1f} ms, p99 {taken['p99']:.1f} ms; "
                f"a bare patch {taken['bare']:.1f} ms"
            )

            storm = names[: given.storm]
            spare = names[-given.storm :]
            taint = {
                "spec": {"taints": [{"key": "bare", "value": "true", "effect": "NoSchedule"}], "unschedulable": True}
            }
            bare = each(spare, lambda n: client.patch(node_path(n), taint, MERGE_PATCH))
            each(
                spare,
                lambda n: client.patch(node_path(n), {"spec": {"taints": None, "unschedulable": None}}, MERGE_PATCH),
            )
            burnt, begin = cpu(process.pid), time.perf_counter()
            faults = each(storm, lambda n: client.patch(f"{node_path(n)}/status", condition("False"), STRATEGIC))
            marks = watcher.wait(storm) - begin
            print(
                f"{given.storm} nodes faulted (writing that took {faults:.2f} s): last mark seen after {marks:.2f} s; "
                f"{given.storm} bare taint patches {bare:.2f} s"
            )
            print(verdict("storm, first fault to last mark / bare patches", marks / bare, 3.0))
            twice = [n for n in storm if watcher.times[n] != 1]
            used = f"{cpu(process.pid) - burnt:.2f} s of CPU, {resident(process.pid):.1f} MB after"
            print(f"nodes marked twice: {len(twice)}; controller {used}")
            failed = marks / bare > 3.0 or bool(twice)
        finally:
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(20)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
