"""A push as the server reads it: one pass of msgspec over what a current agent writes, directly into typed values.

If msgspec refuses a push, or a value needs a second check, `nhc.marks.push.parse` reads it, and says what is wrong with
it or accepts it: a field that this nhc does not know, a label that is a number, half a character, a number beyond 64
bits. msgspec refuses what `parse` refuses as well: NaN and 1e999, other types, arrays within arrays without end. If a
name comes twice, the last one counts, for both.
"""

from __future__ import annotations

import functools
from typing import Annotated, Dict, List, Tuple, Union

import msgspec

from nhc.core.model import SCHEMA, CheckResult, Metric, Outcome, Report, Verdict
from nhc.core.render.json import ACTIONS, VERDICTS, spoken_about
from nhc.marks import push
from nhc.marks.push import Push, Pushed

_Number = Annotated[float, msgspec.Meta(ge=-float(1 << 64), le=float(1 << 64))]
_Length = Annotated[float, msgspec.Meta(ge=0.0, le=float(1 << 64))]
_Time = Annotated[float, msgspec.Meta(ge=0.0, lt=1e12)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]


class _Exact(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Fields of a JSON object, which has no others."""


class _Metric(_Exact):
    name: str
    value: _Number
    unit: str


class _Result(_Exact):
    check: _Name
    verdict: str
    reason: str
    message: str
    target: str
    action: str
    metrics: List[_Metric]
    evidence: List[str]
    elapsed: _Length
    source: str
    line: str
    tags: List[str]
    strike: _Count
    strikes: _Count
    scope: str = ""
    device: Dict[str, str] = {}


class _Report(_Exact):
    schema: int
    version: str
    host: str
    boot_id: str
    started: _Number
    started_at: str
    elapsed: _Number
    verdict: str
    notes: List[str]
    not_run: _Count
    labels: Dict[str, str]
    results: List[_Result]


class _Entry(_Exact):
    """An entry of a push's list: a `report`, or what `unchanged` needs."""

    at: _Time
    complete: bool
    seq: _Count = 0
    suite: Union[str, msgspec.UnsetType] = msgspec.UNSET
    report: msgspec.Raw = msgspec.Raw(b"")
    unchanged: Union[str, msgspec.UnsetType] = msgspec.UNSET
    started: _Time = -1.0
    elapsed: _Time = -1.0
    results: List[_Result] = []


class _Push(_Exact):
    nhc: str
    schema: int
    node: str
    reports: List[_Entry]
    lost: _Count = 0
    boot: str = ""
    seq: _Count = 0


_PUSH = msgspec.json.Decoder(_Push)
_REPORT = msgspec.json.Decoder(_Report)


class _Unusual(ValueError):
    """Every field has its type, but `push.parse` has to check some value."""


def read(body: bytes) -> Push:
    """The push in a JSON document. Raises TooLarge; ValueError saying what is wrong with it."""
    push.bounded(body)
    try:
        return _push(_PUSH.decode(body))
    except (msgspec.MsgspecError, _Unusual, KeyError, RecursionError):
        return push.parse(body)


def _push(read: _Push) -> Push:
    if read.nhc != "push" or read.schema != push.SCHEMA or not read.node or not 0 < len(read.reports) <= push.MOST:
        raise _Unusual
    return Push(read.node, tuple([_pushed(entry, read) for entry in read.reports]), read.lost, read.boot, read.seq)


def _pushed(entry: _Entry, of: _Push) -> Pushed:
    text = bytes(entry.report)
    if not text:
        digest = entry.unchanged or ""
        usual = of.boot and entry.seq and entry.suite is msgspec.UNSET and push.is_digest(digest)
        if not usual or min(entry.started, entry.elapsed) < 0:
            raise _Unusual
        report = Report(of.node, of.boot, entry.started, entry.elapsed, _results(entry.results))
        return Pushed(report, entry.complete, entry.at, "", entry.seq, digest)
    suite = entry.suite or ""
    if entry.unchanged is not msgspec.UNSET or not push.is_suite(suite):
        raise _Unusual
    said = _REPORT.decode(text)
    if said.schema != SCHEMA:
        raise _Unusual
    results = tuple(map(_result, said.results)) if suite else _results(said.results)
    report = Report(
        said.host, said.boot_id, said.started, said.elapsed, results, tuple(said.notes), said.not_run, said.version,
        said.labels,
    )  # fmt: skip
    return Pushed(report, entry.complete, entry.at, suite, entry.seq, "", b"" if suite else text)


def _results(read: List[_Result]) -> Tuple[CheckResult, ...]:
    """Results; for those that are OK, which most are, only the check's name.

    The rest is in the report's text: the store keeps that, and needs no more. Full values for all of them would cost
    twice the reading, and as much again for the garbage collector's search for cycles.
    """
    return tuple([
        _ok(result.check) if result.verdict == "OK" and result.action == "none" else _result(result) for result in read
    ])  # fmt: skip


@functools.lru_cache(maxsize=5000)
def _ok(check: str) -> CheckResult:
    return CheckResult(check, Outcome(Verdict.OK))


def _result(read: _Result) -> CheckResult:
    """A result. Raises KeyError for an unknown verdict or action."""
    metrics = read.metrics
    outcome = Outcome(
        VERDICTS[read.verdict], read.reason, read.message, read.target,
        tuple([Metric(metric.name, metric.value, metric.unit) for metric in metrics]) if metrics else (),
        ACTIONS[read.action], tuple(read.evidence),
        *(spoken_about(read.scope, read.device) if read.scope else ()),
    )  # fmt: skip
    return CheckResult(
        read.check, outcome, read.elapsed, read.source, read.line, tuple(read.tags), read.strike, read.strikes
    )
