"""A report as JSON and back: the form that travels over SSH, into files and to the agent's readers.

The schema is docs/report.schema.json. Reading is strict about types and lenient about fields it does not
know, so that a newer node can report to an older collector.
"""

from __future__ import annotations

import io
import json
from operator import itemgetter

from nhc.core.json_values import texts_of
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import SCHEMA, Action, CheckResult, DeviceId, Metric, Outcome, Report, Scope, Verdict, printable
from nhc.core.system.bounded_read import parse_json
from nhc.core.timestamps import utc_milliseconds

if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Tuple, TypedDict

    class SpokenOf(TypedDict, total=False):
        """What an outcome speaks of, as JSON's own types."""

        scope: str
        device: Dict[str, str]


def render(report: Report, indent: int = 2) -> str:
    """The report as one JSON document, ending in a newline; `indent` 0 puts it on one line."""
    if not indent:
        return json.dumps(to_dict(report), ensure_ascii=False, separators=(",", ":")) + "\n"
    text = io.StringIO()
    _write(to_dict(report), text, "\n", " " * indent)
    text.write("\n")
    return text.getvalue()


def _write(value: object, out: io.StringIO, line: str, step: str) -> None:
    """Write a value as json.dump does with an indent.

    That one gathers the pieces in a list, three times the memory, and leaves functions that refer to each other: a
    cycle for each report, which an agent that is asked for its report would collect.
    """
    if not value or not isinstance(value, (dict, list)):
        out.write(_scalar(value))
        return
    inner, between = line + step, ""
    out.write("{" if isinstance(value, dict) else "[")
    for item in value:
        out.write(between + inner)
        between = ","
        if isinstance(value, dict):
            out.write(f"{_scalar(item)}: ")
            _write(value[item], out, inner, step)
        else:
            _write(item, out, inner, step)
    out.write(line + ("}" if isinstance(value, dict) else "]"))


_scalar = json.JSONEncoder(ensure_ascii=False).encode


def to_dict(report: Report) -> Dict[str, Any]:
    """The report as JSON's own types."""
    return {
        "schema": SCHEMA,
        "version": printable(report.version),
        "host": printable(report.host),
        "boot_id": printable(report.boot_id),
        "started": report.started,
        "started_at": utc_milliseconds(report.started),
        "elapsed": round(report.elapsed, 6),
        "verdict": report.verdict.name,
        "notes": [printable(note) for note in report.notes],
        "not_run": report.not_run,
        "labels": {printable(name): printable(value) for name, value in report.labels.items()},
        "results": [to_result(result) for result in report.results],
    }


def to_result(result: CheckResult) -> Dict[str, Any]:
    """One result as JSON's own types. A fault of the node has no scope and no device."""
    outcome = result.outcome
    return {
        "check": printable(result.check),
        "verdict": outcome.verdict.name,
        "reason": printable(outcome.reason),
        "message": printable(outcome.message),
        "target": printable(outcome.target),
        "action": outcome.action.value,
        "metrics": [_metric(metric) for metric in outcome.metrics],
        "evidence": [printable(line) for line in outcome.evidence],
        "elapsed": round(result.elapsed, 6),
        "source": printable(result.source),
        "line": printable(result.line),
        "tags": [printable(tag) for tag in result.tags],
        "strike": result.strike,
        "strikes": result.strikes,
        **spoken_of(outcome),
    }


def spoken_of(outcome: Outcome) -> SpokenOf:
    """What the outcome speaks of, as fields of a report and of an event; none for what speaks of the node."""
    if outcome.scope is Scope.NODE:
        return {}
    if not outcome.device.known:
        return {"scope": outcome.scope.value}
    return {"scope": outcome.scope.value, "device": names_of(outcome.device)}


def names_of(device: DeviceId) -> Dict[str, str]:
    """The names that are known of a device."""
    return {key: printable(name, 200) for key, name in device._asdict().items() if name}


def _metric(metric: Metric) -> Dict[str, Any]:
    return {"name": printable(metric.name), "value": metric.value, "unit": printable(metric.unit)}


def parse(text: str) -> Report:
    """The report in a JSON document. Raises ValueError saying what is wrong with it."""
    return from_dict(loads(text))


def loads(text: str) -> Any:
    r"""The JSON value, with a question mark for each half of a character: JSON can say one (`"\ud800"`), and nothing
    that stores or sends text takes it. Raises ValueError.
    """
    value = parse_json(text)
    if "\\ud" not in text and "\\uD" not in text:
        return value
    try:
        whole = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return parse_json(whole.encode("utf-8", "replace"))


def from_dict(value: object) -> Report:
    """The report that `to_dict` made plain. Raises ValueError naming the field that does not fit."""
    if not isinstance(value, dict):
        raise ValueError("not a report: not a JSON object")
    if _get(value, "schema", int) != SCHEMA:
        raise ValueError(f"a report of schema {value['schema']}: this nhc reads schema {SCHEMA}")
    return Report(
        host=_get(value, "host", str),
        boot_id=_get(value, "boot_id", str, ""),
        started=float(_get(value, "started", (int, float))),
        elapsed=float(_get(value, "elapsed", (int, float))),
        results=tuple(from_result(result) for result in _get(value, "results", list)),
        notes=tuple(texts_of(_get(value, "notes", list, []))),
        not_run=_get(value, "not_run", int, 0),
        version=_get(value, "version", str, ""),
        labels={k: str(v) for k, v in _get(value, "labels", dict, {}).items() if isinstance(v, (str, int, float))},
    )


_ALL = itemgetter(
    "verdict", "action", "check", "reason", "message", "target", "source", "line",
    "metrics", "evidence", "tags", "elapsed", "strike", "strikes",
)  # fmt: skip
VERDICTS = {verdict.name: verdict for verdict in Verdict}
ACTIONS = {action.value: action for action in Action}
_SCOPES = {scope.value: scope for scope in Scope}


def from_result(value: Any) -> CheckResult:
    """The result that `to_result` made plain. Raises ValueError."""
    try:
        (
            verdict_name,
            todo,
            check,
            reason,
            message,
            target,
            source,
            line,
            metrics,
            evidence,
            tags,
            elapsed,
            strike,
            strikes,
        ) = _ALL(value)
        verdict, action = VERDICTS[verdict_name], ACTIONS[todo]
    except (KeyError, TypeError):
        return read_by_field(value)
    # As `to_result` writes it, every field of its own type: one look at each. All else is gone through field by field.
    if (
        type(check) is type(reason) is type(message) is type(target) is type(source) is type(line) is str
        and type(metrics) is type(evidence) is type(tags) is list
        and type(elapsed) is float
        and type(strike) is type(strikes) is int
        and 0.0 <= elapsed < _ENDLESS
        and 0 <= strike <= strikes <= _LARGEST
    ):
        return CheckResult(
            check,
            Outcome(
                verdict,
                reason,
                message,
                target,
                tuple([_read_metric(metric) for metric in metrics]) if metrics else (),
                action,
                tuple(texts_of(evidence)) if evidence else (),
                *(_read_about(value) if "scope" in value else ()),
            ),
            elapsed,
            source,
            line,
            tuple(texts_of(tags)) if tags else (),
            strike,
            strikes,
        )
    return read_by_field(value)


def read_by_field(value: object) -> CheckResult:
    """A result that lacks fields, which are then their defaults, or has others than `to_result` writes."""
    if not isinstance(value, dict):
        raise ValueError("not a report: a result is not a JSON object")
    try:
        verdict = Verdict[_get(value, "verdict", str)]
        action = Action(_get(value, "action", str, "none"))
    except (KeyError, ValueError) as error:
        raise ValueError(f"not a report: {error} is no verdict or action") from None
    outcome = Outcome(
        verdict,
        _get(value, "reason", str, ""),
        _get(value, "message", str, ""),
        _get(value, "target", str, ""),
        tuple(_read_metric(metric) for metric in _get(value, "metrics", list, [])),
        action,
        tuple(texts_of(_get(value, "evidence", list, []))),
        *_read_about(value),
    )
    return CheckResult(
        _get(value, "check", str),
        outcome,
        float(_get(value, "elapsed", (int, float), 0.0)),
        _get(value, "source", str, ""),
        _get(value, "line", str, ""),
        tuple(texts_of(_get(value, "tags", list, []))),
        _get(value, "strike", int, 0),
        _get(value, "strikes", int, 0),
    )


def _read_about(value: Mapping[str, Any]) -> Tuple[Scope, DeviceId]:
    """What a result speaks of. A scope that this nhc does not know, or a device without a name, is the node's."""
    names = _get(value, "device", dict, {})
    return spoken_about(_get(value, "scope", str, ""), {name: _get(names, name, str, "") for name in DeviceId._fields})


def spoken_about(scope_name: str, names: Mapping[str, str]) -> Tuple[Scope, DeviceId]:
    """The scope of this name, and the device of these names."""
    device = DeviceId(*(names.get(name, "") for name in DeviceId._fields))
    scope = _SCOPES.get(scope_name, Scope.NODE)
    return (Scope.NODE if scope is Scope.DEVICE and not device.known else scope), device


def _read_metric(value: object) -> Metric:
    if not isinstance(value, dict):
        raise ValueError("not a report: a metric is not a JSON object")
    name, number, unit = value.get("name"), value.get("value"), value.get("unit")
    if type(name) is type(unit) is str and type(number) is float and -_ENDLESS < number < _ENDLESS:
        return Metric(name, number, unit)
    return Metric(_get(value, "name", str), float(_get(value, "value", (int, float))), _get(value, "unit", str, ""))


_REQUIRED = object()
_ENDLESS = float("inf")
_LARGEST = 1 << 64


def _get(value: Mapping[str, Any], name: str, kind: Any, default: Any = _REQUIRED) -> Any:
    field = value.get(name, default)
    if field is _REQUIRED:
        raise ValueError(f"not a report: {name} is missing")
    if type(field) is kind and kind is not int:  # a text, a list, an object: nearly all there is
        return field
    if not isinstance(field, kind) or isinstance(field, bool):
        raise ValueError(f"not a report: {name} is {type(field).__name__}")
    if isinstance(field, float) and not abs(field) < _ENDLESS:
        raise ValueError(f"not a report: {name} is {field}")
    if isinstance(field, int) and abs(field) > _LARGEST:
        raise ValueError(f"not a report: {name} is beyond all measure")  # float() would overflow on it
    return field
