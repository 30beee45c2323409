"""A node that a drill reaches over a real sshd: `nhc` as it is installed there, and its agent's reports."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Dict, Iterator

from tests.support.gpu_node import GpuNode
from tests.support.ssh import sshd

ROOT = Path(__file__).resolve().parents[2]
BOOT = Path("/proc/sys/kernel/random/boot_id")
SIZE = 8 << 20
"""Bytes of the file system that may be filled."""


class DrilledNode:
    """`lines` are the node's checks. Each report is made by `nhc check local`, in a process of its own."""

    def __init__(self, place: Path, name: str, config: Path, lines: str) -> None:
        self.place, self.name, self.ssh_config = place, name, config
        self.reports, self.disk, self.nhc = place / "reports", place / "scratch", place / "node-nhc"
        self.reports.mkdir()
        self.machine = GpuNode(place / "machine")  # what the repairer looks at: this very boot, and a systemd
        self.machine.write(str(BOOT), BOOT.read_text().strip())
        (place / "nhc.conf").write_text(lines)
        env = {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "NHC_LEDGER_DIR": f"{place}/ledger",
            "NHC_STATE_DIR": f"{place}/state", "NHC_MUTES": "/no/such/file",
        }  # fmt: skip
        words = " ".join(f"{key}='{value}'" for key, value in env.items())
        self.nhc.write_text(f"#!/bin/sh\n{words} exec '{sys.executable}' -m nhc \"$@\"\n")
        self.nhc.chmod(0o755)

    def settings(self, drill: str = "") -> str:
        """What remedy.toml says of it."""
        return f"""
[repairers.node]
config = "{self.ssh_config}"
sudo = "no"
root = "{self.machine.root}"
path = "{self.machine.path}"
[drill]
nhc = "{self.nhc}"
file-system = "{self.disk}"
fill-to = "95%"
recover = "20s"
{drill}
"""

    def report(self) -> None:
        """Judge the node, and leave the report where the loop reads it."""
        config = str(self.place / "nhc.conf")
        argv = [str(self.nhc), "check", "local", "-c", config, "-n", self.name, "-f", "json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=_environment())
        assert done.stdout.startswith("{"), done.stderr
        path = self.reports / f"{self.name}.json"
        path.with_suffix(".tmp").write_text(done.stdout)
        path.with_suffix(".tmp").replace(path)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """An agent that judges it again and again; the first report is there at once."""
        self.report()
        stop = threading.Event()

        def judge() -> None:
            while not stop.wait(0.2):
                self.report()

        thread = threading.Thread(target=judge)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)


def _environment() -> Dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


@contextlib.contextmanager
def drilled_node(place: Path, name: str, lines: str) -> Iterator[DrilledNode]:
    """A node with sshd, a file system of eight megabytes at `scratch`, and these checks (`{disk}` is where it is)."""
    disk = place / "scratch"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", disk], check=True)
    try:
        with sshd(place / "sshd") as server:
            server.trust(["127.0.0.1"])
            config = place / "node-ssh-config"
            config.write_text(f"Host {name}\n  HostName 127.0.0.1\n{server.config.read_text()}")
            node = DrilledNode(place, name, config, lines.format(disk=disk))
            with node.reporting():
                yield node
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
