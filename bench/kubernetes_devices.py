"""How long a fault of one GPU takes to its DeviceTaintRule, beside the two bare writes that this cannot do without.

    python bench/kubernetes_devices.py [--nodes 200] [--faults 50]

Everything runs on this machine: the control plane, a fake DRA driver's slices of eight devices a node, the nhc
controller as a process of its own. Limits: the median takes at most seven times what a bare condition and a bare rule
take together, in the same run and as a watch sees them; and no rule is ever about another device. Just before each
fault the node's driver publishes its devices under other names.
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
from nhc.timestamps import utc
from nhc_adapters.kubernetes.api.access import from_kubeconfig
from nhc_adapters.kubernetes.api.client import STRATEGIC, Client, node_path
from tests.support.dra import FakeDriver, api_of, device, gpu

LIMIT = 7.0
"""30 ms where the two bare writes take a bit more than 4, as on two idle cores."""
DEVICES = 8

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


def bare(client: Client, path: str, seen: queue.Queue[Seen], node: str, version: str) -> float:
    """Seconds of a condition's write and a rule's write, to the watch's event."""
    body = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "bare"},
        "spec": {
            "deviceSelector": {"pool": "none", "device": "none"}, "taint": {"key": "bare", "effect": "NoSchedule"}
        },
    }  # fmt: skip
    begin = time.perf_counter()
    client.patch(f"{node_path(node)}/status", condition(node, -1), STRATEGIC)
    client.post(path, body)
    taken = wait(seen, "ADDED")[0] - begin
    client.delete(f"{path}/bare")
    wait(seen, "DELETED")
    return taken


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
            alone: List[float] = []
            wrong = 0
            for node in chosen.sample(names, given.faults):
                alone.append(bare(client, api.rule_path(), seen, names[0], api.rules))
                minor = chosen.randrange(DEVICES)
                order = chosen.sample(range(DEVICES), DEVICES)  # its driver numbers them as it likes
                drivers[node].publish([device(f"gpu-{place}", gpu(node, one)) for place, one in enumerate(order)])
                begin = time.perf_counter()
                client.patch(f"{node_path(node)}/status", condition(node, minor), STRATEGIC)
                when, item = wait(seen, "ADDED")
                taken.append(when - begin)
                wrong += not right(item, node, f"gpu-{order.index(minor)}", minor)
            p50, p99 = statistics.median(taken) * 1e3, sorted(taken)[int(len(taken) * 0.99)] * 1e3
            two = statistics.median(alone) * 1e3
            print(
                f"{given.faults} faults of {given.nodes * DEVICES} devices, fault to rule: p50 {p50:.1f} ms, "
                f"p99 {p99:.1f} ms; a bare condition and a bare rule {two:.1f} ms; wrong devices: {wrong}"
            )
            print(verdict("fault to rule / the two bare writes", p50 / two, LIMIT))
            return int(p50 / two > LIMIT or wrong > 0)
        finally:
            if process is not None:
                process.terminate()
                process.wait(20)


if __name__ == "__main__":
    sys.exit(main())
