"""How much kernel and device counters grew over a window of time, from run to run.

A total says little: a hundred corrected errors are nothing in a year, but in an hour they mean a failing DIMM. The
samples of earlier runs of this boot are kept in the host's memory, about twelve for each window regardless of how often
the check runs, so that two runs a second apart judge the same hour.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Sequence, Tuple

    from typing_extensions import TypeAlias

_SAMPLES = 12  # a window's resolution: what happened longer ago than 13/12 of it no longer counts

Sample: TypeAlias = "Tuple[float, Dict[str, float]]"


class Growth(NamedTuple):
    """What was added to a counter. `seconds` is the time that it took, never more than the window asked for.

    Growth over a longer time (the agent slept, this is the first run since boot) counts in proportion.
    """

    amount: float
    seconds: float


def growth(
    host: Host, name: str, counters: Mapping[str, float], window: float, since_boot: bool = True
) -> Dict[str, Growth]:
    """The growth of each counter over the last `window` seconds, remembered under `name`.

    `since_boot` says that the counters were 0 when the machine started, so that even the first run has
    something to compare with. Without it a counter seen for the first time is left out of the answer.
    """
    now, boot = host.monotonic(), host.boot_id()
    answer: Dict[str, Growth] = {}

    def change(stored: Dict[str, Any]) -> None:
        answer.clear()
        samples = _valid(stored, now) if stored.get("boot") == boot else []
        answer.update(_judge(samples, counters, now, window, since_boot))
        stored.clear()
        stored["boot"] = boot
        stored["samples"] = [[at, values] for at, values in _keep(samples, counters, now, window)]

    host.memory.update(name, change)
    return answer


def first_seen(host: Host, name: str, things: Mapping[str, float]) -> Dict[str, float]:
    """When each thing was first seen, remembered under `name` across restarts; things that are gone are forgotten.

    `things` has the time to use if none is remembered yet: the thing's own.
    """
    now = host.time()

    def change(stored: Dict[str, Any]) -> None:
        known = stored.get("seen")
        stored.clear()
        stored["seen"] = {
            thing: min(came, now) if not isinstance(known, dict) else _moment(known.get(thing), now)
            for thing, came in things.items()
        }

    return dict(host.memory.update(name, change)["seen"])


def _moment(stored: object, now: float) -> float:
    """A remembered time; now if that is no time, or lies in the future."""
    return float(stored) if isinstance(stored, (int, float)) and stored <= now else now


def unchanged_since(host: Host, name: str, values: Mapping[str, int]) -> Dict[str, float]:
    """Since when each value is unchanged, by the earlier runs of this boot, on the monotonic clock."""
    now, boot = host.monotonic(), host.boot_id()
    since: Dict[str, float] = {}

    def change(stored: Dict[str, Any]) -> None:
        known = stored.get("values") if stored.get("boot") == boot else None
        for key, value in values.items():
            held = known.get(key) if isinstance(known, dict) else None
            since[key] = now
            if isinstance(held, list) and len(held) == 2 and held[1] == value:
                since[key] = _moment(held[0], now)
        stored.clear()
        stored.update(boot=boot, values={key: [since[key], value] for key, value in values.items()})

    host.memory.update(name, change)
    return since


def amount(grown: Mapping[str, Growth], key: str) -> float:
    """The growth of one counter, 0 if nothing is known of it."""
    return round(grown[key].amount, 3) if key in grown else 0.0


def _judge(
    samples: List[Sample], counters: Mapping[str, float], now: float, window: float, since_boot: bool
) -> Dict[str, Growth]:
    judged: Dict[str, Growth] = {}
    for key, value in counters.items():
        series = [(at, values[key]) for at, values in samples if key in values] + [(now, value)]
        guesses = [_since(series, now, window)] if len(series) > 1 else []
        if since_boot and now - series[0][0] < window:
            # Until the samples cover the window, what was counted before the first sample is included as its average
            # over the time since boot: the second run must not forget what the first one saw.
            guesses.append(_since([(0.0, 0.0), *series], now, window))
        if guesses:
            judged[key] = max(guesses)
    return judged


def _since(series: Sequence[Tuple[float, float]], now: float, window: float) -> Growth:
    """The growth within the window; of an interval that began before it, the share that lies in it."""
    begin = now - window
    total = 0.0
    for (at, value), (later, more) in zip(series, series[1:]):
        # A counter that went down was reset (driver reload): it has grown by at least its value.
        added = more - value if more >= value else more
        if later > begin:
            total += added * min(1.0, (later - begin) / (later - at)) if later > at else added
    return Growth(total, min(now - series[0][0], window))


def _keep(samples: List[Sample], counters: Mapping[str, float], now: float, window: float) -> List[Sample]:
    """The samples that a later run can need: this one if the last is old enough, none older than the window's base."""
    kept = list(samples)
    if not kept or now - kept[-1][0] >= window / _SAMPLES or set(counters) - set(kept[-1][1]):
        kept.append((now, dict(counters)))
    base = max((i for i, (at, _) in enumerate(kept) if now - at >= window), default=0)
    return kept[max(base, len(kept) - 4 * _SAMPLES) :]


def _valid(stored: Mapping[str, object], now: float) -> List[Sample]:
    """The stored samples, those of another form or from the future left out: state is never trusted."""
    valid: List[Sample] = []
    samples = stored.get("samples")
    for sample in samples if isinstance(samples, list) else []:
        if not isinstance(sample, (list, tuple)) or len(sample) != 2:
            continue
        at, values = sample
        if not isinstance(at, (int, float)) or not isinstance(values, dict) or at > now:
            continue
        valid.append((at, {str(k): v for k, v in values.items() if isinstance(v, (int, float))}))
    return sorted(valid, key=lambda each: each[0])
