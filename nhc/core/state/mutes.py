"""Checks that somebody has muted on this node until a date, and what that makes of their results.

A muted failure is WARN, and says who muted it, why and until when: it takes no node out, and nobody takes it for
healthy. The mute ends by itself at its date. The file is JSON, for people and configuration management alike:

    {"schema": 1, "mutes": [{"check": "check_gpu_ecc", "target": "gpu3", "until": 1798761600,
                             "why": "board on order", "by": "alice", "since": 1798000000}]}

`until` and `since` are Unix times, `check` may be a shell pattern, `target` is left out for all of a check's targets.
"""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, CheckResult, Outcome, Verdict, printable

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

    from nhc.core.host import Host

SCHEMA = 1


class Mute(NamedTuple):
    """One mute. Times are Unix times, in seconds."""

    check: str
    until: float
    why: str
    by: str = ""
    target: str = ""
    since: float = 0.0

    def covers(self, check: str, target: str) -> bool:
        """Whether it is about this result."""
        return fnmatchcase(check, self.check) and self.target in ("", target)

    def show(self) -> str:
        """`muted until 2026-12-01 00:00 by alice: board on order`."""
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.until))
        return printable(f"muted until {when}{f' by {self.by}' if self.by else ''}: {self.why}", 300)


class Mutes(NamedTuple):
    """The mutes in force, and notes for the report: one for each, or what keeps the file from being used."""

    mutes: Tuple[Mute, ...] = ()
    notes: Tuple[str, ...] = ()

    def judge(self, check: str, outcome: Outcome) -> Outcome:
        """The outcome as it counts: what is worse than WARN is WARN, and says that it is muted."""
        if outcome.verdict < Verdict.WARN:
            return outcome
        for mute in self.mutes:
            if mute.covers(check, outcome.target):
                message = f"{outcome.message or outcome.reason} ({mute.show()})"
                return outcome._replace(verdict=Verdict.WARN, message=message, action=Action.NONE)
        return outcome


def read(text: str, now: float) -> Mutes:
    """The mutes of a file's text that are in force. A file that cannot be used mutes nothing, and a note says so."""
    if not text.strip():
        return Mutes()
    try:
        kept = [mute for mute in parse(text) if mute.until > now]
    except ValueError as error:
        return Mutes((), (f"the file of muted checks cannot be used ({error}): nothing is muted",))
    return Mutes(tuple(kept), tuple(f"{named(mute)} is {mute.show()}" for mute in kept))


def named(mute: Mute) -> str:
    """The check, and its target where there is one."""
    return printable(f"{mute.check} {mute.target}".strip(), 120)


def parse(text: str) -> List[Mute]:
    """Every mute of a file, ended ones included. Raises ValueError saying what is wrong."""
    from nhc.core.system.bounded_read import parse_json

    value = parse_json(text)
    if not isinstance(value, dict) or value.get("schema") != SCHEMA or not isinstance(value.get("mutes"), list):
        raise ValueError(f"expected an object with schema {SCHEMA} and a list of mutes")
    return [_mute(entry, place) for place, entry in enumerate(value["mutes"], 1)]


def _mute(entry: object, place: int) -> Mute:
    if not isinstance(entry, dict):
        raise ValueError(f"mute {place}: expected an object")
    texts: Dict[str, str] = {}
    for key in ("check", "why", "by", "target"):
        text = entry.get(key, "")
        if not isinstance(text, str) or (key in ("check", "why") and not text):
            raise ValueError(f"mute {place}: {key}: expected text")
        texts[key] = text
    times = [entry.get("until"), entry.get("since", 0)]
    if not all(isinstance(when, (int, float)) and not isinstance(when, bool) and 0 <= when < 1e11 for when in times):
        raise ValueError(f"mute {place}: until and since: expected Unix times in seconds")
    return Mute(until=float(times[0] or 0), since=float(times[1] or 0), **texts)


def render(mutes: Sequence[Mute]) -> str:
    """The file's text."""
    import json

    return json.dumps({"schema": SCHEMA, "mutes": [mute._asdict() for mute in mutes]}, indent=2) + "\n"


def notes(host: Host, path: str) -> Tuple[str, ...]:
    """What a report made outside a run of the engine says of the mutes in force."""
    return read(host.read_or(path), host.time()).notes


def applied(host: Host, path: str, results: Sequence[CheckResult]) -> List[CheckResult]:
    """Results that came about outside a run of the engine, as they count."""
    muted = read(host.read_or(path), host.time())
    return [result._replace(outcome=muted.judge(result.check, result.outcome)) for result in results]
