"""Processors under load: stress-ng, which verifies what it computes.

stress-ng with --metrics: all on stderr. Source: stress-ng(1) 0.15 to 0.18, and runs of 0.15.06.

Status 0 and "successful run completed" prove nothing: SIGTERM after a tenth of the time and a full disk give both. The
stressors' bogo operations and the run's own time are proof.
"""

from __future__ import annotations

from nhc.core.check import check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.core.model import Metric, Outcome, crit, ok, unknown
from nhc.core.units import seconds, show_kb
from nhc.node.checks import deep
from nhc.node.facts.meminfo import memory
from nhc.node.facts.tool_output import figure, lines

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from nhc.core.host import Completed

_LINE = regex(r"^stress-ng: (\w+):\s+\[\d+\]\s?(.*)$")
_PART = regex(r"([\d.]+) ?(secs?|mins?|hours?|days?|s|m|h|d)\b")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

STATUS = {
    1: "a bad option, or it could not begin", 2: "a stressor failed", 3: "a resource was missing",
    4: "a stressor is not there on this system", 5: "a stressor was killed by a signal",
    6: "a stressor ended otherwise than it should", 7: "its figures cannot be trusted (memory ran out)",
}  # fmt: skip
"""What an exit status of stress-ng other than 0 means (stress-ng(1), EXIT STATUS)."""


class StressNg(NamedTuple):
    """A run. `hogs` are the stressors that were started with their number, `ops` those that reported, with the bogo
    operations and the seconds of each; `completed` is the run's own time in seconds, None if it did not say so.
    """

    hogs: Dict[str, int]
    ops: Dict[str, Tuple[int, float]]
    completed: Optional[float]
    failures: Tuple[str, ...]


def parse_stress_ng(text: str) -> StressNg:
    """What stress-ng wrote. Raises ValueError if it is none of its output, or a row makes no sense."""
    hogs: Dict[str, int] = {}
    ops: Dict[str, Tuple[int, float]] = {}
    failures: List[str] = []
    completed: Optional[float] = None
    seen = False
    for line in lines(text):
        match = _LINE.match(line)
        if not match:
            continue
        seen = True
        kind, message = match[1], match[2]
        fields = message.split()
        if message.startswith("dispatching hogs:"):
            for part in message.partition(":")[2].split(","):
                count, _, name = part.strip().partition(" ")
                if not count.isdigit() or not name:
                    raise ValueError(f"hogs that make no sense: {message[:80]}")
                hogs[name] = hogs.get(name, 0) + int(count)
        elif kind in ("metrc", "info") and len(fields) >= 7 and fields[1].isdigit() and "." in fields[2]:
            ops[fields[0]] = (int(fields[1]), figure(fields[2]))
        elif "run completed in" in message:
            completed = _seconds(message)
            if message.startswith("unsuccessful"):
                failures.append(message)
        elif kind in ("fail", "error"):
            failures.append(message[:300])
    if not seen:
        raise ValueError("not an output of stress-ng")
    return StressNg(hogs, ops, completed, tuple(failures))


def _seconds(message: str) -> float:
    """The time of `successful run completed in 1 min, 2.05 secs` or `... in 2.00s`."""
    parts = _PART.findall(message.partition("completed in ")[2])
    if not parts:
        raise ValueError(f"a time that makes no sense: {message[:80]}")
    return sum(figure(amount) * _SECONDS[unit[0]] for amount, unit in parts)


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
        result = parse_stress_ng(done.output)
    except ValueError as error:
        if done.status in STATUS:
            return unknown("DeepToolFailed", f"stress-ng: {STATUS[done.status]}", evidence=deep.tail(done))
        return deep.unreadable("stress-ng", error, done)
    return judge(chosen, duration, done, result)


def _disk(host: Host) -> int:
    """Bytes that are free where the disk stressors write; enough for them if that is not known."""
    try:
        return host.statvfs(deep.scratch(host)).available
    except OSError:
        return HDD_BYTES


def _room(host: Host) -> int:
    """KB for the memory stressors: three quarters of what is available."""
    return memory(host).usable * 3 // 4


def judge(wanted: Dict[str, int], duration: float, done: Completed, result: StressNg) -> Outcome:
    """Judge the processors by a run of stress-ng."""
    if done.status == BROKEN or (result.failures and not done.status):
        fault = result.failures[0] if result.failures else "a stressor failed"
        return crit("DeepWrongResult", f"stress-ng: {fault}", evidence=deep.tail(done))
    if done.status:
        why = STATUS.get(done.status, f"status {done.status}")
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
