"""What the node itself shows of a fault, before a repair destroys it."""

from __future__ import annotations

import base64
import shutil
import tempfile
import time
import zlib
from typing import Dict, Iterator, Mapping, Tuple

from nhc.core.system.bounded_read import read_bytes
from nhc_adapters.node.hand.journal import DIRECTORY
from nhc_adapters.node.hand.look import LocalNode
from nhc_adapters.node.hand.values import NotPossible

COMMANDS: Dict[str, Tuple[str, ...]] = {
    "kernel.txt": ("journalctl", "-k", "-b", "--no-pager", "-o", "short-iso-precise", "-n", "20000"),
    "dmesg.txt": ("dmesg", "--time-format", "iso"),
    "nvidia-smi.txt": ("nvidia-smi", "-q"),
    "dcgm.txt": ("dcgmi", "health", "-g", "0", "-c"),
    "amd-smi.txt": ("amd-smi", "metric"),
}
BUG_REPORT = "nvidia-bug-report.log.gz"
NAMES: Dict[str, str] = {**dict.fromkeys(COMMANDS, "text/plain"), BUG_REPORT: "application/gzip"}
"""The pieces, the cheapest and most telling first, with their media types."""


LOG = 9 << 20
"""Bytes of all lines of `collect`: a kubelet keeps 10 MiB of a pod's log (containerLogMaxSize) in its newest file."""


def collect(node: LocalNode, size: int, seconds: float) -> Iterator[Mapping[str, object]]:
    """Every piece, as a line for a log: packed, for what a kubelet keeps of a log is little.

    `size` bytes and `seconds` are for all of them; a piece has half of what is left of the time. What cannot be had is
    a line as well, which says why.
    """
    until, room = time.monotonic() + seconds, LOG
    for name in NAMES:
        left = until - time.monotonic()
        if size <= 0 or left < 1:
            yield {"piece": name, "problem": "the budget of this collection was spent before"}
            continue
        try:
            content, cut = take(node, name, size, left / 2)
        except NotPossible as error:
            yield {"piece": name, "problem": str(error)[:300]}
            continue
        except OSError as error:
            yield {"piece": name, "problem": f"{error.filename or name}: {error.strerror or error}"[:300]}
            continue
        packed = base64.b64encode(zlib.compress(content)).decode()
        if len(packed) > room:
            yield {"piece": name, "problem": f"{len(packed)} bytes are more than is left of the log"}
            continue
        room -= len(packed)
        size -= len(content)
        yield {"piece": name, "content": packed, "cut": cut}


def take(node: LocalNode, name: str, size: int, seconds: float) -> Tuple[bytes, bool]:
    """One piece, at most `size` bytes of its end, and whether there was more. Raises NotPossible, OSError."""
    if name == BUG_REPORT:
        return _bug_report(node, size, seconds), False
    if name not in COMMANDS:
        raise NotPossible(f"{name[:80]!r} is no piece of evidence")
    done = node.run(*COMMANDS[name], timeout=seconds)
    content = (done.stdout or done.stderr).encode()
    if done.status and not done.stdout:
        raise NotPossible(
            f"{COMMANDS[name][0]}: {' '.join(done.stderr.split())[-200:] or f'exit status {done.status}'}"
        )
    return content[-size:] if size else b"", len(content) > size


def _bug_report(node: LocalNode, size: int, seconds: float) -> bytes:
    """Safe mode leaves out what can hang a driver that is in trouble already (nvidia-bug-report.sh --help)."""
    directory = tempfile.mkdtemp(prefix="evidence-", dir=node.make_directory(DIRECTORY))
    try:
        inside = directory[len(node.root) :]
        node.ask(
            "nvidia-bug-report.sh", "--safe-mode", "--output-file", f"{inside}/nvidia-bug-report.log", timeout=seconds
        )
        return read_bytes(f"{directory}/{BUG_REPORT}", size)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
