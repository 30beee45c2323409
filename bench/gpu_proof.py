"""What a proof of this machine's GPUs costs, as a whole `nhc check local`. Needs NVIDIA's driver and a GPU.

    python bench/gpu_proof.py [--runs 5] [--json FILE] [-- OPTION-OF-NHC-CHECK-LOCAL...]

The first run counts apart: in it the driver wakes and translates the kernels. Of the others the medians: wall and
processor seconds of the command with all its processes, the memory of its largest process, and the rates that the
proof measured by the way. The limits are those that the project holds itself to on a machine that is awake: 1.2 s of
wall time, 1 s of processor time for each GPU, 200 MB. Where there is nvidia-smi, the checks that only read the GPUs
are measured, too: they may take 1.3 times as long as `nvidia-smi -q`. --json writes the figures with the machine's
name, for docs/performance.md.

Exit status: 0, 1 above a limit, 2 where a GPU was not proved, or there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from common import verdict

ROOT = Path(__file__).resolve().parents[1]
WALL, CPU, MEMORY = 1.2, 1.0, 200.0
TO_SMI = 1.3
READING = ("check_gpu_lost", "check_gpu_ecc", "check_gpu_row_remap", "check_gpu_temp", "check_gpu_pcie")
"""Checks that read the GPUs through NVML, as `nvidia-smi -q` does."""


class Run(NamedTuple):
    """One command: wall and processor seconds, megabytes of its largest process, and its report."""

    wall: float
    cpu: float
    memory: float
    report: Dict[str, Any]


def run(argv: Sequence[str]) -> Run:
    """Carry a command out. Raises ValueError where it writes no report."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, cwd=ROOT)
        _pid, _status, used = os.wait4(process.pid, 0)  # with all that it waited for
        wall = time.monotonic() - begun
        process.returncode = 0  # it has been waited for
        out.seek(0)
        report = json.load(out)
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, report)


def unproved(report: Dict[str, Any]) -> List[str]:
    """What keeps a machine's figures from counting: no GPU, or one that was not proved."""
    return [found["message"] for found in report["results"] if found["verdict"] != "OK"]


def rates(reports: Sequence[Dict[str, Any]]) -> Dict[str, Dict[str, float]]:
    """The median of each rate, by GPU and metric."""
    seen: Dict[str, Dict[str, List[float]]] = {}
    for report in reports:
        for found in report["results"]:
            for metric in found["metrics"]:
                name = f"{metric['name']} {metric['unit']}"
                seen.setdefault(found["target"] or "between GPUs", {}).setdefault(name, []).append(metric["value"])
    return {
        gpu: {name: round(statistics.median(values), 1) for name, values in named.items()}
        for gpu, named in seen.items()
    }


def machine() -> str:
    """What the driver calls this machine's GPUs, and its version."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        return "GPUs whose name nvidia-smi does not tell"
    names = [line.strip() for line in listed if line.strip()]
    return "; ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def nvidia_smi(runs: int) -> float:
    """The median of the wall seconds of `nvidia-smi -q`, 0 where it does not answer."""
    walls = []
    for _number in range(runs):
        begun = time.monotonic()
        try:
            subprocess.run(["nvidia-smi", "-q"], stdout=subprocess.DEVNULL, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            return 0.0
        walls.append(time.monotonic() - begun)
    return statistics.median(walls)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--line", action="append", help="lines of the configuration (default: check_gpu_proof)")
    parser.add_argument("options", nargs="*", help="options of nhc check local")
    options = parser.parse_args()
    smi = nvidia_smi(options.runs)
    with tempfile.TemporaryDirectory() as scratch:
        conf = Path(scratch) / "nhc.conf"
        argv = [sys.executable, "-m", "nhc", "check", "local", "-c", str(conf), "--profile", "none", "--format", "json"]

        def runs(lines: Sequence[str]) -> List[Run]:
            conf.write_text("".join(f"* || {line}\n" for line in lines))
            return [run([*argv, *options.options]) for _number in range(options.runs + 1)]

        first, *warm = runs(options.line or ["check_gpu_proof"])
        reading = statistics.median(one.wall for one in runs(READING)[1:]) if smi else 0.0
    why = [message for one in (first, *warm) for message in unproved(one.report)]
    if why:
        print(why[0], file=sys.stderr)
        return 2
    gpus = sum(bool(found["target"]) for found in first.report["results"])
    wall, cpu, memory = (statistics.median(getattr(one, name) for one in warm) for name in ("wall", "cpu", "memory"))
    found = {
        "machine": machine(), "gpus": gpus, "runs": len(warm), "first_wall_s": round(first.wall, 3),
        "wall_s": round(wall, 3), "cpu_s_per_gpu": round(cpu / gpus, 3), "memory_mb": round(memory),
        **({"nvidia_smi_q_s": round(smi, 3), "reading_s": round(reading, 3)} if smi else {}),
        "rates": rates([one.report for one in warm]),
    }  # fmt: skip
    print(f"{found['machine']}; the first run {first.wall:.2f} s")
    print(verdict("proof of all GPUs, wall seconds", wall, WALL))
    print(verdict("processor seconds for each GPU", cpu / gpus, CPU))
    print(verdict("memory of the largest process, MB", memory, MEMORY))
    if smi:
        print(verdict(f"checks that read the GPUs, against the {smi:.2f} s of nvidia-smi -q", reading / smi, TO_SMI))
    for gpu, named in found["rates"].items():
        print(f"{gpu}: " + ", ".join(f"{name} {value}" for name, value in named.items()))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    within = wall <= WALL and cpu / gpus <= CPU and memory <= MEMORY and reading <= TO_SMI * smi
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
