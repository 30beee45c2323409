"""Memory under load: stressapptest or memtester, with the counts of the memory controllers before and after."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.units import one_of, percent, seconds, show_kb, size_bytes
from nhc.node.checks import deep
from nhc.node.facts import hardware_errors, memory_tests
from nhc.node.facts.meminfo import memory

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

ENGINES = ("auto", "stressapptest", "memtester")
RESERVE = 1 << 20
"""kB that always stay free: memtester takes all that it is given, and the kernel then kills another program."""
FILL_GIB = 10.0
"""The most seconds that stressapptest needs to fill and to check a GiB, before and after its run time."""
PER_GIB = 240.0
"""Seconds that a loop of memtester takes for a GiB at most (minutes a GiB; one thread)."""


@check(
    "check_deep_memory",
    opt("-t --time", "duration", seconds, "how long stressapptest runs; memtester runs one loop", 60.0),
    opt("-m --share", "share", percent, "how much of the available memory to test", 75.0),
    opt("-s --size", "size", size_bytes, "how much to test, in place of a share"),
    opt("-e --engine", "tool", one_of(ENGINES), "stressapptest, memtester or auto", "auto"),
    timeout=deep.OVERHEAD + 3600,
    tags=("mem",),
)
def check_deep_memory(
    host: Host, duration: float = 60.0, share: float = 75.0, size: Optional[int] = None, tool: str = "auto"
) -> Judged:
    """Memory holds what is written to it.

    Runs stressapptest, or memtester where that is not installed, on a share of what is available; at least 1 GiB stays
    free. A difference that the test finds is CRIT, as is an uncorrected error that the memory controllers (EDAC) count
    meanwhile; a corrected one is WARN. UNKNOWN unless the tool says how much it tested and that it came to its end.

    Example: * |context deep| check_deep_memory -t 10m -m 90%
    """
    available = memory(host).usable - RESERVE
    wanted = size // 1024 if size else int((available + RESERVE) * share / 100)
    if min(wanted, available) < 1024:
        return unknown("DeepNoRoom", f"only {show_kb(max(available, 0))} of memory can be tested")
    mib = deep.chosen(host, f"check_deep_memory {size or share:g}", min(wanted, available) // 1024)
    chosen = tool if tool != "auto" else "stressapptest" if host.which("stressapptest") else "memtester"
    before = _counts(host)
    judged = _stressapptest(host, mib, duration) if chosen == "stressapptest" else _memtester(host, mib)
    return [judged, *_counted(before, _counts(host))]


def _stressapptest(host: Host, mib: int, duration: float) -> Outcome:
    length = max(2, round(duration))
    limit = min(3600.0, duration + deep.START + mib / 1024 * FILL_GIB)
    argv = ["stressapptest", "-s", str(length), "-M", str(mib)]
    ran = deep.measure(host, argv, limit, argv[0], lambda done: memory_tests.parse_stressapptest(done.output))
    if isinstance(ran, Outcome):
        return ran
    done, result = ran
    bad = (result.incidents or 0) + (result.errors or 0)
    if bad or (result.passed is False and not result.procedural and result.incidents is not None):
        fault = result.failures[0] if result.failures else f"{bad} errors"
        return crit("DeepMemoryErrors", f"stressapptest: {fault}", action=Action.REPLACE, evidence=deep.tail(done))
    if result.passed is not True or done.status:
        why = "it could not begin" if result.procedural else f"no result (status {done.status})"
        return unknown("DeepToolFailed", f"stressapptest: {why}", evidence=deep.tail(done))
    if result.incidents is None or result.moved <= 0 or result.seconds < length * deep.ENOUGH:
        return deep.no_proof("stressapptest", f"{result.seconds:g} of {length} s", done)
    metrics = (Metric("memory_tested", mib * 2.0**20, "B"), Metric("memory_copy", result.rate, "GB/s"))
    return ok(f"{show_kb(mib * 1024)} tested for {result.seconds:g} s", metrics=metrics)


def _memtester(host: Host, mib: int) -> Outcome:
    argv, limit = ["memtester", f"{mib}M", "1"], min(3600.0, deep.START + mib / 1024 * PER_GIB)
    ran = deep.measure(host, argv, limit, argv[0], lambda done: memory_tests.parse_memtester(done.output))
    if isinstance(ran, Outcome):
        return ran
    done, result = ran
    bad = [name for name, passed in result.results.items() if not passed]
    if bad or result.failures or (done.status < 8 and done.status & 6):
        fault = ", ".join(bad) or (result.failures or ("a test failed",))[0]
        return crit("DeepMemoryErrors", f"memtester: {fault}", action=Action.REPLACE, evidence=deep.tail(done))
    if done.status:
        return unknown("DeepToolFailed", f"memtester did not run (status {done.status})", evidence=deep.tail(done))
    if not result.done or len(result.results) < memory_tests.TESTS - 2 or result.size < mib * 2**20 * 0.9:
        why = f"{len(result.results)} tests of {show_kb(result.size / 1024)}"
        return deep.no_proof("memtester", f"{why}{'' if result.done else ', and it did not end'}", done)
    pinned = "" if result.locked else ", not locked in memory"
    metrics = (Metric("memory_tested", float(result.size), "B"),)
    return ok(f"{show_kb(result.size // 1024)} passed {len(result.results)} tests{pinned}", metrics=metrics)


def _counts(host: Host) -> Dict[str, Tuple[int, int]]:
    """Corrected and uncorrected errors by module, as far as they can be read."""
    try:
        modules = hardware_errors.modules(host)
    except (OSError, ValueError):
        return {}
    return {module.name: (module.corrected or 0, module.uncorrected or 0) for module in modules}


def _counted(before: Dict[str, Tuple[int, int]], after: Dict[str, Tuple[int, int]]) -> List[Outcome]:
    """What the memory controllers counted during the test."""
    outcomes = []
    for name, (corrected, uncorrected) in after.items():
        old = before.get(name, (0, 0))
        if uncorrected > old[1]:
            message = f"{name}: {uncorrected - old[1]} uncorrected errors during the test"
            outcomes.append(crit("DeepMemoryErrors", message, target=name, action=Action.REPLACE))
        elif corrected > old[0]:
            message = f"{name}: {corrected - old[0]} corrected errors during the test"
            outcomes.append(warn("DeepMemoryCorrected", message, target=name))
    return outcomes
