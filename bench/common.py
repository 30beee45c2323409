"""What the benchmarks share: timing whole processes, in turn, and printing ratios."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence


class Sample(NamedTuple):
    """One whole process with all it started, waited for or left behind: wall and CPU seconds."""

    wall: float
    cpu: float


def adopt_orphans() -> None:
    """Make this process the parent of processes that its children leave behind, so that their CPU time counts too."""
    import ctypes

    pr_set_child_subreaper = 36  # prctl(2)
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


@contextlib.contextmanager
def crowd(count: int) -> Iterator[None]:
    """`count` sleeping processes, children of one that ends and reaps them when its input closes."""
    script = (
        "import subprocess, sys\n"
        f"children = [subprocess.Popen(['sleep', '3600'], stdout=subprocess.DEVNULL) for _ in range({count})]\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
        "for child in children: child.kill()\n"
        "for child in children: child.wait()\n"
    )
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout
        keeper.stdout.readline()
        yield


def reap_orphans(patience: float = 0.02) -> None:
    """Count what was left behind and has ended or is about to. LBNL NHC leaves a `sleep` for half a minute."""
    until = time.monotonic() + patience
    try:
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.001)
    except ChildProcessError:
        return


def once(argv: Sequence[str], env: Mapping[str, str], expect: Optional[int] = 0) -> Sample:
    """Run a command in a session of its own and measure it. Raises RuntimeError where it ends otherwise."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    done = subprocess.run(
        argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - begin
    reap_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if expect is not None and done.returncode != expect:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Sample(wall, cpu)


def in_turn(commands: Mapping[str, Sequence[str]], env: Mapping[str, str], rounds: int) -> Dict[str, List[Sample]]:
    """A B C A B C ..., after one uncounted round, so that a machine whose speed drifts treats all alike."""
    samples: Dict[str, List[Sample]] = {name: [] for name in commands}
    for round_number in range(rounds + 1):
        for name, argv in commands.items():
            sample = once(argv, env)
            if round_number:
                samples[name].append(sample)
    return samples


def median(samples: Sequence[Sample], field: str) -> float:
    return statistics.median(getattr(sample, field) for sample in samples)


def tree_pss(pid: int) -> int:
    """The proportional set size, in bytes, of a process and its descendants now."""
    children: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        todo += children.get(one, [])
        try:
            with open(f"/proc/{one}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024
        except OSError:
            continue
    return total


def verdict(name: str, measured: float, limit: float) -> str:
    """One line of a result against its limit."""
    return f"{name:58} {measured:8.3f}  limit {limit:6.3f}  {'ok' if measured <= limit else 'MISSED'}"
