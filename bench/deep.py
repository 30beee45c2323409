"""Deep checks: judging what 10,000 nodes have measured, and what nhc costs around a tool.

    python bench/deep.py [--nodes 10000] [--rounds 5]

The first part reads as many outputs of a whole node (dcgmi diag, nvbandwidth, nccl-tests, the burn), judges them, and
places each figure among its peers: CPU seconds of this process, on one core. The second part runs a suite of one tool
that does nothing, and the tool alone, in turn: wall seconds of whole processes. A deep check lasts seconds to hours.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from nhc.core.host import Completed, Host
from nhc.core.model import Outcome, Verdict
from nhc.deep.fleet_norm import Sample, norm, place, propose
from nhc.node.checks import deep, deep_collective, deep_dcgm, deep_gemm, deep_nvbandwidth
from nhc.node.facts import dcgm
from nhc.node.facts.accelerator_values import Device
from tests.support import deep_samples as samples

ROOT = Path(__file__).resolve().parents[1]
GPUS = [Device("nvidia", number, name="NVIDIA H100 80GB HBM3") for number in range(8)]


class Part(NamedTuple):
    """One tool's output, and what reads and judges it."""

    name: str
    text: str
    judge: Callable[[Host, str], List[Outcome]]


def _dcgm(_host: Host, text: str) -> List[Outcome]:
    return deep_dcgm.judge("2", list(range(8)), Completed(0, text), dcgm.parse(text))


def _bandwidth(host: Host, text: str) -> List[Outcome]:
    wanted = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce")
    return deep_nvbandwidth.judge(host, wanted, GPUS, Completed(0, text), deep_nvbandwidth.parse_json(text), None)


def _collective(host: Host, text: str) -> List[Outcome]:
    found, way = deep_collective.parse_collective(text), deep_collective.transport(text)
    return [deep_collective.judge(host, "all_reduce", 8 << 30, 8, "all", Completed(0, text), found, way, None)]


def _burn(host: Host, text: str) -> List[Outcome]:
    return deep_gemm.judge_burn(host, Completed(0, text), deep_gemm.parse_burn(text), 60.0, 8, None)


PARTS = (
    Part("dcgmi diag -r 2", samples.dcgm4(), _dcgm),
    Part("nvbandwidth", samples.nvbandwidth(), _bandwidth),
    Part("nccl-tests", samples.NCCL, _collective),
    Part("gemm burn", samples.gemm(tflops=790.0), _burn),
)


def judging(nodes: int) -> None:
    """Print the CPU time of reading, judging and placing the results of so many nodes."""
    host = Host(settings={deep.RUN: "bench", deep.KIND: "hgx-h100-8", "NHC_DEEP_EXPECTED": "/no/such/file"})
    figures: Dict[str, List[Sample]] = {}
    whole = 0.0
    for part in PARTS:
        began = time.process_time()
        for number in range(nodes):
            for outcome in part.judge(host, part.text):
                if outcome.verdict is not Verdict.OK:
                    raise RuntimeError(f"{part.name}: {outcome.message}")
                for metric in outcome.metrics[:1]:
                    value = metric.value * (1 + (number % 97) / 4000)
                    figures.setdefault(metric.name, []).append(
                        Sample(f"n{number}", "hgx-h100-8", metric.name, metric.unit, value, outcome.target)
                    )
        spent = time.process_time() - began
        whole += spent
        print(f"  {part.name:<18}{spent:8.2f} s  {spent / nodes * 1e6:8.0f} us a node")
    count = sum(map(len, figures.values()))
    began = time.process_time()
    odd = 0
    for found in figures.values():
        of_kind = norm(found)
        odd += sum(place(sample.value, of_kind) == "out" for sample in found)
    spent = time.process_time() - began
    print(f"  {'placing':<18}{spent:8.2f} s  {count} figures, {odd} stand out")
    began = time.process_time()
    rows = propose((sample for found in figures.values() for sample in found), "2026-01-01").rows
    print(f"  {'calibrating':<18}{time.process_time() - began:8.2f} s  {len(rows)} rows")
    print(f"  {'all of judging':<18}{whole:8.2f} s  for {nodes} nodes")


def overhead(rounds: int) -> None:
    """Print the wall time of nhc around a tool that ends at once, beside the tool alone."""
    with tempfile.TemporaryDirectory() as place:
        suite = Path(place) / "one.conf"
        suite.write_text("* |context deep| true\n")
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "NHC_DEEP_DIR": f"{place}/deep",
               "NHC_STATE_DIR": f"{place}/state"}  # fmt: skip
        ours = [sys.executable, "-m", "nhc", "deep", "run", str(suite), "--adapter", "none", "-q", "-q"]
        times: Dict[str, List[float]] = {"nhc deep run": [], "the tool alone": []}
        for _ in range(rounds):
            for name, argv in (("nhc deep run", ours), ("the tool alone", ["true"])):
                began = time.monotonic()
                subprocess.run(argv, env=env, check=True, capture_output=True)
                times[name].append(time.monotonic() - began)
        for name, seen in times.items():
            print(f"  {name:<18}{statistics.median(seen) * 1000:8.0f} ms (median of {rounds})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"Reading and judging the results of {given.nodes} nodes of 8 GPUs")
    judging(given.nodes)
    print("Around a tool")
    overhead(given.rounds)


if __name__ == "__main__":
    main()
