"""Faults that come back: how often, on which device or unit, by which programs (nhc/core/data/repeats.tsv).

An application's own fault counts against a device where different programs have it there and no other device does.
"""

from __future__ import annotations

from nhc.core.data.reader import table
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action
from nhc.node.kernlog.findings import change
from nhc.node.kernlog.match import DEGRADED, DRILL, FATAL, INFO, RANK, Match

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple

    from nhc.node.kernlog.state_types import LogState

HISTORIES = 512
RECOVERIES = ("Restarted", "GpuResetDone", "ResetDone", "Recovered")
"""Codes of recoveries that worked, of several kinds: each is good news, and the second within two weeks is not."""


class Repeat(NamedTuple):
    """A row of repeats.tsv, its columns as the table's head explains them. Times are seconds.

    Of `burst` and `every` one is None. `standing` is None if it makes no difference whether the finding stands.
    """

    kind: str
    code: str
    times: int
    window: float
    burst: Optional[float]
    every: Optional[float]
    standing: Optional[float]
    place: str
    others: str
    programs: int
    severity: str
    action: str
    span: str


_repeats: List[Repeat] = []
_NO_SILENCE = float("inf")


def _seconds(cell: str) -> Optional[float]:
    return float(cell) if cell else None


def repeats() -> List[Repeat]:
    if not _repeats:
        for kind, code, times, span, burst, every, standing, place, others, many, severity, action, _why in table(
            "repeats.tsv"
        ):
            window = float(span[:-1]) * {"m": 60, "h": 3600, "d": 86400}[span[-1]]
            unrepaired = _NO_SILENCE if standing == "repair" else _seconds(standing)
            rule = Repeat(
                kind, code, int(times), window, _seconds(burst), _seconds(every), unrepaired, place, others,
                int(many or 0), severity, action, span,
            )  # fmt: skip
            _repeats.append(rule)
    return _repeats


def counts(match: Match) -> bool:
    """Whether an occurrence counts by itself: more than information, or good news of which the second is bad."""
    return match.severity != INFO or match.kind in ("aer", "boot") or match.code in RECOVERIES


def repeated(state: LogState, match: Match, when: float, look: Callable[[int], str]) -> Optional[Tuple[Repeat, int]]:
    """The rule of repeats.tsv that this occurrence fulfils, and how often the error has come.

    `look` gives what a process belongs to, by its number ("" if nothing tells).
    """
    hit: Optional[Tuple[Repeat, int]] = None
    for rule in repeats():
        if rule.kind != match.kind:
            continue
        if rule.code != match.code and not (rule.code == "*fatal" and match.severity == FATAL):
            continue
        place = match.unit if rule.place == "unit" else ""
        if rule.place == "unit" and not place:
            continue
        device = _counted_as(match)
        if rule.programs:
            from nhc.node.kernlog import programs

            name = f"{rule.kind}/{rule.code}/{device}/{place}"
            programs.note(state, name, match.line, when, rule.window, rule.burst or 0.0, look)
            _acquit(state, match, when)
        times = _note(state, rule, match, device, place, when)
        if times < rule.times:
            continue
        if rule.others == "clean" and _elsewhere(state, rule, device, when, rule.times - 1):
            continue
        if hit is None or RANK[rule.severity] > RANK[hit[0].severity] or rule.code == "*fatal":
            hit = (rule, times)
    return hit


def escalated(state: LogState, match: Match, when: float, rule: Repeat, times: int) -> Match:
    """What the repeats of a fault make of it.

    An application's own counts against a device only where different programs have it there and no other device has it.
    """
    message = f"{match.message}: {times} times within {rule.span}"
    if not rule.programs:
        return match._replace(severity=rule.severity, action=Action(rule.action), message=message)
    from nhc.node.kernlog import programs

    device, place = _counted_as(match), match.unit if rule.place == "unit" else ""
    many = programs.independent(state, f"{rule.kind}/{rule.code}/{device}/{place}", rule.programs, bool(place))
    if many and not _elsewhere(state, rule, device, when, 1):
        message += f", by {many} different programs and on no other device"
        return match._replace(severity=rule.severity, action=Action(rule.action), message=message)
    message += "; run diagnostics: it can be the application as well as the device"
    return match._replace(severity=DEGRADED, action=Action.INSPECT, message=message)


def _counted_as(match: Match) -> str:
    return f"{match.device} (drill)" if DRILL in match.line else match.device


def _stands(state: LogState, rule: Repeat, match: Match) -> bool:
    """Whether the fault that a rule counts stands on this device, and nothing has shown a repair of it since."""
    return any(
        finding["device"] == match.device
        and finding["kind"] == rule.kind
        and (rule.code == finding["code"] or (rule.code == "*fatal" and finding["severity"] == FATAL))
        and not finding.get("before_boot")
        and finding.get("eased") != finding["count"]
        for finding in state.get("findings", {}).values()
    )


def _note(state: LogState, rule: Repeat, match: Match, device: str, place: str, when: float) -> int:
    """Remember an occurrence; how many separate ones the rule's window holds now."""
    histories = state.setdefault("history", {})
    name = f"{rule.kind}/{rule.code}/{device}/{place}"
    times = [at for at in histories.get(name, []) if when - rule.window <= at]
    if rule.burst is None:
        anew = not times or not rule.every or when - times[-1] > rule.every
    else:
        silence = rule.burst
        if rule.standing is not None and times and _stands(state, rule, match):
            silence = rule.standing
        anew = not times or when - times[-1] > silence
        if not anew:  # the silence that ends a burst is counted from its last line
            times[-1] = max(times[-1], when)
    if anew:
        times.append(when)
    histories[name] = times[-rule.times :]
    if len(histories) > HISTORIES:
        del histories[min(histories, key=lambda other: histories[other][-1])]
    return len(histories[name])


def _acquit(state: LogState, match: Match, when: float) -> None:
    """Another device has an application's fault as well: it is no evidence against nodes that had it before."""
    for finding in state.get("findings", {}).values():
        same = (finding["kind"], finding["code"]) == (match.kind, match.code)
        if same and finding["severity"] == FATAL and finding["device"] != match.device and DRILL not in match.line:
            change(finding, DEGRADED, Action.INSPECT, f"{finding['message']}; since then on {match.device} too")


def _elsewhere(state: LogState, rule: Repeat, device: str, when: float, often: int) -> bool:
    """Whether another device has the same error as often: then it is the application's."""
    prefix = f"{rule.kind}/{rule.code}/"
    return any(
        sum(when - rule.window <= at for at in times) >= often
        for name, times in state.get("history", {}).items()
        if name.startswith(prefix) and not name.startswith(f"{prefix}{device}/")
    )
