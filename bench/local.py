"""`nhc check local` against LBNL NHC on the same checks, as ratios in one run.

    python bench/local.py --lbnl /path/to/mej-nhc-1.4.3 [--nhc /path/to/nhc] [--rounds 15]

Both run as whole processes from their executables, in turn. The limits are those the project holds itself to:
wall time at most 0.35 of LBNL NHC's for 12 checks and 0.30 for 60, CPU at most 0.6; with 1,300 processes on
the node check_ps_daemon at most 0.3; the process tree's peak memory under 30 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import adopt_orphans, crowd, in_turn, median, tree_pss, verdict

# Twelve checks as LBNL NHC's own sample configuration has them.
TWELVE = """\
* || check_fs_mount_rw -f /
* || check_fs_mount_rw -t "tmpfs" -f /dev/shm
* || check_fs_free / 1%
* || check_fs_ifree / 1k
* || check_hw_cpuinfo {sockets} {cores} {threads}
* || check_hw_physmem 1k 16TB
* || check_hw_physmem_free 1k
* || check_hw_eth lo
* || check_file_contents /etc/passwd "/^root:x:0:0:/"
* || check_file_test -r -w -x -d /tmp
* || check_ps_loadavg 900 900 900
* || check_ps_daemon sleep
"""

MORE = """\
* || check_fs_mount -t proc -f /proc
* || check_fs_used / 99%
* || check_cmd_status -t 1 -r 1 false
* || check_fs_size / 1k 900TB
* || check_hw_mem 1k 32TB
* || check_hw_mem_free 1k
* || check_hw_swap_free 0
* || check_file_test -f -s /etc/passwd
* || check_file_stat -u 0 -g 0 /etc/passwd
* || check_file_contents /etc/group "/^root:/"
* || check_ps_blacklist no-such-daemon
* || check_fs_iused / 99%
"""


def machine() -> dict[str, str]:
    """What this machine's cpuinfo says, read by nhc itself, so that both tools are asked what is true."""
    from nhc.core.host import Host
    from nhc.node.facts.cpuinfo import topology

    counts = topology(Host())
    return {"sockets": str(counts.sockets), "cores": str(counts.cores), "threads": str(counts.threads)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lbnl", required=True, type=Path, help="source tree of LBNL NHC 1.4.3")
    parser.add_argument("--nhc", default=shutil.which("nhc") or str(Path(sys.executable).parent / "nhc"))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    lbnl = [
        "bash", str(options.lbnl / "nhc"), "-l", "-", f"INCDIR={options.lbnl / 'scripts'}",
        f"HELPERDIR={options.lbnl / 'helpers'}", "MARK_OFFLINE=0",
    ]  # fmt: skip
    adopt_orphans()
    lines = []
    with tempfile.TemporaryDirectory() as scratch, crowd(1):
        env = {"PATH": os.environ["PATH"], "HOME": "/", "NHC_STATE_DIR": f"{scratch}/state"}

        def race(name: str, text: str, wall: float, cpu: float) -> None:
            config = Path(scratch) / "nhc.conf"
            config.write_text(text)
            commands = {
                "nhc": [options.nhc, "check", "local", "-q", "-c", str(config)],
                "LBNL": [*lbnl[:2], "-c", str(config), *lbnl[2:]],
                "an empty Python": [python_of(options.nhc), "-c", "pass"],
            }
            lines.append(compare(name, in_turn(commands, env, options.rounds), wall, cpu))
            print(lines[-1], flush=True)

        twelve = TWELVE.format(**machine())
        sixty = (twelve + MORE) * 2 + twelve
        race("12 checks", twelve, 0.35, 0.6)
        race("60 checks", sixty, 0.30, 0.6)
        with crowd(max(0, 1300 - processes())):
            race("check_ps_daemon among 1,300 processes", "* || check_ps_daemon sleep\n", 0.3, 0.6)
        lines.append(memory(options.nhc, sixty, scratch, env))
        print(lines[-1])
    return 1 if any("MISSED" in line for line in lines) else 0


def python_of(script: str) -> str:
    """The interpreter that an installed executable names in its first line."""
    first = Path(script).read_bytes().split(b"\n", 1)[0].decode()
    return first[2:].split()[0] if first.startswith("#!") else sys.executable


def processes() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))


def compare(name: str, samples: dict, wall_limit: float, cpu_limit: float) -> str:
    told = [f"{who} {median(taken, 'wall') * 1e3:.1f} ms wall, {median(taken, 'cpu') * 1e3:.1f} ms CPU"
            for who, taken in samples.items()]  # fmt: skip
    wall = median(samples["nhc"], "wall") / median(samples["LBNL"], "wall")
    cpu = median(samples["nhc"], "cpu") / median(samples["LBNL"], "cpu")
    return "\n".join([f"{name}: {'; '.join(told)}", verdict(f"  {name}: wall", wall, wall_limit),
                      verdict(f"  {name}: CPU", cpu, cpu_limit)])  # fmt: skip


def memory(nhc: str, text: str, scratch: str, env: dict) -> str:
    """The process tree's memory while a run waits in its last check, every other one behind it."""
    config = Path(scratch) / "memory.conf"
    config.write_text(text + "* || sleep 0.5\n")
    peak = 0
    child = subprocess.Popen([nhc, "check", "local", "-q", "-c", str(config)], env=env, stdout=subprocess.DEVNULL)
    while child.poll() is None:
        peak = max(peak, tree_pss(child.pid))
        time.sleep(0.005)
    return verdict("  peak memory of the process tree, as a share of 30 MB", peak / 30e6, 1.0)


if __name__ == "__main__":
    sys.exit(main())
