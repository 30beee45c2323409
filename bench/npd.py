"""node-problem-detector beside the agent: its time from a kernel line to its condition, and its memory."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import time
import uuid
from pathlib import Path
from typing import Iterator, List

from nhc.core.system import kernel_ring
from nhc_adapters.kubernetes.api.client import Client, node_path

CONDITION = "BenchXid"


@contextlib.contextmanager
def detector(binary: str, url: str, kubeconfig: Path, node: str, directory: Path, word: str) -> Iterator[int]:
    """A running one with a single monitor of /dev/kmsg; its process id.

    Its conditions never end. So there are two rules of one condition, whose reasons take turns.
    """
    config = directory / "npd.json"
    rules = [{"type": "permanent", "condition": CONDITION, "reason": f"Turn{turn}", "pattern": f"{word} turn {turn} .*"}
             for turn in (0, 1)]  # fmt: skip
    config.write_text(json.dumps({
        "plugin": "kmsg", "logPath": "/dev/kmsg", "lookback": "0", "bufferSize": 10, "source": "bench",
        "conditions": [{"type": CONDITION, "reason": "NoXid", "message": "none"}], "rules": rules,
    }))  # fmt: skip
    argv = [binary, f"--apiserver-override={url}?inClusterConfig=false&auth={kubeconfig}", "--prometheus-port=0",
            "--port=0", f"--hostname-override={node}", f"--config.system-log-monitor={config}"]  # fmt: skip
    with (directory / "npd.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


def reason(client: Client, node: str) -> str:
    found = client.get(node_path(node))["status"].get("conditions") or ()
    return next((str(one["reason"]) for one in found if one["type"] == CONDITION), "")


def measure(binary: str, client: Client, url: str, kubeconfig: Path, node: str, directory: Path, rounds: int) -> None:
    """Print milliseconds from before the line is written to the condition read from the API, and resident memory."""
    word = f"bench{uuid.uuid4().hex[:8]}"
    taken: List[float] = []
    with detector(binary, url, kubeconfig, node, directory, word) as pid:
        _await(client, node, "NoXid")
        for number in range(rounds):
            time.sleep(0.37 * (number % 3))  # not in step with its own second
            begin = time.perf_counter()
            kernel_ring.write(f"{word} turn {number % 2} GPU has fallen off the bus", 3)
            _await(client, node, f"Turn{number % 2}")
            taken.append((time.perf_counter() - begin) * 1e3)
        memory = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]
    print(
        f"node-problem-detector, kernel line to its condition, {rounds} times: p50 {statistics.median(taken):.0f} ms, "
        f"p99 {sorted(taken)[min(rounds - 1, int(rounds * 0.99))]:.0f} ms; resident {int(memory) / 1024:.1f} MB"
    )


def _await(client: Client, node: str, wanted: str, within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while reason(client, node) != wanted:
        if time.monotonic() > deadline:
            raise SystemExit(f"node-problem-detector's condition is not {wanted} within {within:.0f} s")
        time.sleep(0.002)
