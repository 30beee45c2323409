"""Make the recorded machine `h100-xid79` or `h100-healthy` anew: python tests/nodes/make_h100.py DIRECTORY

The node is eight H100s under the fake NVML (tests/support/nvml). In a directory of any other name than `h100-healthy`
one of them is lost, and the kernel's lines are those that such a loss leaves. Everything else of it is the real engine,
host and recorder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

CHECKS = """\
* || check_gpu_count 8
* || check_gpu_lost
* || check_gpu_ecc
* || check_gpu_row_remap
* || check_nvlink_status
* || check_gpu_clock_throttling
* || check_gpu_driver
* || check_kmsg
* || check_gpu_xid
* || check_hw_physmem_free 1GB
"""

KERNEL = (
    "6,100,5000000,-;nvidia-nvlink: Nvlink Core is being initialized, major device number 235",
    "3,4100,86400000000,-;NVRM: GPU at PCI:0000:5b:00: GPU-5b1c0e2a-7d0f-4a39-9d64-0a1b2c3d4e5f",
    "3,4101,86400000100,-;NVRM: Xid (PCI:0000:5b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "3,4102,86400000200,-;NVRM: GPU 0000:5b:00.0: GPU has fallen off the bus.",
)


def healthy(directory: str) -> bool:
    return Path(directory).name == "h100-healthy"


def record(directory: str) -> None:
    """In the process that has the fake library: run the checks and keep everything."""
    from nhc.core.language import loader
    from nhc.core.render import json
    from nhc.core.state.store import State
    from nhc.lab.testing.fake_host import FakeHost
    from nhc.node.commands.record import judge
    from nhc.node.hosts.recording import RecordingHost, finish
    from nhc.node.run.engine import run
    from tests.support.nvml.fake import pci_tree

    fake = FakeHost(
        {
            **pci_tree(switches=4),
            "/proc/sys/kernel/random/boot_id": "0b8f3c52-7d4e-4a11-9a55-3f1d2c6b7e80\n",
            "/proc/meminfo": "MemTotal: 2113461248 kB\nMemFree: 2001234560 kB\nBuffers: 1024 kB\nCached: 40960 kB\n",
        },
    )
    fake.system.node = "gpu017"
    fake.system.uptime = 86500.0
    fake.system.kernel = list(KERNEL[:1] if healthy(directory) else KERNEL)
    fake.system.ask = lambda question, answer: answer()  # type: ignore[method-assign]
    host = RecordingHost(directory, fake.root, fake.system)
    plan = loader.load_text(CHECKS, "nhc.conf", "gpu017")
    with tempfile.TemporaryDirectory() as memory:
        run(plan, host, state=State(memory), check_all=True, name="gpu017")
    finish(directory, plan, host, "gpu017", (host.time(), host.monotonic()), raw=True)
    Path(directory, "report.json").write_text(json.render(judge(directory)))


def main() -> int:
    directory = sys.argv[1]
    if os.environ.get("NHC_FAKE_NVML"):
        record(directory)
        return 0
    from tests.support.nvml.fake import Nvml

    os.makedirs(directory)
    with tempfile.TemporaryDirectory() as scratch:
        nvml = Nvml(Path(scratch))
        environment = nvml.environment(nvml.scenario("h100", *() if healthy(directory) else ("3.lost",)))
        nvml.close()
        return subprocess.run([sys.executable, __file__, directory], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
