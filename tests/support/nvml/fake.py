"""Checks under the real nvidia-ml-py and a libnvidia-ml.so.1 of our own making.

`Nvml` builds the library once and keeps one process that has it on its LD_LIBRARY_PATH. `judge` hands
that process a scenario and check lines and returns their outcomes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tests.support.require import need

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ADDRESSES = [f"0000:{bus}:00.0" for bus in ("0f", "2d", "44", "5b", "89", "a8", "c0", "d8")]


def pci_tree(
    addresses: Sequence[str] = tuple(ADDRESSES), switches: int = 0, device: int = 0x2330, driver: str = "nvidia"
) -> Dict[str, Any]:
    """The files of a node's PCI bus: GPUs of NVIDIA, NVSwitches, and a network card that is none of ours."""
    functions = [(address, 0x10DE, device, 0x030200) for address in addresses]
    functions += [(f"0000:c{number:x}:00.0", 0x10DE, 0x22A3, 0x068000) for number in range(5, 5 + switches)]
    functions.append(("0000:01:00.0", 0x15B3, 0x1021, 0x020700))
    return functions_tree(functions, driver)


def functions_tree(functions: Sequence[Any], driver: str = "") -> Dict[str, Any]:
    files: Dict[str, Any] = {"/proc/bus/pci/devices": ""}
    for place, (address, vendor, device, class_code) in enumerate(functions):
        files["/proc/bus/pci/devices"] += index_line(
            address, vendor, device, "mlx5_core" if vendor == 0x15B3 else driver
        )
        base = f"/sys/bus/pci/devices/{address}"
        files[f"{base}/vendor"] = f"{vendor:#06x}\n"
        files[f"{base}/device"] = f"{device:#06x}\n"
        files[f"{base}/class"] = f"{class_code:#08x}\n"
        files[f"{base}/numa_node"] = f"{0 if place < 4 else 1}\n"
    return files


def index_line(address: str, vendor: int, device: int, driver: str = "", memory: int = 1 << 24) -> str:
    """A line of /proc/bus/pci/devices (show_device in the kernel's drivers/pci/proc.c)."""
    bus, slot = address.split(":")[-2:]
    at = int(bus, 16) << 8 | int(slot[:2], 16) << 3 | int(slot[3:])
    regions = [f"{0xF0000000:16x}", *[f"{0:16x}"] * 6, f"{memory:16x}", *[f"{0:16x}"] * 6]
    return "\t".join([f"{at:04x}", f"{vendor:04x}{device:04x}", "10", *regions, driver]) + "\n"


class Nvml:
    """The library, and the process that uses it."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        need("cc", compiler, "the fake NVML library is built from C")
        assert compiler
        self.directory = directory
        self.library = directory / "libnvidia-ml.so.1"
        flags = [
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-finstrument-functions",
        ]
        subprocess.run([compiler, *flags, "-o", str(self.library), str(HERE / "nvml.c")], check=True)
        self._serial = 0
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment(),
            text=True,
        )

    def environment(self, scenario: Optional[Path] = None) -> Dict[str, str]:
        found = {**os.environ, "LD_LIBRARY_PATH": str(self.directory), "PYTHONPATH": str(ROOT)}
        return {**found, "NHC_FAKE_NVML": str(scenario)} if scenario else found

    def scenario(self, base: str, *lines: str) -> Path:
        """A scenario file: one of the healthy machines, and what is wrong with this one."""
        self._serial += 1
        path = self.directory / f"scenario{self._serial}.txt"
        # The lines of an included file come first, so that later ones override them.
        (self.directory / f"{base}.txt").write_text((HERE / "scenarios" / f"{base}.txt").read_text())
        if base == "h200":
            (self.directory / "h100.txt").write_text((HERE / "scenarios" / "h100.txt").read_text())
        path.write_text(f"include {base}.txt\n" + "".join(f"{line}\n" for line in lines))
        return path

    def judge(
        self,
        base: str,
        checks: Sequence[str],
        *faults: str,
        files: Optional[Mapping[str, str]] = None,
        settings: Optional[Mapping[str, str]] = None,
        commands: Optional[Mapping[str, Any]] = None,
        then: Sequence[str] = (),
        after: float = 60.0,
        all_parts: bool = False,
        owners: Optional[Mapping[int, int]] = None,
    ) -> List[List[Any]]:
        """The outcomes of each check line on a node of scenario `base` with these faults.

        With `then` the checks run a second time, `after` seconds later, with these faults added; the second
        run's outcomes are returned. `NAME=VALUE` before a check is a setting for it, `/PATH=TEXT` writes a file.
        Each check sees what it declares that it reads, with `all_parts` all there is. `owners` are users of processes.
        """
        runs = [str(self.scenario(base, *faults))]
        if then:
            runs.append(str(self.scenario(base, *faults, *then)))
        return self._ask(
            {
                "scenarios": runs, "checks": list(checks), "files": dict(pci_tree() if files is None else files),
                "settings": dict(settings or {}), "commands": dict(commands or {}), "after": after,
                "all_parts": all_parts, "owners": dict(owners or {}),
            }
        )  # fmt: skip

    def one(self, base: str, check: str, *faults: str, **more: Any) -> List[Any]:
        """The outcomes of a single check line."""
        return self.judge(base, [check], *faults, **more)[0]

    def _ask(self, question: Mapping[str, Any]) -> List[List[Any]]:
        from nhc.core.render.plain import decode

        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return [[decode([*one[:6], tuple(one[6]), *one[7:]]) for one in outcomes] for outcomes in answer]

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.kill()  # not by the end of its input: a process forked meanwhile may hold the other end of that
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
