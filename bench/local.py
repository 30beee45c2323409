"""`nhc check local` against LBNL NHC on the same checks, as ratios in one run.

    python bench/local.py --lbnl /path/to/mej-nhc-1.4.3 [--nhc /path/to/nhc] [--rounds 15]

Both run as whole processes from their executables, in turn. The limits are those the project holds itself to:
wall time at most 0.35 of LBNL NHC's for 12 checks and 0.30 for 60, CPU at most 0.6; with 1,300 processes on
the node check_ps_daemon at most 0.3; the process tree's peak memory under 30 MB. `--nhc` may be given several times,
as NAME=PROGRAM: a virtual environment's, a package's, nhc.pyz, a version before. The first is held to the limits, and
its CPU time is shown by phases.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import adopt_orphans, crowd, in_turn, median, once, tree_pss, verdict

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
    parser.add_argument("--nhc", action="append", metavar="[NAME=]PROGRAM", help="the one on PATH unless given")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    given = options.nhc or [shutil.which("nhc") or str(Path(sys.executable).parent / "nhc")]
    programs = dict(one.split("=", 1) if "=" in one else ("nhc", one) for one in given)
    first = next(iter(programs.values()))
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
                **{name: [nhc, "check", "local", "-q", "-c", str(config)] for name, nhc in programs.items()},
                "LBNL": [*lbnl[:2], "-c", str(config), *lbnl[2:]],
                "an empty Python": [python_of(first), "-c", "pass"],
            }
            lines.append(compare(name, in_turn(commands, env, options.rounds), wall, cpu))
            print(lines[-1], flush=True)

        def race_and_phases(name: str, text: str, wall: float, cpu: float) -> None:
            race(name, text, wall, cpu)
            print(f"  {name}: {phases(first, Path(scratch) / 'nhc.conf', env, options.rounds)}", flush=True)

        twelve = TWELVE.format(**machine())
        sixty = (twelve + MORE) * 2 + twelve
        race_and_phases("12 checks", twelve, 0.35, 0.6)
        race_and_phases("60 checks", sixty, 0.30, 0.6)
        with crowd(max(0, 1300 - processes())):
            race("check_ps_daemon among 1,300 processes", "* || check_ps_daemon sleep\n", 0.3, 0.6)
        lines.append(memory(first, sixty, scratch, env))
        print(lines[-1])
    return 1 if any("MISSED" in line for line in lines) else 0


def python_of(script: str) -> str:
    """The interpreter that an installed executable names in its first line."""
    for path in (Path(script).with_name("nhc-prolog"), Path(script)):  # `nhc` itself begins as a shell script
        first = path.read_bytes().split(b"\n", 1)[0].decode(errors="replace") if path.exists() else ""
        if first.startswith("#!") and "python" in first:
            words = first[2:].split()
            return words[1] if words[0].endswith("/env") else words[0]
    return sys.executable


def processes() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))


def compare(name: str, samples: dict, wall_limit: float, cpu_limit: float) -> str:
    told = [f"{who} {median(taken, 'wall') * 1e3:.1f} ms wall, {median(taken, 'cpu') * 1e3:.1f} ms CPU"
            for who, taken in samples.items()]  # fmt: skip
    lines = [f"{name}: {'; '.join(told)}"]
    ours = [who for who in samples if who not in ("LBNL", "an empty Python")]
    for who in ours:
        of = {field: median(samples[who], field) / median(samples["LBNL"], field) for field in ("wall", "cpu")}
        if who == ours[0]:
            lines += [
                verdict(f"  {name}: wall", of["wall"], wall_limit),
                verdict(f"  {name}: CPU", of["cpu"], cpu_limit),
            ]
        else:
            lines.append(f"  {name}, {who}: wall {of['wall']:.3f}, CPU {of['cpu']:.3f} of LBNL NHC's")
    return "\n".join(lines)


def phases(nhc: str, config: Path, env: dict, rounds: int) -> str:
    """The CPU time of each phase in ms, medians. "exec" is the launcher and Python's own start."""
    python = python_of(nhc)
    site = subprocess.run([python, "-c", "import nhc; print(nhc.__path__[0])"], env=env, cwd="/", capture_output=True,
                          text=True, check=False).stdout.rpartition("/")[0]  # fmt: skip
    if not site:
        return "no phases: its Python does not find it (nhc.pyz)"
    taken: dict[str, list[float]] = {}
    with tempfile.NamedTemporaryFile("r") as file:
        argv = [
            python,
            "-S",
            str(Path(__file__).with_name("local_phases.py")),
            site,
            file.name,
            "check",
            "local",
            "-q",
            "-c",
            str(config),
        ]
        for _ in range(rounds + 1):
            begun = once(["/bin/sh", "-c", f"exec {python} -S -c pass"], env).cpu
            once(argv, env)
            seen = {"exec": begun}
            for line in file:
                name, _, took = line.rpartition(" ")
                seen[name] = seen.get(name, 0.0) + float(took)
            for name, took in seen.items():
                taken.setdefault(name, []).append(took)
    order = ("exec", "imports", "plan", "fork", "supervision", "checks' imports", "checks", "render")
    return (
        "CPU by phase: "
        + ", ".join(f"{name} {statistics.median(taken[name][1:]) * 1e3:.1f}" for name in order if taken.get(name))
        + " ms"
    )


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
