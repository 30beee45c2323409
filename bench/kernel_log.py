"""How fast the kernel log is judged, against the plain way: every pattern searched on every line.

    python bench/kernel_log.py [--lines 100000] [--rounds 3]

Times are CPU seconds of this process, on one core. The limits are those the project holds itself to: 100,000
lines in under 2 s, whatever they are; loading the catalogue in under 3 ms; and a quiet run (nothing new) that
compiles no pattern. `grep -E` over the same literals is printed for comparison where there is one.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Callable, List

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from nhc.node.commands.log import LineFolder
from nhc.node.kernlog.catalogue import Matcher, rows

QUIET = (
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "docker0: port 1(veth1234567) entered blocking state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    'audit: type=1400 audit(1700000000.123:45): apparmor="STATUS" operation="profile_load" name="x"',
    "pci 0000:00:1f.3: reg 0x10: [mem 0xf7e00000-0xf7e03fff 64bit]",
    "loop0: detected capacity change from 0 to 12345",
    "systemd[1]: Started Session 42 of user root.",
    "perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
)
LOUD = "NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, pid={pid}, name=python, Ch 00000008"


def log(lines: int, loud: float) -> str:
    """A syslog file of which `loud` is the share of Xid lines, no two alike."""
    chance = random.Random(1)
    out = []
    for index in range(lines):
        if chance.random() < loud:
            text = LOUD.format(bus=chance.randrange(8), code=chance.choice((13, 31, 43, 94)), pid=index)
        else:
            text = chance.choice(QUIET)
        stamp = f"Nov 21 {index // 3600 % 24:02d}:{index // 60 % 60:02d}:{index % 60:02d}"
        out.append(f"{stamp} node001 kernel: [{index / 10:12.6f}] {text}\n")
    return "".join(out)


def best(rounds: int, work: Callable[[], object]) -> float:
    """The least CPU time of several runs."""
    times = []
    for _round in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def ours(text: str) -> int:
    folder = LineFolder(Matcher())
    folder.feed(text)
    return sum(entry.times for entry in folder.entries())


def plain(lines: List[str]) -> int:
    patterns = [re.compile(row.pattern) for row in rows()]
    return sum(any(pattern.search(line) for pattern in patterns) for line in lines)


def grep(text: str) -> float:
    """Seconds that grep takes to select the lines that hold any of the catalogue's strings; 0 without grep."""
    if not shutil.which("grep"):
        return 0.0
    words = sorted({word for row in rows() for word in row.texts})
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        begin = time.perf_counter()
        pattern = "|".join(re.sub(r"([][\\.*^$+?(){}|])", r"\\\1", word) for word in words)
        subprocess.run(["grep", "-cE", pattern, file.name], stdout=subprocess.DEVNULL, check=False,
                       env={**os.environ, "LC_ALL": "C"})  # fmt: skip
        return time.perf_counter() - begin


def load_time() -> float:
    """CPU milliseconds that a line of the log adds to `nhc check local`, best of 7, with bytecode.

    The modules that judge are imported, the table is read and searched, and one line is judged.
    """
    script = (
        "import time, nhc.node.checks.kmsg\n"
        "begin = time.process_time_ns()\n"
        "from nhc.node.kernlog.collect import take_in\n"
        "take_in({}, [('nvme nvme0: I/O 1 QID 2 timeout, aborting', 1.0)], 1.0)\n"
        "print((time.process_time_ns() - begin) / 1e6)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as cache:
        env = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": root, "PYTHONPYCACHEPREFIX": cache}
        times = [
            float(subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True).stdout)
            for _round in range(8)
        ]
    return min(times[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    failed = False
    for name, share in (("quiet", 0.0), ("one line in a hundred", 0.01), ("every line", 1.0)):
        text = log(given.lines, share)
        seconds = best(given.rounds, lambda text=text: ours(text))
        limit = 2.0 * given.lines / 100_000
        failed |= seconds > limit
        beside = ""
        if share < 1:
            # A loud log is no comparison: there the first pattern fits, and the plain way judges nothing further.
            sample = text.splitlines()[: given.lines // 20]
            slow = best(1, lambda sample=sample: plain(sample)) * 20
            beside = f"; every pattern on every line {slow:.2f} s, ratio {seconds / slow:.3f}"
        greps = grep(text)
        beside += f"; grep -E, which only selects, {greps:.2f} s" if greps else ""
        print(f"{given.lines} lines, faults on {name}: {seconds:.2f} s (limit {limit:g}){beside}")
    load = load_time()
    failed |= load > 3.0
    print(f"catalogue loaded in {load:.2f} ms (limit 3)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
