"""Processors under load: stress-ng, which verifies what it computes."""

from __future__ import annotations

from nhc.core.check import check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Metric, Outcome, crit, ok, unknown
from nhc.core.units import seconds, show_kb
from nhc.node.checks import deep
from nhc.node.facts.meminfo import memory
from nhc.node.facts.tools import stress_ng

if TYPE_CHECKING:
    from typing import Dict, List

    from nhc.core.host import Completed
    from nhc.node.facts.tools.stress_ng import StressNg

BROKEN = 2
"""The status of stress-ng when a stressor failed, a verification among them."""
VM_KB = 256 << 10
"""kB of a memory stressor: stress-ng's own default. check_deep_memory tests all of the memory."""
HDD, HDD_BYTES = 64 << 20, 1 << 30
"""Bytes that a disk stressor needs at least, and what it writes where there is room: stress-ng's own default."""


def stressors(value: str) -> Dict[str, int]:
    """`cpu=32,vm=2,hdd=1`; 0 stands for one a processor."""
    counts: Dict[str, int] = {}
    for part in value.split(","):
        name, equals, count = part.strip().partition("=")
        if not equals or not count.isdigit() or not name.replace("-", "").isalnum():
            raise ValueError(f"{part!r} is not NAME=NUMBER, as in cpu=0,vm=2")
        counts[name] = int(count)
    return counts


@check(
    "check_deep_cpu",
    opt("-t --time", "duration", seconds, "how long to load the processors", 60.0),
    opt("-s --stressors", "wanted", stressors, "stressors of stress-ng, as cpu=0,vm=2,hdd=1 (0: one a processor)"),
    timeout=deep.OVERHEAD,
    tags=("cpu",),
)
def check_deep_cpu(host: Host, duration: float = 60.0, wanted: object = None) -> Outcome:
    """Every processor computes rightly under full load.

    Runs stress-ng with --verify. A stressor that fails its verification is CRIT. UNKNOWN unless every stressor reports
    operations and the run lasted as long as it was to: stress-ng calls a run successful that was ended early, and one
    whose disk was full. A memory stressor takes 256 MB, all of them three quarters of what is available at most. They
    are the first that the kernel ends where memory runs out.

    Example: * |context deep| check_deep_cpu -t 5m -s cpu=0,vm=2,hdd=1,fork=8,switch=4
    """
    chosen: Dict[str, int] = wanted if isinstance(wanted, dict) else {"cpu": 0}
    argv: List[str] = ["stress-ng"]
    for name, count in chosen.items():
        argv += [f"--{name}", str(count)]
    if "vm" in chosen:
        each = min(VM_KB, _room(host) // max(chosen["vm"], 1))
        argv += ["--vm-bytes", f"{deep.chosen(host, f'check_deep_cpu {chosen}', each)}k"]
    if deep.scratch(host):
        argv += ["--temp-path", deep.scratch(host)]
    if "hdd" in chosen and deep.scratch(host):
        room = _disk(host)
        if room < HDD:
            why = f"{show_kb(room // 1024)} free, a disk stressor needs {show_kb(HDD // 1024)}"
            return unknown("DeepNoRoom", f"{deep.scratch(host)}: {why}")
        each = min(HDD_BYTES, room // 2 // max(chosen["hdd"], 1))
        argv += ["--hdd-bytes", f"{deep.chosen(host, f'check_deep_cpu disk {chosen}', each // 1024)}k"]
    argv += ["--verify", "--metrics", "--oomable", "--timeout", f"{max(1, round(duration))}s"]
    done = deep.attempt(host, argv, duration + deep.START)
    if isinstance(done, Outcome):
        return done
    try:
        result = stress_ng.parse(done.output)
    except ValueError as error:
        if done.status in stress_ng.STATUS:
            return unknown("DeepToolFailed", f"stress-ng: {stress_ng.STATUS[done.status]}", evidence=deep.tail(done))
        return deep.unreadable("stress-ng", error, done)
    return judge(chosen, duration, done, result)


def _disk(host: Host) -> int:
    """Bytes that are free where the disk stressors write; enough for them where nobody can say."""
    try:
        return host.statvfs(deep.scratch(host)).available
    except OSError:
        return HDD_BYTES


def _room(host: Host) -> int:
    """KB for the memory stressors: three quarters of what is available."""
    return memory(host).usable * 3 // 4


def judge(wanted: Dict[str, int], duration: float, done: Completed, result: StressNg) -> Outcome:
    """What a run of stress-ng says of the processors."""
    if done.status == BROKEN or (result.failures and not done.status):
        fault = result.failures[0] if result.failures else "a stressor failed"
        return crit("DeepWrongResult", f"stress-ng: {fault}", evidence=deep.tail(done))
    if done.status:
        why = stress_ng.STATUS.get(done.status, f"status {done.status}")
        return unknown("DeepToolFailed", f"stress-ng did not run to its end: {why}", evidence=deep.tail(done))
    missing = [name for name in wanted if result.ops.get(name, (0, 0.0))[0] <= 0 or not result.hogs.get(name)]
    if missing:
        return deep.no_proof("stress-ng", f"{', '.join(missing)} did nothing", done)
    short = [name for name in wanted if result.ops[name][1] < duration * deep.ENOUGH]
    if short and result.completed is not None and result.completed >= duration * deep.ENOUGH:
        spent = ", ".join(f"{name} worked {result.ops[name][1]:g} s" for name in short)
        return deep.no_proof("stress-ng", f"{spent} of {duration:g} s", done)
    if result.completed is None or result.completed < duration * deep.ENOUGH:
        lasted = "its end is not told" if result.completed is None else f"it lasted {result.completed:g} s"
        return deep.no_proof("stress-ng", f"{lasted} of {duration:g} s", done)
    metrics = tuple(Metric(f"stress_{name}_ops", count / spent if spent else 0.0, "/s")
                    for name, (count, spent) in result.ops.items())  # fmt: skip
    hogs = ", ".join(f"{count} {name}" for name, count in result.hogs.items())
    return ok(f"{hogs} for {result.completed:g} s, all verified", metrics=metrics)
