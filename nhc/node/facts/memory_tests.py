"""memtester, stressapptest and our own test of memory bandwidth.

Sources: memtester(8) 4.6, stressapptest 1.0.6 and its README.

memtester overwrites its progress with backspaces; its status is a sum of 1 (could not run), 2 (stuck address) and 4
(another test). If it is given more memory than there is, it takes all.

Our own (nhc/core/data/triad.c) prints a line a kernel, then `validated` and `end`.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.node.facts.tool_output import figure, lines

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_GOT = regex(r"got\s+(\d+)MB \((\d+) bytes\), trying mlock \.\.\.(\w+)")
_STATS = regex(r"Completed: ([\d.]+)M in ([\d.]+)s ([\d.]+)MB/s, with (\d+) hardware incidents, (\d+) errors")


class Memtester(NamedTuple):
    """A run. `size` in bytes; `results` by test, True for ok, of all loops; `done` says that the last line is there."""

    size: int
    locked: bool
    loops: int
    results: Dict[str, bool]
    done: bool
    failures: Tuple[str, ...]


TESTS = 17
"""The tests of one loop of memtester 4.6 on 64 bits, the stuck address test and the narrow writes included."""


def parse_memtester(text: str) -> Memtester:
    """What memtester printed. Raises ValueError."""
    size, locked, loops, done = 0, False, 0, False
    results: Dict[str, bool] = {}
    failures: List[str] = []
    began = False
    for line in lines(text):
        began = began or line.startswith("memtester version")
        got = _GOT.search(line)
        name, colon, rest = line.partition(":")
        if got:
            size, locked = int(got[2]), got[3].startswith("locked")
        elif line.startswith("Loop "):
            loops += 1
        elif line.strip() == "Done.":
            done = True
        elif "FAILURE:" in line:
            failures.append(line[line.index("FAILURE:") :].strip()[:200])
            if loops and line.startswith("  ") and colon:
                results[name.strip()] = False
        elif loops and line.startswith("  ") and rest.split()[-1:] == ["ok"]:  # else it was cut off, and proves nothing
            results[name.strip()] = results.get(name.strip(), True)
    if not began:
        raise ValueError("not an output of memtester")
    return Memtester(size, locked, loops, results, done, tuple(failures))


class Stressapptest(NamedTuple):
    """A run. `moved` in bytes, `seconds`, `rate` in GB/s; `passed` None if there is no status line.

    `procedural` says that the program itself failed, not the memory.
    """

    moved: float
    seconds: float
    rate: float
    incidents: Optional[int]
    errors: Optional[int]
    passed: Optional[bool]
    procedural: bool
    failures: Tuple[str, ...]


def parse_stressapptest(text: str) -> Stressapptest:
    """What stressapptest printed. Raises ValueError."""
    moved = seconds = rate = 0.0
    incidents: Optional[int] = None
    errors: Optional[int] = None
    passed: Optional[bool] = None
    procedural = False
    failures: List[str] = []
    for line in lines(text):
        stats = _STATS.search(line)
        if stats:
            moved, seconds = figure(stats[1]) * 2**20, figure(stats[2])
            rate = figure(stats[3]) * 2**20 / 1e9
            incidents, errors = int(stats[4]), int(stats[5])
        elif line.startswith("Status: PASS"):
            passed = passed is not False
        elif line.startswith("Status: FAIL"):
            passed = False
            procedural = procedural or "procedural" in line
        elif line.startswith(("Report Error:", "Hardware Error:", "Process Error:")):
            failures.append(line.strip()[:300])
    if passed is None and incidents is None and "Stats: SAT" not in text:
        raise ValueError("not an output of stressapptest")
    return Stressapptest(moved, seconds, rate, incidents, errors, passed, procedural, tuple(failures))


class Triad(NamedTuple):
    """A run: bytes of one array, threads, best GB/s by kernel, whether the arrays hold what they must (None: not said),
    and whether it came to its end.
    """

    array: int
    threads: int
    rates: Dict[str, float]
    validated: Optional[bool]
    ended: bool


def parse_triad(text: str) -> Triad:
    """What it printed. Raises ValueError."""
    array = threads = 0
    rates: Dict[str, float] = {}
    validated: Optional[bool] = None
    ended = False
    for line in lines(text):
        fields = line.split()
        if fields[:1] == ["array"] and len(fields) == 5 and fields[2] == "bytes" and fields[4] == "threads":
            array, threads = int(fields[1]), int(fields[3])
        elif fields[:1] == ["rate"]:
            if len(fields) != 4 or fields[3] != "GB/s":
                raise ValueError(f"a rate that makes no sense: {line[:80]}")
            rates[fields[1]] = figure(fields[2])
        elif fields[:1] == ["validated"] and len(fields) == 2:
            validated = fields[1] == "yes"
        elif fields == ["end"]:
            ended = True
    if not array:
        raise ValueError("not an output of the triad")
    return Triad(array, threads, rates, validated, ended)
