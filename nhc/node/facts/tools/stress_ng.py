"""stress-ng with --metrics: all on stderr. Source: stress-ng(1) 0.15 to 0.18, and runs of 0.15.06.

Status 0 and "successful run completed" prove nothing: SIGTERM after a tenth of the time and a full disk give both. The
stressors' bogo operations and the run's own time do.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.node.facts.tools.output import figure, lines

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

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
    operations and the seconds of each; `completed` is the run's own time in seconds, None where it did not say so.
    """

    hogs: Dict[str, int]
    ops: Dict[str, Tuple[int, float]]
    completed: Optional[float]
    failures: Tuple[str, ...]


def parse(text: str) -> StressNg:
    """What stress-ng wrote. Raises ValueError where it is none of its output, or a row makes no sense."""
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
