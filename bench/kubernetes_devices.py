"""How long a fault of one GPU takes to its DeviceTaintRule, beside the bare calls that this cannot do without.

    python bench/kubernetes_devices.py [--nodes 200] [--faults 50]

Everything runs on this machine: the control plane, a fake DRA driver's slices of eight devices a node, the nhc
controller as a process of its own. A bare client makes the same four calls one after another in the same run: the
agent's condition, until a watch brings it; the ledger, which must be written before the act; the node's slice, read
anew as its driver may have given the name to another device; the rule, until a watch brings it. Limits: the median
takes at most twice as long, and no rule is ever about another device. Just before each fault the node's driver
publishes its devices under other names.
"""

from __future__ import annotations

import argparse
import queue
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

# ruff: noqa: E402 (the path comes first)
from bench.common import verdict
from bench.kubernetes import controller, each, plane, wait_for
from nhc.core.timestamps import utc
from nhc_adapters.kubernetes.api.access import from_kubeconfig
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, Client, namespaced, node_path
from nhc_adapters.kubernetes.devices.rules import DeviceApi
from tests.support.dra import FakeDriver, api_of, device, gpu

LIMIT = 2.0
"""The calls are most of it: judging and deciding may take as long again. Listing slices before a rule made it 2.9."""
DEVICES = 8
PARTS = ("condition to watch", "ledger", "slice", "rule to watch")

Seen = Tuple[str, float, Dict[str, Any]]


def follow(client: Client, path: str, seen: queue.Queue[Seen]) -> None:
    """Put each event of the rules into a queue, with its time."""
    version = str(next(client.pages(path, limit="1"))["metadata"]["resourceVersion"])

    def run() -> None:
        try:
            for event in client.watch(path, version):
                seen.put((event.kind, time.perf_counter(), event.object))
        except Exception as error:
            if not client.stopping.is_set():
                raise SystemExit(f"the watch broke: {error}") from None

    threading.Thread(target=run, daemon=True).start()


def wait(seen: queue.Queue[Seen], kind: str) -> Tuple[float, Dict[str, Any]]:
    """The next event of this kind."""
    while True:
        found, when, item = seen.get(timeout=60)
        if found == kind:
            return when, item


def condition(node: str, minor: int) -> Dict[str, Any]:
    """What the agent writes: this GPU fails, or (-1) all is healthy."""
    now, text, reason = utc(time.time()), "every check passes", "NhcHealthy"
    if minor >= 0:
        reason, one = "GpuEccUncorrectable", gpu(node, minor)
        text = f"check_gpu_ecc: gpu{minor}: uncorrectable errors [device: {one.pci} {one.uuid} {reason} reset-device]"
    said = {"type": "NhcHealthy", "status": "False" if minor >= 0 else "True", "reason": reason, "message": text}
    return {"status": {"conditions": [{**said, "lastHeartbeatTime": now, "lastTransitionTime": now}]}}


def right(item: Dict[str, Any], node: str, name: str, minor: int) -> bool:
    """Whether a rule is about this device and no other."""
    selected, identity = item["spec"]["deviceSelector"], gpu(node, minor)
    written = item["metadata"]["annotations"]["nhc/device-id"]
    return (selected["pool"], selected["device"], written) == (node, name, f"{identity.pci} {identity.uuid}")


class Bare:
    """The calls of a fault, made by a client that does nothing else."""

    def __init__(self, client: Client, api: DeviceApi, driver: FakeDriver, rules: queue.Queue[Seen]) -> None:
        self.client, self.api, self.rules = client, api, rules
        self.node, self.slice_name = driver.node, driver.name
        self.nodes: queue.Queue[Seen] = queue.Queue()
        self.watching = Client(client.access)
        follow(self.watching, "/api/v1/nodes", self.nodes)
        self.ledger = namespaced("default", "configmaps")
        client.post(self.ledger, {"metadata": {"name": "bare"}})

    def parts(self) -> List[float]:
        """Seconds of each of PARTS."""
        body = {
            "apiVersion": f"resource.k8s.io/{self.api.rules}",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "bare"},
            "spec": {
                "deviceSelector": {"pool": "none", "device": "none"}, "taint": {"key": "bare", "effect": "NoSchedule"}
            },
        }  # fmt: skip
        while not self.nodes.empty():
            self.nodes.get()
        news = condition(self.node, -1)
        times = [time.perf_counter()]
        news["status"]["conditions"][0]["message"] = f"every check passes, at {times[0]}"
        self.client.patch(f"{node_path(self.node)}/status", news, STRATEGIC)
        times.append(wait(self.nodes, "MODIFIED")[0])
        self.client.patch(f"{self.ledger}/bare", {"data": {"at": str(times[0])}}, MERGE_PATCH)
        times.append(time.perf_counter())
        self.client.get(self.api.slice_path(self.slice_name))
        times.append(time.perf_counter())
        self.client.post(self.api.rule_path(), body)
        times.append(wait(self.rules, "ADDED")[0])
        self.client.delete(f"{self.api.rule_path()}/bare")
        wait(self.rules, "DELETED")
        return [after - before for before, after in zip(times, times[1:])]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--faults", type=int, default=50)
    given = parser.parse_args()
    chosen = random.Random(1)
    with plane() as (running, client, directory):
        process = None
        try:
            names = [f"n{number:05}" for number in range(given.nodes)]
            drivers = {node: FakeDriver(client, node, DEVICES) for node in names}
            each(names, lambda node: client.post("/api/v1/nodes", {"metadata": {"name": node}}))
            each(names, lambda node: client.patch(f"{node_path(node)}/status", condition(node, -1), STRATEGIC))
            each(names, lambda node: drivers[node].publish())
            process = controller(running.kubeconfig, directory, '[devices]\nkeep = "device"\n')
            wait_for(process, directory, lambda found: found.get("nhc_kubernetes_devices_usable"))
            api, seen = api_of(client), queue.Queue[Seen]()
            follow(Client(from_kubeconfig(str(running.kubeconfig))), api.rule_path(), seen)
            taken: List[float] = []
            alone: List[List[float]] = []
            peer = Bare(client, api, drivers[names[0]], seen)
            wrong = 0
            for node in chosen.sample(names, given.faults):
                alone.append(peer.parts())
                minor = chosen.randrange(DEVICES)
                order = chosen.sample(range(DEVICES), DEVICES)  # its driver numbers them as it likes
                drivers[node].publish([device(f"gpu-{place}", gpu(node, one)) for place, one in enumerate(order)])
                begin = time.perf_counter()
                client.patch(f"{node_path(node)}/status", condition(node, minor), STRATEGIC)
                when, item = wait(seen, "ADDED")
                taken.append(when - begin)
                wrong += not right(item, node, f"gpu-{order.index(minor)}", minor)
            p50, p99 = statistics.median(taken) * 1e3, sorted(taken)[int(len(taken) * 0.99)] * 1e3
            bare = statistics.median(map(sum, alone)) * 1e3
            each_part = [statistics.median(times) * 1e3 for times in zip(*alone)]
            print(
                f"{given.faults} faults of {given.nodes * DEVICES} devices, fault to rule: p50 {p50:.1f} ms, "
                f"p99 {p99:.1f} ms; wrong devices: {wrong}"
            )
            parts = ", ".join(f"{name} {taken:.1f}" for name, taken in zip(PARTS, each_part))
            print(f"the bare calls {bare:.1f} ms: {parts}")
            print(verdict("fault to rule / the bare calls", p50 / bare, LIMIT))
            return int(p50 / bare > LIMIT or wrong > 0)
        finally:
            if process is not None:
                process.terminate()
                process.wait(20)


if __name__ == "__main__":
    sys.exit(main())
